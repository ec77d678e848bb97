"""One simulated disk: its page cache, its durable state and its failures.

A directory holds its current and its durable entries; the disk holds the ordered list of unsynced
directory changes. `file_content` has the contents of files. A power loss (`lose_power`) keeps the
durable state and some unsynced changes: all, none, a prefix, a prefix with a torn write, or any
subset. A torn write ends at a sector boundary. A file's name may survive a power loss without its
content, and the reverse. The death of a process loses nothing, because its writes are in the page
cache. `effects` counts failures, losses and damage, so that a fault without effect can be
recognized. The module does not know the brokers' interface of files (`core.ports.Files`).
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple

from tidelog.core.ports import Buffer
from tidelog.sim.file_content import STYLES, File, Loss

DEFAULT_CAPACITY_BYTES = 1 << 40
#: Shortest and longest duration in ns of an operation on a slow disk.
SLOW_NS = (5_000_000, 120_000_000)

__all__ = ["DEFAULT_CAPACITY_BYTES", "Directory", "Entry", "File", "Loss", "SimDisk", "os_error"]


class Directory:
    """One directory: its current entries, and its entries after a power loss."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.durable: dict[str, Entry] = {}


class StoredFile(NamedTuple):
    """A file in a copy of a disk: its content, and the wall-clock time of its last modification."""

    data: bytes
    modified_ms: int


Entry = File | Directory
#: One atomic change of directories. For each changed name: (directory, name, the file or directory
#: with this name afterwards).
_Change = tuple[tuple[Directory, str, Entry | None], ...]


def os_error(number: int, path: str) -> OSError:
    """Return the OSError that the operating system would raise for an errno."""
    return OSError(number, os.strerror(number), path)


class SimDisk:
    """The file system of one log directory."""

    def __init__(self, root: str, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        self.root = root
        #: `size_bytes` is the disk's size; `capacity_bytes` is the part that other programs do not
        #: use.
        self.size_bytes = self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        #: Called with (name of the call, path) before each call; returns the errno with which the
        #: call must fail, or 0.
        self.fault: Callable[[str, str], int] | None = None
        #: Whether the device has failed: calls fail until an operator repairs or replaces the disk.
        self.is_failed = False
        #: Whether a failed fsync dropped pages that can still be read. Dropped pages are lost when
        #: the disk is next mounted.
        self.has_dropped = False
        #: Number of the next writes (of more than one byte) that write only a part of their bytes.
        self.short_writes = 0
        #: Files that a fault cut short without the broker's knowledge.
        self.cut_files: dict[File, None] = {}
        #: By kind: how often a fault of the disk failed a call, lost data or damaged data.
        self.effects: dict[str, int] = {}
        #: Number of calls that failed because of a fault; `call_errors` has the numbers by errno
        #: and call.
        self.failed_calls = 0
        self.call_errors: dict[str, int] = {}
        #: Whether the device is slow, so that all operations wait for the directory's worker.
        self.slow = False
        self.slow_ns = SLOW_NS
        #: Shortest and longest duration in ns of a read while reads are slow; None while reads come
        #: from the page cache.
        self.read_ns: tuple[int, int] | None = None
        #: Whether the device hangs: operations end only after the device comes back.
        self.hangs = False
        #: Functions that end the operations which wait for the hanging device; called when the
        #: device comes back.
        self.stuck: list[Callable[[], None]] = []
        #: Number of power losses in which at least one change was lost.
        self.losses = 0
        #: Files that changed since `NodeLogs` last read the disk, each with its lowest changed
        #: position. `names_changed` says whether any name changed.
        self.touched: dict[File, int] = {}
        self.names_changed = True
        self._top = Directory()
        self._unsynced: list[_Change] = []
        self.make_directories(root)
        self.sync_everything()

    # Paths

    def find(self, path: str) -> Entry | None:
        """Return the entry at `path`; None if the path does not exist."""
        entry: Entry = self._top
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(entry, Directory):
                return None
            found = entry.entries.get(name)
            if found is None:
                return None
            entry = found
        return entry

    def directory(self, path: str) -> Directory:
        """Return the directory at `path`; raise ENOENT or ENOTDIR."""
        entry = self.find(path)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(entry, File):
            raise os_error(errno.ENOTDIR, path)
        return entry

    def file(self, path: str) -> File:
        """Return the file at `path`; raise ENOENT or EISDIR."""
        entry = self.find(path)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(entry, Directory):
            raise os_error(errno.EISDIR, path)
        return entry

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self.directory(parent), name

    # Changes

    def create(self, path: str) -> File:
        """Create an empty file."""
        parent, name = self._parent(path)
        made = File()
        self._change(((parent, name, made),))
        return made

    def make_directories(self, path: str) -> None:
        """Create a directory and missing parents; raise ENOTDIR if a file is in the way."""
        here = self._top
        for name in path.split("/"):
            if not name:
                continue
            entry = here.entries.get(name)
            if entry is None:
                entry = Directory()
                self._change(((here, name, entry),))
            if isinstance(entry, File):
                raise os_error(errno.ENOTDIR, path)
            here = entry

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory; an existing file, or an existing empty directory, is
        replaced.
        """
        old_parent, old_name = self._parent(old)
        entry = old_parent.entries.get(old_name)
        if entry is None:
            raise os_error(errno.ENOENT, old)
        new_parent, new_name = self._parent(new)
        target = new_parent.entries.get(new_name)
        if target is entry:
            return
        if isinstance(target, Directory):
            if isinstance(entry, File):
                raise os_error(errno.EISDIR, new)
            if target.entries:
                raise os_error(errno.ENOTEMPTY, new)
        elif isinstance(target, File):
            if isinstance(entry, Directory):
                raise os_error(errno.ENOTDIR, new)
            self.used_bytes -= len(target.data)
            if isinstance(entry, File):
                entry.inherit_damage(target)
        self._change(((old_parent, old_name, None), (new_parent, new_name, entry)))

    def unlink(self, path: str) -> None:
        """Remove the name of a file from its directory."""
        gone = self.file(path)
        parent, name = self._parent(path)
        self.used_bytes -= len(gone.data)
        self._change(((parent, name, None),))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        if self.directory(path).entries:
            raise os_error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        self._change(((parent, name, None),))

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content, in the order of names; do nothing if it is
        missing.
        """
        entry = self.find(path)
        if entry is None:
            return
        if isinstance(entry, File):
            raise os_error(errno.ENOTDIR, path)
        for name in sorted(entry.entries):
            child = f"{path}/{name}"
            if isinstance(entry.entries[name], Directory):
                self.remove_tree(child)
            else:
                self.unlink(child)
        self.remove_directory(path)

    def _change(self, change: _Change) -> None:
        _apply(change, is_durable=False)
        self._unsynced.append(change)
        self.names_changed = True

    # Content

    def _touch(self, file: File, position: int) -> None:
        lowest = self.touched.get(file)
        if lowest is None or position < lowest:
            self.touched[file] = position

    def write(self, file: File, path: str, buffers: Sequence[Buffer], position: int) -> int:
        """Write bytes and return their number; on a full disk, write fewer bytes or raise
        ENOSPC.
        """
        content = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        growth = max(0, position + len(content) - len(file.data))
        free = self.capacity_bytes - self.used_bytes
        if growth > free:
            content = content[: max(0, len(content) - (growth - free))]
            self.count("full")
            if not content:
                raise os_error(errno.ENOSPC, path)
            growth = free
        self._touch(file, min(position, len(file.data)))
        file.write(content, position)
        self.used_bytes += growth
        return len(content)

    def truncate(self, file: File, size_bytes: int) -> None:
        """Truncate or extend a file."""
        self._touch(file, min(size_bytes, len(file.data)))
        self.used_bytes += size_bytes - len(file.data)
        file.truncate(size_bytes)

    # Durability

    def sync_directory(self, path: str) -> None:
        """Make the directory's changes durable."""
        directory = self.directory(path)
        kept: list[_Change] = []
        for change in self._unsynced:
            if any(changed is directory for changed, _, _ in change):
                _apply(change, is_durable=True)
            else:
                kept.append(change)
        self._unsynced = kept

    def sync_everything(self) -> None:
        """Make everything durable, as on a quiet disk long after the last write."""
        for change in self._unsynced:
            _apply(change, is_durable=True)
        self._unsynced.clear()
        for _, file in self.files():
            file.pending.clear()
            file.synced_ms = file.modified_ms

    def lose_power(self, draw: random.Random, loss: Loss) -> list[str]:
        """Keep the durable state and a random part of the unsynced changes.

        Returns a line for the run's trace about each kind of loss. As with a journal, no directory
        change survives that was made after a lost directory change. Only with the loss REORDERED
        may later changes survive, if they do not depend on a lost change.
        """
        report: list[str] = []
        pending, self._unsynced = self._unsynced, []
        kept = _kept_names(draw, loss, pending)
        for change in kept:
            _apply(change, is_durable=True)
        if len(kept) < len(pending):
            report.append(f"names {len(kept)}/{len(pending)}")
            self.count("names lost")
        _revert_names(self._top)
        for path, file in self.files():
            self.touched[file] = 0
            drawn = file.keep_after_power_loss(draw, loss)
            if drawn:
                report.append(f"{path} {drawn}")
                self.count(f"lost: {drawn.partition(' ')[0]}")
        self.used_bytes = sum(len(file.data) for _, file in self.files())
        self.names_changed = True
        self.has_dropped = False
        if report:
            self.losses += 1
        return report

    @property
    def unsynced_changes(self) -> int:
        """Number of directory changes that a power loss may undo."""
        return len(self._unsynced)

    def unsynced_files(self) -> list[File]:
        """Return the files with unsynced content, also files that only a power loss brings back."""
        found: dict[File, None] = {}
        for entry in self._entries():
            if isinstance(entry, File) and entry.pending:
                found[entry] = None
        return list(found)

    def lose(self, kept_changes: int, lost: Container[File]) -> None:
        """Lose power: keep the first `kept_changes` unsynced directory changes, and lose all
        unsynced content of the files `lost`.

        Unlike `lose_power`, this method draws nothing: its callers enumerate what a disk may lose.
        """
        self._lose(self._unsynced[:kept_changes], lost)

    def lose_change(self, number: int) -> None:
        """Lose power and one unsynced directory change, with all changes that depend on it."""
        later = iter(range(len(self._unsynced)))
        self._lose(_independent(self._unsynced, lambda: next(later) == number), ())

    def _lose(self, kept: list[_Change], lost: Container[File]) -> None:
        self._unsynced = []
        for change in kept:
            _apply(change, is_durable=True)
        _revert_names(self._top)
        nothing = random.Random(0)
        for _, file in self.files():
            self.touched[file] = 0
            if file in lost:
                file.keep_after_power_loss(nothing, Loss.ALL_UNSYNCED)
            else:
                file.pending.clear()
                file.synced_ms = file.modified_ms
        self.used_bytes = sum(len(file.data) for _, file in self.files())
        self.names_changed = True
        self.has_dropped = False

    def _entries(self) -> Iterator[Entry]:
        """Yield each current, durable and removed entry, some of them more than once."""
        places = [self._top]
        seen: dict[Directory, None] = {self._top: None}
        others = [entry for change in self._unsynced for _, _, entry in change if entry is not None]
        while places or others:
            found = others
            others = []
            if places:
                place = places.pop()
                found = [*place.entries.values(), *place.durable.values(), *found]
            for entry in found:
                yield entry
                if isinstance(entry, Directory) and entry not in seen:
                    seen[entry] = None
                    places.append(entry)

    def copied(self) -> SimDisk:
        """Return an independent copy with the same names, contents and unsynced changes.

        Planned faults, counts and waiting operations are not copied.
        """
        other = SimDisk(self.root, self.size_bytes)
        other.capacity_bytes, other.used_bytes = self.capacity_bytes, self.used_bytes
        made: dict[Entry, Entry] = {self._top: other._top}

        def copy(entry: Entry) -> Entry:
            found = made.get(entry)
            if found is None:
                found = entry.copied() if isinstance(entry, File) else Directory()
                made[entry] = found
                if isinstance(entry, Directory) and isinstance(found, Directory):
                    fill(entry, found)
            return found

        def fill(source: Directory, target: Directory) -> None:
            target.entries = {name: copy(entry) for name, entry in source.entries.items()}
            target.durable = {name: copy(entry) for name, entry in source.durable.items()}

        def changed(directory: Directory) -> Directory:
            found = copy(directory)
            assert isinstance(found, Directory)
            return found

        fill(self._top, other._top)
        other._unsynced = [
            tuple(
                (changed(directory), name, None if entry is None else copy(entry))
                for directory, name, entry in change
            )
            for change in self._unsynced
        ]
        return other

    def come_back(self) -> None:
        """End a hang, so that operations that wait for the device continue."""
        self.hangs = False
        stuck, self.stuck = self.stuck, []
        for go_on in stuck:
            go_on()

    # Space

    @property
    def is_filled(self) -> bool:
        """Whether a fault has filled the disk (`fill`)."""
        return self.capacity_bytes != self.size_bytes

    def fill(self, room_bytes: int) -> None:
        """Leave only `room_bytes` free, as if another program had taken the rest."""
        self.capacity_bytes = self.used_bytes + room_bytes

    def free(self) -> None:
        """End the effect of `fill`, as if the other program had freed its space."""
        self.capacity_bytes = self.size_bytes

    # Damage

    def count(self, effect: str) -> None:
        """Count a failure, a loss or damage."""
        self.effects[effect] = self.effects.get(effect, 0) + 1

    def flip(self, path: str, position: int, mask: int) -> None:
        """Flip bits of a file durably, without the broker's knowledge; raise ENOENT or EISDIR."""
        file = self.file(path)
        file.flip(position, mask)
        self.touched[file] = 0
        self.count("bits flipped")

    def cut_short(self, path: str, size_bytes: int) -> None:
        """Cut the end of a file durably, without the broker's knowledge; raise ENOENT or EISDIR."""
        file = self.file(path)
        self.used_bytes -= len(file.data) - size_bytes
        del file.data[size_bytes:]
        file.pending.clear()
        self.touched[file] = 0
        self.cut_files[file] = None
        self.count("cut short")

    @property
    def is_damaged(self) -> bool:
        """Whether a file still contains flipped bits; files of deleted and stray replicas do not
        count.
        """
        return bool(self.effects.get("bits flipped")) and any(
            file.is_damaged for path, file in self.files() if not _is_aside(path)
        )

    def replace(self) -> None:
        """Replace the disk by an empty disk with only the mount point."""
        for name in sorted(self.directory(self.root).entries):
            path = f"{self.root}/{name}"
            if isinstance(self.find(path), Directory):
                self.remove_tree(path)
            else:
                self.unlink(path)
        self.sync_everything()
        self.count("replaced")

    def contents(self) -> dict[str, StoredFile]:
        """Return every file by its path: a copy of the disk."""
        return {path: StoredFile(bytes(file.data), file.modified_ms) for path, file in self.files()}

    def put_back(self, contents: dict[str, StoredFile]) -> None:
        """Restore the disk from an earlier copy."""
        self.replace()
        for path, (data, modified_ms) in contents.items():
            self.make_directories(path.rpartition("/")[0])
            file = self.create(path)
            self.write(file, path, (data,), 0)
            file.modified_ms = modified_ms
        self.sync_everything()

    def files(self) -> list[tuple[str, File]]:
        """Return every file with its path, in order of path."""
        return list(_files(self._top, ""))


def _kept_names(draw: random.Random, loss: Loss, pending: list[_Change]) -> list[_Change]:
    """Draw which directory changes survive a power loss; return them in order."""
    if not pending or loss is Loss.ALL_UNSYNCED:
        return []
    if loss is Loss.REORDERED:
        return _independent(pending, lambda: draw.random() < 0.5)
    if loss is Loss.UNSYNCED and draw.choice(STYLES) == "nothing":
        return pending
    return pending[: draw.randrange(len(pending) + 1)]


def _independent(pending: list[_Change], is_lost: Callable[[], bool]) -> list[_Change]:
    """Return the changes that survive, in order.

    A change that depends on an earlier lost change (of the same name, the same entry or the parent
    directory) is lost, too. About each other change, `is_lost` decides.
    """
    kept: list[_Change] = []
    lost_names: set[tuple[int, str]] = set()
    lost_entries: set[int] = set()
    for change in pending:
        names = {(id(directory), name) for directory, name, _ in change}
        entries = {id(entry) for _, _, entry in change if entry is not None}
        parents = {id(directory) for directory, _, _ in change}
        needs_lost = names & lost_names or (entries | parents) & lost_entries
        if needs_lost or is_lost():
            lost_names |= names
            lost_entries |= entries
        else:
            kept.append(change)
    return kept


def _is_aside(path: str) -> bool:
    """Return whether a file belongs to a deleted or stray replica."""
    return path.rpartition("/")[0].endswith(("-delete", "-stray"))


def _apply(change: _Change, *, is_durable: bool) -> None:
    """Apply a change to the directories' current entries, or (`is_durable`) to the entries that
    survive a power loss.
    """
    for directory, name, entry in change:
        entries = directory.durable if is_durable else directory.entries
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


def _revert_names(directory: Directory) -> None:
    directory.entries = dict(directory.durable)
    for entry in directory.entries.values():
        if isinstance(entry, Directory):
            _revert_names(entry)


def _files(directory: Directory, path: str) -> Iterator[tuple[str, File]]:
    for name in sorted(directory.entries):
        entry = directory.entries[name]
        if isinstance(entry, Directory):
            yield from _files(entry, f"{path}/{name}")
        else:
            yield f"{path}/{name}", entry
