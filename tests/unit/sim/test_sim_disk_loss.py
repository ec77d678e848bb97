"""Each way in which a simulated disk loses or refuses something really happens."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.log import FakeClock

from tidelog.core.ports import Handle
from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.files import SimFiles

PATH = "/data/log"
WRITES = (b"a" * 700, b"b" * 700, b"c" * 700)
SEEDS = range(120)


def files_of(disk: SimDisk) -> SimFiles:
    incarnation: Any = SimpleNamespace(
        port_call=lambda name: None, alive=True, clock=FakeClock(), check_alive=lambda: None
    )
    return SimFiles(incarnation, disk, random.Random(3))


def opened(disk: SimDisk) -> tuple[SimFiles, Handle]:
    files = files_of(disk)
    handle = files.open(PATH, create=True)
    files.fsync_directory("/data")
    return files, handle


def after(loss: Loss, seed: int) -> tuple[SimDisk, bytes]:
    disk = SimDisk("/data")
    files, handle = opened(disk)
    for number, content in enumerate(WRITES):
        files.pwritev(handle, [content], number * 700)
    disk.lose_power(random.Random(seed), loss)
    return disk, bytes(disk.file(PATH).data)


def written(content: bytes) -> tuple[bool, ...]:
    return tuple(content[n * 700 : n * 700 + 700] == part for n, part in enumerate(WRITES))


def test_a_prefix_survives_and_never_all() -> None:
    left = {after(Loss.PREFIX, seed)[1] for seed in SEEDS}
    assert left == {b"", WRITES[0], WRITES[0] + WRITES[1]}


def test_the_first_lost_write_is_torn_at_a_sector() -> None:
    torn = 0
    for seed in SEEDS:
        disk, content = after(Loss.TORN, seed)
        assert disk.effects == {"lost: torn": 1}
        kept = written(content).index(False) * 700
        body = content[kept:].rstrip(b"\0")
        assert body == b"".join(WRITES)[kept : kept + len(body)]
        assert not body or (kept + len(body)) % 512 == 0
        torn += bool(content[kept:])
    assert torn > len(SEEDS) / 3


def test_later_writes_survive_earlier_ones() -> None:
    patterns = {written(after(Loss.REORDERED, seed)[1]) for seed in SEEDS}
    assert {(False, True, True), (False, False, True), (False, True, False)} <= patterns
    for pattern in patterns:
        assert any(later and not earlier for earlier, later in pairwise(pattern)), pattern
    content = next(c for c in (after(Loss.REORDERED, s)[1] for s in SEEDS) if not written(c)[0])
    assert content[:700] == bytes(700), "what is missing in the middle reads as zeros"


def test_a_lone_write_is_lost_or_not_when_others_are_reordered() -> None:
    seen = set()
    for seed in SEEDS:
        disk = SimDisk("/data")
        files, handle = opened(disk)
        files.pwritev(handle, [b"x"], 0)
        disk.lose_power(random.Random(seed), Loss.REORDERED)
        seen.add(bytes(disk.file(PATH).data))
    assert seen == {b"", b"x"}


@pytest.mark.parametrize("loss", [Loss.PREFIX, Loss.TORN, Loss.REORDERED])
def test_names_are_lost_or_kept_apart_from_contents(loss: Loss) -> None:
    seen = set()
    for seed in SEEDS:
        disk = SimDisk("/data")
        files = files_of(disk)
        handle = files.open("/data/old", create=True)
        files.fsync_directory("/data")
        files.pwritev(handle, [b"1"], 0)
        files.fsync(handle)
        files.rename("/data/old", "/data/new")
        made = files.open("/data/made", create=True)
        files.pwritev(made, [b"22"], 0)
        files.fsync(made)
        disk.lose_power(random.Random(seed), loss)
        seen.add(tuple((path, bytes(file.data)) for path, file in disk.files()))
        if len(disk.files()) == 1:
            assert disk.effects["names lost"] == 1
    old, new, new_file = ("/data/old", b"1"), ("/data/new", b"1"), ("/data/made", b"22")
    expected = {(old,), (new,), (new_file, new)}
    if loss is Loss.REORDERED:
        expected.add((new_file, old))
    assert seen == expected


def test_a_name_does_not_survive_one_that_it_follows() -> None:
    """What was put in the place of another thing, or into a directory, needs that to be gone, or
    there."""
    for seed in SEEDS:
        disk = SimDisk("/data")
        files = files_of(disk)
        first = files.open(PATH, create=True)
        files.pwritev(first, [b"first"], 0)
        files.fsync(first)
        files.fsync_directory("/data")
        files.rename(PATH, "/data/aside")
        second = files.open(PATH, create=True)
        files.fsync(second)
        disk.lose_power(random.Random(seed), Loss.REORDERED)
        content = {path: bytes(file.data) for path, file in disk.files()}
        assert b"first" in content.values()


def test_a_failed_fsync_drops_what_was_dirty_and_a_later_one_lies() -> None:
    disk = SimDisk("/data")
    files, handle = opened(disk)
    files.pwritev(handle, [b"safe"], 0)
    files.fsync(handle)
    files.pwritev(handle, [b"gone"], 4)
    disk.fault = lambda call, path: errno.EIO if call == "fsync" else 0
    with pytest.raises(OSError):
        files.fsync(handle)
    disk.fault = None
    files.pwritev(handle, [b"late"], 8)
    files.fsync(handle)
    assert files.pread(handle, 20, 0) == b"safegonelate", "still in the page cache"
    assert disk.has_dropped and disk.effects == {"EIO fsync": 1, "pages dropped": 1}
    files.pwritev(handle, [b"more"], 12)
    disk.lose_power(random.Random(1), Loss.ALL_UNSYNCED)
    assert bytes(disk.file(PATH).data) == b"safe\0\0\0\0late"
    assert not disk.has_dropped


def test_a_failed_fsync_of_nothing_dirty_drops_nothing() -> None:
    disk = SimDisk("/data")
    files, handle = opened(disk)
    disk.fault = lambda call, path: errno.EIO
    with pytest.raises(OSError):
        files.fsync(handle)
    assert not disk.has_dropped


@pytest.mark.parametrize("call", ["pread", "pwritev", "fsync", "rename", "listdir"])
def test_a_planned_error_is_raised_by_its_call_alone(call: str) -> None:
    disk = SimDisk("/data")
    files, handle = opened(disk)
    disk.fault = lambda name, path: errno.EIO if name == call else 0
    calls: dict[str, Callable[[], object]] = {
        "pwritev": lambda: files.pwritev(handle, [b"x"], 0),
        "pread": lambda: files.pread(handle, 1, 0),
        "fsync": lambda: files.fsync(handle),
        "rename": lambda: files.rename(PATH, "/data/other"),
        "listdir": lambda: files.listdir("/data"),
    }
    for name, made in calls.items():
        if name == call:
            with pytest.raises(OSError) as caught:
                made()
            assert caught.value.errno == errno.EIO
        else:
            made()
    assert disk.effects[f"EIO {call}"] == 1


def test_writes_are_short_as_often_as_planned() -> None:
    disk = SimDisk("/data")
    files, handle = opened(disk)
    disk.short_writes = 2
    content = b"0123456789" * 50
    position = 0
    sizes = []
    while position < len(content):
        sizes.append(files.pwritev(handle, [content[position:]], position))
        position += sizes[-1]
    assert bytes(disk.file(PATH).data) == content
    assert len(sizes) == 3 and disk.effects == {"short write": 2} and disk.short_writes == 0


def test_bits_that_flip_stay_so_and_what_was_there_is_known() -> None:
    disk = SimDisk("/data")
    files, handle = opened(disk)
    files.pwritev(handle, [b"0123"], 0)
    disk.touched.clear()
    disk.flip(PATH, 2, 4)
    assert disk.touched == {disk.file(PATH): 0} and disk.is_damaged
    disk.lose_power(random.Random(1), Loss.ALL_UNSYNCED)
    assert bytes(disk.file(PATH).data) == b"0163"
    assert bytes(disk.file(PATH).undamaged()) == b"0123"
    files.pwritev(handle, [b"45"], 4)
    assert bytes(disk.file(PATH).undamaged()) == b"012345"
    files.truncate(handle, 2)
    files.pwritev(handle, [b"99"], 2)
    assert bytes(disk.file(PATH).undamaged()) == b"0199", "what is written over it is no damage"
    assert not disk.is_damaged


def test_bits_that_flipped_are_no_less_damage_where_they_were_read_and_written_again() -> None:
    disk = SimDisk("/data")
    files, handle = opened(disk)
    files.pwritev(handle, [b"0123"], 0)
    disk.flip(PATH, 2, 4)
    read = bytes(disk.file(PATH).data)
    files.replace_file(PATH, read + b"45", sync=True)
    assert disk.is_damaged and bytes(disk.file(PATH).undamaged()) == b"012345"
    files.replace_file(PATH, b"01234567", sync=True)
    assert not disk.is_damaged and bytes(disk.file(PATH).undamaged()) == b"01234567"


def test_a_file_that_is_cut_short_stays_so() -> None:
    disk = SimDisk("/data")
    files, handle = opened(disk)
    files.pwritev(handle, [b"0123"], 0)
    disk.cut_short(PATH, 3)
    disk.lose_power(random.Random(1), Loss.ALL_UNSYNCED)
    assert bytes(disk.file(PATH).data) == b"012" and disk.used_bytes == 3
    assert disk.file(PATH) in disk.cut_files


def test_a_replaced_disk_is_empty_for_good() -> None:
    disk = SimDisk("/data")
    disk.make_directories("/data/t-0")
    files, handle = opened(disk)
    files.pwritev(handle, [b"0123"], 0)
    files.fsync(handle)
    disk.replace()
    assert disk.files() == [] and disk.used_bytes == 0
    disk.lose_power(random.Random(1), Loss.UNSYNCED)
    assert files.listdir("/data") == []
