"""The losses that a crash may cause on the disks of a small world, each loss with a name.

The death of a process loses nothing but a part of the write under way. A power loss keeps some of
the unsynced directory changes, and of each file some of its unsynced content. Not all combinations
are listed, because there are exponentially many. For each directory change, the list has a loss of
this and all later changes, and a loss of this change alone. For each file, the list has a loss of
this file's content alone, and a loss of the contents of all other files. The list also has some
random losses of each kind that the disks know (`file_content.Loss`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.seeds import stream

#: Name of a crash without a loss: only the process dies, and the page cache keeps each write.
PROCESS: Final = "process"
#: Name of the power loss that loses everything unsynced.
ALL: Final = "all"
_WRITE: Final = "write"
_NAMES: Final = "names"
_SKIPPED: Final = "skipped"
_DATA: Final = "data"
_LOST: Final = "lost"
_KEPT: Final = "kept"
_RANDOM: Final = {
    loss.value: loss for loss in (Loss.UNSYNCED, Loss.PREFIX, Loss.TORN, Loss.REORDERED)
}


class UnfinishedWrite(NamedTuple):
    """The write that the process was about to carry out when it died."""

    #: The number of the disk to which the process was writing.
    disk: int
    path: str
    content: bytes
    position: int


def loss_names(disks: Sequence[SimDisk], write: UnfinishedWrite | None, draws: int) -> list[str]:
    """Return the names of all losses at a crash point, with `draws` random losses of each kind."""
    found = [PROCESS]
    if write is not None and len(write.content) > 1:
        found += [f"{_WRITE} {len(write.content) // 2}", f"{_WRITE} {len(write.content) - 1}"]
    changes = [disk.unsynced_changes for disk in disks]
    files = [len(disk.unsynced_files()) for disk in disks]
    if not any(changes) and not any(files):
        return found
    found.append(ALL)
    for number in range(len(disks)):
        found += [f"{_NAMES} {number}:{kept}" for kept in range(changes[number])]
        found += [f"{_SKIPPED} {number}:{each}" for each in range(changes[number] - 1)]
        found += [f"{_DATA} {number}:{changes[number]}"] if files[number] else []
        if files[number] > 1:
            found += [f"{_LOST} {number}:{each}" for each in range(files[number])]
            found += [f"{_KEPT} {number}:{each}" for each in range(files[number])]
    if sum(changes) + sum(files) > 1:
        found += [f"{kind} {number}" for kind in _RANDOM for number in range(draws)]
    return found


def few_loss_names(
    disks: Sequence[SimDisk], write: UnfinishedWrite | None, number: int
) -> list[str]:
    """Return the names of at most three losses at a crash point.

    The losses are PROCESS, ALL, and one more, whose kind follows from `number`.
    """
    kinds = list(_RANDOM)
    number %= len(kinds) + 1
    found = [PROCESS]
    if write is not None and len(write.content) > 1 and number == len(kinds):
        found.append(f"{_WRITE} {len(write.content) // 2}")
    if any(disk.unsynced_changes or disk.unsynced_files() for disk in disks):
        found.append(ALL)
        if number < len(kinds):
            found.append(f"{kinds[number]} 0")
    return found


def suffer(
    name: str, disks: Sequence[SimDisk], write: UnfinishedWrite | None, seed: int, point: str
) -> None:
    """Let disks suffer the loss `name`, which is one of `loss_names` at the crash point `point`.

    The random losses are drawn from `seed`, `point` and `name`.

    Raises ValueError if there is no such loss.
    """
    kind, _, rest = name.partition(" ")
    if kind == PROCESS:
        return
    if kind == _WRITE and write is not None and rest.isdigit():
        disk = disks[write.disk]
        part = write.content[: int(rest)]
        disk.write(disk.file(write.path), write.path, (part,), write.position)
        return
    if name.rpartition(" ")[0] in _RANDOM:
        draw = stream(seed, "loss", point, name)
        for disk in disks:
            disk.lose_power(draw, _RANDOM[name.rpartition(" ")[0]])
        return
    if kind == ALL and not rest:
        for disk in disks:
            disk.lose_power(random.Random(0), Loss.ALL_UNSYNCED)
        return
    number, _, which = rest.partition(":")
    if kind not in (_NAMES, _SKIPPED, _DATA, _LOST, _KEPT) or not (
        number.isdigit() and which.isdigit()
    ):
        raise ValueError(f"{name!r} is no loss")
    for each, disk in enumerate(disks):
        if each == int(number):
            _lose_some(disk, kind, int(which))
        else:
            disk.lose_power(random.Random(0), Loss.ALL_UNSYNCED)


def _lose_some(disk: SimDisk, kind: str, which: int) -> None:
    if kind == _SKIPPED:
        disk.lose_change(which)
        return
    files = disk.unsynced_files()
    changes = which if kind in (_NAMES, _DATA) else disk.unsynced_changes
    lost = {
        _NAMES: [],
        _DATA: files,
        _LOST: files[which : which + 1],
        _KEPT: files[:which] + files[which + 1 :],
    }[kind]
    disk.lose(changes, lost)
