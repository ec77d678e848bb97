"""Requests for reassignments below /admin: identity (R12), routes and their precedence (R20)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.controller.harness import ControllerHarness, controller_harness
from tests.support.controller.reassigning import OTHER, begin, cluster, kinds, outcome
from tests.support.controller.values import (
    TP,
    answer_of,
    list_moves,
    reassign,
    refused_moves,
    run,
    state,
    step,
    stopped,
    topic,
)

from tidelog.controller.controller import Controller
from tidelog.controller.reassignments.cancelling import CancelRead
from tidelog.controller.reassignments.progress import SweepDue, WriteAssignments
from tidelog.controller.reassignments.stored import Route
from tidelog.controller.reassignments.stored_nodes import (
    AcceptRequest,
    ForgetAccepted,
    ForgetRequestNode,
    ReassignmentsRead,
    RoutesRead,
)
from tidelog.controller.records import AcceptedRequest, RequestedReassignments, RequestNode
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import Create

NODE = "/admin/reassignment_requests/request_0000000001"


def two() -> Controller:
    """Two partitions on brokers 1 to 3 of five."""
    found = topic(assignments={0: (1, 2, 3), 1: (1, 2, 3)})
    return cluster(TopicFound(found, {0: state(), 1: state()}))


def request(path: str = NODE, **targets: tuple[int, ...]) -> RequestNode:
    """A request for t-0 and t-1, by the names t0 and t1."""
    return RequestNode(
        path, {TopicPartition(name[:-1], int(name[-1])): targets[name] for name in targets}
    )


def requested(*nodes: RequestNode, frozen: bool = False) -> RoutesRead:
    return RoutesRead(frozen, None, nodes, {})


@pytest.mark.rule("R12")
def test_a_request_is_accepted_then_begun_then_forgotten_when_it_is_over() -> None:
    controller = two()
    writes, _ = step(controller, requested(request(t0=(4, 2, 3), t1=(5, 2, 3))))
    assert kinds(writes) == [AcceptRequest, AcceptRequest, ForgetRequestNode]
    assert not controller.image.moving, "a controller that dies now leaves what was accepted"
    identity = controller.image.accepted[TP].request_id
    writes, _ = step(controller)
    assert WriteAssignments in kinds(writes)
    assert sorted(controller.image.moving) == [TP, OTHER]
    [found] = answer_of(step(controller, list_moves())[1]).topics
    assert [each.request_id for each in found.partitions] == [identity, identity]
    run(controller, reassign(OTHER, None))
    assert list(controller.image.accepted) == [TP], "a cancel ends the request of its partition"
    run(controller, reassign(TP, None), stopped(4))
    assert not controller.image.accepted


@pytest.mark.rule("R12", "R14")
def test_a_new_controller_begins_what_was_accepted() -> None:
    controller = two()
    accepted = {TP: AcceptedRequest((4, 2, 3), 77)}
    run(controller, RoutesRead(False, None, (), accepted))
    assert sorted(controller.image.moving) == [TP]
    # Whoever removes the node by hand stops nothing.
    run(controller, RoutesRead(False, None, (), {}))
    assert sorted(controller.image.moving) == [TP]
    assert not controller.image.accepted


@pytest.mark.rule("R12")
def test_the_last_request_of_a_topic_takes_the_topics_node_along() -> None:
    controller = two()
    there = {each: AcceptedRequest((1, 2, 3), 77) for each in (TP, OTHER)}
    writes, _ = step(controller, RoutesRead(False, None, (), there))
    assert writes == [ForgetAccepted(TP), ForgetAccepted(OTHER, is_last=True)]
    writes, _ = step(two(), RoutesRead(False, None, (), {TP: AcceptedRequest((4, 4), 77)}))
    assert writes == [ForgetAccepted(TP, is_last=True)], "and one that is impossible goes, too"


@pytest.mark.rule("R12")
def test_another_request_for_the_same_is_the_same_reassignment() -> None:
    controller = two()
    run(controller, requested(request(t0=(4, 2, 3))))
    identity = controller.image.accepted[TP]
    writes, _ = step(controller, replace(requested(request(t0=(4, 2, 3))), accepted={TP: identity}))
    assert kinds(writes) == [ForgetRequestNode]
    assert controller.image.accepted == {TP: identity}
    again = replace(requested(request(t0=(5, 2, 3))), accepted={TP: identity})
    writes, _ = step(controller, again)
    assert writes[0] == AcceptRequest(TP, (5, 2, 3), is_again=True)
    assert controller.image.accepted[TP].request_id != identity.request_id


@pytest.mark.rule("R12")
def test_a_request_that_another_client_wrote_first_is_read_again() -> None:
    controller = two()
    controller.offer(requested(request(t0=(4, 2, 3))))
    step(controller, outcomes={0: Conflict()})
    assert not controller.image.accepted


@pytest.mark.rule("R12")
def test_each_partition_of_a_request_is_refused_by_itself() -> None:
    controller = two()
    asked = request(t0=(9, 2, 3), t1=(4, 2, 3), t7=(1, 2))
    writes, effects = step(controller, requested(asked))
    assert [each for each, _ in refused_moves(effects)] == [TP, TopicPartition("t", 7)]
    assert kinds(writes) == [AcceptRequest, ForgetRequestNode]
    # Where it is already there is nothing to accept.
    writes, effects = step(two(), requested(request(t0=(1, 2, 3))))
    assert kinds(writes) == [ForgetRequestNode]
    assert refused_moves(effects) == []


@pytest.mark.rule("R20")
def test_a_request_is_refused_while_the_administrators_node_has_the_partition() -> None:
    controller = two()
    entries = {TP: ReassignmentEntry(TP, (4, 2, 3))}
    run(controller, ReassignmentsRead(RequestedReassignments(0, entries)))
    writes, effects = step(controller, requested(request(t0=(5, 2, 3), t1=(5, 2, 3))))
    [(refused, reason)] = refused_moves(effects)
    assert refused == TP
    assert Route.NODE.value in reason
    assert writes[0] == AcceptRequest(OTHER, (5, 2, 3), is_again=False)


@pytest.mark.rule("R20")
def test_the_newest_of_two_routes_wins() -> None:
    controller = two()
    run(controller, requested(request(t0=(4, 2, 3))))
    # By the node, which is newer.
    entries = {TP: ReassignmentEntry(TP, (5, 2, 3))}
    run(controller, ReassignmentsRead(RequestedReassignments(0, entries)))
    assert not controller.image.accepted
    assert controller.image.assigned(TP)[0] == 5
    # By a client, which is newer still.
    step(controller, reassign(TP, (4, 3, 2)))
    assert controller.image.reassignments is None
    assert controller.image.assigned(TP)[:3] == (4, 3, 2)


@pytest.mark.rule("R20")
def test_what_is_overruled_is_not_looked_at_again_by_the_same_decision() -> None:
    controller = two()
    run(controller, requested(request(t0=(4, 2, 3))))
    writes, _ = step(controller, SweepDue(), reassign(TP, (5, 2, 3)))
    assert writes[0] == ForgetAccepted(TP, is_last=True)
    assert controller.image.assigned(TP)[0] == 5
    # By the node and by a client at once.
    run(controller, requested(request(t0=(4, 2, 3))))
    entries = {TP: ReassignmentEntry(TP, (5, 3, 2))}
    read = ReassignmentsRead(RequestedReassignments(0, entries))
    writes, _ = step(controller, read, reassign(TP, (5, 3, 2)))
    assert [type(each) for each in writes].count(ForgetAccepted) == 1
    assert controller.image.assigned(TP)[:3] == (5, 3, 2)


@pytest.mark.rule("R1")
def test_a_node_that_would_get_too_large_does_without_the_originals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.core.limits.MAX_NODE_BYTES", 120)
    controller = two()
    entries = {TP: ReassignmentEntry(TP, (4, 2, 3))}
    run(controller, ReassignmentsRead(RequestedReassignments(0, entries)))
    assert controller.image.reassignments is not None
    assert controller.image.reassignments.entries == entries
    move = controller.image.move(TP)
    assert move is not None
    assert move.original == (1, 2, 3), "the topic's node has them"


@pytest.mark.rule("R20")
def test_a_request_takes_a_partition_out_of_the_queue() -> None:
    controller = two()
    begin(controller, 4, 2, 3)
    queue = RequestedReassignments(
        0, {OTHER: ReassignmentEntry(OTHER, (9, 2, 3)), TP: ReassignmentEntry(TP, (9, 2, 3))}
    )
    run(controller, replace(requested(request(t1=(5, 2, 3))), queue=queue))
    assert controller.image.queue is not None
    assert list(controller.image.queue.entries) == [TP]
    assert controller.image.assigned(OTHER)[0] == 5


@pytest.mark.rule("R11", "R12")
def test_a_request_waits_while_reassignments_are_frozen() -> None:
    controller = two()
    run(controller, requested(request(t0=(4, 2, 3)), frozen=True))
    assert len(controller.image.request_nodes) == 1
    accepted = {OTHER: AcceptedRequest((5, 2, 3), 77)}
    run(controller, RoutesRead(True, None, (), accepted))
    assert not controller.image.moving
    # What waits can be taken back.
    _, effects = step(controller, reassign(OTHER, None))
    assert outcome(effects).error_code == ErrorCode.NONE
    assert not controller.image.accepted


@pytest.mark.rule("R2", "R12")
def test_a_request_is_refused_while_all_are_cancelled() -> None:
    controller = two()
    begin(controller, 4, 2, 3)
    controller.offer(CancelRead(is_requested=True))
    _, effects = step(controller, requested(request(t1=(4, 2, 3))))
    [(refused, reason)] = refused_moves(effects)
    assert refused == OTHER
    assert "cancelled" in reason


@pytest.mark.rule("R12")
def test_a_newer_request_outlives_the_end_of_an_earlier_one() -> None:
    """The earlier reassignment has just ended, and its node is removed by the same decision."""
    controller = two()
    there = {TP: AcceptedRequest((1, 2, 3), 77)}
    read = replace(requested(request(t0=(4, 2, 3))), accepted=there)
    writes, _ = step(controller, read)
    assert kinds(writes) == [AcceptRequest, ForgetRequestNode]
    assert controller.image.accepted[TP].replicas == (4, 2, 3)
    # So it is with one that a client overrules meanwhile, and the store asks for again.
    there = {OTHER: AcceptedRequest((4, 2, 3), 78)}
    controller.offer(replace(requested(request(t1=(4, 2, 3))), accepted=there))
    step(controller, reassign(OTHER, (5, 2, 3)))
    assert controller.image.accepted[OTHER].replicas == (4, 2, 3)


@pytest.mark.rule("R20")
def test_an_entry_that_is_refused_overrules_nothing() -> None:
    controller = two()
    queue = RequestedReassignments(0, {TP: ReassignmentEntry(TP, (4, 2, 3))})
    there = {OTHER: AcceptedRequest((5, 2, 3), 77)}
    run(controller, RoutesRead(True, queue, (), there))
    entries = {each: ReassignmentEntry(each, (9, 2, 3)) for each in (TP, OTHER)}
    node = ReassignmentsRead(RequestedReassignments(0, entries))
    run(controller, node, RoutesRead(False, queue, (), there))
    assert controller.image.reassignments is None
    assert sorted(controller.image.moving) == [TP, OTHER]


@pytest.mark.rule("R20")
def test_an_accepted_request_leaves_a_newer_queue_alone() -> None:
    """A new controller begins what was accepted, before it takes the queue."""
    controller = two()
    queue = RequestedReassignments(0, {TP: ReassignmentEntry(TP, (5, 2, 3))})
    there = {TP: AcceptedRequest((4, 2, 3), 77)}
    run(controller, RoutesRead(False, queue, (), there))
    run(controller, stopped(4))
    assert controller.image.assigned(TP)[0] == 5
    assert controller.image.queue is None


@pytest.mark.rule("R12", "R20")
def test_a_request_that_is_impossible_goes_once_and_the_node_begins() -> None:
    controller = two()
    there = {TP: AcceptedRequest((9, 2, 3), 77)}
    entries = {TP: ReassignmentEntry(TP, (4, 2, 3))}
    controller.offer(ReassignmentsRead(RequestedReassignments(0, entries)))
    writes, _ = step(controller, RoutesRead(False, None, (), there))
    assert writes[0] == ForgetAccepted(TP, is_last=True)
    assert kinds(writes).count(ForgetAccepted) == 1
    assert sorted(controller.image.moving) == [TP]


@pytest.mark.rule("R14", "R21")
def test_another_order_is_asked_for_until_it_is_there() -> None:
    controller = two()
    run(controller, RoutesRead(True, None, (), {TP: AcceptedRequest((3, 2, 1), 77)}))
    controller.offer(RoutesRead(False, None, (), {TP: AcceptedRequest((3, 2, 1), 77)}))
    writes, _ = step(controller, outcomes={0: Conflict()})
    assert kinds(writes) == [WriteAssignments]
    assert TP in controller.image.accepted, "the write was not made"
    run(controller, SweepDue())
    assert controller.image.assigned(TP) == (3, 2, 1)
    assert not controller.image.accepted


@pytest.mark.rule("R2", "R12")
def test_a_cancel_of_all_refuses_every_request_that_waits() -> None:
    controller = two()
    nodes = (request(t0=(4, 2, 3)), request("/admin/partitions_reassigned/t/1", t1=(4, 2, 3)))
    run(controller, requested(*nodes, frozen=True))
    found = run(controller, CancelRead(is_requested=True))
    assert [each for each, _ in refused_moves(found[0])] == [TP, OTHER]
    assert controller.image.request_nodes == ()
    run(controller, requested())
    assert not controller.image.moving


@pytest.fixture
def around() -> Iterator[ControllerHarness]:
    with controller_harness(5) as harness:
        first = harness.controller()
        assert harness.create(first, "t", (1, 2, 3)).error_code == ErrorCode.NONE
        yield harness


def moving(around: ControllerHarness) -> dict[int, tuple[int, ...]]:
    """The targets of t's partitions on the move, as the store has them."""
    node = around.read(layout.topic_path("t"))
    assert node is not None
    found = layout.decode_topic(layout.topic_path("t"), node.data)
    return {
        number: tuple(each for each in replicas if each not in found.removing.get(number, ()))
        for number, replicas in found.partitions.items()
        if number in found.adding
    }


@pytest.mark.rule("R12", "R20")
def test_nodes_written_by_hand_are_taken_up(around: ControllerHarness) -> None:
    prefix = layout.REASSIGNMENT_REQUEST_PREFIX
    data = layout.encode_reassignment_request({TP: (4, 2, 3)})
    around.write(Create(prefix, data, sequence=True))
    around.until(lambda: moving(around) == {0: (4, 2, 3)})
    path = layout.accepted_reassignment_path(TP)
    node = around.read(path)
    assert node is not None
    assert layout.decode_accepted_reassignment(path, node.data) == (4, 2, 3)
    assert around.children(layout.REASSIGNMENT_REQUESTS) == []
    single = layout.partition_reassigned_path(TP)
    around.write(
        Create(f"{layout.PARTITIONS_REASSIGNED}/t", b""),
        Create(single, layout.encode_partition_reassigned((5, 2, 3))),
    )
    around.until(lambda: moving(around) == {0: (5, 2, 3)})
    newer = around.read(path)
    assert newer is not None
    assert newer.stat.czxid > node.stat.czxid, "another reassignment has another identity"
    assert around.children(layout.PARTITIONS_REASSIGNED) == []
    around.write(Create(layout.CANCEL_REASSIGNMENTS, b""))
    around.until(lambda: around.children(layout.REASSIGNMENTS) == [])
    around.until(lambda: moving(around) == {})


@pytest.mark.rule("R8", "R11")
def test_a_queue_and_a_freeze_written_by_hand_are_taken_up(around: ControllerHarness) -> None:
    around.write(Create(layout.FREEZE_REASSIGNMENTS, b""))
    entries = [ReassignmentEntry(TP, (4, 2, 3))]
    around.write(Create(layout.REASSIGNMENT_QUEUE, layout.encode_reassignments(entries)))
    around.pass_time(2_000)
    assert moving(around) == {}
    around.remove(layout.FREEZE_REASSIGNMENTS)
    around.until(lambda: moving(around) == {0: (4, 2, 3)})
    around.until(lambda: around.read(layout.REASSIGNMENT_QUEUE) is None)


@pytest.mark.rule("R12")
@pytest.mark.parametrize(
    ("path", "data"),
    [
        (layout.REASSIGNMENT_QUEUE, b"nonsense"),
        (layout.REASSIGNMENT_QUEUE, b'{"version":2,"partitions":[]}'),
        (NODE, b'{"version":1,"assignments":{}}'),
        (NODE, b'{"version":1,"assignments":{"t":{"first":[1]}}}'),
        (NODE, b'{"version":1,"assignments":{"t":{"' + b"1" * 5_000 + b'":[1]}}}'),
        (NODE, b'{"version":1,"assignments":{"\\ud800":{"0":[1]}}}'),
        (layout.REASSIGN_PARTITIONS, b'{"partitions":[{"topic":"\\ud800","partition":0}]}'),
        (NODE, b'{"version":3,"assignments":{"t":{"0":[1]}}}'),
    ],
)
def test_nodes_that_make_no_sense_are_removed(
    around: ControllerHarness, path: str, data: bytes
) -> None:
    around.write(Create(path, data))
    assert around.read(path) is not None
    around.until(lambda: around.read(path) is None)
    assert moving(around) == {}


@pytest.mark.rule("R2", "R8", "R11", "R12")
@pytest.mark.parametrize(
    "path",
    [
        layout.REASSIGN_PARTITIONS,
        layout.REASSIGNMENT_QUEUE,
        layout.CANCEL_REASSIGNMENTS,
        NODE,
        layout.partition_reassigned_path(TP),
    ],
)
def test_unknown_nodes_below_a_request_are_deleted_with_it(
    around: ControllerHarness, path: str
) -> None:
    """A store removes no node that has children: the request would be carried out again."""
    first = around.controller()
    assert first.controller._term is not None
    tracer = first.controller._term.writer._tracer = first.watch_log()
    if path.endswith("/t/0"):
        around.write(Create(path.removesuffix("/0"), b""))
    around.write(Create(path, b"[]"), *(Create(f"{path}/x{below}", b"") for below in ("", "/y")))
    around.until(lambda: around.read(path) is None)
    [log] = [text for text in tracer.lines if "nodes below" in text]
    assert f"2 nodes below {path}" in log and f"{path}/x/y" in log


@pytest.mark.rule("R12")
def test_an_accepted_request_with_children_makes_room_for_a_newer_one(
    around: ControllerHarness,
) -> None:
    path = layout.accepted_reassignment_path(TP)
    accepted = layout.encode_accepted_reassignment((4, 2, 3))
    around.write(Create(f"{layout.REASSIGNMENTS}/t", b""), Create(path, accepted))
    around.until(lambda: moving(around) == {0: (4, 2, 3)})
    around.write(Create(f"{path}/x", b""))
    around.write(Create(NODE, layout.encode_reassignment_request({TP: (5, 2, 3)})))
    around.until(lambda: moving(around) == {0: (5, 2, 3)})


@pytest.mark.rule("R12")
def test_an_accepted_request_that_makes_no_sense_is_replaced(around: ControllerHarness) -> None:
    path = layout.accepted_reassignment_path(TP)
    around.write(Create(f"{layout.REASSIGNMENTS}/t", b""), Create(path, b"nonsense"))
    data = layout.encode_reassignment_request({TP: (4, 2, 3)})
    around.write(Create(NODE, data))
    around.until(lambda: moving(around) == {0: (4, 2, 3)})


@pytest.mark.rule("R12")
def test_a_removed_root_is_made_again(around: ControllerHarness) -> None:
    around.remove(layout.REASSIGNMENTS)
    around.write(Create(NODE, layout.encode_reassignment_request({TP: (4, 2, 3)})))
    around.until(lambda: moving(around) == {0: (4, 2, 3)})
