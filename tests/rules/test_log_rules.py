"""Rules of the log: V34 (checkpoints), V38 (truncation), V39 (recovery point), D1 and D17 (disks).

Each on a log directory, with real files or on a simulated disk that loses power.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    FakeClock,
    FaultyFiles,
    SimLogHarness,
    StepLane,
    append,
    batch_of,
    directory_of,
    open_directory,
    read_all,
    values_of,
)
from tests.support.ports import FakeTracer

from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Work
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.log.refused_batches import EarlierBatchRefusedError
from tidelog.records.builder import Producer
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.files import OsFiles
from tidelog.runtime.lanes import ThreadLane
from tidelog.sim.disk import Loss


class Disk:
    """A log directory on real files, opened as often as a test likes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = FaultyFiles(OsFiles())
        self.lane = StepLane(str(path), self.files)
        self.clock = FakeClock()

    def open(self) -> LogDirectory:
        self.files = FaultyFiles(OsFiles())
        self.lane = StepLane(str(self.path), self.files)
        return open_directory(self.lane, LogConfig(), self.clock, FakeTracer())

    def new_log(self) -> PartitionLog:
        return self.open().create(TP, TOPIC_ID, LogConfig()).result()

    def text(self, name: str) -> str:
        return (self.path / name).read_text()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "logs")


# V34


@pytest.mark.rule("V34")
def test_high_watermarks_of_all_replicas_are_in_one_checkpoint_of_kafkas_format(disk: Disk) -> None:
    log = disk.new_log()
    for _ in range(4):
        append(log, [b"a"])
    other = TopicPartition("other", 7)
    directory_of(log).create(other, TOPIC_ID, LogConfig()).result()
    directory_of(log).write_high_watermarks({TP: 3, other: 0}).result()
    assert disk.text("replication-offset-checkpoint") == "0\n2\ntopic 0 3\nother 7 0\n"
    assert disk.open().high_watermarks == {TP: 3, other: 0}


@pytest.mark.rule("V34")
def test_a_checkpoint_that_is_being_written_is_not_done_for_a_second_caller(disk: Disk) -> None:
    log = disk.new_log()
    append(log, [b"a"])
    disk.lane.eager = False
    first, second = (directory_of(log).write_high_watermarks({TP: 1}) for _ in range(2))
    assert not first.done and not second.done
    disk.lane.run()
    assert first.done and second.done
    assert disk.text("replication-offset-checkpoint") == "0\n1\ntopic 0 1\n"


@pytest.mark.rule("V34")
def test_a_deleted_replica_is_renamed_first_and_removed_later(disk: Disk) -> None:
    log = disk.new_log()
    append(log, [b"a"])
    directory_of(log).delete(TP).result()
    (renamed,) = disk.path.glob("topic-0.*-delete")
    assert not (disk.path / "topic-0").exists() and (renamed / f"{0:020d}.log").exists()
    disk.clock.advance(60_000)
    assert not renamed.exists()


@pytest.mark.rule("V34")
@pytest.mark.parametrize("is_removed", [True, False])
def test_a_power_loss_brings_no_record_back_below_a_checkpointed_log_start(
    is_removed: bool,
) -> None:
    harness = SimLogHarness(0, LogConfig(segment_bytes=200))
    log = harness.open().create(TP, TOPIC_ID, harness.config).result()
    for number in range(8):
        append(log, [bytes([number]) * 50])
    log.flush().result()
    log.advance_log_start(log.base_offsets[2])
    directory = directory_of(log)
    directory.checkpoint().result()
    harness.lane.eager = is_removed
    log.enforce_retention(NOW_MS, log.log_end_offset)
    assert log.log_start_offset == log.base_offsets[0] > 0
    harness.lane.eager = True
    written = directory.checkpoint()
    harness.lane.run()
    written.result()
    harness.life.alive = False
    harness.disk.lose(0, ())
    again = harness.open().logs[TP]
    assert again.log_start_offset == log.log_start_offset
    assert read_all(again)[0].offset == log.log_start_offset


@pytest.mark.rule("V34")
def test_the_checkpoint_drops_a_log_start_once_the_removal_of_its_files_is_durable(
    disk: Disk,
) -> None:
    log = disk.open().create(TP, TOPIC_ID, LogConfig(segment_bytes=200)).result()
    for number in range(8):
        append(log, [bytes([number]) * 50])
    log.flush().result()
    start = log.base_offsets[2]
    log.advance_log_start(start)
    directory = directory_of(log)
    directory.checkpoint().result()
    log.enforce_retention(NOW_MS, log.log_end_offset).result()
    directory.checkpoint().result()
    assert disk.text("log-start-offset-checkpoint") == f"0\n1\ntopic 0 {start}\n"
    log.flush().result()
    directory.checkpoint().result()
    assert disk.text("log-start-offset-checkpoint") == "0\n0\n"
    assert disk.open().logs[TP].log_start_offset == start


# V38


@pytest.mark.rule("V38")
def test_truncation_takes_producers_and_leader_epochs_back_with_the_records(disk: Disk) -> None:
    log = disk.new_log()
    for number in range(6):
        append(log, [b"v"], epoch=number // 2, producer=Producer(4, 0, number))
    append(log, [b"v"], epoch=2, producer=Producer(5, 0, 0))
    log.truncate_to(3).result()
    assert (log.log_end_offset, log.next_offset) == (3, 3)
    assert log.epochs.entries() == [(0, 0), (1, 2)]
    entry = log.producers.entry(4)
    assert entry is not None and entry.last_sequence == 2
    assert log.producers.entry(5) is None
    again = log.plan_leader_append(batch_of([b"v"], producer=Producer(4, 0, 3)), 3, NOW_MS)
    log.submit_planned()
    assert again.result().base_offset == 3 and not again.result().duplicate


@pytest.mark.rule("V38")
def test_batches_that_were_refused_are_awaited_after_a_truncation_that_reads_producers_again(
    disk: Disk,
) -> None:
    log = disk.new_log()
    for number in range(8):
        append(log, [b"v"], producer=Producer(4, 0, number))
    before = log.producers
    now_ms = log.directory.clock.monotonic_ms()
    log.producers.refused.add(4, 0, (1, 2), ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
    log.truncate_to(1).result()
    assert log.producers is not before, "five batches are remembered, and seven went"
    with pytest.raises(KafkaError) as caught:
        log.plan_leader_append(batch_of([b"v"], producer=Producer(4, 0, 3)), 0, NOW_MS)
    assert isinstance(caught.value, EarlierBatchRefusedError)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.rule("V38")
def test_a_duplicate_gets_the_originals_offsets_and_not_before_it_is_written(disk: Disk) -> None:
    log = disk.new_log()
    disk.lane.slow_disk = True
    producer = Producer(4, 0, 0)
    original = log.plan_leader_append(batch_of([b"a", b"b"], producer=producer), 0, NOW_MS)
    log.submit_planned()
    repeated = log.plan_leader_append(batch_of([b"a", b"b"], producer=producer), 0, NOW_MS)
    assert not original.done and not repeated.done
    disk.lane.run()
    info = repeated.result()
    assert info.duplicate and (info.base_offset, info.last_offset) == (0, 1)
    assert log.next_offset == 2


@pytest.mark.rule("V38")
def test_a_power_loss_brings_no_truncated_batch_back_among_later_ones() -> None:
    harness = SimLogHarness(0, LogConfig(segment_bytes=300))
    log = harness.open().create(TP, TOPIC_ID, harness.config).result()
    append(log, [b"a"])
    append(log, [b"old"])
    log.flush().result()
    log.truncate_to(1).result()
    harness.lane.eager = False
    append(log, [b"new"], epoch=1)
    rolled = log.plan_leader_append(batch_of([bytes(200)]), 1, NOW_MS)
    log.submit_planned()
    harness.lane.run(1)
    assert rolled.done and len(log.segments) == 2
    harness.life.alive = False
    first = harness.disk.file(log.segments[0].file.path)
    harness.disk.lose(harness.disk.unsynced_changes, [first])
    log = harness.open().logs[TP]
    assert values_of(log) == [b"a"], "the old batch fits before the new segment, and has a checksum"


@pytest.mark.rule("V38")
def test_no_checkpoint_claims_what_a_truncation_takes(disk: Disk) -> None:
    log = disk.new_log()
    for _ in range(6):
        append(log, [b"v"])
    log.flush().result()
    directory_of(log).checkpoint().result()
    directory_of(log).write_high_watermarks({TP: 6}).result()
    log.truncate_to(2).result()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert disk.text(name) == "0\n1\ntopic 0 2\n"


@pytest.mark.rule("V38")
@pytest.mark.parametrize("seed", range(20))
def test_a_power_loss_after_a_truncation_mixes_no_histories(seed: int) -> None:
    """Old records may come back whole, with their epochs; never under the new epoch."""
    harness = SimLogHarness(seed)
    log = harness.open().create(TP, TOPIC_ID, harness.config).result()
    for number in range(8):
        append(log, [f"old {number}".encode()], epoch=1)
    log.flush().result()
    directory_of(log).checkpoint().result()
    log.truncate_to(4).result()
    for number in range(4, 7):
        append(log, [f"new {number}".encode()], epoch=5)
    harness.life.alive = False
    harness.disk.lose_power(harness.draw, Loss.UNSYNCED)
    log = harness.open().logs[TP]
    for record in read_all(log):
        expected = 5 if (record.value or b"").startswith(b"new") else 1
        assert log.epochs.epoch_at(record.offset) == expected
    assert values_of(log)[:4] == [f"old {n}".encode() for n in range(4)]


# V39


@pytest.mark.rule("V39")
@pytest.mark.rule("V31")
def test_becoming_leader_writes_no_file(disk: Disk) -> None:
    log = disk.new_log()
    disk.files.calls.clear()
    log.assign_epoch(3, 0)
    append(log, [b"a"], epoch=3)
    assert {call for call, _ in disk.files.calls} <= {"open", "pwritev"}
    assert not (disk.path / "topic-0" / "leader-epoch-checkpoint").exists()


@pytest.mark.rule("V39")
def test_the_recovery_point_passes_no_epoch_that_is_not_on_disk(disk: Disk) -> None:
    log = disk.new_log()
    append(log, [b"a"], epoch=3)
    disk.lane.eager = False
    flushed = log.flush()
    order: list[tuple[str, str]] = []
    disk.files.refuse = lambda call, path: order.append((call, path)) or 0  # type: ignore[func-returns-value]  # append() or 0
    assert log.recovery_point == 0
    disk.lane.run()
    flushed.result()
    assert log.recovery_point == 1
    assert disk.text("topic-0/leader-epoch-checkpoint") == "0\n1\n3 0\n"
    calls = [call for call, _ in order]
    assert calls.index("fsync") < calls.index("replace_file")


@pytest.mark.rule("V39")
def test_a_failed_epoch_checkpoint_keeps_the_recovery_point_back(disk: Disk) -> None:
    log = disk.new_log()
    append(log, [b"a"], epoch=3)
    disk.files.refuse = lambda call, path: (
        errno.ENOSPC if call == "replace_file" and path.endswith("leader-epoch-checkpoint") else 0
    )
    assert log.flush().error is not None
    directory_of(log).checkpoint().result()
    assert log.recovery_point == 0
    assert "topic 0 1" not in disk.text("recovery-point-offset-checkpoint")


@pytest.mark.rule("V39")
def test_entries_at_or_beyond_the_log_end_are_dropped_on_load(disk: Disk) -> None:
    log = disk.new_log()
    append(log, [b"a"], epoch=3)
    log.assign_epoch(8, 1)
    log.flush().result()
    assert disk.text("topic-0/leader-epoch-checkpoint") == "0\n2\n3 0\n8 1\n"
    assert disk.open().logs[TP].epochs.entries() == [(3, 0)]


@pytest.mark.rule("V39")
@pytest.mark.parametrize("seed", range(20))
def test_what_lies_below_the_recovery_point_survives_a_power_loss(seed: int) -> None:
    harness = SimLogHarness(seed, LogConfig(segment_bytes=600))
    log = harness.open().create(TP, TOPIC_ID, harness.config).result()
    for number in range(20):
        append(log, [bytes([number]) * 50], epoch=number // 6)
        if number == 13:
            log.flush().result()
            directory_of(log).checkpoint().result()
    epochs = log.epochs.entries()
    point = log.recovery_point
    assert point >= 14
    harness.life.alive = False
    harness.disk.lose_power(harness.draw, Loss.UNSYNCED)
    log = harness.open().logs[TP]
    assert log.log_end_offset >= point
    assert values_of(log) == [bytes([number]) * 50 for number in range(log.log_end_offset)]
    assert log.epochs.entries() == [entry for entry in epochs if entry[1] < log.log_end_offset]


@pytest.mark.rule("V39")
@pytest.mark.parametrize("seed", range(20))
def test_no_power_loss_raises_the_start_of_a_log(seed: int) -> None:
    """Segments are rolled and no flush is done; names reach the disk in any order."""
    harness = SimLogHarness(seed, LogConfig(segment_bytes=300))
    log = harness.open().create(TP, TOPIC_ID, harness.config).result()
    harness.lane.eager = False
    for number in range(8):
        written = log.plan_leader_append(batch_of([bytes([number]) * 50]), 0, NOW_MS)
        log.submit_planned()
        if not written.done:
            # The write overtakes the flush that waits.
            harness.lane.waiting.rotate(1)
            harness.lane.run(1)
        written.result()
    assert len(log.segments) > 2 and log.recovery_point == 0
    harness.life.alive = False
    harness.disk.lose_power(harness.draw, Loss.REORDERED)
    log = harness.open().logs[TP]
    assert log.log_start_offset == 0
    assert values_of(log) == [bytes([number]) * 50 for number in range(log.log_end_offset)]


# D1, D17


@pytest.mark.rule("D1")
@pytest.mark.parametrize(
    "number", [errno.EIO, errno.EROFS, errno.EACCES, errno.ENOENT, errno.ENXIO, errno.ESTALE]
)
def test_the_first_device_error_on_any_access_fails_the_directory(disk: Disk, number: int) -> None:
    log = disk.new_log()
    append(log, [b"a"])
    directory_of(log).recent = None  # else it would be read from memory
    told: list[StorageError] = []
    directory_of(log).on_failure = told.append
    disk.files.refuse = lambda call, path: number if call.startswith("pread") else 0
    error = log.read(0, 100, 1, min_one_batch=True).error
    assert isinstance(error, StorageError) and told == [error]
    assert (error.errno, error.path) == (number, f"{disk.path}/topic-0/{0:020d}.log")
    with pytest.raises(StorageError):
        append(log, [b"b"])


@pytest.mark.rule("D1")
@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM]
)
def test_a_full_disk_or_lack_of_something_else_is_not_a_device_error(
    disk: Disk, number: int
) -> None:
    log = disk.new_log()
    directory_of(log).on_failure = lambda error: pytest.fail(str(error))
    disk.files.refuse = lambda call, path: number if call == "pwritev" else 0
    completion = log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS)
    log.submit_planned()
    assert isinstance(completion.error, StorageError) and completion.error.errno == number
    disk.files.refuse = lambda call, path: 0
    directory_of(log).space.freed()
    append(log, [b"b"])
    assert values_of(log) == [b"b"] and directory_of(log).failure is None


@pytest.mark.rule("D1")
def test_an_expected_missing_file_is_no_device_error(disk: Disk) -> None:
    log = disk.new_log()
    append(log, [b"a"])
    directory_of(log).delete(TP).result()
    error = log.read(0, 100, 1, min_one_batch=True).error
    assert isinstance(error, KafkaError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert directory_of(log).failure is None


@pytest.mark.rule("D1")
def test_a_lane_reports_directory_call_path_errno_and_time(tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        lane = ThreadLane(str(tmp_path), loop, SystemClock(loop))
        path = str(tmp_path / "missing")
        for work in Work:
            with pytest.raises(StorageError) as caught:
                await lane.submit(lambda files: files.unlink(path), work, "test")
            error = caught.value
            assert (error.directory, error.operation, error.path, error.errno) == (
                str(tmp_path), "unlink", path, errno.ENOENT,
            )  # fmt: skip
            assert error.at_ms > 0
        await lane.close()

    asyncio.run(main())


@pytest.mark.rule("D17")
@pytest.mark.parametrize("call", ["fsync", "fsync_directory"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_fsync_nothing_counts_as_durable(disk: Disk, call: str, number: int) -> None:
    log = disk.new_log()
    append(log, [b"a"])
    disk.files.refuse = lambda name, path: number if name == call else 0
    error = log.flush().error
    assert isinstance(error, StorageError) and error.is_device_failure
    assert log.recovery_point == 0 and directory_of(log).failure is error
    disk.files.refuse = lambda name, path: 0
    disk.files.calls.clear()
    assert log.flush().error is error and disk.files.calls == []
