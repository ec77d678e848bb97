"""Rule V68: a member of the ISR whose log is damaged leaves, truncates and refetches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, a_cluster, settle
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

from tidelog.broker.replicas.directories.damaged_replicas import DamagedReplicas
from tidelog.broker.replicas.directories.relinquishing import DAMAGE_PAUSE_MS, Relinquishing
from tidelog.broker.replicas.metrics import PARTITIONS_DAMAGED
from tidelog.controller.controller import Controller
from tidelog.controller.elections import election
from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.elections.relinquishing import RelinquishAsked
from tidelog.controller.registrations import BrokersRead
from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import NO_LEADER, PartitionState, TopicPartition
from tidelog.log.log_state import Damage
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrResponse
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedPartitionResult,
    RelinquishedTopic,
    RelinquishedTopicResult,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)
from tidelog.wire.registry import FETCH, RELINQUISH_LEADERSHIP

# The broker


class Hurt:
    """A fake broker with a replica of t-0 whose log is damaged from offset 3 on."""

    def __init__(self, *, is_known: bool = True) -> None:
        self.broker: FakeBroker = a_cluster()[1]
        replicas = self.broker.replicas
        self.reports: list[str] = []
        damaged = DamagedReplicas(
            self.broker.services,
            self.broker.commands.rest,
            SimpleNamespace(report=self.reports.append),  # type: ignore[arg-type]  # a fake
        )
        replicas.connect(damaged.give_up, damaged.stopped)
        self.relinquishing = Relinquishing(self.broker.services, damaged.give_up)
        self.asked: list[tuple[RelinquishLeadershipRequest, Callable[[Any, Any], None]]] = []
        peers = self.broker.peers
        peers.intercepted[RELINQUISH_LEADERSHIP] = lambda message, answer: self.asked.append(
            (message, answer)
        )
        if is_known:
            peers.served.append((RELINQUISH_LEADERSHIP, 0, 0))

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
        assert not hurt.reports

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
        assert not hurt.asked and not hurt.reports
        (line,) = hurt.lines("no other replica is in sync")
        assert "partition t-0: the log is damaged from offset 3 on" in line
        assert hurt.broker.metrics.value(PARTITIONS_DAMAGED) == 1
        assert hurt.broker.log().records == b"\4" * 5

    asyncio.run(story())


@pytest.mark.rule("V68")
@pytest.mark.parametrize("leader", [1, 2], ids=["it led", "it followed"])
def test_under_a_controller_that_does_not_know_the_request_the_one_replica_is_offline(
    leader: int,
) -> None:
    """Kafka's: it elects another member, stops the replica, and gets a second notification."""

    async def story() -> None:
        hurt = Hurt(is_known=False)
        broker = hurt.broker
        await hurt.begin(leader)
        partition = broker.replicas.all()[0]
        assert not hurt.asked and not partition.has_role and partition.is_given_up
        assert hurt.reports == ["the log of a replica is damaged"]
        assert hurt.lines("controller 9 does not serve RelinquishLeadership (key 20005)")
        # It asks what is offline, and elects.
        answer = await broker.command(commanded(leader, isr=(1, 2, 3), leader_epoch=4))
        assert _errors(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert broker.log().log_end_offset == 5, "a member keeps its records"
        hurt.found()
        await settle()
        assert len(hurt.reports) == 1, "the controller knows"
        await broker.stop(leader_epoch=5, delete=False)
        assert hurt.reports[1:] == ["a damaged replica has left its ISR"]
        answer = await broker.command(commanded(2, isr=(2, 3), leader_epoch=5, partition_epoch=1))
        assert _errors(answer) == [ErrorCode.NONE]
        assert broker.log().log_end_offset == 3 and broker.log().damage is None
        assert partition.has_role and not partition.is_given_up

    asyncio.run(story())


@pytest.mark.rule("V68")
def test_an_offline_replica_leads_with_what_it_has_where_no_other_member_is_left() -> None:
    async def story() -> None:
        hurt = Hurt(is_known=False)
        await hurt.begin()
        answer = await hurt.broker.command(
            commanded(1, isr=(1,), leader_epoch=5, partition_epoch=1)
        )
        assert _errors(answer) == [ErrorCode.NONE]
        assert hurt.broker.replicas.all()[0].is_leader and hurt.broker.log().damage is not None

    asyncio.run(story())


def _errors(answer: LeaderAndIsrResponse) -> list[int]:
    return [each.error_code for topic in answer.topics for each in topic.partition_errors]


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
@pytest.mark.parametrize(
    "before",
    [state((1, 2, 3), NO_LEADER), state((1, 2, 3), isr_epochs=(epoch(1), epoch(2), epoch(3) - 1))],
    ids=["no leader", "a member has bounced"],
)
def test_a_partition_whose_election_is_due_is_left_alone(before: PartitionState) -> None:
    around = Circumstances((1, 2, 3), brokers(1, 2, 3), controller_epoch=9)
    assert election.elect_without(before, around, 1, ()) is None


@pytest.mark.rule("V68")
def test_a_leader_that_is_leaving_is_replaced_with_the_damaged_follower() -> None:
    around = Circumstances((1, 2, 3), brokers(2, 3), controller_epoch=9)
    elected = election.elect_without(state((1, 2, 3)), around, 2, (3,))
    assert elected is not None
    assert (elected.state.leader, elected.state.isr) == (3, (3,))


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
def test_a_late_request_removes_no_member(asked: RelinquishAsked, error: ErrorCode) -> None:
    controller = loaded()
    if asked.request.broker_id == 4:
        step(controller, BrokersRead(brokers(1, 2, 3, 4)))
    assert outcome(controller, asked) == (None, error)
