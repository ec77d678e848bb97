"""What is shown of partitions without a leader, and of replicas outside the ISR (E1, E4, E6, V62).

From the controller's decision through UpdateMetadata to the answers of any broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import CONNECTION, TOPIC, TOPIC_ID, FakeBroker, a_cluster
from tests.support.broker.fakes import state as role
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    epoch,
    loaded,
    one_partition,
    settings,
    state,
    step,
    topic,
)
from tests.support.ports import FakeTracer

from tidelog.broker.apis import describe_replicas, describe_topic_partitions
from tidelog.broker.cluster_view import ClusterView, PartitionView
from tidelog.broker.controller import term
from tidelog.broker.server.requests import Request
from tidelog.controller.cluster_events import leader_awaited
from tidelog.controller.commands import Commands, Part, Sender
from tidelog.controller.controller import Controller
from tidelog.controller.elections.recoveries import LogEndsReported, RecoveryBegun, RecoveryWaitOver
from tidelog.controller.elections.waits import WaitChanged
from tidelog.controller.records import NO_LOG, UNREADABLE_LOG, LogEnd
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import LeaderAndIsrAnswered
from tidelog.controller.topics.changes import TopicFound
from tidelog.core import leader_wait
from tidelog.core.errors import ErrorCode
from tidelog.core.leader_wait import LeaderWait, MemberStatus
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import NO_LEADER
from tidelog.wire.codec import RequestHeader, decode_request, encode_request
from tidelog.wire.messages.describe_replicas import (
    DescribedPartition,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    DescribeReplicasTopic,
)
from tidelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.wire.registry import (
    DESCRIBE_REPLICAS,
    DESCRIBE_TOPIC_PARTITIONS,
    UPDATE_METADATA,
)

TWO = replace(settings(), min_insync_replicas=2)
HERE, AWAY, ASKED, COMPARED = (
    MemberStatus.REGISTERED,
    MemberStatus.NOT_REGISTERED,
    MemberStatus.ASKED,
    MemberStatus.COMPARED,
)


def bounced(*members: int) -> Controller:
    """A controller of a partition whose members ended without proof; these are back."""
    controller = loaded(one_partition(state()), of=TWO)
    step(controller, BrokersRead(brokers(*(broker(member, life=2) for member in members))))
    return controller


def report(controller: Controller, member: int, end: LogEnd) -> Any:
    return step(controller, LogEndsReported(member, epoch(member, 2), {TP: end}))[1]


def published(commands: Commands) -> UpdateMetadataRequest:
    """The request with the metadata, as it arrives at a broker."""
    [sent] = [
        outgoing
        for outgoing in commands.requests(Sender(1, 7, "PLAINTEXT"), 5)
        if outgoing.part is Part.SHOWN
    ]
    parts = encode_request(UPDATE_METADATA, sent.version, 1, "c", sent.message)
    frame = memoryview(b"".join(bytes(part) for part in parts))[4:]
    message: UpdateMetadataRequest = decode_request(frame)[1]
    return message


def seen(effects: Any, view: ClusterView | None = None) -> PartitionView:
    """The partition in the view of a broker that took the commands."""
    view = ClusterView() if view is None else view
    view.apply(published(next(iter(effects.commands.values()))))
    found = view.partition(TP)
    assert found is not None
    return found


def waits(controller: Controller) -> dict[int, MemberStatus]:
    return dict(controller.image.waits[TP].members)


@pytest.mark.rule("E6", "E4")
def test_every_broker_gets_the_members_that_a_partition_without_a_leader_waits_for() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    _, effects = step(controller, BrokersRead(brokers(broker(2, life=2))))
    found = seen(effects)
    assert (found.leader, found.last_leader) == (NO_LEADER, 1)
    assert found.wait == LeaderWait(((1, AWAY), (2, HERE), (3, AWAY)), 2)
    assert leader_wait.reason(found.wait, found.last_leader) == (
        "no leader: awaiting broker 1 (not registered), broker 3 (not registered);"
        " 1 of 2 members registered; last leader 1"
    )


@pytest.mark.rule("E6")
def test_the_wait_follows_the_recovery_to_its_end() -> None:
    controller = bounced(1, 2)
    assert controller.image.waits[TP].is_waiting
    _, effects = step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    assert waits(controller) == {1: ASKED, 2: ASKED, 3: AWAY}
    assert seen(effects).wait == controller.image.waits[TP]
    effects = report(controller, 1, LogEnd(5, 80))
    assert waits(controller) == {1: COMPARED, 2: ASKED, 3: AWAY}
    wait = seen(effects).wait
    assert wait is not None
    assert leader_wait.reason(wait) == (
        "no leader: awaiting broker 2 (asked for the end of its log), broker 3 (not registered);"
        " 1 of 2 logs compared"
    )
    effects = report(controller, 2, LogEnd(5, 90))
    assert seen(effects).wait is None
    assert controller.image.waits == {}


@pytest.mark.rule("E6")
def test_a_wait_that_has_not_changed_is_sent_and_reported_once() -> None:
    controller = bounced(2)
    _, effects = step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    assert effects.notices.of(WaitChanged) == []
    assert effects.commands == {}


@pytest.mark.rule("E6")
@pytest.mark.parametrize(
    ("end", "status"), [(NO_LOG, MemberStatus.LOST), (UNREADABLE_LOG, MemberStatus.UNREADABLE)]
)
def test_a_member_without_its_log_is_named_as_such(end: LogEnd, status: MemberStatus) -> None:
    controller = bounced(1, 2)
    step(controller, RecoveryWaitOver([RecoveryBegun(TP, 0)]))
    report(controller, 1, end)
    assert waits(controller)[1] is status


@pytest.mark.rule("E6", "D3")
def test_a_broker_that_reports_its_replica_missing_is_not_waited_for() -> None:
    controller = bounced(1)
    lost = LeaderAndIsrAnswered(1, epoch(1, 2), [(TP, ErrorCode.REPLICA_NOT_AVAILABLE)])
    step(controller, lost)
    assert waits(controller)[1] is MemberStatus.LOST


@pytest.mark.rule("E6")
def test_a_broker_of_kafkas_is_named_as_one_that_reports_no_log_ends() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    silent = replace(broker(1, life=2), reports_log_ends=False)
    step(controller, BrokersRead(brokers(silent)))
    assert waits(controller)[1] is MemberStatus.SILENT


@pytest.mark.rule("E6")
def test_the_event_names_the_members() -> None:
    controller = loaded(one_partition(state()), of=TWO)
    _, effects = step(controller, BrokersRead(brokers(broker(2, life=2))))
    [changed] = effects.notices.of(WaitChanged)
    event = leader_awaited(
        changed.topic_partition,
        changed.topic_id,
        changed.leader_epoch,
        changed.last_leader,
        changed.wait,
        controller_epoch=7,
        number=1,
    )
    assert event.key.endswith(b"/0/6/7/1")
    assert (event.fields["awaited"], event.fields["quorum"]) == ([1, 3], 2)
    assert event.fields["last_leader"] == 1


@pytest.mark.rule("V62")
def test_the_controllers_log_names_who_left_and_why_on_one_line_for_each_broker() -> None:
    topics = [TopicFound(topic(str(number)), {0: state()}) for number in range(7)]
    controller = loaded(*topics, of=TWO)
    _, effects = step(controller, BrokersRead(brokers(1, 2)))
    tracer = FakeTracer()
    services: Any = SimpleNamespace(tracer=tracer)
    term.report(services, 7, effects)
    [line] = [line for line in tracer.lines if "left the ISR" in line]
    assert line.endswith(
        "broker 3 left the ISR of 7 partitions, cause session: 0-0, 1-0, 2-0, 3-0, 4-0 and 2 more"
    )


# any broker's answers


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def state_of(
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    partition_epoch: int = 4,
    shrunk: dict[int, ShrinkCause] | None = None,
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=0,
        leader=leader,
        leader_epoch=0,
        isr=list(isr),
        zk_version=partition_epoch,
        replicas=[1, 2, 3],
        shrunk=list(shrunk or {}),
        causes=list((shrunk or {}).values()),
    )


def take(view: ClusterView, state: UpdateMetadataPartitionState, *, full: bool = False) -> None:
    topic = UpdateMetadataTopicState(TOPIC, TOPIC_ID, [state])
    view.apply(UpdateMetadataRequest(type=2 if full else 1, topic_states=[topic], live_brokers=[]))


def described(broker: FakeBroker, *partitions: int, topic: str = TOPIC) -> DescribeReplicasResponse:
    request = Request(
        RequestHeader(DESCRIBE_REPLICAS, 0, 0, None),
        DescribeReplicasRequest([DescribeReplicasTopic(topic, list(partitions))]),
        CONNECTION,
        0,
    )
    return describe_replicas.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in


def only(response: DescribeReplicasResponse) -> DescribedPartition:
    [topic] = response.topics
    [partition] = topic.partitions
    return partition


@pytest.mark.rule("V62", "F1")
def test_the_leader_describes_the_progress_of_each_replica() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        leader.see(1, 2, 3)
        take(leader.view, state_of())
        await leader.command(role(isr=(1, 2, 3), is_new=True))
        leader.produce(3)
        leadership = leader.partition().leadership
        assert leadership is not None
        leadership.fetched(2, 102, 3, 0, leader.clock.monotonic_ms())
        leadership.fetched(3, 103, 1, 0, leader.clock.monotonic_ms())
        found = only(described(leader))
        assert (found.is_led_here, found.log_end_offset) == (True, 3)
        ends = {one.broker_id: one.log_end_offset for one in found.replicas}
        lags = {one.broker_id: one.lag_records for one in found.replicas}
        assert (ends, lags) == ({1: 3, 2: 3, 3: 1}, {1: 0, 2: 0, 3: 2})
        assert [one.lag_ms >= 0 for one in found.replicas] == [True] * 3
        assert all(one.last_fetch_ms >= 0 for one in found.replicas[1:])
        assert [one.cause for one in found.replicas] == [-1, -1, -1]

    run(story())


@pytest.mark.rule("E4", "E6", "V62")
def test_a_broker_that_does_not_lead_describes_what_the_controller_published() -> None:
    async def story() -> None:
        other = a_cluster()[2]
        controller = loaded(one_partition(state()), of=TWO)
        _, effects = step(controller, BrokersRead(brokers(broker(2, life=2))))
        seen(effects, other.view)
        other.see(2)
        found = only(described(other, 0, topic=TP.topic))
        assert (found.is_led_here, found.log_end_offset) == (False, -1)
        assert (found.leader_id, found.last_leader, found.quorum) == (-1, 1, 2)
        assert [(one.broker_id, one.status) for one in found.awaited] == [(1, 2), (2, 0), (3, 2)]
        assert [one.is_registered for one in found.replicas] == [False, True, False]
        assert [one.lag_ms for one in found.replicas] == [-1] * 3
        request = Request(
            RequestHeader(DESCRIBE_TOPIC_PARTITIONS, 0, 0, None),
            DescribeTopicPartitionsRequest([TopicRequest(TP.topic)]),
            CONNECTION,
            0,
        )
        answer: DescribeTopicPartitionsResponse = describe_topic_partitions.handle(
            other,  # type: ignore[arg-type]  # a fake stands in
            request,
        )
        [partition] = answer.topics[0].partitions
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), (1,))
        assert len(partition.awaited) == 3

    run(story())


@pytest.mark.rule("E1")
def test_eligible_replicas_are_shown_as_kafka_4_does() -> None:
    async def story() -> None:
        other = a_cluster()[2]
        controller = loaded(one_partition(state()), of=TWO)
        _, effects = step(controller, BrokersRead(brokers(1)))
        seen(effects, other.view)
        assert sorted(only(described(other, topic=TP.topic)).eligible) == [2, 3]

    run(story())


def test_what_is_asked_for_and_is_not_there_has_an_error_of_its_own() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        take(broker.view, state_of())
        [missing] = described(broker, topic="gone").topics
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [topic] = described(broker, 0, 7).topics
        assert [one.error_code for one in topic.partitions] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    run(story())


def test_no_more_than_two_thousand_partitions_are_described_at_once() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        take(broker.view, state_of())
        response = described(broker, *([0] * 2_001))
        assert response.truncated
        assert len(response.topics[0].partitions) == 2_000

    run(story())


# causes in the view


@pytest.mark.rule("V62")
def test_a_broker_keeps_causes_that_a_new_controller_does_not_know() -> None:
    now = [5_000]
    view = ClusterView(lambda: now[0])
    take(view, state_of())
    take(view, state_of(isr=(1, 2), shrunk={3: ShrinkCause.NO_FETCH}))
    now[0] = 9_000
    take(view, state_of(isr=(1, 2)), full=True)
    partition = view.topics[TOPIC].partitions[0]
    assert partition.out_of_isr == {3: (ShrinkCause.NO_FETCH, 5_000)}
    take(view, state_of())
    assert view.topics[TOPIC].partitions[0].out_of_isr == {}
    take(view, state_of(isr=(1, 3)))
    assert view.topics[TOPIC].partitions[0].out_of_isr == {2: (ShrinkCause.UNKNOWN, 9_000)}


def test_a_replica_that_was_never_seen_in_the_isr_has_no_time() -> None:
    view = ClusterView(lambda: 5_000)
    take(view, state_of(isr=(1,), shrunk={2: ShrinkCause.SESSION}), full=True)
    assert view.topics[TOPIC].partitions[0].out_of_isr == {
        2: (ShrinkCause.SESSION, -1),
        3: (ShrinkCause.UNKNOWN, -1),
    }
