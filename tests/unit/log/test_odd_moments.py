"""What happens at odd moments: two threads at one file, disks that fail in the middle of things,
replicas that go while somebody reads them."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import pytest
from tests.support.log import (
    NOW_MS,
    TP,
    FaultyFiles,
    LogHarness,
    append,
    batch_of,
    directory_of,
    values_of,
)

from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Handle
from tidelog.core.types import CleanEpochs
from tidelog.log.config import LogConfig
from tidelog.log.open_files import OpenFile
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import BatchView
from tidelog.runtime.files import OsFiles

Small = Callable[..., LogConfig]


def filled(harness: LogHarness, config: LogConfig) -> PartitionLog:
    log = harness.log(config)
    for number in range(30):
        append(log, [bytes([65 + number]) * 60], timestamp_ms=NOW_MS + number)
    return log


def on_disk_only(log: PartitionLog) -> None:
    for segment in log.segments[:-1]:
        segment.index = segment.time_index = None


def test_a_file_opened_by_two_threads_at_once_is_open_once(harness: LogHarness) -> None:
    harness.open()
    file = OpenFile(str(harness.path / "f"))
    inner: list[object] = []

    class Racing(FaultyFiles):
        def open(self, path: str, *, write: bool = False, create: bool = False) -> Handle:
            if not inner:
                inner.append(None)
                inner[0] = file.handle(self, create=True)
            return self._files.open(path, write=write, create=create)

    files = Racing(OsFiles())
    assert file.handle(files, create=True) is inner[0]
    assert [call for call, _ in files.calls] == ["close"]


@pytest.mark.parametrize("lookup", ["read", "timestamp", "newest", "cut"])
def test_an_index_that_cannot_be_read_fails_who_needs_it(
    harness: LogHarness, small: Small, lookup: str
) -> None:
    log = filled(harness, small())
    on_disk_only(log)
    harness.files.refuse = lambda call, path: errno.EIO if path.endswith("index") else 0
    error = {
        "read": lambda: log.read(0, 100, 30, min_one_batch=True).error,
        "timestamp": lambda: log.offset_for_timestamp(NOW_MS, 30).error,
        "newest": lambda: log.offset_for_timestamp(NOW_MS + 8, 30).error,
        "cut": lambda: log.truncate_to(2).error,
    }[lookup]()
    assert isinstance(error, StorageError) and directory_of(log).failure is error


def test_readers_of_one_index_share_one_read_of_it(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small())
    on_disk_only(log)
    harness.lane.eager = False
    reads = [log.read(0, 100, 30, min_one_batch=True) for _ in range(3)]
    assert harness.lane.names.count("read index") == 1
    harness.lane.run()
    assert [read.result().first_offset for read in reads] == [0, 0, 0]


def test_a_segment_that_went_while_its_index_was_read_is_out_of_range(
    harness: LogHarness, small: Small
) -> None:
    log = filled(harness, small())
    on_disk_only(log)
    harness.lane.eager = False
    read = log.read(0, 100, 30, min_one_batch=True)
    log.drop_oldest(1)
    harness.lane.run()
    assert isinstance(read.error, KafkaError)
    assert read.error.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_search_in_a_replica_that_went_says_so(harness: LogHarness) -> None:
    log = harness.log()
    append(log, [b"a"])
    directory_of(log).delete(TP).result()
    error = log.offset_for_timestamp(NOW_MS, 1).error
    assert isinstance(error, KafkaError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert directory_of(log).failure is None


def test_a_search_goes_on_where_a_header_promised_too_much(
    harness: LogHarness, small: Small
) -> None:
    log = harness.log(small(segment_bytes=300))
    for number in range(6):
        records = batch_of([b"v" * 60], timestamp_ms=NOW_MS + number)
        if number == 0:
            records[35:43] = struct.pack(">q", NOW_MS + 4)
            records[17:21] = struct.pack(">I", BatchView(records).computed_crc())
        log.plan_leader_append(records, 0, NOW_MS)
        log.submit_planned()
    assert len(log.segments) > 2
    found = log.offset_for_timestamp(NOW_MS + 3, 6).result()
    assert found == (NOW_MS + 3, 3, 0)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
def test_a_read_that_fails_on_the_loop_is_told_and_judged(harness: LogHarness, number: int) -> None:
    log = harness.log()
    append(log, [b"a"])
    directory_of(log).recent = None
    harness.files.refuse = lambda call, path: number if call == "pread_cached" else 0
    error = log.read(0, 100, 1, min_one_batch=True).error
    assert isinstance(error, StorageError) and error.errno == number
    assert (directory_of(log).failure is not None) == (number == errno.EIO)


@pytest.mark.parametrize("call", ["rename", "open"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_retention_that_fails_is_told_and_the_log_goes_on(
    harness: LogHarness, small: Small, call: str, number: int
) -> None:
    log = filled(harness, small(retention_ms=0))
    harness.files.refuse = lambda name, path: number if name == call else 0
    error = log.enforce_retention(NOW_MS * 2, 30).error
    assert isinstance(error, StorageError)
    assert (directory_of(log).failure is not None) == (number == errno.EIO)
    if number == errno.ENOSPC:
        harness.space_returns()
        append(log, [b"x"])
        assert values_of(log)[-1] == b"x"


def test_a_retention_that_waited_looks_again(harness: LogHarness, small: Small) -> None:
    log = filled(harness, small(retention_ms=0))
    harness.lane.eager = False
    cut = log.truncate_to(0)
    removed = log.enforce_retention(NOW_MS * 2, 30)
    harness.lane.run()
    cut.result()
    assert removed.result() == 0 and log.log_end_offset == 0


def test_a_removal_that_fails_later_is_judged(harness: LogHarness) -> None:
    log = harness.log(LogConfig(file_delete_delay_ms=10))
    append(log, [b"a"])
    directory_of(log).delete(TP).result()
    harness.files.refuse = lambda call, path: errno.EIO if call == "remove_tree" else 0
    harness.clock.advance(10)
    assert directory_of(log).failure is not None


def test_nothing_is_removed_after_the_directory_was_closed(harness: LogHarness) -> None:
    from tests.support.log import drive

    log = harness.log(LogConfig(file_delete_delay_ms=10))
    directory = directory_of(log)
    directory.delete(TP).result()
    drive(directory.close(CleanEpochs(1)))
    harness.files.calls.clear()
    harness.clock.advance(10)
    assert harness.files.calls == []


@pytest.mark.parametrize("suffix", ["delete", "stray"])
def test_a_rename_that_fails_is_told(harness: LogHarness, suffix: str) -> None:
    log = harness.log()
    directory = directory_of(log)
    harness.files.refuse = lambda call, path: errno.EIO if call == "rename" else 0
    done = directory.delete(TP) if suffix == "delete" else directory.set_aside(TP)
    assert isinstance(done.error, StorageError) and directory.failure is done.error
    assert isinstance(directory.purge_strays(NOW_MS, 0).result(), int)


def test_a_purge_that_fails_is_told(harness: LogHarness) -> None:
    directory = directory_of(harness.log())
    directory.set_aside(TP).result()
    harness.files.refuse = lambda call, path: errno.EIO if call == "remove_tree" else 0
    assert isinstance(directory.purge_strays(NOW_MS, 0).error, StorageError)


def test_a_repeated_batch_fails_with_its_original(harness: LogHarness) -> None:
    from tidelog.records.builder import Producer

    log = harness.log()
    records = batch_of([b"a"], producer=Producer(9, 0, 0))
    first = log.plan_leader_append(bytearray(records), 0, NOW_MS)
    repeated = log.plan_leader_append(records, 0, NOW_MS)
    harness.files.room_bytes = 0
    log.submit_planned()
    assert isinstance(first.error, StorageError) and repeated.error is first.error


def test_a_flush_that_fails_fails_the_appends_that_wait_for_it(harness: LogHarness) -> None:
    log = harness.log(LogConfig(flush_messages=1))
    harness.files.refuse = lambda call, path: errno.EIO if call == "fsync" else 0
    completion = log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS)
    log.submit_planned()
    assert isinstance(completion.error, StorageError)


def test_more_buffers_than_one_call_takes_are_written_in_several(harness: LogHarness) -> None:
    log = harness.log()
    plans = [log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS) for _ in range(2500)]
    log.submit_planned()
    assert [plan.result().base_offset for plan in plans] == list(range(2500))
    written = [path for call, path in harness.files.calls if call == "pwritev"]
    assert written.count(log.active_segment.file.path) == 3
    assert len(values_of(log)) == 2500
