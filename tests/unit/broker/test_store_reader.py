"""Nodes of topics that cannot be read: named once in the log, and again when the reason changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.controller.harness import ControllerHarness, controller_harness
from tests.support.controller.values import topic_id
from tests.support.ports import FakeTracer

from tidelog.broker.controller.store_reader import StoreReader
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.core.config import BrokerConfig
from tidelog.core.tasks import Tasks
from tidelog.core.topic_config import TopicConfig
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.paths import parent_of
from tidelog.metadata.store import ANY_VERSION, Create, Delete, SetData, WatchEvent

PATH = layout.topic_path("t")
WHOLE = layout.encode_topic(TopicAssignment(topic_id("t"), {0: (1, 2, 3)}))
STATE = PartitionState(1, 0, (1, 2), 1, 0, isr_epochs=(101, 102))


class Desk:
    """A reader over a simulated store."""

    def __init__(self, around: ControllerHarness) -> None:
        self.harness = around
        ports = around._admin_ports
        self.tracer = FakeTracer()
        tasks = Tasks(ports.loop, ports.clock, lambda name, error: None)
        self.reader = StoreReader(around.admin, tasks, self.tracer)

    def read(self) -> list[bool]:
        """Of the topics, read anew: which cannot be read."""
        found = self.harness.do(self.reader.topics(ignored, ignored, {})).found
        return [isinstance(one, TopicUnreadable) for one in found]

    def told(self) -> list[str]:
        """Lines of the log since it was asked last."""
        lines = list(self.tracer.lines)
        self.tracer.lines.clear()
        return lines


def ignored(event: WatchEvent) -> None:
    """Watches are not looked at."""


@pytest.fixture
def desk() -> Iterator[Desk]:
    with controller_harness(0) as around:
        around.write(Create(PATH, b"{"))
        yield Desk(around)


def test_a_topic_that_stays_as_it_is_is_named_once(desk: Desk) -> None:
    assert desk.read() == [True]
    [line] = desk.told()
    assert line.startswith(f"node cannot be read, left alone: {PATH}: not JSON")
    assert desk.read() == desk.read() == [True]
    assert desk.told() == []
    assert len(desk.tracer.named("unreadable_node")) == 1


def test_another_reason_is_named(desk: Desk) -> None:
    desk.read()
    desk.told()
    desk.harness.write(SetData(PATH, b"[1]", ANY_VERSION))
    assert desk.read() == [True]
    assert len(desk.told()) == 1


def test_the_same_again_after_it_was_mended_is_named(desk: Desk) -> None:
    desk.read()
    desk.harness.write(SetData(PATH, WHOLE, ANY_VERSION))
    assert desk.read() == [False]
    desk.told()
    desk.harness.write(SetData(PATH, b"{", ANY_VERSION))
    assert desk.read() == [True]
    assert len(desk.told()) == 1


def test_the_same_again_after_the_topic_was_gone_is_named(desk: Desk) -> None:
    desk.read()
    desk.told()
    desk.harness.write(Delete(PATH, ANY_VERSION))
    assert desk.read() == []
    desk.harness.write(Create(PATH, b"{"))
    assert desk.read() == [True]
    assert len(desk.told()) == 1


def test_a_state_that_cannot_be_read_is_named_once(desk: Desk) -> None:
    state = layout.partition_state_path(TopicPartition("t", 0))
    desk.harness.write(
        SetData(PATH, WHOLE, ANY_VERSION),
        Create(f"{PATH}/partitions", b""),
        Create(f"{PATH}/partitions/0", b""),
        Create(state, b"{}"),
    )
    assert desk.read() == desk.read() == [False]
    [line] = desk.told()
    assert state in line
    one = TopicPartition("t", 0)
    [found] = desk.harness.do(desk.reader.topics(ignored, ignored, {})).found
    assert isinstance(found, TopicFound) and list(found.unreadable) == [0] and not found.states

    def again() -> PartitionState | str:
        return desk.harness.do(desk.reader.states([one])).found[one]

    assert again() == found.unreadable[0]
    assert desk.told() == []
    desk.harness.write(Delete(state, ANY_VERSION))
    assert again() == f"{state}: is gone"
    desk.harness.write(Create(state, layout.encode_partition_state(STATE)))
    assert again() == STATE
    desk.harness.write(SetData(state, b"{}", ANY_VERSION))
    assert isinstance(again(), str)
    assert len(desk.told()) == 1
    desk.harness.write(
        *(Delete(path, ANY_VERSION) for path in (state, f"{PATH}/partitions/0")),
        Delete(f"{PATH}/partitions", ANY_VERSION),
        Delete(PATH, ANY_VERSION),
    )
    assert desk.read() == []


@pytest.mark.parametrize("path", [layout.PREFERRED_REPLICA_ELECTION, layout.REASSIGN_PARTITIONS])
def test_a_request_that_cannot_be_read_is_said_to_be_taken_away(desk: Desk, path: str) -> None:
    desk.harness.write(Create(path, b"{"))
    desk.harness.do(desk.reader.preferred_election(ignored))
    desk.harness.do(desk.reader.reassignments.reassignments(ignored))
    [line] = desk.told()
    assert line.startswith(f"node cannot be read, removed: {path}: not JSON")


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        (layout.REASSIGNMENT_QUEUE, "removed"),
        (f"{layout.REASSIGNMENT_REQUESTS}/request_0000000001", "removed"),
        (f"{layout.PARTITIONS_REASSIGNED}/t/0", "removed"),
        (f"{layout.PARTITIONS_REASSIGNED}/t/first", "removed"),
        (f"{layout.REASSIGNMENTS}/t/0", "left alone"),
        (f"{layout.REASSIGNMENTS}/t/first", "left alone"),
    ],
)
def test_a_request_for_moves_that_cannot_be_read_is_named(
    desk: Desk, path: str, outcome: str
) -> None:
    if path.count("/") == 4:
        desk.harness.write(Create(parent_of(path), b""))
    desk.harness.write(Create(path, b"{"))
    found = desk.harness.do(desk.reader.reassignments.routes(ignored))
    assert not found.accepted
    assert all(not request.assignments for request in found.requests)
    [line] = desk.told()
    assert line.startswith(f"node cannot be read, {outcome}: {path}: ")


@pytest.mark.rule("E1")
@pytest.mark.parametrize(
    "value", ["1", " 3 ", "007", "+2", "0", "-1", "2.0", "", "\u0663", "99999999999", "many"]
)
def test_the_controller_has_the_minimum_of_a_leader_whatever_the_node_holds(
    desk: Desk, value: str
) -> None:
    """An administrator may edit the node by hand; what leaders ignore, the controller ignores."""
    config = layout.encode_config({"min.insync.replicas": value})
    desk.harness.write(Create(layout.config_path("topics", "t"), config))
    desk.harness.write(SetData(PATH, WHOLE, ANY_VERSION))
    cluster = BrokerConfig.from_properties({"broker.id": "1", "min.insync.replicas": "5"})
    leader, _ = TopicConfig.lenient(cluster, {"min.insync.replicas": value})
    _, read = desk.harness.do(desk.reader.election_configs(["t"]))
    minimum = read.topics["t"]
    assert (5 if minimum is None else minimum) == leader.min_insync_replicas
    (found,) = desk.harness.do(desk.reader.topics(ignored, ignored, {})).found
    assert isinstance(found, TopicFound)
    assert found.topic.min_insync_replicas == minimum
