"""Reassignments, completed in an order that survives every crash: V50 to V52, A13, R1.

Real shells on the simulated store; brokers are scripted, and leaders among them report an ISR with
every replica that their command named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.controller.harness import Candidate, ControllerHarness, _Wire, controller_harness
from tests.support.controller.values import (
    TP,
    alter,
    answer_of,
    brokers,
    loaded,
    reassign,
    state,
    state_writes,
    step,
    stopped,
    topic,
    unloaded,
)

from tidelog.broker.controller.store_writer import StoreWriter
from tidelog.controller.reassignments.progress import SweepDue, WriteAssignments
from tidelog.controller.records import Move
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import Create, Op, OpResult, SetData, Stat
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.registry import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA


class Moves:
    """Five brokers with t-0 on the first three, which is moved to 4, 5 and 1."""

    target: tuple[int, ...] = (4, 5, 1)

    def __init__(self, around: ControllerHarness) -> None:
        self.harness = around
        first = around.controller()
        assert around.create(first, "t", (1, 2, 3)).error_code == ErrorCode.NONE
        #: Every state of t-0 and every assignment of t that was written, in order.
        self.states: list[dict[str, Any]] = []
        self.assignments: list[TopicAssignment] = []
        around.server.on_commit(self._committed)
        #: (broker, request) for every command that arrived, in order.
        self.commanded: list[tuple[int, Any]] = []
        #: The published state when a replica was commanded to stop.
        self.left_at: dict[int, Any] = {}
        for one in around.brokers.values():
            one.script.answer = self._answering(one)  # type: ignore[method-assign,assignment]  # watched

    def _committed(
        self, _zxid: int, _session: int, ops: Sequence[Op], _results: Sequence[OpResult]
    ) -> None:
        for op in ops:
            if isinstance(op, SetData) and op.path == layout.topic_path("t"):
                self.assignments.append(layout.decode_topic(op.path, op.data))

    def _answering(self, one: Candidate) -> Callable[[Any], Any]:
        answer = type(one.script).answer

        def answering(message: Any) -> Any:
            self.commanded.append((one.broker_id, message))
            if isinstance(message, StopReplicaRequest):
                self.left_at[one.broker_id] = self.published()
            return answer(one.script, message)

        return answering

    def published(self) -> Any:
        """(state, assignment) as the store has them now."""
        tree = self.harness.server.tree
        path = layout.partition_state_path(TP)
        node, of_topic = tree.get(path), tree.get(layout.topic_path("t"))
        assert node is not None
        assert of_topic is not None
        return (
            layout.decode_partition_state(path, node.data, node.stat),
            layout.decode_topic(path, of_topic.data),
        )

    @property
    def is_done(self) -> bool:
        """Whether the topic's node names the target alone and the request is gone."""
        _, assignment = self.published()
        asked = self.harness.server.tree.get(layout.REASSIGN_PARTITIONS)
        return (
            assignment.partitions[0] == self.target
            and not assignment.adding
            and not assignment.removing
            and asked is None
        )

    def ask_by_node(self) -> None:
        """An administrator leaves the request in the store."""
        data = layout.encode_reassignments([ReassignmentEntry(TP, self.target)])
        self.harness.write(Create(layout.REASSIGN_PARTITIONS, data))

    def report(self) -> None:
        """The leader asks for an ISR of all live replicas that it knows of, as it knows it."""
        around = self.harness
        now, _ = self.published()
        if now.leader not in around.brokers or not around.brokers[now.leader].is_up:
            return
        leader = around.brokers[now.leader]
        role = leader.script.roles().get(TP)
        controllers = [around.brokers[one] for one in around.controllers]
        if role is None or role.leader != now.leader or not controllers:
            return
        if role.leader_epoch != now.leader_epoch:
            return
        isr = [one for one in role.replicas if around.brokers[one].broker_epoch > 0]
        isr = [one for one in isr if around.brokers[one].is_up]
        if sorted(isr) == sorted(now.isr):
            return
        data = RequestPartitionData(
            partition_index=0,
            leader_epoch=now.leader_epoch,
            new_isr_with_epochs=[BrokerState(one, around.brokers[one].broker_epoch) for one in isr],
            partition_epoch=now.partition_epoch,
        )
        assert now.leader in isr
        _, assignment = self.published()
        request = AlterPartitionRequest(
            leader.broker_id,
            leader.broker_epoch,
            [RequestTopicData(assignment.topic_id, partitions=[data])],
        )
        around.alter(controllers[0], request)

    def finish(self, limit_ms: int = 30_000) -> None:
        """Let leaders report until the move is done."""
        for _ in range(limit_ms // 50):
            if self.is_done:
                return
            self.report()
            self.harness.pass_time(50)
        state_now, assignment = self.published()
        raise AssertionError(f"it is not done: {state_now}, {assignment}")


@pytest.fixture
def moves() -> Iterator[Moves]:
    with controller_harness(5) as around:
        yield Moves(around)


@pytest.mark.rule("V50", "V51", "V52")
def test_a_request_in_the_store_is_carried_out_and_then_gone(moves: Moves) -> None:
    moves.ask_by_node()
    moves.finish()
    now, assignment = moves.published()
    assert sorted(now.isr) == [1, 4, 5]
    assert assignment.original == {}
    around = moves.harness
    around.pass_time(200)
    for broker_id in (2, 3):
        [stop] = around.brokers[broker_id].script.of(StopReplicaRequest)
        [[one]] = [told.partition_states for told in stop.topic_states]
        assert one.delete_partition
    for broker_id in (1, 4, 5):
        assert around.brokers[broker_id].script.of(StopReplicaRequest) == []


@pytest.mark.rule("V50")
def test_its_states_follow_each_other_and_a_sweep_looks_again(moves: Moves) -> None:
    controller = loaded(TopicFound(topic(), {0: state()}), live=brokers(1, 2, 3, 4, 5))
    assert TP not in controller.image.moving, "pending"
    step(controller, reassign(TP, [4, 2, 1]))
    assert TP in controller.image.moving, "adding"
    assert not controller.image.is_completing(TP)
    step(controller)
    now = controller.image.states[TP]
    controller.image.states[TP] = replace(now, isr=(1, 2, 3, 4), isr_epochs=None)
    step(controller)
    assert not controller.image.is_completing(TP), "nobody has told"
    step(controller, SweepDue())
    assert controller.image.is_completing(TP), "completing"
    step(controller, stopped(3))
    assert TP not in controller.image.moving, "done"
    # The shell sweeps from time to time.
    swept: list[Any] = []
    moves.ask_by_node()
    around = moves.harness
    around.until(lambda: len(moves.assignments) == 1)
    shell = around.controller().controller
    offer = shell.offer

    def offered(event: Any) -> None:
        swept.append(event)
        offer(event)

    shell.offer = offered  # type: ignore[method-assign]  # watched
    around.pass_time(6_000)
    assert [one for one in swept if isinstance(one, SweepDue)] != []


@pytest.mark.rule("V51")
def test_a_replica_that_is_to_go_may_be_down_and_out_of_sync(moves: Moves) -> None:
    around = moves.harness
    dead = around.brokers[3 if around.brokers[2].is_controller else 2]
    dead.crash()
    around.until(lambda: dead.broker_id not in moves.published()[0].isr)
    around.controller()
    moves.ask_by_node()
    moves.finish()
    assert sorted(moves.published()[0].isr) == [1, 4, 5]


@pytest.mark.rule("V51")
def test_it_is_not_complete_before_every_replica_of_the_target_is_in_sync() -> None:
    for isr in ((1, 2, 3), (1, 2, 3, 4), (1, 4)):
        controller = loaded(TopicFound(topic(), {0: state()}), live=brokers(1, 2, 3, 4, 5))
        step(controller, reassign(TP, [4, 5, 1]))
        step(controller, alter(*isr, leader_epoch=6, partition_epoch=11))
        assert state_writes(step(controller)[0]) == {}
        assert not controller.image.is_completing(TP)


@pytest.mark.rule("V52")
def test_the_order_isr_then_roles_then_deletion_then_the_node_then_the_request(
    moves: Moves,
) -> None:
    moves.ask_by_node()
    around = moves.harness
    moves.finish()
    around.pass_time(200)
    begun, ended = moves.assignments
    assert begun.partitions[0] == (4, 5, 1, 2, 3)
    assert (begun.adding, begun.removing) == ({0: (4, 5)}, {0: (2, 3)})
    assert begun.original == {0: (1, 2, 3)}
    assert ended == TopicAssignment(begun.topic_id, {0: (4, 5, 1)})
    # (1) and (3): each replica that was commanded to stop had left the ISR, and was in the node.
    assert sorted(moves.left_at) == [2, 3]
    for published, assignment in moves.left_at.values():
        assert sorted(published.isr) == [1, 4, 5]
        assert published.leader in moves.target
        assert assignment == begun
    # (2): the last roles name the target alone, under the epoch of (1).
    final, _ = moves.published()
    for broker_id in moves.target:
        role = around.brokers[broker_id].script.roles()[TP]
        assert tuple(role.replicas) == moves.target
        assert role.leader_epoch == final.leader_epoch
    told = [
        max(one.leader_epoch for each in request.topic_states for one in each.partition_states)
        for broker_id, request in moves.commanded
        if isinstance(request, LeaderAndIsrRequest) and broker_id == final.leader
    ]
    assert told[-1] > told[0]


@pytest.mark.rule("V52")
def test_once_it_completes_no_old_replica_gets_into_the_isr_whoever_is_the_controller() -> None:
    controller = loaded(TopicFound(topic(), {0: state()}), live=brokers(1, 2, 3, 4))
    step(controller, reassign(TP, [4, 2, 1]))
    step(controller, alter(1, 2, 3, 4, leader_epoch=6, partition_epoch=11))
    step(controller)
    now = controller.image.states[TP]
    asked = alter(1, 2, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch)
    step(controller, asked)
    now = controller.image.states[TP]
    assert now.isr == (1, 2), "a replica of the target has fallen behind"
    stat = Stat(now.partition_epoch, 0, now.mzxid, -1)
    read = layout.decode_partition_state("/", layout.encode_partition_state(now), stat)
    found = controller.image.topics["t"]
    successor = loaded(TopicFound(found, {0: read}), live=brokers(1, 2, 3, 4))
    for one in (controller, successor):
        before = one.image.states[TP]
        asked = alter(
            1, 2, 3, 4, leader_epoch=before.leader_epoch, partition_epoch=before.partition_epoch
        )
        [[data]] = [each.partitions for each in answer_of(step(one, asked)[1]).topics]
        assert data.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.rule("V52")
def test_no_replica_goes_on_as_before_where_only_the_topics_node_was_written() -> None:
    controller = loaded(TopicFound(topic(), {0: state()}), live=brokers(1, 2, 3, 4))
    changed = state(partition_epoch=11, mzxid=1001)
    step(controller, reassign(TP, [4, 2, 1]), outcomes={1: Conflict(changed)})
    writes, effects = step(controller)
    assert state_writes(writes)[TP].leader_epoch == changed.leader_epoch + 1
    assert tuple(effects.commands[1].roles[TP].state.replicas) == (4, 2, 1, 3)


class Strike:
    """Kills the controller at its n-th transaction or command from now on, before or after it."""

    def __init__(self, around: ControllerHarness, number: int, *, after: bool) -> None:
        self.around = around
        self.left = number
        self.after = after
        self.struck = False

    def comes(self, candidate: Candidate) -> bool:
        """Count one; whether this is the one."""
        if self.struck or not candidate.is_controller:
            return False
        self.left -= 1
        self.struck = self.left < 0
        return self.struck

    def by_store(self, store: Any) -> Candidate:
        # A controller's store is watched (V42).
        held = store._store
        [found] = [one for one in self.around.brokers.values() if one.store is held]
        return found


def struck_while_moving(
    monkeypatch: pytest.MonkeyPatch, number: int, what: str, *, after: bool
) -> bool:
    """A move with the controller lost at one point; False where it had ended before."""
    with controller_harness(5) as around:
        moves = Moves(around)
        strike = Strike(around, number, after=after)
        transact, send = StoreWriter._transact, _Wire.send

        async def transacting(self: StoreWriter, ops: Sequence[Op]) -> Any:
            candidate = strike.by_store(self._store)
            comes = what == "write" and strike.comes(candidate)
            if comes and not after:
                candidate.crash()
            results = await transact(self, ops)
            if comes and after:
                candidate.crash()
            return results

        def sending(self: _Wire, api_key: int, *rest: Any) -> None:
            is_command = api_key in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)
            comes = what == "send" and is_command and strike.comes(self._sender)
            if comes and not after:
                self._sender.crash()
                return
            send(self, api_key, *rest)
            if comes and after:
                self._sender.crash()

        monkeypatch.setattr(StoreWriter, "_transact", transacting)
        monkeypatch.setattr(_Wire, "send", sending)
        moves.ask_by_node()
        for _ in range(600):
            if moves.is_done:
                break
            for one in around.brokers.values():
                if not one.is_up:
                    one.start()
            moves.report()
            around.pass_time(50)
        assert moves.is_done, f"lost at {what} {number}: {moves.published()}"
        around.pass_time(300)
        final, _ = moves.published()
        assert sorted(final.isr) == sorted(moves.target)
        for published, _ in moves.left_at.values():
            assert not {2, 3} & set(published.isr), "deleted while it was in sync"
        for broker_id in moves.target:
            role = around.brokers[broker_id].script.roles()[TP]
            assert tuple(role.replicas) == moves.target, f"{what} {number}: {broker_id} {role}"
        return strike.struck


@pytest.mark.rule("V52", "R14", "V41")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("what", ["write", "send"])
def test_the_controller_may_be_lost_at_every_write_and_command(
    monkeypatch: pytest.MonkeyPatch, what: str, after: bool
) -> None:
    number = 0
    while struck_while_moving(monkeypatch, number, what, after=after):
        monkeypatch.undo()
        number += 1
    assert number >= 4, "there are fewer points than a move has"


@pytest.mark.rule("A13")
def test_the_change_that_completes_it_is_followed_by_the_completion_at_once(moves: Moves) -> None:
    controller = loaded(TopicFound(topic(), {0: state()}), live=brokers(1, 2, 3, 4))
    step(controller, reassign(TP, [4, 2, 1]))
    step(controller, alter(1, 2, 3, 4, leader_epoch=6, partition_epoch=11))
    assert controller.has_work, "nothing else needs to happen"
    writes, _ = step(controller)
    assert [type(one) for one in writes] == [WritePartitionState]
    assert controller.image.is_completing(TP)
    # In a shell: no time passes but that of the writes.
    moves.ask_by_node()
    around = moves.harness
    around.until(lambda: len(moves.assignments) == 1)
    around.pass_time(100)
    moves.report()
    around.pass_time(50)
    assert moves.is_done


@pytest.mark.rule("R1")
def test_what_there_was_is_recorded_when_a_request_is_accepted_and_stays(moves: Moves) -> None:
    moves.ask_by_node()
    around = moves.harness
    around.until(lambda: len(moves.assignments) == 1)
    around.pass_time(100)
    node = around.read(layout.REASSIGN_PARTITIONS)
    assert node is not None
    [entry] = layout.decode_reassignments(layout.REASSIGN_PARTITIONS, node.data)
    assert entry == ReassignmentEntry(TP, (4, 5, 1), (1, 2, 3))
    assert ask(moves, [5, 3, 1]) == ErrorCode.NONE
    _, assignment = moves.published()
    assert assignment.original == {0: (1, 2, 3)}
    assert around.read(layout.REASSIGN_PARTITIONS) is None, "a newer request has overruled it"
    assert ask(moves, None) == ErrorCode.NONE
    moves.target = (1, 2, 3)
    moves.finish()


@pytest.mark.rule("R1")
def test_requests_for_what_cannot_be_are_refused_by_both_ways(moves: Moves) -> None:
    around = moves.harness
    assert ask(moves, [9, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert ask(moves, [1], TopicPartition("t", 5)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    moves.target = (9, 1)
    moves.ask_by_node()
    around.until(lambda: around.server.tree.get(layout.REASSIGN_PARTITIONS) is None)
    around.write(Create(layout.REASSIGN_PARTITIONS, b"nonsense"))
    around.until(lambda: around.server.tree.get(layout.REASSIGN_PARTITIONS) is None)
    assert moves.assignments == []


@pytest.mark.rule("V41")
def test_a_new_controller_resumes_them_when_its_full_commands_are_out() -> None:
    found = topic(assignments={0: (4, 2, 1, 3)}, moves={0: Move((4,), (3,), (1, 2, 3), 1000)})
    controller = unloaded(TopicFound(found, {0: state((1, 2, 3, 4))}), live=brokers(1, 2, 3, 4))
    writes, effects = step(controller)
    assert writes == []
    assert all(one.full for one in effects.commands.values())
    assert state_writes(step(controller)[0])[TP].isr == (1, 2, 4)


@pytest.mark.rule("V22", "R13")
def test_a_topic_that_moves_can_be_deleted_which_ends_the_move(moves: Moves) -> None:
    moves.ask_by_node()
    around = moves.harness
    around.until(lambda: len(moves.assignments) == 1)
    around.pass_time(100)
    answers = around.delete(around.controller(), "t")
    around.until(lambda: bool(answers))
    assert answers[0].responses[0].error_code == ErrorCode.NONE
    assert around.read(layout.topic_path("t")) is None
    around.until(lambda: around.server.tree.get(layout.REASSIGN_PARTITIONS) is None)
    for one in around.brokers.values():
        assert len(one.script.of(StopReplicaRequest)) == 1, "those that were added, too"
    assert len(moves.assignments) == 1, "no step of the move came after"


@pytest.mark.rule("R21")
def test_another_order_is_there_at_once_and_touches_no_replica() -> None:
    controller = loaded(TopicFound(topic(), {0: state()}))
    writes, effects = step(controller, reassign(TP, [2, 3, 1]))
    assert [type(one) for one in writes] == [WriteAssignments]
    assert controller.image.replicas(TP) == (2, 3, 1)
    assert not controller.image.moving
    assert [one for one in effects.commands.values() if one.roles or one.stops] == []
    assert all(one.shown for one in effects.commands.values()), "clients hear of it"


def ask(moves: Moves, target: Sequence[int] | None, of: TopicPartition = TP) -> ErrorCode:
    """Ask by request; the partition's outcome."""
    wanted = ReassignableTopic(of.topic, [ReassignablePartition(of.partition, target)])
    request = AlterPartitionReassignmentsRequest(topics=[wanted])
    answer = moves.harness.answer(
        moves.harness.controller(),
        lambda shell: shell.ask(request, AlterPartitionReassignmentsResponse),
    )
    [told] = answer.responses
    [one] = told.partitions
    return ErrorCode(one.error_code)


@pytest.mark.rule("R7")
def test_more_may_be_moved_while_some_are() -> None:
    two = topic(assignments={0: (1, 2, 3), 1: (2, 3, 1)})
    controller = loaded(
        TopicFound(two, {0: state(), 1: state((2, 3, 1))}), live=brokers(1, 2, 3, 4, 5)
    )
    step(controller, reassign(TP, [4, 2, 1]))
    other = TopicPartition("t", 1)
    _, effects = step(controller, reassign(other, [5, 3, 1]))
    [topic_answer] = answer_of(effects).responses
    assert [each.error_code for each in topic_answer.partitions] == [ErrorCode.NONE]
    assert sorted(controller.image.moving) == [TP, other]


@pytest.mark.rule("R18")
def test_a_request_made_for_other_replicas_is_refused() -> None:
    controller = loaded(live=brokers(1, 2, 3, 4, 5))
    asked = reassign(TP, [4, 2, 1])
    [partition] = asked.request.topics[0].partitions
    partition.expected_replicas = [3, 2, 1]
    writes, effects = step(controller, asked)
    assert writes == []
    [told] = answer_of(effects).responses[0].partitions
    assert told.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert told.error_message == (
        "t-0 has the replicas [1, 2, 3], and the request was made for [3, 2, 1]: make it again from"
        " what there is"
    )
    partition.expected_replicas = [1, 2, 3]
    _, effects = step(controller, asked)
    assert answer_of(effects).responses[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.rule("R18")
def test_a_request_that_is_repeated_finds_its_own_move_and_no_other() -> None:
    """The response was lost: a client cannot know that its request has taken effect."""

    def asked(target: list[int], expected: list[int]) -> ErrorCode:
        request = reassign(TP, target)
        request.request.topics[0].partitions[0].expected_replicas = expected
        _, effects = step(controller, request)
        return ErrorCode(answer_of(effects).responses[0].partitions[0].error_code)

    controller = loaded(live=brokers(1, 2, 3, 4, 5))
    assert asked([4, 2, 1], [1, 2, 3]) is ErrorCode.NONE
    assert asked([4, 2, 1], [1, 2, 3]) is ErrorCode.NONE
    assert asked([5, 2, 1], [1, 2, 3]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert asked([4, 2, 1], [3, 2, 1]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    controller = loaded(live=brokers(1, 2, 3, 4, 5))
    assert asked([1, 2, 3], [3, 2, 1]) is ErrorCode.NONE, "it is done"
