"""One simulated disk: what the page cache shows, and what a power loss leaves.

Files are one growing bytearray each, with the list of writes and truncations since their last
fsync; directories hold their current and their durable entries, and the disk the ordered list of
directory changes that were not synced. `lose_power` undoes the unsynced changes of each file and
redoes those that survive: all, none, a prefix, or a prefix whose last write is torn at a sector.
A killed process loses nothing (its writes are in the page cache). Knows nothing of port calls.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from enum import Enum

from tidelog.core.ports import Buffer

SECTOR_BYTES = 512
DEFAULT_CAPACITY_BYTES = 1 << 40


class Loss(Enum):
    """What a crash takes with it."""

    #: The process died: the page cache survives.
    NONE = "none"
    #: Power was lost: unsynced changes survive or not, drawn per file.
    UNSYNCED = "unsynced"
    #: Power was lost and with it every unsynced change.
    ALL_UNSYNCED = "all unsynced"


class File:
    """Content of one file."""

    __slots__ = ("data", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        #: Unsynced changes in order.
        self.pending: list[_Write | _Cut] = []

    def write(self, content: bytes, position: int) -> None:
        """Write `content`; a gap before it is filled with zeros."""
        data = self.data
        old_size = len(data)
        end = position + len(content)
        if position == old_size:
            self.pending.append(_Write(position, len(content), b"", old_size))
            data += content
            return
        if position > old_size:
            data.extend(bytes(position - old_size))
        self.pending.append(
            _Write(position, len(content), bytes(data[position : min(end, old_size)]), old_size)
        )
        data[position:end] = content

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend with zeros."""
        data = self.data
        old_size = len(data)
        if size_bytes < old_size:
            self.pending.append(_Cut(size_bytes, bytes(data[size_bytes:])))
            del data[size_bytes:]
        elif size_bytes > old_size:
            self.write(bytes(size_bytes - old_size), old_size)

    def keep_after_power_loss(self, draw: random.Random, loss: Loss) -> str:
        """Undo what was not synced, redo what survives; returns what was drawn."""
        pending, self.pending = self.pending, []
        if not pending:
            return ""
        style = "all" if loss is Loss.ALL_UNSYNCED else draw.choice(_STYLES)
        if style == "nothing":
            return style
        redo = [change.undo(self.data) for change in reversed(pending)]
        redo.reverse()
        if style == "all":
            return style
        survivors = draw.randrange(len(redo) + 1)
        for change in redo[:survivors]:
            change(self.data)
        if style == "torn" and survivors < len(redo):
            self._tear(draw, pending[survivors], redo[survivors])
        self.pending.clear()
        return f"{style} {survivors}/{len(redo)}"

    def _tear(
        self, draw: random.Random, change: _Write | _Cut, redo: Callable[[bytearray], None]
    ) -> None:
        """Let the first lost write survive in part: some sectors of it, or its length only."""
        if isinstance(change, _Cut):
            return
        before = bytes(self.data)
        redo(self.data)
        first = change.position // SECTOR_BYTES
        last = (change.position + change.size) // SECTOR_BYTES
        cut = max(change.position, draw.randrange(first, last + 1) * SECTOR_BYTES)
        end = change.position + change.size
        if draw.random() < 0.5:
            # The file's length reached the disk, the sectors behind the cut did not.
            old = before[cut:end]
            self.data[cut:end] = old + bytes(end - cut - len(old))
        else:
            self.data[cut:] = before[cut:]


#: What happens to the unsynced changes of a file when power is lost.
_STYLES = ("nothing", "all", "prefix", "torn")


class _Write:
    """An unsynced write."""

    __slots__ = ("old", "old_size", "position", "size")

    def __init__(self, position: int, size: int, old: bytes, old_size: int) -> None:
        self.position = position
        self.size = size
        self.old = old
        self.old_size = old_size

    def undo(self, data: bytearray) -> Callable[[bytearray], None]:
        """Take the write back; returns how to do it again."""
        position = self.position
        content = bytes(data[position : position + self.size])
        data[position : position + len(self.old)] = self.old
        del data[self.old_size :]

        def redo(again: bytearray) -> None:
            if position > len(again):
                again.extend(bytes(position - len(again)))
            again[position : position + len(content)] = content

        return redo


class _Cut:
    """An unsynced truncation to a smaller size."""

    __slots__ = ("size", "tail")

    def __init__(self, size: int, tail: bytes) -> None:
        self.size = size
        self.tail = tail

    def undo(self, data: bytearray) -> Callable[[bytearray], None]:
        """Take the truncation back; returns how to do it again."""
        data += self.tail
        size = self.size

        def redo(again: bytearray) -> None:
            del again[size:]

        return redo


class Directory:
    """Entries of one directory: as seen now, and as they are after a power loss."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.durable: dict[str, Entry] = {}


Entry = File | Directory
#: One directory change: (directory, name, what the name stands for afterwards), at one instant.
_Change = tuple[tuple[Directory, str, Entry | None], ...]


def os_error(number: int, path: str) -> OSError:
    """An OSError as the system raises it."""
    return OSError(number, os.strerror(number), path)


class SimDisk:
    """The file system of one log directory."""

    def __init__(self, root: str, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        self.root = root
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        #: Asked before each call with (call, path): an errno to fail with, or 0.
        self.fault: Callable[[str, str], int] | None = None
        #: Whether operations wait for the directory's worker (a sick or busy device).
        self.slow = False
        #: Grows by each power loss that took at least one change.
        self.losses = 0
        #: For whoever follows the content: files changed since it looked, each with the lowest
        #: position changed, and whether any name changed.
        self.touched: dict[File, int] = {}
        self.names_changed = True
        self._top = Directory()
        self._unsynced: list[_Change] = []
        self.make_directories(root)
        self.sync_everything()

    # Paths

    def find(self, path: str) -> Entry | None:
        """What is at `path`, None when there is nothing."""
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
        """The directory at `path`; ENOENT or ENOTDIR."""
        entry = self.find(path)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(entry, File):
            raise os_error(errno.ENOTDIR, path)
        return entry

    def file(self, path: str) -> File:
        """The file at `path`; ENOENT or EISDIR."""
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
        """Make an empty file."""
        parent, name = self._parent(path)
        made = File()
        self._change(((parent, name, made),))
        return made

    def make_directories(self, path: str) -> None:
        """Make a directory and its parents; EEXIST-free; ENOTDIR where a file is in the way."""
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
        """Rename a file over a file or nothing, a directory over an empty one or nothing."""
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
        self._change(((old_parent, old_name, None), (new_parent, new_name, entry)))

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
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
        """Remove a directory and all in it, names in order; nothing when it is not there."""
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
        for directory, name, entry in change:
            if entry is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = entry
        self._unsynced.append(change)
        self.names_changed = True

    # Content

    def _touch(self, file: File, position: int) -> None:
        lowest = self.touched.get(file)
        if lowest is None or position < lowest:
            self.touched[file] = position

    def write(self, file: File, path: str, buffers: Sequence[Buffer], position: int) -> int:
        """Write; fewer bytes, or ENOSPC, when the disk is full."""
        content = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        growth = max(0, position + len(content) - len(file.data))
        free = self.capacity_bytes - self.used_bytes
        if growth > free:
            content = content[: max(0, len(content) - (growth - free))]
            if not content:
                raise os_error(errno.ENOSPC, path)
            growth = free
        self._touch(file, min(position, len(file.data)))
        file.write(content, position)
        self.used_bytes += growth
        return len(content)

    def truncate(self, file: File, size_bytes: int) -> None:
        """Cut or extend a file."""
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
                _make_durable(change)
            else:
                kept.append(change)
        self._unsynced = kept

    def sync_everything(self) -> None:
        """Make everything durable (a quiet disk, long after the last write)."""
        for change in self._unsynced:
            _make_durable(change)
        self._unsynced.clear()
        for _, file in self.files():
            file.pending.clear()

    @property
    def has_unsynced(self) -> bool:
        """Whether a power loss could take anything."""
        return bool(self._unsynced) or any(file.pending for _, file in self.files())

    def lose_power(self, draw: random.Random, loss: Loss) -> list[str]:
        """Keep what is durable and what the draw lets survive; returns what happened, for traces.

        Directory changes survive as a prefix of their order, as in a journal.
        """
        report: list[str] = []
        pending, self._unsynced = self._unsynced, []
        survivors = 0
        if pending and loss is Loss.UNSYNCED:
            style = draw.choice(_STYLES)
            whole = style == "nothing"
            survivors = len(pending) if whole else draw.randrange(len(pending) + 1)
        for change in pending[:survivors]:
            _make_durable(change)
        if survivors < len(pending):
            report.append(f"names {survivors}/{len(pending)}")
        _revert_names(self._top)
        for path, file in self.files():
            self.touched[file] = 0
            drawn = file.keep_after_power_loss(draw, loss)
            if drawn:
                report.append(f"{path} {drawn}")
        self.used_bytes = sum(len(file.data) for _, file in self.files())
        self.names_changed = True
        if report:
            self.losses += 1
        return report

    def files(self) -> list[tuple[str, File]]:
        """Every file with its path, in order of path."""
        found: list[tuple[str, File]] = []
        _collect(self._top, "", found)
        return found


def _make_durable(change: _Change) -> None:
    for directory, name, entry in change:
        if entry is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = entry


def _revert_names(directory: Directory) -> None:
    directory.entries = dict(directory.durable)
    for entry in directory.entries.values():
        if isinstance(entry, Directory):
            _revert_names(entry)


def _collect(directory: Directory, path: str, found: list[tuple[str, File]]) -> None:
    for name in sorted(directory.entries):
        entry = directory.entries[name]
        if isinstance(entry, Directory):
            _collect(entry, f"{path}/{name}", found)
        else:
            found.append((f"{path}/{name}", entry))
