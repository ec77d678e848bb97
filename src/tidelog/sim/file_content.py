"""The content of one simulated file: what the page cache shows, and what a power loss leaves of it.

A file is one growing bytearray with the list of its changes that are not known to be durable. A
power loss undoes all of them and redoes those that survive. After a failed fsync the dirty pages
are clean to the system and never written: they stay readable for as long as the disk is mounted,
and a later fsync succeeds without them (what Linux does, and why D17 never believes a second one).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum

SECTOR_BYTES = 512
_AROUND_BYTES = 24


class Loss(Enum):
    """What a crash takes with it."""

    #: The process died: the page cache survives.
    NONE = "none"
    #: Power was lost: unsynced changes survive or not, drawn per file.
    UNSYNCED = "unsynced"
    #: Power was lost and with it every unsynced change.
    ALL_UNSYNCED = "all unsynced"
    #: Power was lost: of each file, the first unsynced changes survive, not all of them.
    PREFIX = "prefix"
    #: As PREFIX; of the first write that is lost, some sectors survive.
    TORN = "torn"
    #: Power was lost: any subset of the unsynced changes survives, later ones without earlier ones.
    REORDERED = "reordered"


class Fate(Enum):
    """What is known of a change since the last fsync that everything reached."""

    #: In the page cache only.
    PENDING = "pending"
    #: Synced; remembered because an earlier change of the file was dropped.
    DURABLE = "durable"
    #: Dropped by a failed fsync: readable until the next mount, never on the disk.
    DROPPED = "dropped"


class File:
    """Content of one file."""

    __slots__ = ("_damage", "data", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        #: Bits that were flipped: (where, what stands there since, what was there), with the bytes
        #: around, so that what is written over it is not taken for it.
        self._damage: list[tuple[int, bytes, bytes]] = []
        #: Changes in order that a power loss may take.
        self.pending: list[Write | Cut] = []

    def write(self, content: bytes, position: int) -> None:
        """Write `content`; a gap before it is filled with zeros."""
        data = self.data
        old_size = len(data)
        end = position + len(content)
        if position == old_size:
            self.pending.append(Write(position, len(content), b"", old_size))
            data += content
            return
        if position > old_size:
            data.extend(bytes(position - old_size))
        self.pending.append(
            Write(position, len(content), bytes(data[position : min(end, old_size)]), old_size)
        )
        data[position:end] = content

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend with zeros."""
        data = self.data
        old_size = len(data)
        if size_bytes < old_size:
            self.pending.append(Cut(size_bytes, bytes(data[size_bytes:])))
            del data[size_bytes:]
        elif size_bytes > old_size:
            self.write(bytes(size_bytes - old_size), old_size)

    # Damage

    def flip(self, position: int, mask: int) -> None:
        """Change bits of one byte behind everybody's back, durably."""
        first, end = max(0, position - _AROUND_BYTES), position + _AROUND_BYTES
        before = bytes(self.data[first:end])
        self.data[position] ^= mask
        self._damage.append((first, bytes(self.data[first:end]), before))
        self.pending.clear()

    def _still_damaged(self) -> list[tuple[int, bytes, bytes]]:
        return [one for one in self._damage if self.data.startswith(one[1], one[0])]

    def inherit_damage(self, replaced: File) -> None:
        """This file takes the place of another: bits that were flipped there and had been read
        before this one was written are here, too."""
        damage = replaced._damage
        self._damage += [one for one in damage if self.data.startswith(one[1], one[0])]

    @property
    def is_damaged(self) -> bool:
        """Whether flipped bits are there still."""
        return bool(self._damage) and bool(self._still_damaged())

    def undamaged(self) -> bytearray:
        """What was written, as far as the file has it: as if no bits had been flipped."""
        if not self._damage:
            return self.data
        content = bytearray(self.data)
        for first, _, before in reversed(self._still_damaged()):
            content[first : first + len(before)] = before
        return content

    # Syncing

    def sync(self) -> None:
        """An fsync that succeeds: everything is durable but what an earlier one dropped."""
        if not self.has_dropped:
            self.pending.clear()
            return
        for change in self.pending:
            if change.fate is Fate.PENDING:
                change.fate = Fate.DURABLE

    def fail_sync(self) -> bool:
        """An fsync that fails drops what was dirty; returns whether anything was."""
        dirty = [change for change in self.pending if change.fate is Fate.PENDING]
        for change in dirty:
            change.fate = Fate.DROPPED
        return bool(dirty)

    @property
    def has_dropped(self) -> bool:
        """Whether the page cache shows what will never be on the disk."""
        return any(change.fate is Fate.DROPPED for change in self.pending)

    def keep_after_power_loss(self, draw: random.Random, loss: Loss) -> str:
        """Undo what was not synced, redo what survives; returns what was drawn."""
        pending, self.pending = self.pending, []
        if not pending:
            return ""
        style, kept, torn = _survivors(draw, loss, pending)
        if style == "nothing" and all(change.fate is Fate.PENDING for change in pending):
            return style
        redo = [change.undo(self.data) for change in reversed(pending)]
        redo.reverse()
        survivors = 0
        for number, (change, again) in enumerate(zip(pending, redo, strict=True)):
            fate = change.fate
            if fate is Fate.DURABLE or (fate is Fate.PENDING and number in kept):
                again(self.data)
                survivors += 1
            elif number == torn and fate is Fate.PENDING:
                self._tear(draw, change, again)
        return style if style in ("all", "nothing") else f"{style} {survivors}/{len(redo)}"

    def _tear(
        self, draw: random.Random, change: Write | Cut, redo: Callable[[bytearray], None]
    ) -> None:
        """Let a lost write survive in part: some sectors of it, or its length only."""
        if isinstance(change, Cut):
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


#: What happens to the unsynced changes of a file where the loss leaves it to the draw.
STYLES = ("nothing", "all", "prefix", "torn")


def _survivors(
    draw: random.Random, loss: Loss, pending: list[Write | Cut]
) -> tuple[str, range | frozenset[int], int]:
    """(Name of what happens, which changes survive, which one is torn or -1)."""
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
    """A drawn subset of so many changes; where there are two, one survives without an earlier."""
    if count < 2:
        return frozenset(number for number in range(count) if draw.random() < 0.5)
    lost = draw.randrange(count - 1)
    kept = draw.randrange(lost + 1, count)
    others = {number for number in range(count) if draw.random() < 0.5}
    return frozenset((others | {kept}) - {lost})


class Write:
    """An unsynced write."""

    __slots__ = ("fate", "old", "old_size", "position", "size")

    def __init__(self, position: int, size: int, old: bytes, old_size: int) -> None:
        self.position = position
        self.size = size
        self.old = old
        self.old_size = old_size
        self.fate = Fate.PENDING

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


class Cut:
    """An unsynced truncation to a smaller size."""

    __slots__ = ("fate", "size", "tail")

    def __init__(self, size: int, tail: bytes) -> None:
        self.size = size
        self.tail = tail
        self.fate = Fate.PENDING

    def undo(self, data: bytearray) -> Callable[[bytearray], None]:
        """Take the truncation back; returns how to do it again."""
        data += self.tail
        size = self.size

        def redo(again: bytearray) -> None:
            del again[size:]

        return redo
