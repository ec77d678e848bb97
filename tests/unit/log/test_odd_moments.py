"""What happens at odd moments: two threads at one file, disks that fail in the middle of things,
replicas that go while somebody reads them."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import pytest
from tests.unit.log.conftest import Rig
from tests.unit.log.log_rig import NOW_MS, TP, FaultyFiles, append, batch_of, values_of

from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.log.config import LogConfig
from tidelog.log.open_files import OpenFile
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import BatchView
from tidelog.runtime.files import OsFiles

Small = Callable[..., LogConfig]


def filled(rig: Rig, config: LogConfig) -> PartitionLog:
    log = rig.log(config)
    for number in range(30):
        append(log, [bytes([65 + number]) * 60], timestamp_ms=NOW_MS + number)
    return log


def on_disk_only(log: PartitionLog) -> None:
    for segment in log.segments[:-1]:
        segment.index = segment.time_index = None


def test_a_file_opened_by_two_threads_at_once_is_open_once(rig: Rig) -> None:
    rig.open()
    file = OpenFile(str(rig.path / "f"))
    inner: list[object] = []

    class Racing(FaultyFiles):
        def open(self, path: str, **named: object) -> object:
            if not inner:
                inner.append(None)
                inner[0] = file.handle(self, create=True)
            return self._files.open(path, **named)  # type: ignore[arg-type]

    files = Racing(OsFiles())
    assert file.handle(files, create=True) is inner[0]
    assert [call for call, _ in files.calls] == ["close"]


@pytest.mark.parametrize("lookup", ["read", "timestamp", "newest", "cut"])
def test_an_index_that_cannot_be_read_fails_who_needs_it(
    rig: Rig, small: Small, lookup: str
) -> None:
    log = filled(rig, small())
    on_disk_only(log)
    rig.files.refuse = lambda call, path: errno.EIO if path.endswith("index") else 0
    error = {
        "read": lambda: log.read(0, 100, 30, min_one_batch=True).error,
        "timestamp": lambda: log.offset_for_timestamp(NOW_MS, 30).error,
        "newest": lambda: log.offset_for_timestamp(NOW_MS + 8, 30).error,
        "cut": lambda: log.truncate_to(2).error,
    }[lookup]()
    assert isinstance(error, StorageError) and log.directory.failure is error


def test_readers_of_one_index_share_one_read_of_it(rig: Rig, small: Small) -> None:
    log = filled(rig, small())
    on_disk_only(log)
    rig.lane.eager = False
    reads = [log.read(0, 100, 30, min_one_batch=True) for _ in range(3)]
    assert rig.lane.names.count("read index") == 1
    rig.lane.run()
    assert [read.result().first_offset for read in reads] == [0, 0, 0]


def test_a_segment_that_went_while_its_index_was_read_is_out_of_range(
    rig: Rig, small: Small
) -> None:
    log = filled(rig, small())
    on_disk_only(log)
    rig.lane.eager = False
    read = log.read(0, 100, 30, min_one_batch=True)
    log.drop_oldest(1)
    rig.lane.run()
    assert isinstance(read.error, KafkaError)
    assert read.error.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_search_in_a_replica_that_went_says_so(rig: Rig) -> None:
    log = rig.log()
    append(log, [b"a"])
    log.directory.delete(TP).result()
    error = log.offset_for_timestamp(NOW_MS, 1).error
    assert isinstance(error, KafkaError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.directory.failure is None


def test_a_search_goes_on_where_a_header_promised_too_much(rig: Rig, small: Small) -> None:
    log = rig.log(small(segment_bytes=300))
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
def test_a_read_that_fails_on_the_loop_is_told_and_judged(rig: Rig, number: int) -> None:
    log = rig.log()
    append(log, [b"a"])
    log.directory.recent = None
    rig.files.refuse = lambda call, path: number if call == "pread_cached" else 0
    error = log.read(0, 100, 1, min_one_batch=True).error
    assert isinstance(error, StorageError) and error.errno == number
    assert (log.directory.failure is not None) == (number == errno.EIO)


@pytest.mark.parametrize("call", ["rename", "open"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_retention_that_fails_is_told_and_the_log_goes_on(
    rig: Rig, small: Small, call: str, number: int
) -> None:
    log = filled(rig, small(retention_ms=0))
    rig.files.refuse = lambda name, path: number if name == call else 0
    error = log.enforce_retention(NOW_MS * 2, 30).error
    assert isinstance(error, StorageError)
    assert (log.directory.failure is not None) == (number == errno.EIO)
    if number == errno.ENOSPC:
        rig.files.refuse = lambda name, path: 0
        append(log, [b"x"])
        assert values_of(log)[-1] == b"x"


def test_a_retention_that_waited_looks_again(rig: Rig, small: Small) -> None:
    log = filled(rig, small(retention_ms=0))
    rig.lane.eager = False
    cut = log.truncate_to(0)
    removed = log.enforce_retention(NOW_MS * 2, 30)
    rig.lane.run()
    cut.result()
    assert removed.result() == 0 and log.log_end_offset == 0


def test_a_removal_that_fails_later_is_judged(rig: Rig) -> None:
    log = rig.log(LogConfig(file_delete_delay_ms=10))
    append(log, [b"a"])
    log.directory.delete(TP).result()
    rig.files.refuse = lambda call, path: errno.EIO if call == "remove_tree" else 0
    rig.clock.advance(10)
    assert log.directory.failure is not None


def test_nothing_is_removed_after_the_directory_was_closed(rig: Rig) -> None:
    from tests.unit.log.log_rig import drive

    log = rig.log(LogConfig(file_delete_delay_ms=10))
    directory = log.directory
    directory.delete(TP).result()
    drive(directory.close(broker_epoch=1))
    rig.files.calls.clear()
    rig.clock.advance(10)
    assert rig.files.calls == []


@pytest.mark.parametrize("suffix", ["delete", "stray"])
def test_a_rename_that_fails_is_told(rig: Rig, suffix: str) -> None:
    log = rig.log()
    directory = log.directory
    rig.files.refuse = lambda call, path: errno.EIO if call == "rename" else 0
    done = directory.delete(TP) if suffix == "delete" else directory.set_aside(TP)
    assert isinstance(done.error, StorageError) and directory.failure is done.error
    assert isinstance(directory.purge_strays(NOW_MS, 0).result(), int)


def test_a_purge_that_fails_is_told(rig: Rig) -> None:
    directory = rig.log().directory
    directory.set_aside(TP).result()
    rig.files.refuse = lambda call, path: errno.EIO if call == "remove_tree" else 0
    assert isinstance(directory.purge_strays(NOW_MS, 0).error, StorageError)


def test_a_repeated_batch_fails_with_its_original(rig: Rig) -> None:
    from tidelog.records.builder import Producer

    log = rig.log()
    records = batch_of([b"a"], producer=Producer(9, 0, 0))
    first = log.plan_leader_append(bytearray(records), 0, NOW_MS)
    repeated = log.plan_leader_append(records, 0, NOW_MS)
    rig.files.room_bytes = 0
    log.submit_planned()
    assert isinstance(first.error, StorageError) and repeated.error is first.error


def test_a_flush_that_fails_fails_the_appends_that_wait_for_it(rig: Rig) -> None:
    log = rig.log(LogConfig(flush_messages=1))
    rig.files.refuse = lambda call, path: errno.EIO if call == "fsync" else 0
    completion = log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS)
    log.submit_planned()
    assert isinstance(completion.error, StorageError)


def test_more_buffers_than_one_call_takes_are_written_in_several(rig: Rig) -> None:
    log = rig.log()
    plans = [log.plan_leader_append(batch_of([b"a"]), 0, NOW_MS) for _ in range(2500)]
    log.submit_planned()
    assert [plan.result().base_offset for plan in plans] == list(range(2500))
    assert sum(1 for call, _ in rig.files.calls if call == "pwritev") == 3
    assert len(values_of(log)) == 2500
