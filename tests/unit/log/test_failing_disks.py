"""Disks that fail: a full one costs the append that met it, a broken one the directory."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.log import (
    NOW_MS,
    TOPIC_ID,
    TP,
    LogHarness,
    append,
    batch_of,
    directory_of,
    drive,
    values_of,
)

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.types import CleanEpochs
from tidelog.log.append_validation import note_refused
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.records.builder import Producer

Small = Callable[..., LogConfig]


def planned(log: PartitionLog, count: int, epoch: int = 0) -> list[Completion[Any]]:
    entry = log.producers.entry(5)
    first = entry.last_sequence + 1 if entry else 0
    return [
        log.plan_leader_append(
            batch_of([bytes(80)], producer=Producer(5, 0, first + number)), epoch, NOW_MS
        )
        for number in range(count)
    ]


def state(log: PartitionLog) -> tuple[Any, ...]:
    return (
        log.next_offset,
        log.log_end_offset,
        log.size_bytes,
        log.epochs.entries(),
        {key: entry.batches for key, entry in log.producers.entries().items()},
    )


@pytest.mark.parametrize("room", [0, 1, 100, 149, 150, 160, 320, 449])
def test_a_full_disk_fails_that_append_and_all_behind_it(harness: LogHarness, room: int) -> None:
    log = harness.log()
    planned(log, 1)
    log.submit_planned()
    size = log.size_bytes
    log.assign_epoch(3, 1)
    harness.files.room_bytes = room
    completions = planned(log, 3, epoch=3)
    log.submit_planned()
    whole = room // size
    for completion in completions[:whole]:
        assert completion.result().base_offset
    for completion in completions[whole:]:
        error = completion.error
        assert isinstance(error, StorageError) and error.is_full
    assert log.next_offset == log.log_end_offset == 1 + whole
    path = harness.log_path / "00000000000000000000.log"
    assert path.stat().st_size == log.size_bytes == size * (1 + whole), "cut back"
    entry = log.producers.entry(5)
    assert entry is not None and entry.last_sequence == whole
    assert log.epochs.entries() == [(0, 0), (3, 1)]
    assert directory_of(log).failure is None
    if whole < 3:
        harness.space_returns()
    harness.files.room_bytes = None
    planned(log, 2, epoch=3)
    log.submit_planned()
    assert log.log_end_offset == 3 + whole and len(values_of(log)) == 3 + whole


@pytest.mark.rule("V38")
def test_a_new_producers_second_batch_does_not_come_before_one_that_found_no_room(
    harness: LogHarness,
) -> None:
    log = harness.log()
    large = batch_of([bytes(400)] * 2, producer=Producer(5, 0, 0))
    small = batch_of([b"x"], producer=Producer(5, 0, 2))
    harness.files.room_bytes = 200
    refused = log.plan_leader_append(bytearray(large), 0, NOW_MS)
    log.submit_planned()
    assert isinstance(refused.error, StorageError) and refused.error.is_full
    harness.space_returns()
    with pytest.raises(KafkaError, match="sent sequence 2 behind 0, which was refused") as early:
        log.plan_leader_append(bytearray(small), 0, NOW_MS)
    assert early.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    for again in (large, small):
        log.plan_leader_append(bytearray(again), 0, NOW_MS)
        log.submit_planned()
    assert values_of(log) == [bytes(400), bytes(400), b"x"]


@pytest.mark.rule("V38")
def test_what_stands_behind_a_batch_that_found_no_room_gets_its_error_until_it_comes(
    harness: LogHarness,
) -> None:
    """A known producer has five batches in flight; room comes back behind the second one."""
    log = harness.log()
    append(log, [b"before"], producer=Producer(5, 0, 0))
    values = [bytes([number]) * 80 for number in range(1, 6)]

    def send(sequence: int) -> ErrorCode:
        data = batch_of([values[sequence - 1]], producer=Producer(5, 0, sequence))
        try:
            completion = log.plan_leader_append(data, 0, NOW_MS)
        except KafkaError as error:
            return error.code
        log.submit_planned()
        if isinstance(completion.error, StorageError):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    harness.files.room_bytes = 10
    assert send(1) == ErrorCode.KAFKA_STORAGE_ERROR
    harness.space_returns()
    assert send(2) == ErrorCode.KAFKA_STORAGE_ERROR
    assert [send(3), send(4)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert send(1) == ErrorCode.NONE
    assert send(5) == ErrorCode.KAFKA_STORAGE_ERROR, "it was in flight with the others"
    assert [send(sequence) for sequence in (2, 3, 4, 5)] == [ErrorCode.NONE] * 4
    assert values_of(log) == [b"before", *values]
    assert (
        log.plan_leader_append(batch_of([values[4]], producer=Producer(5, 0, 5)), 0, NOW_MS)
        .result()
        .duplicate
    )


@pytest.mark.rule("V38")
def test_nor_before_one_that_too_few_replicas_kept_out(harness: LogHarness) -> None:
    log = harness.log()
    error = ErrorCode.NOT_ENOUGH_REPLICAS
    now_ms = directory_of(log).clock.monotonic_ms()
    kept_out = batch_of([b"a"], producer=Producer(5, 0, 0))
    note_refused(log.producers.refused, kept_out, error, now_ms)
    with pytest.raises(KafkaError, match="sent sequence 1 behind 0") as early:
        log.plan_leader_append(batch_of([b"b"], producer=Producer(5, 0, 1)), 0, NOW_MS)
    assert early.value.code == error


def test_damaged_bytes_that_are_kept_out_tell_of_no_producer(harness: LogHarness) -> None:
    log = harness.log()
    damaged = batch_of([b"a"], producer=Producer(5, 0, 0))
    damaged[60] ^= 1
    note_refused(log.producers.refused, damaged, ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    note_refused(log.producers.refused, b"less than a batch", ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    note_refused(
        log.producers.refused, batch_of([b"of no producer"]), ErrorCode.NOT_ENOUGH_REPLICAS, 0
    )
    assert len(log.producers.refused) == 0
    append(log, [b"b"], producer=Producer(5, 0, 1))
    assert log.log_end_offset == 1


def test_what_is_planned_behind_a_failing_write_fails_with_it(harness: LogHarness) -> None:
    log = harness.log()
    harness.lane.slow_disk = True
    first = planned(log, 1)
    log.submit_planned()
    behind = planned(log, 2)
    before = state(log)
    log.submit_planned()
    log.assign_epoch(6, log.next_offset)
    harness.files.room_bytes = 0
    harness.lane.run()
    assert all(c.error is not None for c in first + behind)
    assert before[0] == 3 and state(log)[:3] == (0, 0, 0)
    assert len(log.producers) == 0
    assert log.epochs.entries() == [(6, 0)], "leadership stays, from the written end on"
    harness.lane.slow_disk = False
    harness.space_returns()
    append(log, [b"x"], epoch=6)
    assert log.epochs.entries() == [(6, 0)]


def test_a_segment_that_cannot_be_made_costs_the_append_only(
    harness: LogHarness, small: Small
) -> None:
    log = harness.log(small())
    for _ in range(5):
        planned(log, 1)
        log.submit_planned()
    before = state(log)
    segments = len(log.segments)
    harness.files.refuse = lambda call, path: (
        errno.ENOSPC if call == "open" and path.endswith(".log") else 0
    )
    (failed,) = planned(log, 1)
    log.plan_leader_append(batch_of([bytes(700)]), 0, NOW_MS)
    log.submit_planned()
    assert len(log.segments) == segments
    harness.space_returns()
    assert log.next_offset == log.log_end_offset
    append(log, [bytes(700)])
    assert len(log.segments) == segments + 1
    assert before[0] <= log.log_end_offset
    assert failed is not None


def test_when_cutting_back_fails_too_the_next_write_cuts(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    harness.files.room_bytes = 40
    harness.files.refuse = lambda call, path: errno.ENOMEM if call == "truncate" else 0
    (failed,) = planned(log, 1)
    log.submit_planned()
    assert failed.error is not None
    path = harness.log_path / "00000000000000000000.log"
    assert path.stat().st_size > log.size_bytes
    harness.space_returns()
    append(log, [b"b"])
    assert path.stat().st_size == log.size_bytes and values_of(log) == [b"a", b"b"]


def test_a_clean_end_cuts_what_a_failed_write_left(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    harness.files.room_bytes = 40
    harness.files.refuse = lambda call, path: errno.ENOMEM if call == "truncate" else 0
    planned(log, 1)
    log.submit_planned()
    harness.files.room_bytes = None
    harness.files.refuse = lambda call, path: 0
    drive(directory_of(log).close(CleanEpochs(4)))
    log = harness.again()
    assert directory_of(log).clean_shutdown == CleanEpochs(4)
    assert values_of(log) == [b"a"]
    assert not harness.tracer.named("log_recovered")


@pytest.mark.rule("D1")
@pytest.mark.parametrize(
    "number", [errno.EIO, errno.EROFS, errno.EACCES, errno.ENOENT, errno.ENXIO, errno.ESTALE]
)
def test_a_device_error_fails_the_directory_once(harness: LogHarness, number: int) -> None:
    log = harness.log()
    told: list[StorageError] = []
    directory_of(log).on_failure = told.append
    harness.files.refuse = lambda call, path: number if call == "pwritev" else 0
    (failed,) = planned(log, 1)
    log.submit_planned()
    error = failed.error
    assert isinstance(error, StorageError)
    assert (error.errno, error.operation, error.directory) == (
        number,
        "pwritev",
        str(harness.path),
    )
    assert error.path == str(harness.log_path / "00000000000000000000.log")
    assert told == [error] and directory_of(log).failure is error
    with pytest.raises(StorageError):
        planned(log, 1)
    assert log.flush().error is error
    assert directory_of(log).checkpoint().error is error
    assert directory_of(log).create(TP._replace(partition=3), TOPIC_ID, LogConfig()).error is error
    assert len(told) == 1


@pytest.mark.rule("D1")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC])
def test_other_errors_are_never_the_disk(harness: LogHarness, number: int) -> None:
    log = harness.log()
    harness.files.refuse = lambda call, path: number if call == "pwritev" else 0
    (failed,) = planned(log, 1)
    log.submit_planned()
    assert isinstance(failed.error, StorageError)
    assert directory_of(log).failure is None
    harness.space_returns()
    append(log, [b"a"])


@pytest.mark.rule("D17", "E3")
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINVAL])
def test_a_failed_fsync_is_never_tried_again(harness: LogHarness, number: int) -> None:
    log = harness.log()
    append(log, [b"a"])
    harness.files.refuse = lambda call, path: number if call == "fsync" else 0
    error = log.flush().error
    assert isinstance(error, StorageError) and error.is_device_failure
    assert log.recovery_point == 0 and directory_of(log).failure is error
    harness.files.refuse = lambda call, path: 0
    harness.files.calls.clear()
    assert log.flush().error is error
    assert harness.files.calls == []
    with pytest.raises(StorageError):
        drive(directory_of(log).close(CleanEpochs(1)))
    assert not (harness.path / ".kafka_cleanshutdown").exists()


@pytest.mark.rule("V39")
def test_a_checkpoint_that_does_not_fit_does_not_move_the_recovery_point(
    harness: LogHarness,
) -> None:
    log = harness.log()
    append(log, [b"a"], epoch=3)
    harness.files.refuse = lambda call, path: (
        errno.ENOSPC if call == "replace_file" and "leader-epoch" in path else 0
    )
    assert isinstance(log.flush().error, StorageError)
    assert log.recovery_point == 0 and directory_of(log).failure is None
    harness.files.refuse = lambda call, path: 0
    log.flush().result()
    assert log.recovery_point == 1
    assert (harness.log_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n3 0\n"


def test_a_failing_truncation_leaves_a_log_that_is_a_prefix(
    harness: LogHarness, small: Small
) -> None:
    log = harness.log(small())
    for number in range(30):
        append(log, [bytes([65 + number]) * 60])
    segments = [segment.base_offset for segment in log.segments]
    removed = f"{segments[-2]:020d}.log"
    harness.files.refuse = lambda call, path: (
        errno.ENOMEM if call == "unlink" and path.endswith(removed) else 0
    )
    done = log.truncate_to(2)
    assert isinstance(done.error, StorageError)
    assert [segment.base_offset for segment in log.segments] == segments[:-1]
    assert log.log_end_offset == log.next_offset == segments[-1]
    harness.files.refuse = lambda call, path: 0
    assert values_of(log) == [bytes([65 + number]) * 60 for number in range(segments[-1])]
    log.truncate_to(2).result()
    assert log.log_end_offset == 2


@pytest.mark.rule("V38")
@pytest.mark.parametrize("to", [2, 0, 77])
def test_a_failing_truncation_forgets_the_batches_that_it_has_removed(
    harness: LogHarness, small: Small, to: int
) -> None:
    log = harness.log(small())
    for number in range(30):
        append(log, [bytes([65 + number]) * 60], producer=Producer(7, 0, number))
    last, kept = (segment.base_offset for segment in (log.segments[-1], log.segments[-2]))
    harness.files.refuse = lambda call, path: (
        errno.ENOMEM if call == "unlink" and path.endswith(f"{kept:020d}.log") else 0
    )
    done = log.truncate_fully_and_start_at(to) if to != 2 else log.truncate_to(to)
    assert isinstance(done.error, StorageError)
    harness.files.refuse = lambda call, path: 0
    assert log.log_end_offset == last
    assert append(log, [b"again"], producer=Producer(7, 0, last)) == last
    assert log.log_end_offset == last + 1, "it is written, and not taken for one that is there"


@pytest.mark.parametrize("call", ["unlink", "fsync_directory", "truncate", "replace_file", "pread"])
def test_a_device_error_while_truncating_fails_the_directory(
    harness: LogHarness, small: Small, call: str
) -> None:
    log = harness.log(small())
    for number in range(30):
        append(log, [bytes([65 + number]) * 60])
    log.flush().result()
    directory_of(log).checkpoint().result()
    calls = (call, "pread_cached") if call == "pread" else (call,)
    harness.files.refuse = lambda name, path: errno.EIO if name in calls else 0
    done = log.truncate_to(5)
    assert isinstance(done.error, StorageError) and directory_of(log).failure is not None


def test_a_replica_whose_files_are_gone_takes_nothing_more(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    harness.files.refuse = lambda call, path: (
        errno.ENOMEM if call == "open" and path.endswith("077.log") else 0
    )
    assert isinstance(log.truncate_fully_and_start_at(77).error, StorageError)
    with pytest.raises(KafkaError):
        append(log, [b"b"])


def test_a_defect_in_an_operation_is_raised_not_swallowed(harness: LogHarness) -> None:
    log = harness.log()

    def defect(call: str, path: str) -> int:
        raise ValueError("a defect")

    harness.files.refuse = defect
    with pytest.raises(ValueError, match="a defect"):
        append(log, [b"a"])


def test_a_replica_that_cannot_be_made_is_an_error_of_that_replica(harness: LogHarness) -> None:
    directory = harness.open()
    harness.files.refuse = lambda call, path: errno.ENOSPC if call == "mkdir" else 0
    assert isinstance(directory.create(TP, TOPIC_ID, LogConfig()).error, StorageError)
    assert directory.logs == {} and directory.failure is None
    harness.space_returns()
    append(directory.create(TP, TOPIC_ID, LogConfig()).result(), [b"a"])
