"""Rule V68: damaged batches are never served; a leader with others in sync leaves and refetches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.fakes import CONNECTION, FakeBroker, a_cluster, settle
from tests.support.broker.fakes import state as commanded
from tests.support.controller.values import (
    TP as T0,
)
from tests.support.controller.values import (
    answer_of,
    brokers,
    epoch,
    loaded,
    one_partition,
    settings,
    state,
    state_writes,
    step,
    topic_id,
)
from tests.support.log import (
    TOPIC_ID,
    TP,
    FakeClock,
    StepLane,
    append,
    directory_of,
    drive,
    open_directory,
)
from tests.support.ports import FakeTracer

from tidelog.broker.apis import fetch
from tidelog.broker.replicas.relinquishing import DAMAGE_PAUSE_MS, Relinquishing
from tidelog.broker.server.requests import Pending, Request
from tidelog.controller.controller import Controller
from tidelog.controller.elections.relinquishing import RelinquishAsked
from tidelog.controller.registrations import BrokersRead
from tidelog.core.completion import Completion
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError
from tidelog.core.metrics import PARTITIONS_DAMAGED
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import CleanEpochs, PartitionState, TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.log_state import Damage
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery import DamagedLog
from tidelog.records.builder import Producer
from tidelog.runtime.files import OsFiles
from tidelog.sim.checkers.replica_logs import LogKey
from tidelog.sim.disk import Loss
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.run import SeedRun
from tidelog.sim.simulator import CollectorPaused
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedPartitionResult,
    RelinquishedTopic,
    RelinquishedTopicResult,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)
from tidelog.wire.registry import FETCH, RELINQUISH_LEADERSHIP

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)


@pytest.mark.rule("V68")
@pytest.mark.parametrize("at", [6, 7, 10, 16, 18, 25, 45, 61, 90])
def test_a_batch_with_a_flipped_bit_is_not_served(tmp_path: Path, at: int) -> None:
    """Whichever bit it is, also of the base offset, which no checksum covers."""
    lane = StepLane(str(tmp_path), OsFiles())
    log = (
        open_directory(lane, SMALL, FakeClock(), FakeTracer()).create(TP, TOPIC_ID, SMALL).result()
    )
    for number in range(40):
        append(log, [bytes([40 + number]) * 40])
    directory_of(log).flush_due(1 << 60).result()
    drive(directory_of(log).close(CleanEpochs(1, 1)))
    second, third = log.segments[1:3]
    path = Path(second.file.path)
    data = bytearray(path.read_bytes())
    data[at + len(data) // (third.base_offset - second.base_offset)] ^= 4
    path.write_bytes(data)
    events = FakeTracer()
    lane = StepLane(str(tmp_path), OsFiles())
    log = open_directory(lane, SMALL, FakeClock(), events).logs[TP]
    for offset in range(second.base_offset + 1, second.base_offset - 1, -1):
        done = log.read(offset, 1 << 20, 40, min_one_batch=True)
        lane.run()
        with pytest.raises(KafkaError) as caught:
            done.result()
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert events.named("log_corrupt")
    assert log.read(third.base_offset, 200, 40, min_one_batch=True).result().data


@pytest.mark.rule("V68")
def test_the_sequences_of_producers_are_not_taken_from_damaged_batches(tmp_path: Path) -> None:
    """A start after a crash reads them from the log, which no reader would notice later."""

    def opened() -> PartitionLog:
        lane = StepLane(str(tmp_path), OsFiles())
        directory = open_directory(lane, LogConfig(), FakeClock(), FakeTracer())
        found = directory.logs.get(TP)
        return found or directory.create(TP, TOPIC_ID, LogConfig()).result()

    log = opened()
    for number in range(3):
        append(log, [b"x"], producer=Producer(5, 0, number))
    log.flush().result()
    directory_of(log).checkpoint().result()
    path = Path(log.segments[0].file.path)
    whole = path.read_bytes()
    producer_id_at = whole.rindex((5).to_bytes(8, "big") + bytes(2)) + 7
    path.write_bytes(whole[:producer_id_at] + b"\x04" + whole[producer_id_at + 1 :])
    with pytest.raises(DamagedLog):
        opened()
    path.write_bytes(whole)
    assert list(opened().producers.entries()) == [5]


# Readers


def corrupt_read(*_: Any, **__: Any) -> Completion[Any]:
    """A read that finds damage."""
    return Completion.failed(KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC is not 0x1"))


@pytest.mark.rule("V68")
@pytest.mark.parametrize("replica_id", [-1, 2], ids=["a consumer", "a follower"])
def test_a_reader_of_a_damaged_batch_gets_an_error_and_no_bytes(replica_id: int) -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        broker.see(1, 2, 3)
        await broker.command(commanded(isr=(1, 2, 3), is_new=True, leader_epoch=4))
        broker.produce(2)
        core = broker.partition().leadership
        assert core is not None
        core.high_watermark = 2
        broker.log().read = corrupt_read  # type: ignore[method-assign]  # a damaged file
        request = FetchRequest(
            replica_id=replica_id, session_epoch=-1, max_wait_ms=0, min_bytes=1, max_bytes=100,
            topics=[FetchTopic("t", b"T" * 16, [FetchPartition(partition_max_bytes=100)])],
        )  # fmt: skip
        answers: list[FetchResponse] = []
        answer = fetch.handle(
            broker,  # type: ignore[arg-type]  # a fake broker
            Request(RequestHeader(FETCH, 13, 0, "c"), request, CONNECTION, broker.clock.now_ms),
        )
        if isinstance(answer, Pending):
            answer.deliver_to(answers.append)
            await settle()
        else:
            answers.append(answer)
        (data,) = answers[0].responses[0].partitions
        assert data.error_code == ErrorCode.CORRUPT_MESSAGE and not data.records

    asyncio.run(story())


# The broker


class Hurt:
    """A fake broker with a replica of t-0 whose log is damaged from offset 3 on."""

    def __init__(self, *, is_known: bool = True) -> None:
        self.broker: FakeBroker = a_cluster()[1]
        self.relinquishing = Relinquishing(self.broker.services)
        self.ended: list[tuple[TopicPartition, int, str]] = []
        self.asked: list[tuple[RelinquishLeadershipRequest, Callable[[Any, Any], None]]] = []
        peers = self.broker.peers
        peers.intercepted[RELINQUISH_LEADERSHIP] = lambda message, answer: self.asked.append(
            (message, answer)
        )
        if is_known:
            peers.served.append((RELINQUISH_LEADERSHIP, 0, 0))
        self.broker.directory.begin_again_at = lambda *told: self.ended.append(told)  # type: ignore[attr-defined]  # of a real one

    async def begin(self, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        """Take the role; five records are there, the fourth is damaged."""
        broker = self.broker
        broker.see(1, 2, 3, controller_id=9)
        await broker.command(commanded(leader, isr=isr, is_new=True, leader_epoch=4))
        broker.log().fill(4, 4, 4, 4, 4)
        broker.log().damage = Damage(3, "00.log: its CRC")
        self.found()
        await settle()

    def found(self) -> None:
        """A read finds the damage."""
        self.relinquishing.damage_found(self.broker.replicas.all)

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The controller responds to the last request."""
        result = RelinquishedPartitionResult(0, error, "because" if error else None)
        topics = [RelinquishedTopicResult(b"T" * 16, [result])]
        self.asked[-1][1](RelinquishLeadershipResponse(topics=topics), None)

    def lines(self, part: str) -> list[str]:
        """The log lines with these words."""
        return [line for line in self.broker.tracer.lines if part in line]


@pytest.mark.rule("V68")
@pytest.mark.parametrize("leader", [1, 2], ids=["it leads", "it follows"])
def test_a_member_that_reads_damage_asks_the_controller_at_once_to_leave_the_isr(
    leader: int,
) -> None:
    async def story() -> None:
        hurt = Hurt()
        await hurt.begin(leader)
        ((request, _),) = hurt.asked
        assert request == RelinquishLeadershipRequest(
            1, 101, [RelinquishedTopic(b"T" * 16, [RelinquishedPartition(0, 4, damaged_offset=3)])]
        )
        (line,) = hurt.lines("asking controller 9 to take this broker out of the ISR")
        assert "partition t-0: the log is damaged from offset 3 on" in line
        assert hurt.broker.metrics.value(PARTITIONS_DAMAGED) == 1
        assert not hurt.ended

    asyncio.run(story())


@pytest.mark.rule("V68")
def test_the_broker_asks_again_until_it_has_another_role() -> None:
    async def story() -> None:
        hurt = Hurt()
        await hurt.begin()
        hurt.found()
        await settle()
        assert len(hurt.asked) == 1, "one request at a time"
        hurt.answer(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        await settle()
        assert hurt.lines("has not taken this broker out of the ISR") and hurt.lines("because")
        assert len(hurt.asked) == 1, "not at once for damage that is known"
        hurt.relinquishing.look(hurt.broker.replicas.all())
        await settle()
        assert len(hurt.asked) == 2
        hurt.asked[-1][1](None, ConnectionLost("the controller is gone"))
        await settle()
        await hurt.broker.clock.advance(DAMAGE_PAUSE_MS)
        hurt.found()
        await settle()
        assert len(hurt.asked) == 3
        hurt.asked[-1][1](RelinquishLeadershipResponse(error_code=41), None)
        await settle()
        assert hurt.lines("NOT_CONTROLLER")
        await hurt.broker.command(commanded(2, isr=(2, 3), leader_epoch=5, partition_epoch=1))
        assert hurt.broker.log().damage is None
        hurt.relinquishing.look(hurt.broker.replicas.all())
        await settle()
        assert len(hurt.asked) == 3
        assert hurt.broker.metrics.value(PARTITIONS_DAMAGED) == 0

    asyncio.run(story())


@pytest.mark.rule("V68")
def test_damage_that_is_found_during_a_request_is_asked_for_after_it() -> None:
    async def story() -> None:
        hurt = Hurt()
        await hurt.begin()
        state = commanded(partition=1, isr=(1, 2), is_new=True, leader_epoch=7)
        await hurt.broker.command(state)
        hurt.broker.log(TopicPartition("t", 1)).damage = Damage(0, "another")
        hurt.found()
        hurt.answer()
        await settle()
        assert [part for topic in hurt.asked[1][0].topics for part in topic.partitions] == [
            RelinquishedPartition(1, 7, 0)
        ]

    asyncio.run(story())


@pytest.mark.rule("V68")
def test_a_leader_alone_in_the_isr_keeps_its_log_and_says_so() -> None:
    async def story() -> None:
        hurt = Hurt()
        await hurt.begin(isr=(1,))
        hurt.relinquishing.look(hurt.broker.replicas.all())
        await settle()
        assert not hurt.asked and not hurt.ended
        (line,) = hurt.lines("no other replica is in sync")
        assert "partition t-0: the log is damaged from offset 3 on" in line
        assert hurt.broker.metrics.value(PARTITIONS_DAMAGED) == 1
        assert hurt.broker.log().records == b"\4" * 5

    asyncio.run(story())


@pytest.mark.rule("V68")
def test_under_a_controller_that_does_not_know_the_request_the_broker_ends() -> None:
    """Kafka's, or an older one: at the next start the log is truncated, and others have led."""

    async def story() -> None:
        hurt = Hurt(is_known=False)
        await hurt.begin()
        assert not hurt.asked
        assert hurt.ended == [(TopicPartition("t", 0), 3, "00.log: its CRC")]
        assert hurt.lines("controller 9 does not serve RelinquishLeadership (key 20005)")
        hurt = Hurt(is_known=False)
        await hurt.begin(2)
        assert not hurt.asked and not hurt.ended, "a follower goes on"

    asyncio.run(story())


@pytest.mark.rule("V68")
@pytest.mark.parametrize(
    ("isr", "eligible", "end"),
    [((2, 3), (), 3), ((2, 3), (3,), 3), ((1, 2), (), 5), ((2, 3), (1,), 5)],
    ids=["out", "another is eligible", "in sync", "eligible"],
)
def test_a_replica_truncates_before_the_damage_once_it_is_no_member(
    isr: tuple[int, ...], eligible: tuple[int, ...], end: int
) -> None:
    """As a member it keeps its records: committed ones count on it."""

    async def story() -> None:
        hurt = Hurt()
        await hurt.begin()
        sent: list[FetchRequest] = []
        hurt.broker.peers.intercepted[FETCH] = lambda message, answer: sent.append(message)
        state = commanded(2, isr=isr, leader_epoch=5, partition_epoch=1)
        state.eligible = eligible
        await hurt.broker.command(state)
        await settle()
        assert hurt.broker.log().log_end_offset == end
        (asked,) = [part for fetch in sent for topic in fetch.topics for part in topic.partitions]
        assert asked.fetch_offset == end, "the truncation comes before the first fetch"
        assert bool(hurt.lines("truncating t-0 from 5 to 3 to refetch")) is (end == 3)
        assert (hurt.broker.log().damage is None) is (end == 3)
        assert hurt.broker.partition().high_watermark <= end

    asyncio.run(story())


# The controller


def damaged(broker_id: int = 1, *, leader_epoch: int = 5, life: int = 1) -> RelinquishAsked:
    """Broker N's request to leave the members of t-0, whose log is damaged."""
    partition = RelinquishedPartition(0, leader_epoch, damaged_offset=7)
    topics = [RelinquishedTopic(topic_id("t"), [partition])]
    return RelinquishAsked(
        1, RelinquishLeadershipRequest(broker_id, epoch(broker_id, life), topics)
    )


def outcome(
    controller: Controller, asked: RelinquishAsked
) -> tuple[PartitionState | None, ErrorCode]:
    """The state that the request leads to, and its error."""
    writes, effects = step(controller, asked)
    response: RelinquishLeadershipResponse = answer_of(effects)
    errors = [part.error_code for topic in response.topics for part in topic.partitions]
    return state_writes(writes).get(T0), ErrorCode(errors[0] if errors else response.error_code)


@pytest.mark.rule("V68")
def test_another_member_leads_and_the_damaged_leader_leaves_the_isr_as_disk() -> None:
    controller = loaded()
    after, error = outcome(controller, damaged())
    assert error is ErrorCode.NONE and after is not None
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (2, 3))
    assert controller.image.shrinks[T0] == {1: ShrinkCause.DISK}
    assert not controller.balance.is_slow(1, controller.image), "its other partitions stay"


@pytest.mark.rule("V68")
def test_the_damaged_leader_is_not_eligible_where_the_isr_becomes_too_small() -> None:
    controller = loaded(one_partition(state((1, 2))), of=replace(settings(), min_insync_replicas=2))
    after, _ = outcome(controller, damaged())
    assert after is not None and (after.leader, after.isr, after.elr) == (2, (2,), ())


@pytest.mark.rule("V68")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (state((1, 2, 3)), ((1, 3), ())),
        (state((1,), elr={2: epoch(2), 3: epoch(3)}), ((1,), (3,))),
        (state((1, 3)), ((1, 3), ())),
    ],
    ids=["in sync", "eligible", "out already"],
)
def test_a_follower_leaves_the_members_and_learns_it_by_a_new_leader_epoch(
    before: PartitionState, after: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    controller = loaded(one_partition(before), of=replace(settings(), min_insync_replicas=3))
    found, error = outcome(controller, damaged(2))
    assert error is ErrorCode.NONE and found is not None
    assert (found.leader, found.leader_epoch) == (1, 6)
    assert (found.isr, found.elr) == after


@pytest.mark.rule("V68")
@pytest.mark.parametrize("isr", [(1,), (1, 3)], ids=["alone", "the other is not alive"])
def test_a_damaged_leader_without_another_live_member_stays(isr: tuple[int, ...]) -> None:
    controller = loaded(one_partition(state(isr)))
    if len(isr) > 1:
        step(controller, BrokersRead(brokers(1, 2)))
    before = controller.image.states[T0]
    after, error = outcome(controller, damaged(leader_epoch=before.leader_epoch))
    assert after is None and error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert controller.image.states[T0].leader == 1


@pytest.mark.rule("V68")
def test_a_slow_member_leads_only_where_there_is_no_other() -> None:
    controller = loaded()
    controller.balance.note_slow(2, controller.image)
    after, _ = outcome(controller, damaged())
    assert after is not None and (after.leader, after.isr) == (3, (2, 3))
    controller = loaded(one_partition(state((1, 2))))
    controller.balance.note_slow(2, controller.image)
    after, _ = outcome(controller, damaged())
    assert after is not None and (after.leader, after.isr) == (2, (2,))


@pytest.mark.rule("V68")
@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (damaged(leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (damaged(2, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (damaged(life=2), ErrorCode.STALE_BROKER_EPOCH),
        (damaged(4), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["an older term", "an older term of another", "another life", "not assigned"],
)
def test_a_late_request_takes_nobody_out(asked: RelinquishAsked, error: ErrorCode) -> None:
    controller = loaded()
    if asked.request.broker_id == 4:
        step(controller, BrokersRead(brokers(1, 2, 3, 4)))
    assert outcome(controller, asked) == (None, error)


# In the simulator: the whole of it


@pytest.mark.rule("V68")
def test_a_leader_that_reads_damage_leaves_the_isr_and_refetches_while_it_runs() -> None:
    """A bit flips under a leader; a follower with a new disk asks for that batch. Another member
    leads, the former leader truncates and refetches, and everybody has everything in the end."""
    with CollectorPaused():
        run = SeedRun(0, "damaged_disks")
        cluster, world = run.cluster, run.simulator
        told: list[str] = []
        world.trace.listener = told.append
        flipped: list[int] = []

        def damage() -> None:
            steady = next(t for t in cluster.published.topics.values() if t.name == "steady")
            state = cluster.published.partitions[LogKey(steady.topic_id, 0)]
            leader, follower = cluster.brokers[state.leader], cluster.brokers[state.isr[-1]]
            assert leader is not follower and len(state.isr) == 3
            leader.logs.disk.flip(f"/data/steady-0/{0:020d}.log", 80, 8)
            flipped.append(leader.node_id)
            assert follower.crash(Loss.ALL_UNSYNCED, "its disk is replaced")
            follower.logs.disk.replace()

        def begin() -> None:
            world.scheduler.after(4 * NS_PER_S, None, damage)

        run.faults.begin = begin  # type: ignore[method-assign]  # replaced by the test
        cluster.budget.is_kept = False
        result = run.run()
    assert result.violation == ""
    (leader_id,) = flipped
    assert not [line for line in told if " halt " in line], "no broker ends"
    assert result.marks["damage_read"] >= 1
    assert result.marks["damage_reported"] >= 1
    assert result.marks["damage_truncated"] >= 1
    truncated = [line for line in told if "truncating steady-0" in line and "to refetch" in line]
    assert truncated and all(line.split()[1] == str(leader_id) for line in truncated)
    assert not world.is_damaged(leader_id)
    assert cluster.damage.found_count >= 1 and cluster.damage.unrepaired() == ""
