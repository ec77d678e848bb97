"""Leaders that write state nodes themselves, below protocol level 2.7: A12, E5, V6, V10, A8, A13.

Real leaders over a real tree of nodes, whose transactions meet what the test says. Then real
controllers on the simulated store, which learn of such changes from notifications.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    T0,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    settle,
)
from tests.support.broker.fakes import state as command_state
from tests.support.broker.tree_store import TreeStore
from tests.support.controller.harness import (
    Candidate,
    ControllerHarness,
    controller_harness,
    not_controller,
)
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    epoch,
    loaded,
    reports,
    roles_answered,
    state,
    state_writes,
    step,
    topic,
    write_all,
)

from tidelog.broker.replicas.isr.alter_partition_manager import AlterPartitionManager
from tidelog.broker.replicas.isr.isr_changes import isr_changes
from tidelog.broker.replicas.isr.state_node_writer import StateNodeWriter
from tidelog.controller.partitions.isr_changes import IsrChangesRead
from tidelog.controller.records import Move
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ErrorCode
from tidelog.core.types import RECOVERED, RECOVERING, PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Check, Create, Delete, Op, SetData
from tidelog.replication import isr as isr_rules
from tidelog.wire.messages.alter_partition import AlterPartitionRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

T1 = TopicPartition("t", 1)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def published(
    isr: tuple[int, ...] = (1, 2, 3), epochs: tuple[int, ...] | None = None, **more: Any
) -> PartitionState:
    """Broker 1 leads under leader epoch 4; the node's version is 2."""
    values: dict[str, Any] = {"leader": 1, "leader_epoch": 4, "controller_epoch": 7}
    return PartitionState(isr=isr, isr_epochs=epochs, partition_epoch=2, **{**values, **more})


class DirectLeader:
    """Broker 1 of three, at protocol level 2.6, leads partitions of topic t."""

    def __init__(self) -> None:
        self.cluster = a_cluster(min_insync_replicas="2", inter_broker_protocol_version="2.6")
        self.broker: FakeBroker = self.cluster[1]
        self.store = TreeStore()
        self.broker.store.get_many = self.store.get_many  # type: ignore[method-assign]  # nodes
        self.broker.store.transact = self.store.transact  # type: ignore[attr-defined]  # nodes
        self.epochs = self.store.register(1, 2, 3)
        self.broker.broker_epoch = self.epochs[1]

    async def lead(self, *states: PartitionState, recovering: bool = False, **extra: Any) -> None:
        """Publish states, with these keys besides, and send broker 1 its roles."""
        self.store.place_topic("t", TOPIC_ID, dict(enumerate(states)), (1, 2, 3), **extra)
        for number, led in enumerate(states):
            command = command_state(
                partition=number,
                leader_epoch=led.leader_epoch,
                partition_epoch=led.partition_epoch,
                isr=led.isr,
                is_new=True,
            )
            command.leader_recovery_state = RECOVERING if recovering else RECOVERED
            command.eligible = led.elr
            await self.broker.command(command)
        await settle()

    def recorded(self, *members: int) -> tuple[int, ...]:
        """Broker epochs of members in their present incarnation."""
        return tuple(self.epochs[member] for member in members)

    def fetch(self, follower: int, partition: TopicPartition = T0, epoch: int = 0) -> None:
        """A follower fetches from the end of the log."""
        broker_epoch = epoch or self.epochs[follower]
        self.broker.partition(partition).role.follower_fetched(follower, broker_epoch, 0, 0, 0)

    async def lose_sight_of(self, follower: int) -> None:
        """The follower is not caught up for longer than the limit; the others are."""
        self.broker.produce()
        await settle()
        await self.broker.clock.advance(29_000)
        for other in (2, 3):
            if other != follower and other in self.isr():
                self.broker.partition(T0).role.follower_fetched(other, self.epochs[other], 1, 0, 0)
        await self.broker.clock.advance(2_000)
        self.broker.partition(T0).role.examine()
        await settle()

    def isr(self, partition: TopicPartition = T0) -> tuple[int, ...]:
        """The confirmed ISR, as the leader knows it."""
        leadership = self.broker.partition(partition).leadership
        assert leadership is not None
        return leadership.isr.committed

    def maximal_isr(self) -> tuple[int, ...]:
        leadership = self.broker.partition(T0).leadership
        assert leadership is not None
        return isr_rules.maximal_isr(leadership.isr)

    def overwrite(self, state: PartitionState) -> None:
        """Another writer, who knows the node, writes it."""
        path = layout.partition_state_path(T0)
        self.store.write(SetData(path, layout.encode_partition_state(state), ANY_VERSION))

    def raw(self) -> dict[str, Any]:
        """The state node's JSON."""
        node = self.store.tree.get(layout.partition_state_path(T0))
        assert node is not None
        value: dict[str, Any] = json.loads(node.data)
        return value


# The level decides (A12)


@pytest.mark.rule("A12")
@pytest.mark.parametrize(
    ("level", "kind"),
    [
        ("2.6", StateNodeWriter),
        ("2.7-IV1", StateNodeWriter),
        ("2.7-IV2", AlterPartitionManager),
        ("2.7", AlterPartitionManager),
        ("3.9-IV0", AlterPartitionManager),
        ("", AlterPartitionManager),
    ],
)
def test_a_leader_writes_itself_below_the_level_of_alter_partition(level: str, kind: type) -> None:
    async def story() -> None:
        broker = a_cluster(inter_broker_protocol_version=level)[1]
        assert type(isr_changes(broker.services)) is kind

    run(story())


@pytest.mark.rule("A12")
@pytest.mark.parametrize("level", ["2.5", "4.0", "3.9-IV1", "two", "2.6-IV1", "2.7-IV2x"])
def test_a_level_that_brokers_do_not_speak_is_refused_with_the_right_form(level: str) -> None:
    with pytest.raises(Exception, match="inter.broker.protocol.version=.* from 2.6 to 3.9"):
        BrokerConfig.from_properties({"broker.id": "1", "inter.broker.protocol.version": level})


# The leader writes (A12, V6, V10, E5)


@pytest.mark.rule("A12", "V6")
def test_a_change_is_written_on_the_condition_of_the_version_with_its_notification() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        made.fetch(2)
        await settle()
        [[write, notification]] = made.store.tried
        assert isinstance(write, SetData) and write.version == 2
        assert isinstance(notification, Create) and notification.sequence
        assert notification.path == "/isr_change_notification/isr_change_"
        state = made.store.state(T0)
        assert (state.isr, state.partition_epoch) == ((1, 2, 3), 3)
        assert (state.leader, state.leader_epoch, state.controller_epoch) == (1, 4, 7)
        assert state.isr_epochs == made.recorded(1, 2, 3)
        assert made.isr() == (1, 2, 3)
        assert made.store.notified() == [[T0]]

    run(story())


@pytest.mark.rule("A12")
def test_changes_of_one_event_are_one_transaction_with_one_notification() -> None:
    async def story() -> None:
        made = DirectLeader()
        shrunk = published((1, 3), made.recorded(1, 3))
        await made.lead(shrunk, shrunk)
        made.fetch(2, T0)
        made.fetch(2, T1)
        await settle()
        assert len(made.store.tried) == 1
        assert made.store.notified() == [[T0, T1]]
        assert made.isr(T0) == made.isr(T1) == (1, 2, 3)

    run(story())


@pytest.mark.rule("A12", "V6")
def test_unknown_keys_stay_in_the_node() -> None:
    async def story() -> None:
        made = DirectLeader()
        state = published((1, 3), made.recorded(1, 3), reassigned_to=(1, 2, 3))
        await made.lead(state, of_a_later_release=[5])
        before = made.raw()
        made.fetch(2)
        await settle()
        changed = {"isr": [1, 2, 3], "isr_epochs": list(made.recorded(1, 2, 3))}
        assert made.raw() == {**before, **changed}

    run(story())


@pytest.mark.rule("E5")
def test_a_replica_that_leaves_a_small_isr_becomes_eligible() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 2), made.recorded(1, 2)))
        await made.lose_sight_of(2)
        state = made.store.state(T0)
        assert (state.isr, state.elr, state.elr_epochs) == ((1,), (2,), made.recorded(2))
        made.broker.partition(T0).role.follower_fetched(2, made.epochs[2], 1, 0, 0)
        await settle()
        state = made.store.state(T0)
        assert (state.isr, state.elr) == ((1, 2), ())
        assert "elr" not in made.raw() and "elr_epochs" not in made.raw()

    run(story())


@pytest.mark.rule("E5")
def test_a_node_without_the_keys_has_no_eligible_replicas_and_unproven_members() -> None:
    """As a broker of Kafka writes it: a member that registered since counts as bounced (V10)."""

    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3)))
        made.store.write(Delete(layout.broker_path(3), ANY_VERSION))
        made.epochs.update(made.store.register(3))
        made.fetch(2)
        await settle()
        state = made.store.state(T0)
        assert state.isr == (1, 2, 3)
        assert state.isr_epochs == (made.epochs[1], made.epochs[2], 0)
        assert state.elr == ()

    run(story())


@pytest.mark.rule("A12", "V10")
def test_a_member_that_stays_keeps_its_recorded_epoch_so_that_its_bounce_still_shows() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        recorded = made.epochs[3]
        made.store.write(Delete(layout.broker_path(3), ANY_VERSION))
        made.epochs.update(made.store.register(3))
        made.fetch(3)
        made.fetch(2)
        await settle()
        assert made.store.state(T0).isr_epochs == (made.epochs[1], made.epochs[2], recorded)

    run(story())


@pytest.mark.rule("A12")
@pytest.mark.parametrize("back", [True, False])
def test_a_follower_that_is_not_registered_as_it_fetched_does_not_join(back: bool) -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        made.store.write(Delete(layout.broker_path(2), ANY_VERSION))
        if back:
            made.store.register(2)
        made.fetch(2)
        await settle()
        assert made.store.tried == []
        assert made.isr() == made.maximal_isr() == (1, 3)

    run(story())


@pytest.mark.rule("A12")
def test_a_follower_that_sends_no_broker_epoch_joins_as_it_is_registered() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        made.fetch(2, epoch=-1)
        await settle()
        assert made.store.state(T0).isr_epochs == made.recorded(1, 2, 3)

    run(story())


@pytest.mark.rule("A12")
def test_a_leader_that_recovered_says_so_in_the_node() -> None:
    async def story() -> None:
        made = DirectLeader()
        state = published((1,), made.recorded(1), leader_recovery_state=RECOVERING)
        await made.lead(state, recovering=True)
        assert made.store.state(T0).leader_recovery_state == RECOVERED
        assert "leader_recovery_state" not in made.raw()

    run(story())


# Other writers, and answers that are lost (A8, V6, S2)


@pytest.mark.rule("A12", "V6", "A8")
def test_a_conflict_makes_the_leader_take_over_the_newer_state() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        newer = published((1,), made.recorded(1), elr=(3,), elr_epochs=made.recorded(3))
        made.store.meanwhile.append(lambda: made.overwrite(newer))
        made.fetch(2)
        await settle()
        # Version 3 is the other writer's; then the leader lets broker 2 join on top of it.
        state = made.store.state(T0)
        assert (state.isr, state.partition_epoch, state.elr) == ((1, 2), 4, ())
        assert made.isr() == (1, 2)

    run(story())


@pytest.mark.rule("A12", "V6")
def test_a_leader_writes_nothing_into_the_next_leadership_and_waits_for_a_command() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        next_one = published((3, 1), made.recorded(3, 1), leader=3, leader_epoch=5)
        made.store.meanwhile.append(lambda: made.overwrite(next_one))
        made.fetch(2)
        await settle()
        await made.broker.clock.advance(5_000)
        assert len(made.store.tried) == 1
        assert made.store.state(T0).leader == 3
        assert made.maximal_isr() == (1, 3, 2), "the change counts until a command settles it"

    run(story())


@pytest.mark.rule("A12", "A8")
@pytest.mark.parametrize("is_applied", [True, False])
def test_a_change_counts_until_the_node_shows_what_became_of_it(is_applied: bool) -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        made.store.lost_answers.append(is_applied)
        made.store.meanwhile.append(lambda: setattr(made.store, "is_available", False))
        made.fetch(2)
        await settle()
        assert made.isr() == (1, 3)
        assert made.maximal_isr() == (1, 3, 2)
        made.store.is_available = True
        await made.broker.clock.advance(1_000)
        assert made.isr() == (1, 2, 3)
        assert made.store.state(T0).partition_epoch == 3
        assert made.store.notified() == [[T0]], "announced once, with the write that was applied"

    run(story())


@pytest.mark.rule("A12")
def test_while_the_store_is_away_changes_wait_and_are_dropped_when_no_longer_wanted() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        made.store.is_available = False
        made.fetch(2)
        await settle()
        await made.broker.clock.advance(10_000)
        # Another command makes the change void (A9).
        await made.broker.command(command_state(leader_epoch=4, partition_epoch=9, isr=(1, 2, 3)))
        made.store.is_available = True
        await made.broker.clock.advance(2_000)
        assert made.store.tried == []
        assert made.isr() == (1, 2, 3)

    run(story())


@pytest.mark.rule("A12", "V23")
def test_a_node_of_another_topic_of_that_name_is_left_alone() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        path = layout.topic_path("t")
        other = layout.encode_topic(layout.TopicAssignment(b"O" * 16, {0: (1, 2, 3)}))
        made.store.write(SetData(path, other, ANY_VERSION))
        made.fetch(2)
        await settle()
        assert made.store.tried == []
        assert made.maximal_isr() == (1, 3, 2)

    run(story())


@pytest.mark.rule("A12")
def test_an_unreadable_node_is_named_in_the_log_and_left_alone() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        path = layout.partition_state_path(T0)
        made.store.write(SetData(path, b"nonsense", ANY_VERSION))
        made.fetch(2)
        await settle()
        await made.broker.clock.advance(2_000)
        assert made.store.tried == []
        [line] = [text for text in logged(made.broker) if "until the node is repaired" in text]
        assert str(T0) in line and path in line

    run(story())


@pytest.mark.rule("A12", "A3")
@pytest.mark.parametrize("name", ["topic", "state"])
def test_a_change_is_written_once_an_unreadable_node_is_repaired_without_a_command(
    name: str,
) -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        path = layout.topic_path("t") if name == "topic" else layout.partition_state_path(T0)
        node = made.store.tree.get(path)
        assert node is not None
        good = node.data
        made.store.write(SetData(path, b"nonsense", ANY_VERSION))
        made.fetch(2)
        await settle()
        assert made.maximal_isr() == (1, 3, 2)
        made.store.write(SetData(path, good, ANY_VERSION))
        await made.broker.clock.advance(6_000)
        assert made.isr() == (1, 2, 3)

    run(story())


@pytest.mark.rule("A12")
def test_a_missing_parent_of_notifications_is_made_again() -> None:
    async def story() -> None:
        made = DirectLeader()
        await made.lead(published((1, 3), made.recorded(1, 3)))
        made.store.write(Delete(layout.ISR_CHANGES, ANY_VERSION))
        made.fetch(2)
        await settle()
        assert made.isr() == (1, 2, 3)
        assert made.store.notified() == [[T0]]

    run(story())


def logged(broker: FakeBroker) -> list[str]:
    return [str(line) for line in broker.tracer.lines]


# The controller (A12, A13)


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def notify(harness: ControllerHarness, *partitions: TopicPartition) -> None:
    data = layout.encode_isr_change(partitions)
    harness.write(Create(layout.ISR_CHANGE_PREFIX, data, sequence=True))


def await_removal(harness: ControllerHarness) -> None:
    harness.until(lambda: harness.server.tree.children(layout.ISR_CHANGES) == [])


def shrink(harness: ControllerHarness) -> PartitionState:
    """Broker 1, which leads t-0, writes the state without broker 3."""
    state = harness.state(T0)
    assert state.isr_epochs is not None
    smaller = replace(state, isr=state.isr[:2], isr_epochs=state.isr_epochs[:2])
    harness.publish(T0, smaller)
    return smaller


def shown_isrs(candidate: Candidate) -> list[tuple[int, ...]]:
    """ISRs of t-0 in the metadata that a broker got, in order."""
    return [
        tuple(partition.isr)
        for request in candidate.script.of(UpdateMetadataRequest)
        for told in request.topic_states
        if told.topic_name == "t"
        for partition in told.partition_states
    ]


@pytest.mark.rule("A12")
@pytest.mark.parametrize("level", ["2.6", "3.9"])
def test_a_controller_of_any_level_reads_notifications_and_removes_them(level: str) -> None:
    with controller_harness(3, inter_broker_protocol_version=level) as harness:
        first = harness.controller()
        assert harness.create(first, "t", (1, 2, 3)).error_code == ErrorCode.NONE
        harness.pass_time(100)
        for candidate in harness.brokers.values():
            candidate.script.received.clear()
        shrink(harness)
        notify(harness, T0)
        await_removal(harness)
        harness.pass_time(100)
        for candidate in harness.brokers.values():
            assert shown_isrs(candidate) == [(1, 2)]
            assert candidate.script.kinds() == ["U"], "the leader knows its own change"


@pytest.mark.rule("A12", "V3")
def test_notifications_are_removed_under_the_check_of_the_controller_epoch(
    three: ControllerHarness,
) -> None:
    first = three.controller()
    three.create(first, "t", (1, 2, 3))
    removals: list[Sequence[Op]] = []

    def committed(_zxid: int, _session: int, ops: Sequence[Op], _results: object) -> None:
        if any(isinstance(op, Delete) and op.path.startswith(layout.ISR_CHANGES) for op in ops):
            removals.append(ops)

    three.server.on_commit(committed)
    notify(three, T0)
    await_removal(three)
    [ops] = removals
    assert isinstance(ops[0], Check) and ops[0].path == layout.CONTROLLER_EPOCH


@pytest.mark.rule("A12")
def test_a_new_controller_reads_what_was_left_while_there_was_none(
    three: ControllerHarness,
) -> None:
    first = three.controller()
    three.create(first, "t", (1, 2, 3))
    first.crash()
    shrink(three)
    notify(three, T0)
    others = [one for one in three.brokers.values() if one is not first]
    three.until(lambda: any(one.is_controller for one in others))
    await_removal(three)
    three.until(lambda: all(set(shown_isrs(one)[-1]) <= {1, 2} for one in others))


@pytest.mark.rule("A12")
def test_a_notification_that_says_nothing_is_named_and_removed(three: ControllerHarness) -> None:
    first = three.controller()
    assert first.controller._term is not None
    tracer = first.controller._term.reader._tracer = first.watch_log()
    three.write(Create(layout.ISR_CHANGE_PREFIX, b"nonsense", sequence=True))
    await_removal(three)
    [line] = [text for text in tracer.lines if layout.ISR_CHANGES in text]
    assert "cannot be read, removed" in line


@pytest.mark.rule("A12")
def test_a_notification_of_a_state_that_is_known_changes_nothing() -> None:
    controller = loaded()
    writes, effects = step(controller, IsrChangesRead({TP: state((1, 2), partition_epoch=10)}))
    assert not writes and not effects.commands
    assert controller.image.states[TP] == state()


@pytest.mark.rule("A12", "V10")
def test_a_bounced_member_of_a_state_that_a_leader_wrote_leaves_the_isr() -> None:
    controller = loaded(live=brokers(1, 2, broker(3, 2)))
    assert controller.image.states[TP].isr == (1, 2)
    epoch_now = controller.image.states[TP].partition_epoch
    # The leader counted broker 3 in the incarnation that is over.
    written = replace(
        controller.image.states[TP],
        isr=(1, 2, 3),
        isr_epochs=(epoch(1), epoch(2), epoch(3)),
        partition_epoch=epoch_now + 1,
    )
    writes, _ = step(controller, IsrChangesRead({TP: written}))
    assert state_writes(writes)[TP].isr == (1, 2)
    assert state_writes(writes)[TP].partition_epoch == epoch_now + 2


@pytest.mark.rule("A12", "V10")
def test_a_leader_that_wrote_right_before_it_bounced_does_not_lead_before_the_election() -> None:
    """The election meets the state that the leader left, and must come again first."""
    controller = loaded()
    left = state((1, 2), partition_epoch=11)
    controller.offer(BrokersRead(brokers(broker(1, 2), 2, 3)))
    decision = controller.decide()
    assert state_writes(decision.writes)[TP].leader == 2
    effects = controller.applied(decision, [Conflict(state=left)])
    role = effects.commands[1].roles[TP].state
    assert (role.leader, role.leader_epoch, role.partition_epoch) == (-1, -1, -1), "kept as it is"
    assert effects.commands[2].roles[TP].state.leader == 1
    decision = controller.decide()
    assert state_writes(decision.writes)[TP].leader == 2
    effects = controller.applied(decision, write_all(decision.writes))
    assert effects.commands[1].roles[TP].state.leader == 2


@pytest.mark.rule("A12", "D3")
def test_a_broker_without_its_replica_gets_its_role_again_when_its_leader_took_it_out() -> None:
    """Its refusal is of a command that named it as a member; nothing else would come."""
    controller = loaded()
    step(controller, IsrChangesRead({TP: state((1, 2), partition_epoch=11)}))

    writes, effects = step(controller, roles_answered(3))
    assert not writes
    assert effects.commands[3].roles[TP].state.isr == (1, 2)


@pytest.mark.rule("A12", "D3")
def test_a_broker_known_to_lack_its_replica_gets_its_role_when_its_leader_takes_it_out() -> None:
    controller = loaded()
    controller.offer(roles_answered(3))
    decision = controller.decide()
    assert state_writes(decision.writes)[TP].isr == (1, 2)
    controller.applied(decision, [Conflict(state=state(partition_epoch=11))])
    # Before the next decision the leader's own change is read.
    _, effects = step(controller, IsrChangesRead({TP: state((1, 2), partition_epoch=12)}))
    assert effects.commands[3].roles[TP].state.isr == (1, 2)


@pytest.mark.rule("A13")
def test_a_reassignment_completes_on_the_change_that_a_notification_names() -> None:
    moving = Move(adding=(4,), removing=(3,), original=(1, 2, 3))
    found = TopicFound(topic("t", {0: (1, 2, 4, 3)}, moves={0: moving}), {0: state((1, 2, 3))})
    controller = loaded(found, live=brokers(1, 2, 3, 4))
    before = controller.image.states[TP]
    grown = replace(
        before,
        isr=(1, 2, 3, 4),
        isr_epochs=tuple(epoch(member) for member in (1, 2, 3, 4)),
        partition_epoch=before.partition_epoch + 1,
    )
    writes, _ = step(controller, IsrChangesRead({TP: grown}))
    completed = state_writes(writes)[TP]
    assert (completed.isr, completed.reassigned_to) == ((1, 2, 4), (1, 2, 4))


@pytest.mark.rule("A12", "V35")
def test_a_state_that_cannot_be_read_any_more_is_left_alone_with_its_last_known_content() -> None:
    controller = loaded()
    writes, effects = step(controller, IsrChangesRead({TP: "not JSON"}))
    assert not writes
    assert TP in controller.image.unreadable_states
    [line] = reports(effects)
    assert "led by 1" in line and "ISR [1, 2, 3]" in line


@pytest.mark.rule("A12")
def test_a_controller_of_any_level_serves_alter_partition() -> None:
    with controller_harness(1, inter_broker_protocol_version="2.6") as harness:
        only = harness.controller()
        request = AlterPartitionRequest(1, only.broker_epoch, [])
        answer = harness.answer(
            only, lambda runtime: runtime.alter_partition(request, 3, not_controller)
        )
        assert answer.error_code == ErrorCode.NONE
