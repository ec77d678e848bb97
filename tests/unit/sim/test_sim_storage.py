"""The storage checks: a disk that brokers left is in order, and each kind of damage is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import crc32c
import pytest

from tidelog.sim.checkers.storage_checker import check_disk
from tidelog.sim.disk import SimDisk
from tidelog.sim.run import SeedRun
from tidelog.sim.simulator import CollectorPaused

NODE = 1


@pytest.fixture(scope="module")
def disk() -> Iterator[SimDisk]:
    """The disk of a broker after a run with small segments."""
    with CollectorPaused():
        run = SeedRun(0, "damaged_disks")
        run.faults.begin = lambda: None  # type: ignore[method-assign]  # replaced by the test
        assert not run.run().violation
    yield run.simulator.disks[(NODE, "/data")]


@pytest.fixture
def changed(disk: SimDisk) -> Iterator[Callable[[str, Callable[[bytearray], None]], str]]:
    """Changes the first file whose path matches; tells what the checks say; undone afterwards."""
    undo: list[Callable[[], None]] = []

    def change(pattern: str, how: Callable[[bytearray], None]) -> str:
        path = next(path for path, file in disk.files() if re.search(pattern, path))
        file = disk.file(path)
        before = bytes(file.data)

        def restore() -> None:
            file.data[:] = before

        undo.append(restore)
        how(file.data)
        assert bytes(file.data) != before
        problems = check_disk(disk, NODE, lambda topic: topic.startswith("__"))
        assert problems, f"nothing is told of {path}"
        return "\n".join(problems)

    yield change
    for restore in reversed(undo):
        restore()


Change = Callable[[str, Callable[[bytearray], None]], str]
OLD_LOG = r"steady-0/0{20}\.log"
OLD_INDEX = r"steady-0/0{20}\.index"
OLD_TIMES = r"steady-0/0{20}\.timeindex"
#: The first one: no later than where the second segment begins, which is flushed.
OLD_SNAPSHOT = r"steady-0/\d{20}\.snapshot"
SNAPSHOT_ROW_BYTES = 46
EPOCHS = r"steady-0/leader-epoch-checkpoint"


def flip(position: int, mask: int = 1) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[position] ^= mask

    return change


def cut(size_bytes: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        del data[size_bytes:]

    return change


def text(content: bytes) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[:] = content

    return change


def test_what_a_healthy_run_leaves_is_in_order(disk: SimDisk) -> None:
    assert check_disk(disk, NODE, lambda topic: topic.startswith("__")) == []
    names = [path.rpartition("/")[2] for path, _ in disk.files()]
    for kind in (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"):
        assert any(name.endswith(kind) for name in names), f"nothing to check: {kind}"
    points = bytes(disk.file("/data/recovery-point-offset-checkpoint").data).decode()
    assert int(re.findall(r"steady 0 (\d+)", points)[0]) > 40


def test_a_disk_that_nobody_has_opened_is_in_order() -> None:
    assert check_disk(SimDisk("/data"), NODE, lambda topic: False) == []


def test_a_wrong_checksum_is_told(changed: Change) -> None:
    assert "wrong CRC" in changed(OLD_LOG, flip(70))


def test_a_wrong_magic_is_told(changed: Change) -> None:
    assert "magic" in changed(OLD_LOG, flip(16))


def test_a_file_that_ends_within_a_batch_is_told(changed: Change) -> None:
    assert "are no batch" in changed(OLD_LOG, lambda data: cut(len(data) - 1)(data))


def test_a_batch_that_is_gone_is_told(changed: Change) -> None:
    def remove_second(data: bytearray) -> None:
        first = 12 + int.from_bytes(data[8:12], "big")
        size = 12 + int.from_bytes(data[first + 8 : first + 12], "big")
        del data[first : first + size]

    assert "expected" in changed(OLD_LOG, remove_second)


def test_an_end_that_is_gone_is_told(changed: Change) -> None:
    def remove_last(data: bytearray) -> None:
        at = last = 0
        while at < len(data):
            last = at
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        del data[last:]

    assert "expected" in changed(OLD_LOG, remove_last)


def test_an_offset_that_is_another_is_told(changed: Change) -> None:
    second = []

    def move(data: bytearray) -> None:
        second.append(12 + int.from_bytes(data[8:12], "big"))
        data[second[0] + 7] ^= 0x40

    assert "expected" in changed(OLD_LOG, move)


def test_a_leader_epoch_that_goes_back_is_told(changed: Change) -> None:
    assert "leader epoch" in changed(OLD_LOG, flip(15, 0x40))


def test_a_leader_epoch_that_the_checkpoint_does_not_know_is_told(changed: Change) -> None:
    def other(data: bytearray) -> None:
        epoch, start = map(int, data.decode().splitlines()[2].split())
        content = ["0", "2", f"{epoch} {start}", f"{epoch + 7} {start + 1}", ""]
        data[:] = "\n".join(content).encode()

    assert "and the file has" in changed(EPOCHS, other)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"1\n0\n", "do not fit"),
        (b"0\n2\n0 0\n", "do not fit"),
        (b"0\n1\n0 zero\n", "is not an epoch"),
        (b"0\n2\n1 0\n1 5\n", "cannot follow"),
        (b"0\n1\n\xff 0\n", "no text"),
    ],
)
def test_a_leader_epoch_checkpoint_that_is_none_is_told(
    changed: Change, content: bytes, told: str
) -> None:
    assert told in changed(EPOCHS, text(content))


def test_an_index_entry_beside_a_batch_is_told(changed: Change) -> None:
    assert "no batch" in changed(OLD_INDEX, flip(7))


def test_an_index_entry_of_another_offset_is_told(changed: Change) -> None:
    assert "at byte" in changed(OLD_INDEX, flip(3, 0x20))


def test_a_part_of_an_index_entry_is_told(changed: Change) -> None:
    assert "whole entries" in changed(OLD_INDEX, cut(5))


def test_index_entries_out_of_order_are_told(changed: Change) -> None:
    def swap(data: bytearray) -> None:
        data[:16] = data[8:16] + data[:8]

    assert "behind" in changed(OLD_INDEX, swap)


def test_another_timestamp_is_told(changed: Change) -> None:
    assert "which has" in changed(OLD_TIMES, flip(6))


def test_a_timestamp_of_another_offset_is_told(changed: Change) -> None:
    assert "which has" in changed(OLD_TIMES, flip(10, 0x20))


def test_a_time_index_that_ends_early_is_told(changed: Change) -> None:
    assert "is the largest" in changed(OLD_TIMES, lambda data: cut(len(data) - 12)(data))


def test_a_producer_snapshot_that_is_none_is_told(changed: Change) -> None:
    assert "checksum" in changed(r"steady-0/.*\.snapshot", flip(12))
    assert "entries has" in changed(r"steady-0/.*\.snapshot", cut(20))


def rewritten(position: int, by: int, drop_rows: int = 0) -> Callable[[bytearray], None]:
    """Add to the byte of a snapshot, drop its last rows, and make its checksum that of the rest."""

    def change(data: bytearray) -> None:
        data[position] = (data[position] + by) & 0xFF
        if drop_rows:
            del data[-drop_rows * SNAPSHOT_ROW_BYTES :]
            count = int.from_bytes(data[6:10], "big") - drop_rows
            data[6:10] = count.to_bytes(4, "big")
        data[2:6] = crc32c.crc32c(bytes(data[6:])).to_bytes(4, "big")

    return change


@pytest.mark.parametrize(
    ("position", "by"),
    [(17, 1), (19, 1), (23, 1), (31, -1)],
    ids=["producer id", "epoch", "last sequence", "last offset"],
)
def test_a_producer_snapshot_of_another_history_is_told(
    changed: Change, position: int, by: int
) -> None:
    told = changed(OLD_SNAPSHOT, rewritten(position, by))
    assert re.search(r"has written sequence \d+ at offset \d+, where", told)


def test_a_producer_that_its_snapshot_does_not_know_is_told(changed: Change) -> None:
    assert "it does not have producer" in changed(OLD_SNAPSHOT, rewritten(0, 0, 1))


@pytest.mark.parametrize(
    "name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint"]
)
def test_a_checkpoint_that_claims_too_much_is_told(changed: Change, name: str) -> None:
    told = changed(name, text(b"0\n1\nsteady 0 99999\n"))
    assert "offset 99999 for steady-0, which ends at" in told


def test_a_checkpoint_that_is_none_is_told(changed: Change) -> None:
    assert "do not fit" in changed("replication-offset-checkpoint", cut(3))


def test_whose_disk_it_is_must_be_told(changed: Change, disk: SimDisk) -> None:
    assert "is not broker 1" in changed("meta.properties", text(b"broker.id=2\ncluster.id=x\n"))


def test_another_brokers_disk_is_told(disk: SimDisk) -> None:
    assert "is not broker 2" in check_disk(disk, 2, lambda topic: True)[0]


def test_a_replica_must_tell_its_topic_id(changed: Change) -> None:
    without = b"version: 0\nsomething_else: AAAAAAAAAAAAAAAAAAAAAA\n"
    assert "topic id" in changed(r"steady-0/partition.metadata", text(without))


def test_a_topic_id_may_be_torn_with_the_power(disk: SimDisk) -> None:
    path = next(path for path, _ in disk.files() if "steady-0/partition.metadata" in path)
    del disk.file(path).data[len("version: 0\n") :]
    assert check_disk(disk, NODE, lambda topic: topic.startswith("__")) == []


def test_what_the_simulator_flipped_is_not_told_again(disk: SimDisk) -> None:
    path = next(path for path, _ in disk.files() if re.search(OLD_LOG, path))
    disk.flip(path, 70, 1)
    assert check_disk(disk, NODE, lambda topic: topic.startswith("__")) == []
    disk.file(path).data[70] ^= 1
    assert not disk.is_damaged
