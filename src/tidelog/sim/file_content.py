"""The content of one simulated file: its page cache, and its content after a power loss.

A file is a bytearray with a list of changes that may not be durable. A power loss undoes all
changes in the list, and redoes the changes that survive. As on Linux, a failed fsync marks dirty
pages clean without writing them. These pages stay readable while the disk is mounted, but a later
fsync reports success without writing them. Brokers therefore must not retry a failed fsync
(D17).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from tidelog.core.dataclass import dataclass

SECTOR_BYTES = 512
_AROUND_BYTES = 24


class Loss(Enum):
    """The loss of unsynced changes in a crash."""

    #: The process died: the page cache survives.
    NONE = "none"
    #: Power was lost: for each file, a random part of the unsynced changes survives.
    UNSYNCED = "unsynced"
    #: Power was lost, and every unsynced change with it.
    ALL_UNSYNCED = "all unsynced"
    #: Power was lost: the first unsynced changes of each file survive, but not all of them.
    PREFIX = "prefix"
    #: Like the loss PREFIX, but some sectors of the first lost write survive.
    TORN = "torn"
    #: Power was lost: any subset of the unsynced changes survives, even if earlier changes are
    #: lost.
    REORDERED = "reordered"


class Fate(Enum):
    """The state of a write or truncation that a power loss may undo."""

    #: The change is in the page cache only.
    PENDING = "pending"
    #: The change is on the disk, and stays in the list of changes because an earlier change of the
    #: file was dropped.
    DURABLE = "durable"
    #: A failed fsync dropped the change: it can be read until the next mount, but will never be on
    #: the disk.
    DROPPED = "dropped"


class File:
    """Content of one file on a simulated disk, with the changes that a power loss may undo."""

    __slots__ = ("_damage", "data", "modified_ms", "pending", "synced_ms")

    def __init__(self) -> None:
        self.data = bytearray()
        #: Flipped bits as (position, damaged bytes, former bytes). Each entry includes the bytes
        #: around the flipped bit, so that later writes at this position are not mistaken for the
        #: damage.
        self._damage: list[tuple[int, bytes, bytes]] = []
        #: Changes since the last sync, which a power loss may lose, in order.
        self.pending: list[UnsyncedWrite | Truncation] = []
        #: Wall-clock time of the last modification; `synced_ms` is the time that a power loss
        #: keeps.
        self.modified_ms = self.synced_ms = 0

    def write(self, content: bytes, position: int) -> None:
        """Write `content`; fill a gap before it with zeros."""
        data = self.data
        old_size = len(data)
        end = position + len(content)
        if position == old_size:
            self.pending.append(UnsyncedWrite(position, len(content), b"", old_size))
            data += content
            return
        if position > old_size:
            data.extend(bytes(position - old_size))
        self.pending.append(
            UnsyncedWrite(
                position, len(content), bytes(data[position : min(end, old_size)]), old_size
            )
        )
        data[position:end] = content

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file, or extend it with zeros."""
        data = self.data
        old_size = len(data)
        if size_bytes < old_size:
            self.pending.append(Truncation(size_bytes, bytes(data[size_bytes:])))
            del data[size_bytes:]
        elif size_bytes > old_size:
            self.write(bytes(size_bytes - old_size), old_size)

    # Damage

    def flip(self, position: int, mask: int) -> None:
        """Flip bits of one byte durably, without the broker's knowledge."""
        first, end = max(0, position - _AROUND_BYTES), position + _AROUND_BYTES
        before = bytes(self.data[first:end])
        self.data[position] ^= mask
        self._damage.append((first, bytes(self.data[first:end]), before))
        self.pending.clear()

    def _still_damaged(self) -> list[tuple[int, bytes, bytes]]:
        return [flip for flip in self._damage if self.data.startswith(flip[1], flip[0])]

    def inherit_damage(self, replaced: File) -> None:
        """Take over the damage of a file that this file replaces.

        Only flipped bits that the broker copied from the replaced file count.
        """
        damage = replaced._damage
        self._damage += [flip for flip in damage if self.data.startswith(flip[1], flip[0])]

    @property
    def is_damaged(self) -> bool:
        """Whether the file still contains flipped bits."""
        return bool(self._damage) and bool(self._still_damaged())

    def undamaged(self) -> bytearray:
        """Return the content as if no bits had been flipped."""
        if not self._damage:
            return self.data
        content = bytearray(self.data)
        for first, _, before in reversed(self._still_damaged()):
            content[first : first + len(before)] = before
        return content

    # Syncing

    def copied(self) -> File:
        """Return an independent copy; the unsynced changes are copied, too."""
        other = File()
        other.data = bytearray(self.data)
        other._damage = list(self._damage)
        other.pending = [replace(change) for change in self.pending]
        other.modified_ms, other.synced_ms = self.modified_ms, self.synced_ms
        return other

    def sync(self) -> None:
        """Make all pending changes durable; changes that an earlier fsync dropped stay dropped."""
        self.synced_ms = self.modified_ms
        if not self.has_dropped:
            self.pending.clear()
            return
        for change in self.pending:
            if change.fate is Fate.PENDING:
                change.fate = Fate.DURABLE

    def fail_sync(self) -> bool:
        """Drop all pending changes in a failed fsync; return whether any were pending."""
        dirty = [change for change in self.pending if change.fate is Fate.PENDING]
        for change in dirty:
            change.fate = Fate.DROPPED
        return bool(dirty)

    @property
    def has_dropped(self) -> bool:
        """Whether the page cache shows changes that will never be on the disk."""
        return any(change.fate is Fate.DROPPED for change in self.pending)

    def keep_after_power_loss(self, draw: random.Random, loss: Loss) -> str:
        """Undo unsynced changes, redo a random part of them, and return a description of this
        part.
        """
        pending, self.pending = self.pending, []
        last_ms, self.modified_ms = self.modified_ms, self.synced_ms
        if not pending:
            return ""
        style, kept, torn = _survivors(draw, loss, pending)
        if style == "nothing" and all(change.fate is Fate.PENDING for change in pending):
            self.modified_ms = self.synced_ms = last_ms
            return style
        redo = [change.undo(self.data) for change in reversed(pending)]
        redo.reverse()
        survivors = 0
        for number, (change, again) in enumerate(zip(pending, redo, strict=True)):
            fate = change.fate
            if fate is Fate.DURABLE or (fate is Fate.PENDING and number in kept):
                again(self.data)
                survivors += 1
                self.modified_ms = self.synced_ms = last_ms
            elif number == torn and fate is Fate.PENDING:
                self._tear(draw, change, again)
        return style if style in ("all", "nothing") else f"{style} {survivors}/{len(redo)}"

    def _tear(
        self,
        draw: random.Random,
        change: UnsyncedWrite | Truncation,
        redo: Callable[[bytearray], None],
    ) -> None:
        """Let the first sectors of a lost write survive; in some cases the file still gets its full
        new length.
        """
        if isinstance(change, Truncation):
            return
        before = bytes(self.data)
        redo(self.data)
        first = change.position // SECTOR_BYTES
        last = (change.position + change.size) // SECTOR_BYTES
        cut = max(change.position, draw.randrange(first, last + 1) * SECTOR_BYTES)
        end = change.position + change.size
        if draw.random() < 0.5:
            # The file's length reached the disk, but the sectors after the tear did not.
            old = before[cut:end]
            self.data[cut:end] = old + bytes(end - cut - len(old))
        else:
            self.data[cut:] = before[cut:]


#: For each file, the loss UNSYNCED draws one of these: which of the file's unsynced changes
#: survive.
STYLES = ("nothing", "all", "prefix", "torn")


def _survivors(
    draw: random.Random, loss: Loss, pending: list[UnsyncedWrite | Truncation]
) -> tuple[str, range | frozenset[int], int]:
    """Return (name of the loss, surviving changes, number of the torn change or -1)."""
    count = len(pending)
    if loss is Loss.ALL_UNSYNCED:
        return "all", range(0), -1
    if loss is Loss.REORDERED:
        return "reordered", _reordered(draw, count), -1
    if loss is Loss.UNSYNCED:
        style = draw.choice(STYLES)
        if style == "nothing":
            return style, range(count), -1
        if style == "all":
            return style, range(0), -1
        first_lost = draw.randrange(count + 1)
    else:
        style = loss.value
        first_lost = draw.randrange(count)
    return style, range(first_lost), first_lost if style == "torn" else -1


def _reordered(draw: random.Random, count: int) -> frozenset[int]:
    """Return a random subset of changes.

    Of two or more changes, at least one survives although an earlier change is lost.
    """
    if count < 2:
        return frozenset(number for number in range(count) if draw.random() < 0.5)
    lost = draw.randrange(count - 1)
    kept = draw.randrange(lost + 1, count)
    others = {number for number in range(count) if draw.random() < 0.5}
    return frozenset((others | {kept}) - {lost})


@dataclass(slots=True, eq=False)
class UnsyncedWrite:
    """A write to a file that is not synced yet, so that a power loss may undo it."""

    position: int
    size: int
    old: bytes
    old_size: int
    fate: Fate = Fate.PENDING

    def undo(self, data: bytearray) -> Callable[[bytearray], None]:
        """Undo the write; return a function that redoes it."""
        position = self.position
        content = bytes(data[position : position + self.size])
        data[position : position + len(self.old)] = self.old
        del data[self.old_size :]

        def redo(again: bytearray) -> None:
            if position > len(again):
                again.extend(bytes(position - len(again)))
            again[position : position + len(content)] = content

        return redo


@dataclass(slots=True, eq=False)
class Truncation:
    """A truncation of a file to a smaller size that is not synced yet."""

    size: int
    tail: bytes
    fate: Fate = Fate.PENDING

    def undo(self, data: bytearray) -> Callable[[bytearray], None]:
        """Undo the truncation; return a function that redoes it."""
        data += self.tail
        size = self.size

        def redo(again: bytearray) -> None:
            del again[size:]

        return redo
