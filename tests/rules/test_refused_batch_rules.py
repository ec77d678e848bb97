"""V38: batches of an idempotent producer behind one that a broker refused for the moment.

They get the same error, so that the producer sends all of them again, in order and under its epoch.
Real replicas and APIs over fake logs; what a log makes of a full disk is in tests/unit/log.
"""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import T0, FakeBroker, a_cluster, state

from tidelog.broker.apis import produce
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.limits import (
    REFUSED_BATCH_AWAITED_MS,
    SKIPPED_BATCHES_AWAITED_MS,
    STORED_BATCH_AWAITED_MS,
)
from tidelog.core.types import RECOVERED, RECOVERING
from tidelog.log.append_plan import AppendInfo, NotFlushedError
from tidelog.log.append_validation import CostlyBatch
from tidelog.log.refused_batches import EarlierBatchRefusedError, SentBatch
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.wire.messages.produce import PartitionProduceData, PartitionProduceResponse


def batch(sequence: int) -> memoryview:
    record = NewRecord(None, b"v", 1000)
    return memoryview(build_batch([record], producer=Producer(5, 0, sequence)))


def refused(broker: FakeBroker, sequence: int) -> BaseException | None:
    """Append a batch as a client's; returns its error."""
    try:
        completion = broker.partition().role.append(batch(sequence), -1, 0)
    except (KafkaError, StorageError) as error:
        return error
    return completion.error


def behind(broker: FakeBroker, sequence: int) -> ErrorCode:
    """What the log would answer to a batch that comes now; the producer is unknown there."""
    now_ms = broker.clock.monotonic_ms()
    try:
        broker.log().producers.check(BatchView(batch(sequence)), now_ms)
    except EarlierBatchRefusedError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.rule("V38")
def test_a_batch_behind_one_that_a_small_isr_kept_out_gets_the_same_error() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(state(isr=(1,), is_new=True))
        leader.partition().configured(leader.log().config, 2)
        error = refused(leader, 0)
        assert isinstance(error, KafkaError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert behind(leader, 1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert behind(leader, 0) == ErrorCode.NONE

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_stored_batch_behind_a_refused_one_gets_the_same_error_until_that_one_is_answered() -> (
    None
):
    """Else the producer sends new batches, and the leader forgets the refused one."""

    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(state(isr=(1,), is_new=True))
        for sequence in range(4):
            leader.log().producers.append(BatchView(batch(sequence)), 0)
        leader.partition().configured(leader.log().config, 2)
        for sequence in (0, 1):
            error = refused(leader, sequence)
            assert isinstance(error, KafkaError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS
        leader.partition().configured(leader.log().config, 1)
        assert behind(leader, 2) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert [behind(leader, sequence) for sequence in (0, 2)] == [
            ErrorCode.NONE,
            ErrorCode.NOT_ENOUGH_REPLICAS,
        ]
        assert [behind(leader, sequence) for sequence in (1, 2, 3)] == [ErrorCode.NONE] * 3
        assert len(leader.log().producers.refused) == 0

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_of_a_known_producer_gets_the_error_of_the_refused_one_before_it() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(state(isr=(1,), is_new=True))
        leader.log().producers.append(BatchView(batch(0)), 0)
        leader.partition().configured(leader.log().config, 2)
        error = refused(leader, 1)
        assert isinstance(error, KafkaError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert behind(leader, 2) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert behind(leader, 1) == ErrorCode.NONE

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_behind_one_that_came_before_the_leadership_gets_the_same_error() -> None:
    """The client has heard of the leader before the leader has."""

    async def story() -> None:
        broker = a_cluster()[2]
        await broker.command(state(1, is_new=True))
        error = refused(broker, 0)
        assert isinstance(error, KafkaError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await broker.command(state(2, leader_epoch=1))
        assert broker.partition().is_leader
        assert behind(broker, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_what_was_refused_before_a_demotion_is_awaited_after_it() -> None:
    """Otherwise the third batch would get OUT_OF_ORDER_SEQUENCE_NUMBER from the leader of the
    third epoch, as that leader would know of the second batch alone."""

    async def story() -> None:
        broker = a_cluster()[2]
        await broker.command(state(1, is_new=True))
        assert refused(broker, 0) is not None
        await broker.command(state(2, leader_epoch=1))
        await broker.command(state(3, leader_epoch=2))
        assert refused(broker, 1) is not None
        await broker.command(state(2, leader_epoch=3))
        assert broker.partition().is_leader
        assert behind(broker, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert behind(broker, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert behind(broker, 0) == ErrorCode.NONE

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_behind_one_that_came_before_the_replica_gets_the_same_error() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        asked = produce._Produce(broker, -1)  # type: ignore[arg-type]  # a fake stands in
        answer = PartitionProduceResponse(0)
        data = PartitionProduceData(index=0, records=batch(0))
        produce._begin(broker, asked, T0, data, answer, 0)  # type: ignore[arg-type]  # a fake stands in
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await broker.command(state(1, is_new=True))
        assert behind(broker, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert behind(broker, 0) == ErrorCode.NONE

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_behind_one_that_a_failed_directory_refused_gets_the_same_error() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(state(1, isr=(1,), is_new=True))

        def plan(*_: Any) -> Any:
            raise StorageError("/data", "pwritev", "/data/t-0", 28, 0, "no room")

        leader.log().plan_leader_append = plan  # type: ignore[method-assign,assignment]  # replaced
        assert isinstance(refused(leader, 0), StorageError)
        assert behind(leader, 1) == ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_behind_one_that_is_refused_for_good_does_not_wait_for_it() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(state(1, isr=(1,), is_new=True))

        def plan(*_: Any) -> Any:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "large")

        leader.log().plan_leader_append = plan  # type: ignore[method-assign,assignment]  # replaced
        assert refused(leader, 0) is not None
        assert behind(leader, 1) == ErrorCode.NONE

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_behind_one_whose_check_outlived_the_leadership_gets_the_same_error() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(state(1, isr=(1,), is_new=True))

        def plan(*_: Any) -> Any:
            raise CostlyBatch("much inside")

        log: Any = leader.log()
        log.plan_leader_append = plan
        log.check_on_thread = lambda records: SimpleNamespace(then=lambda done: None)
        completion = leader.partition().role.append(batch(0), -1, 0)
        leader.replicas.stop_leading("expired")
        assert isinstance(completion.error, KafkaError)
        assert completion.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert behind(leader, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(story())


# batches that come first to a new leader, before those that the former leader refused


async def a_successor(
    recovery_state: int = RECOVERED, records: int = 3, leader_epoch: int = 1
) -> FakeBroker:
    """Broker 2, which followed until now, leads a log with so many records.

    Its log checks batches as a real one does. It knows a producer's batch with sequence 0.
    """
    broker = a_cluster()[2]
    if leader_epoch > 0:
        await broker.command(state(1, is_new=True))
    else:
        await broker.command(state(2, is_new=True))
    log: Any = broker.log()
    log.fill(*[0] * records)
    log.producers.append(BatchView(batch(0)), 0)

    def plan(records: Any, *_: Any) -> Completion[Any]:
        view = BatchView(records)
        now_ms = broker.clock.monotonic_ms()
        log.producers.check(view, now_ms)
        log.producers.append(view, now_ms)
        return Completion.of(None)

    log.plan_leader_append = plan
    command = state(2, leader_epoch=leader_epoch)
    command.leader_recovery_state = recovery_state
    await broker.command(command)
    assert broker.partition().is_leader
    return broker


def code_of(broker: FakeBroker, sequence: int) -> ErrorCode:
    error = refused(broker, sequence)
    if error is None:
        return ErrorCode.NONE
    assert isinstance(error, KafkaError)
    return error.code


@pytest.mark.rule("V38")
def test_a_new_leader_awaits_the_batches_that_the_former_leader_refused() -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka bump its epoch, and store batches of other
    partitions twice."""

    async def story() -> None:
        broker = await a_successor()
        assert code_of(broker, 3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "produce_refused_before_skipped" in broker.tracer.marks
        assert [code_of(broker, sequence) for sequence in (1, 2, 3)] == [ErrorCode.NONE] * 3

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_behind_one_that_came_too_early_to_a_new_leader_gets_the_same_error() -> None:
    """Even when the skipped batches have come, and the leader is not new any more."""

    async def story() -> None:
        broker = await a_successor()
        assert code_of(broker, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await broker.clock.advance(SKIPPED_BATCHES_AWAITED_MS)
        assert code_of(broker, 1) == ErrorCode.NONE
        assert code_of(broker, 3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [code_of(broker, sequence) for sequence in (2, 3)] == [ErrorCode.NONE] * 2

    asyncio.run(story())


def refuse_stored(broker: FakeBroker, sequence: int, error: ErrorCode) -> None:
    now_ms = broker.clock.monotonic_ms()
    broker.log().producers.refused.add(5, 0, (sequence, sequence), error, now_ms)


@pytest.mark.rule("V38")
def test_a_new_batch_waits_a_while_for_a_stored_one_that_came_before_the_leadership() -> None:
    """Else the producer goes on, and the leader forgets the stored one."""

    async def story() -> None:
        broker = await a_successor()
        refuse_stored(broker, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert code_of(broker, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [code_of(broker, sequence) for sequence in (0, 1)] == [ErrorCode.NONE] * 2
        await broker.clock.advance(1)
        refuse_stored(broker, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await broker.clock.advance(STORED_BATCH_AWAITED_MS)
        assert code_of(broker, 2) == ErrorCode.NONE

    asyncio.run(story())


@pytest.mark.rule("V38")
@pytest.mark.parametrize("is_other_between", [True, False])
def test_a_stored_batch_that_another_leader_may_have_acknowledged_holds_others_up_for_a_while_only(
    is_other_between: bool,
) -> None:
    """The producer has gone on, and would get nothing but refusals for half a minute."""

    async def story() -> None:
        broker = await a_successor()
        assert code_of(broker, 1) == ErrorCode.NONE
        await broker.clock.advance(1)
        refuse_stored(broker, 0, ErrorCode.NOT_ENOUGH_REPLICAS)
        if is_other_between:
            await broker.command(state(1, leader_epoch=2))
            await broker.command(state(2, leader_epoch=3))
        assert code_of(broker, 1) == ErrorCode.NOT_ENOUGH_REPLICAS
        await broker.clock.advance(STORED_BATCH_AWAITED_MS)
        assert (code_of(broker, 1) == ErrorCode.NONE) is is_other_between

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_new_leader_awaits_skipped_batches_for_a_while_only() -> None:
    async def story() -> None:
        broker = await a_successor()
        await broker.clock.advance(SKIPPED_BATCHES_AWAITED_MS)
        assert code_of(broker, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_the_leader_of_an_unclean_election_awaits_no_skipped_batches() -> None:
    """They are lost, and the producer must learn of it."""

    async def story() -> None:
        broker = await a_successor(RECOVERING)
        assert code_of(broker, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_new_leader_lets_no_later_batch_of_an_unknown_producer_come_first() -> None:
    """librdkafka takes the acknowledgement of a later batch for that of all before it."""

    async def story() -> None:
        broker = await a_successor()
        broker.log().producers.undo((5, None))
        assert code_of(broker, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [code_of(broker, sequence) for sequence in (0, 1)] == [ErrorCode.NONE] * 2

    asyncio.run(story())


@pytest.mark.rule("V38")
@pytest.mark.parametrize("leader_epoch", [0, 1])
def test_the_first_leader_of_a_partition_awaits_nothing_and_its_successor_does(
    leader_epoch: int,
) -> None:
    """Producers of a recreated topic go on with the sequences that they have.

    A former leader may have refused batches before it had any record.
    """

    async def story() -> None:
        broker = await a_successor(records=0, leader_epoch=leader_epoch)
        broker.log().producers.undo((5, None))
        waits = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_of(broker, 7) == (ErrorCode.NONE if leader_epoch == 0 else waits)

    asyncio.run(story())


# batches that are refused after their append


class Asked:
    """A leader whose followers copy nothing, and what it answers to four stored batches."""

    def __init__(self, leader: FakeBroker) -> None:
        self.leader = leader
        self.partition = leader.partition()
        leader.produce(4)
        self.answers = [self.send(sequence) for sequence in range(4)]

    def send(self, sequence: int) -> produce._PartitionAppend:
        """Have the batch of one record with this sequence number answered, or wait."""
        request = produce._Produce(self.leader, -1)  # type: ignore[arg-type]  # a fake stands in
        append = produce._PartitionAppend(request, self.partition, PartitionProduceResponse(0))
        sent = SentBatch(5, 0, sequence, sequence)
        append.appended(Completion.of(AppendInfo(sequence, sequence, -1, 1, 1, 0, sent=sent)))
        return append

    def commit(self, high_watermark: int) -> None:
        assert self.partition.leadership is not None
        self.partition.leadership.high_watermark = high_watermark
        self.partition.watchers.high_watermark_moved(self.partition.high_watermark)

    def codes(self, *sequences: int) -> list[ErrorCode]:
        assert all(self.answers[sequence].done for sequence in sequences)
        return [ErrorCode(self.answers[sequence].answer.error_code) for sequence in sequences]


async def an_asked_leader() -> Asked:
    leader = a_cluster()[1]
    await leader.command(state(isr=(1, 2), is_new=True))
    return Asked(leader)


OVERDUE = ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.rule("V38")
def test_a_stored_batch_behind_one_that_timed_out_is_not_acknowledged_before_that_one() -> None:
    """Else the producer sends new batches, and the leader forgets the one that timed out."""

    async def story() -> None:
        asked = await an_asked_leader()
        for append in asked.answers[:2]:
            append.refused(OVERDUE, "the in-sync replicas did not replicate the records in time")
        asked.commit(3)
        assert asked.codes(0, 1, 2) == [OVERDUE] * 3
        assert "produce_refused_behind_unanswered" in asked.leader.tracer.marks
        assert [asked.send(sequence).answer.error_code for sequence in (2, 0, 2, 1, 2)] == [
            OVERDUE,
            ErrorCode.NONE,
            OVERDUE,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]
        asked.commit(4)
        assert asked.codes(3) == [ErrorCode.NONE]

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_behind_a_stored_one_whose_flush_failed_is_not_acknowledged() -> None:
    """The disk was full for one flush; the log has both batches, and a later flush succeeds."""

    async def story() -> None:
        asked = await an_asked_leader()
        request = produce._Produce(asked.leader, -1)  # type: ignore[arg-type]  # a fake stands in
        first = produce._PartitionAppend(request, asked.partition, PartitionProduceResponse(0))
        full = StorageError("/data", "rename", "/data/t0-0/x", errno.ENOSPC, 0)
        first.appended(Completion.failed(NotFlushedError(full, SentBatch(5, 0, 4, 4))))
        assert first.answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        asked.leader.produce(2)
        asked.commit(6)
        assert [asked.send(sequence).answer.error_code for sequence in (5, 4, 5)] == [
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_repeated_batches_that_wait_release_those_behind_them_in_order() -> None:
    async def story() -> None:
        asked = await an_asked_leader()
        asked.answers[0].refused(OVERDUE, "late")
        repeated = asked.send(0)
        assert not repeated.done
        asked.commit(4)
        assert (repeated.done, repeated.answer.error_code) == (True, ErrorCode.NONE)
        assert asked.codes(1, 2, 3) == [ErrorCode.NONE] * 3

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_that_timed_out_holds_others_up_for_a_while_only() -> None:
    """Its producer has given it up."""

    async def story() -> None:
        asked = await an_asked_leader()
        asked.answers[0].refused(OVERDUE, "late")
        await asked.leader.clock.advance(REFUSED_BATCH_AWAITED_MS)
        asked.commit(4)
        assert asked.codes(1, 2, 3) == [ErrorCode.NONE] * 3

    asyncio.run(story())


@pytest.mark.rule("V38")
@pytest.mark.parametrize("between", [None, -1, 2])
def test_a_batch_that_another_leader_may_have_acknowledged_holds_others_up_for_less_long(
    between: int | None,
) -> None:
    """A producer that had no answer of that leader sends it again at once."""

    async def story() -> None:
        asked = await an_asked_leader()
        asked.answers[0].refused(OVERDUE, "late")
        if between is not None:
            await asked.leader.command(state(between, isr=(1, 2), leader_epoch=2))
            assert asked.codes(1, 2, 3) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        await asked.leader.command(state(1, isr=(1, 2), leader_epoch=4))
        asked.commit(4)
        assert asked.send(1).answer.error_code != ErrorCode.NONE, "0 was refused and is not here"
        await asked.leader.clock.advance(STORED_BATCH_AWAITED_MS)
        repeated = asked.send(1).answer.error_code
        assert (repeated == ErrorCode.NONE) is (between is not None)

    asyncio.run(story())


@pytest.mark.rule("V38")
@pytest.mark.parametrize("between", [-1, 2])
def test_a_batch_that_timed_out_holds_others_up_for_long_unless_another_broker_led(
    between: int,
) -> None:
    async def story() -> None:
        asked = await an_asked_leader()
        for append in asked.answers:
            append.refused(OVERDUE, "late")
        await asked.leader.command(state(between, isr=(1, 2), leader_epoch=2))
        await asked.leader.command(state(1, isr=(1, 2), leader_epoch=4))
        asked.commit(4)
        await asked.leader.clock.advance(STORED_BATCH_AWAITED_MS)
        repeated = asked.send(1).answer.error_code
        assert (repeated == ErrorCode.NONE) is (between == 2)

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_a_batch_that_waited_to_the_end_is_acknowledged_before_those_behind_it() -> None:
    """Its producer had the refusal a moment ago, and sends it again behind the others."""

    async def story() -> None:
        asked = await an_asked_leader()
        asked.answers[0].refused(OVERDUE, "late")
        asked.commit(4)
        await asked.leader.clock.advance(REFUSED_BATCH_AWAITED_MS - 1)
        assert asked.send(1).answer.error_code == OVERDUE
        await asked.leader.clock.advance(1)
        assert [asked.send(sequence).answer.error_code for sequence in (2, 1, 2)] == [
            OVERDUE,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]

    asyncio.run(story())
