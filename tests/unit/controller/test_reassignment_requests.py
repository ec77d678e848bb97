"""What is told of reassignments, and the node by which an administrator asks for them (R1)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.controller.reassigning import (
    FOUR,
    OTHER,
    begin,
    caught_up,
    cluster,
    completing,
    kinds,
    run_writes,
)
from tests.support.controller.values import (
    TP,
    answer_of,
    brokers,
    delete,
    list_moves,
    loaded,
    reassign,
    refused_moves,
    run,
    state,
    step,
    stopped,
    topic,
    unloaded,
)

from tidelog.controller.reassignments.progress import SweepDue, WriteAssignments
from tidelog.controller.reassignments.stored_nodes import KeepReassignments, ReassignmentsRead
from tidelog.controller.records import RequestedReassignments
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.writes import Conflict, Write
from tidelog.core.types import ReassignmentEntry, TopicPartition


class TestList:
    def test_it_tells_what_is_under_way(self) -> None:
        controller = cluster()
        begin(controller, 4, 2, 1)
        begin(controller, 5, 2, 1)
        [found] = answer_of(step(controller, list_moves())[1]).topics
        [one] = found.partitions
        assert (found.name, one.partition_index) == ("t", 0)
        assert one.replicas == (5, 2, 1, 4, 3)
        assert (one.adding_replicas, one.removing_replicas) == ((5,), (4, 3))
        assert one.original_replicas == (1, 2, 3), "a cancel returns there (R1)"

    def test_only_what_is_asked_for(self) -> None:
        controller = cluster()
        begin(controller, 4, 2, 1)
        for named, found in (((OTHER,), 0), ((OTHER, TP), 1), ((), 0)):
            asked = list_moves(*named, everything=False)
            assert len(answer_of(step(controller, asked)[1]).topics) == found


def entry(target: Sequence[int], original: Sequence[int] = ()) -> ReassignmentEntry:
    return ReassignmentEntry(TP, tuple(target), tuple(original))


def node(*entries: ReassignmentEntry, version: int = 0) -> ReassignmentsRead:
    """`/admin/reassign_partitions` holds these."""
    return ReassignmentsRead(
        RequestedReassignments(version, {one.topic_partition: one for one in entries})
    )


def kept(writes: Sequence[Write]) -> list[tuple[int, list[ReassignmentEntry]]]:
    """What is left in the node: (expected version, entries)."""
    return [
        (write.expected_version, list(write.entries.values()))
        for write in writes
        if isinstance(write, KeepReassignments)
    ]


class TestTheAdministratorsNode:
    def test_it_is_taken_up_and_tells_which_replicas_there_were(self) -> None:
        controller = cluster()
        writes, _ = step(controller, node(entry([4, 2, 1]), version=3))
        assert kinds(writes) == [WriteAssignments, WritePartitionState, KeepReassignments]
        assert kept(writes) == [(3, [entry([4, 2, 1], [1, 2, 3])])]

    def test_it_goes_when_everything_is_done(self) -> None:
        controller = cluster()
        step(controller, node(entry([4, 2, 1]), version=3))
        caught_up(controller, 1, 2, 3, 4)
        step(controller)
        writes = run_writes(controller, stopped(3))
        assert kinds(writes) == [WriteAssignments, KeepReassignments]
        assert kept(writes) == [(4, [])], "after the topic's node"
        assert controller.image.reassignments is None

    def test_what_is_done_is_taken_out(self) -> None:
        controller = cluster()
        writes, _ = step(controller, node(entry([1, 2, 3])))
        assert kept(writes) == [(0, [])]

    def test_what_cannot_be_is_taken_out_and_told(self) -> None:
        controller = cluster()
        bad = ReassignmentEntry(OTHER, (4,))
        writes, effects = step(controller, node(entry([4, 2, 1]), bad, entry_of("u", [7])))
        assert kept(writes) == [(0, [entry([4, 2, 1], [1, 2, 3])])]
        assert [one for one, _ in refused_moves(effects)] == [OTHER, TopicPartition("u", 0)]
        assert "there is no partition t-1" in refused_moves(effects)[0][1]

    def test_targets_that_are_not_alive_are_refused(self) -> None:
        _, effects = step(cluster(), node(entry([9])))
        assert "names brokers [9]" in refused_moves(effects)[0][1]

    def test_a_new_controller_resumes_it_after_its_full_commands(self) -> None:
        controller = unloaded(TopicFound(topic(), {0: state()}), live=FOUR)
        controller.offer(node(entry([4, 2, 1])))
        writes, effects = step(controller)
        assert (writes, effects.commands[4].full) == ([], True)
        assert WriteAssignments in kinds(step(controller)[0])

    def test_another_entry_turns_a_move_another_way(self) -> None:
        controller = cluster()
        step(controller, node(entry([4, 2, 1])))
        step(controller, node(entry([5, 2, 1]), version=2))
        assert controller.image.replicas(TP) == (5, 2, 1, 4, 3)

    def test_an_entry_waits_for_a_move_that_completes(self) -> None:
        controller, _ = completing(4, 2, 1)
        step(controller, node(entry([5, 2, 1])))
        assert not controller.has_work
        run(controller, stopped(3))
        assert controller.image.replicas(TP) == (5, 2, 1, 4)

    def test_an_entry_of_a_topic_that_cannot_be_read_is_kept(self) -> None:
        controller = loaded(TopicUnreadable("t", "isr is missing"), live=FOUR)
        assert step(controller, node(entry([4])))[0] == []

    def test_a_newer_request_overrules_it_before_it_begins(self) -> None:
        controller = cluster()
        step(controller, node(entry([4, 2, 1]), version=3))
        writes, _ = step(controller, reassign(TP, [5, 2, 1]))
        assert kinds(writes) == [KeepReassignments, WriteAssignments, WritePartitionState]
        assert kept(writes) == [(4, [])]

    def test_a_deleted_topic_drops_out(self) -> None:
        controller = cluster()
        step(controller, node(entry([4, 2, 1])))
        step(controller, delete("t"))
        assert kept(step(controller)[0]) == [(1, [])]

    def test_where_somebody_wrote_it_meanwhile_it_is_left_to_the_next_reading(self) -> None:
        controller = cluster()
        step(controller, node(entry([4, 2, 1])), outcomes={2: Conflict()})
        assert controller.image.reassignments is not None
        assert controller.image.reassignments.version == 0
        writes, _ = step(controller, node(entry([4, 2, 1]), entry_of("t", [1], 7), version=1))
        assert kept(writes) == [(1, [entry([4, 2, 1], [1, 2, 3])])]

    def test_a_node_that_went_while_full_commands_were_due_asks_for_nothing(self) -> None:
        controller = unloaded(TopicFound(topic(), {0: state()}), live=FOUR)
        step(controller, node(entry([4, 2, 1])))
        assert step(controller, ReassignmentsRead(None))[0] == []
        assert not controller.has_work

    def test_an_entry_waits_for_an_election_and_the_next_sweep(self) -> None:
        controller = cluster()
        writes, _ = step(controller, BrokersRead(brokers(2, 3, 4, 5)), node(entry([4, 2, 3])))
        assert kinds(writes) == [WritePartitionState]
        writes, _ = step(controller, SweepDue())
        assert kinds(writes) == [WriteAssignments, WritePartitionState, KeepReassignments]

    def test_requests_of_the_same_moment_leave_the_rest_of_it(self) -> None:
        two = topic(assignments={0: (1, 2, 3), 1: (2, 3, 1)})
        found = (TopicFound(two, {0: state(), 1: state((2, 3, 1))}),)
        other = entry_of("t", [5, 3, 1], 1)
        writes, _ = step(cluster(*found), reassign(TP, [5, 2, 1]), node(entry([4, 2, 1]), other))
        assert kept(writes) == [(0, [other._replace(original=(2, 3, 1))])]
        writes, _ = step(cluster(*found), reassign(TP, [5, 2, 1]), node(other))
        assert kept(writes) == [(0, [other._replace(original=(2, 3, 1))])]

    def test_without_the_node_there_is_nothing_to_do(self) -> None:
        controller = cluster()
        assert step(controller, ReassignmentsRead(None))[0] == []
        assert not controller.has_work


def entry_of(name: str, target: Sequence[int], partition: int = 0) -> ReassignmentEntry:
    return ReassignmentEntry(TopicPartition(name, partition), tuple(target))
