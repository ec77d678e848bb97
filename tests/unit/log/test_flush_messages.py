"""flush.messages: which appends wait for a flush, in which order they are answered."""

from __future__ import annotations

import errno

from tests.support.log import NOW_MS, LogHarness, batch_of

from tidelog.core.errors import StorageError
from tidelog.log.append_plan import NotFlushedError
from tidelog.log.config import LogConfig
from tidelog.log.refused_batches import SentBatch
from tidelog.records.builder import Producer


def test_with_flush_messages_an_append_is_answered_when_it_is_durable(harness: LogHarness) -> None:
    log = harness.log(LogConfig(flush_messages=1))
    harness.lane.eager = False
    completion = log.plan_leader_append(batch_of([b"a"], producer=Producer(1, 0, 0)), 0, NOW_MS)
    log.submit_planned()
    assert log.log_end_offset == 1 and not completion.done
    repeated = log.plan_leader_append(batch_of([b"a"], producer=Producer(1, 0, 0)), 0, NOW_MS)
    assert not repeated.done
    harness.lane.run()
    assert completion.result().base_offset == 0 and log.recovery_point == 1
    assert repeated.result().duplicate


def test_with_flush_messages_appends_are_answered_in_their_order(harness: LogHarness) -> None:
    log = harness.log(LogConfig(flush_messages=3))
    harness.lane.eager = False
    answered: list[int] = []

    def write(count: int) -> None:
        completion = log.plan_leader_append(batch_of([b"a"] * count), 0, NOW_MS)
        completion.then(lambda done: answered.append(done.result().base_offset))
        log.submit_planned()

    write(3)
    write(1)
    assert answered == []
    harness.lane.run(1)
    assert answered == [0] and log.recovery_point == 3
    write(1)  # needs no flush, and the one before it still waits for its own
    assert answered == [0]
    harness.lane.run()
    assert answered == [0, 3, 4] and log.recovery_point >= 4
    write(1)
    assert answered == [0, 3, 4, 5]


def test_with_flush_messages_only_the_appends_that_need_a_failed_flush_fail(
    harness: LogHarness,
) -> None:
    log = harness.log(LogConfig(flush_messages=3))
    harness.lane.eager = False
    first = log.plan_leader_append(batch_of([b"a"] * 3), 0, NOW_MS)
    log.submit_planned()
    second = log.plan_leader_append(batch_of([b"b"], producer=Producer(1, 0, 0)), 0, NOW_MS)
    log.submit_planned()
    harness.lane.run(1)
    behind = log.plan_leader_append(batch_of([b"c"]), 0, NOW_MS)
    log.submit_planned()
    assert first.result().base_offset == 0 and not second.done and not behind.done
    harness.files.refuse = lambda call, path: errno.EIO if call == "fsync" else 0
    harness.lane.run()
    assert isinstance(second.error, NotFlushedError)
    assert second.error.sent == SentBatch(1, 0, 0, 0), "its producer's later batches wait for it"
    assert second.error.errno == errno.EIO and "fsync of" in str(second.error)
    assert behind.result().base_offset == 4


def test_with_flush_messages_a_duplicate_waits_for_a_flush_where_the_originals_failed(
    harness: LogHarness,
) -> None:
    log = harness.log(LogConfig(flush_messages=1))
    records = batch_of([b"a"], producer=Producer(1, 0, 0))
    harness.files.refuse = lambda call, path: errno.ENOSPC if "leader-epoch" in path else 0
    original = log.plan_leader_append(bytearray(records), 0, NOW_MS)
    log.submit_planned()
    assert isinstance(original.error, StorageError)
    assert log.log_end_offset == 1 and log.recovery_point == 0
    refuse = harness.files.refuse
    harness.space_returns()
    harness.files.refuse = refuse
    repeated = log.plan_leader_append(bytearray(records), 0, NOW_MS)
    assert isinstance(repeated.error, StorageError), "the disk is full again"
    harness.space_returns()
    repeated = log.plan_leader_append(bytearray(records), 0, NOW_MS)
    assert repeated.result().duplicate and log.recovery_point == 1
    assert log.plan_leader_append(records, 0, NOW_MS).result().duplicate
