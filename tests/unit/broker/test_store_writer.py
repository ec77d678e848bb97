"""Decisions made durable: packed, conditional, isolated, settled when their outcome is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from tests.support.controller.harness import ControllerHarness, controller_harness
from tests.support.controller.values import state, topic, topic_id

from tidelog.broker.controller import store_ops
from tidelog.broker.controller.store_writer import DeposedError, StoreWriter
from tidelog.controller.producer_ids import TakeProducerIds
from tidelog.controller.records import ProducerIds, Topic
from tidelog.controller.state_writes import NO_STATE, WritePartitionState
from tidelog.controller.topics.creation import CreateTopic, NewTopic
from tidelog.controller.topics.deletion import ForgetDeletion, QueueDeletion, RemoveTopic
from tidelog.controller.writes import Conflict, Outcome, Write, Written
from tidelog.core import limits
from tidelog.core.tasks import Tasks
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Create, SetData

TP = TopicPartition("t", 0)
FIRST = state(partition_epoch=0)


class Desk:
    """A writer over a simulated store."""

    def __init__(self, around: ControllerHarness) -> None:
        self.harness = around
        self.store = around.admin
        ports = around._admin_ports
        tasks = Tasks(ports.loop, ports.clock, lambda name, error: None)
        around.write(Create(layout.CONTROLLER_EPOCH, b"1"))
        self.writer = StoreWriter(self.store, tasks, ports.tracer, 0)
        self.transactions: list[int] = []
        around.server.on_commit(lambda *commit: self.transactions.append(1))

    def write(self, *writes: Write) -> list[Outcome]:
        self.transactions.clear()
        return self.harness.do(self.writer.write(writes))

    def make(self, count: int = 1) -> list[PartitionState]:
        """The topic t with so many partitions, each in its first state."""
        [outcome] = self.write(CreateTopic(new_topic(count)))
        assert isinstance(outcome, Written)
        return [FIRST] * count


@pytest.fixture
def desk() -> Iterator[Desk]:
    with controller_harness(0) as around:
        yield Desk(around)


def new_topic(count: int = 1, name: str = "t", configs: dict[str, str] | None = None) -> NewTopic:
    made = Topic(name, topic_id(name), dict.fromkeys(range(count), (1, 2, 3)))
    return NewTopic(made, configs or {}, dict.fromkeys(range(count), FIRST))


def change(partition: int = 0, expected: int = 0, isr: Sequence[int] = (1, 2)) -> Write:
    return WritePartitionState(
        TopicPartition("t", partition), state(isr, partition_epoch=expected + 1), expected
    )


class TestStates:
    @pytest.mark.rule("V6", "V15")
    def test_a_state_is_written_where_the_version_is_as_expected(self, desk: Desk) -> None:
        desk.make()
        [outcome] = desk.write(change())
        published = desk.harness.state(TP)
        assert published == state((1, 2), partition_epoch=1)
        assert outcome == Written(published.mzxid)

    @pytest.mark.rule("V6", "V15")
    def test_a_conflict_tells_what_the_node_holds(self, desk: Desk) -> None:
        desk.make()
        desk.harness.publish(TP, state((3,)))
        [outcome] = desk.write(change())
        assert isinstance(outcome, Conflict)
        assert outcome.state == state((3,), partition_epoch=1)

    @pytest.mark.rule("V15", "V16")
    def test_a_conflict_is_isolated(self, desk: Desk) -> None:
        desk.make(3)
        desk.harness.publish(TopicPartition("t", 1), state((3,)))
        outcomes = desk.write(change(0), change(1), change(2))
        assert [type(one) for one in outcomes] == [Written, Conflict, Written]
        for partition in (0, 2):
            assert desk.harness.state(TopicPartition("t", partition)).isr == (1, 2)

    def test_a_node_that_has_gone_is_a_conflict_without_a_state(self, desk: Desk) -> None:
        desk.make()
        desk.harness.remove(layout.partition_state_path(TP))
        [outcome] = desk.write(change())
        assert isinstance(outcome, Conflict)
        assert outcome.state is None

    def test_a_node_that_cannot_be_read_says_why(self, desk: Desk) -> None:
        desk.make()
        desk.harness.write(SetData(layout.partition_state_path(TP), b"not JSON", ANY_VERSION))
        [outcome] = desk.write(change())
        assert isinstance(outcome, Conflict)
        assert outcome.state is None
        assert "state" in outcome.reason

    def test_late_partitions_get_their_parents(self, desk: Desk) -> None:
        desk.harness.place_topic("t", {0: (1,), 1: (1,)})
        writes = [
            WritePartitionState(TopicPartition("t", number), FIRST, NO_STATE, is_new=True)
            for number in (0, 1)
        ]
        outcomes = desk.write(*writes)
        assert [type(one) for one in outcomes] == [Written, Written]
        assert desk.harness.children(layout.topic_partitions_path("t")) == ["0", "1"]

    def test_a_parent_that_somebody_else_makes_meanwhile_is_no_conflict(self, desk: Desk) -> None:
        desk.harness.place_topic("t", {0: (1,)})
        unit = store_ops.units_of(0, WritePartitionState(TP, FIRST, NO_STATE))[0]
        unit.make_parents(unit.parents)
        desk.harness.write(Create(layout.topic_partitions_path("t"), b""))
        outcomes: dict[int, Outcome] = {}
        desk.harness.do(desk.writer._commit([unit], outcomes))
        assert isinstance(outcomes[0], Written)

    def test_a_partition_of_a_topic_that_has_gone_is_a_conflict(self, desk: Desk) -> None:
        [outcome] = desk.write(WritePartitionState(TP, FIRST, NO_STATE))
        assert isinstance(outcome, Conflict)
        assert outcome.state is None

    @pytest.mark.rule("V16", "V20")
    def test_many_writes_are_packed_up_to_the_limit(self, desk: Desk) -> None:
        count = limits.MAX_TRANSACTION_OPS + 200
        desk.make(count)
        outcomes = desk.write(*(change(number) for number in range(count)))
        assert len(outcomes) == count
        assert all(isinstance(one, Written) for one in outcomes)
        assert len(desk.transactions) == 2


class TestUnknownOutcomes:
    @pytest.mark.rule("S2")
    def test_what_was_written_counts_as_written(self, desk: Desk) -> None:
        desk.make(2)
        desk.store.lose_next_answer()
        outcomes = desk.write(change(0), change(1))
        assert [type(one) for one in outcomes] == [Written, Written]
        assert len(desk.transactions) == 1
        assert outcomes[0] == Written(desk.harness.state(TP).mzxid)

    @pytest.mark.rule("S2")
    def test_what_was_not_written_is_written(self, desk: Desk) -> None:
        desk.make()
        desk.store.lose_next_request()
        [outcome] = desk.write(change())
        assert isinstance(outcome, Written)
        assert desk.harness.state(TP).partition_epoch == 1

    @pytest.mark.rule("S2")
    @pytest.mark.parametrize("lose", ["lose_next_answer", "lose_next_request"])
    def test_every_kind_of_write_is_settled(self, desk: Desk, lose: str) -> None:
        for write in (
            CreateTopic(new_topic()),
            QueueDeletion("t"),
            TakeProducerIds(1, 0, 999, 0),
            RemoveTopic("t", new_topic().topic),
        ):
            getattr(desk.store, lose)()
            assert [type(one) for one in desk.write(write)] == [Written]
        assert desk.harness.children(layout.TOPICS) == []
        assert desk.harness.children(layout.DELETE_TOPICS) == []


class TestDeposed:
    def test_another_controllers_epoch_ends_it(self, desk: Desk) -> None:
        desk.make()
        desk.harness.write(SetData(layout.CONTROLLER_EPOCH, b"2", 0))
        with pytest.raises(DeposedError):
            desk.write(change())
        assert desk.harness.state(TP) == FIRST

    @pytest.mark.rule("V3", "S2")
    def test_an_unknown_outcome_is_not_settled_by_a_deposed_controller(self, desk: Desk) -> None:
        desk.make()
        desk.store.lose_next_answer()
        settled = desk.writer._settle

        async def settle_late(*arguments: object) -> object:
            await desk.store.transact([SetData(layout.CONTROLLER_EPOCH, b"2", 0)])
            return await settled(*arguments)  # type: ignore[arg-type]  # a fake stands in

        desk.writer._settle = settle_late  # type: ignore[method-assign,assignment]  # replaced by the test
        with pytest.raises(DeposedError):
            desk.write(change())


class TestTopics:
    @pytest.mark.rule("V20")
    def test_a_topic_is_made_in_one_transaction_where_it_fits(self, desk: Desk) -> None:
        made = new_topic(3, configs={"retention.ms": "5"})
        [outcome] = desk.write(CreateTopic(made))
        assert isinstance(outcome, Written)
        assert len(desk.transactions) == 1
        node = desk.harness.read(layout.topic_path("t"))
        assert node is not None
        assignment = layout.decode_topic(layout.topic_path("t"), node.data)
        assert assignment.topic_id == topic_id("t")
        assert assignment.partitions == dict.fromkeys(range(3), (1, 2, 3))
        config = desk.harness.read(layout.config_path("topics", "t"))
        assert config is not None
        assert layout.decode_config("", config.data) == {"retention.ms": "5"}
        assert desk.harness.state(TopicPartition("t", 2)) == FIRST

    def test_a_large_topic_takes_several(self, desk: Desk) -> None:
        count = limits.MAX_TRANSACTION_OPS
        [outcome] = desk.write(CreateTopic(new_topic(count)))
        assert isinstance(outcome, Written)
        assert len(desk.transactions) == 3
        paths = [layout.partition_state_path(TopicPartition("t", n)) for n in range(count)]
        nodes = desk.harness.do(desk.store.get_many(paths))
        assert all(node is not None for node in nodes)

    @pytest.mark.rule("V23")
    def test_a_topic_of_that_name_is_a_conflict(self, desk: Desk) -> None:
        desk.harness.place_topic("t", {0: (9,)})
        made = new_topic()
        made = replace(made, topic=Topic("t", topic_id("t", 2), made.topic.assignments))
        [outcome] = desk.write(CreateTopic(made))
        assert isinstance(outcome, Conflict)
        assert desk.harness.children(layout.topic_path("t")) == []

    @pytest.mark.rule("V23")
    def test_no_partition_of_a_large_topic_is_written_into_somebody_elses(self, desk: Desk) -> None:
        desk.harness.place_topic("t", {0: (9,)})
        made = new_topic(limits.MAX_TRANSACTION_OPS)
        [outcome] = desk.write(CreateTopic(made))
        assert isinstance(outcome, Conflict)
        assert desk.harness.children(layout.topic_path("t")) == []

    def test_a_configuration_left_over_is_replaced(self, desk: Desk) -> None:
        path = layout.config_path("topics", "t")
        desk.harness.write(Create(path, b"old"))
        [outcome] = desk.write(CreateTopic(new_topic(configs={"retention.ms": "5"})))
        assert isinstance(outcome, Written)
        node = desk.harness.read(path)
        assert node is not None
        assert layout.decode_config(path, node.data) == {"retention.ms": "5"}


class TestDeletion:
    def test_a_request_is_left_and_taken_away(self, desk: Desk) -> None:
        desk.write(QueueDeletion("t"))
        assert desk.harness.children(layout.DELETE_TOPICS) == ["t"]
        assert desk.write(QueueDeletion("t")) == [Written()]
        desk.write(ForgetDeletion("t"))
        assert desk.harness.children(layout.DELETE_TOPICS) == []
        assert desk.write(ForgetDeletion("t")) == [Written()]

    @pytest.mark.rule("V22")
    def test_all_nodes_of_a_topic_go_the_request_last(self, desk: Desk) -> None:
        desk.make(limits.MAX_TRANSACTION_OPS)
        desk.write(QueueDeletion("t"))
        seen: list[bool] = []
        server = desk.harness.server
        server.on_commit(lambda *commit: seen.append("t" in desk_children()))

        def desk_children() -> list[str]:
            return server.tree.children(layout.DELETE_TOPICS) or []

        desk.write(RemoveTopic("t", new_topic(limits.MAX_TRANSACTION_OPS).topic))
        assert desk.harness.children(layout.TOPICS) == []
        assert desk.harness.children(f"{layout.CONFIG}/topics") == []
        assert desk.harness.children(layout.DELETE_TOPICS) == []
        assert seen[:-1] == [True] * (len(seen) - 1)
        assert seen[-1] is False

    def test_nodes_that_nobody_knew_of_go_too(self, desk: Desk) -> None:
        desk.make()
        for path in ("/extra", "/partitions/7", "/partitions/7/state"):
            desk.harness.write(Create(layout.topic_path("t") + path, b""))
        desk.write(RemoveTopic("t", topic()))
        assert desk.harness.children(layout.TOPICS) == []

    def test_a_topic_that_could_not_be_read_goes_too(self, desk: Desk) -> None:
        desk.make()
        desk.write(RemoveTopic("t", None))
        assert desk.harness.children(layout.TOPICS) == []

    def test_what_is_gone_already_is_no_error(self, desk: Desk) -> None:
        assert desk.write(RemoveTopic("t", topic())) == [Written()]


class TestProducerIds:
    @pytest.mark.rule("G3")
    def test_a_block_is_recorded(self, desk: Desk) -> None:
        [outcome] = desk.write(TakeProducerIds(2, 1000, 1999, 0))
        assert isinstance(outcome, Written)
        node = desk.harness.read(layout.PRODUCER_ID_BLOCK)
        assert store_ops.producer_ids_found(node) == ProducerIds(1999, 1)

    def test_a_missing_node_is_made(self, desk: Desk) -> None:
        desk.harness.remove(layout.PRODUCER_ID_BLOCK)
        assert store_ops.producer_ids_found(None) == ProducerIds(-1, -1)
        [outcome] = desk.write(TakeProducerIds(2, 0, 999, -1))
        assert isinstance(outcome, Written)

    @pytest.mark.rule("G3")
    def test_a_conflict_tells_what_was_given_out(self, desk: Desk) -> None:
        data = layout.encode_producer_id_block(9, 5000, 5999)
        desk.harness.write(SetData(layout.PRODUCER_ID_BLOCK, data, 0))
        [outcome] = desk.write(TakeProducerIds(2, 0, 999, 0))
        assert outcome == Conflict(producer_ids=ProducerIds(5999, 1))

    def test_a_node_that_cannot_be_read_gives_nothing(self, desk: Desk) -> None:
        desk.harness.write(SetData(layout.PRODUCER_ID_BLOCK, b"x", 0))
        [outcome] = desk.write(TakeProducerIds(2, 0, 999, 0))
        assert outcome == Conflict(producer_ids=None)


@pytest.mark.rule("S3")
def test_a_store_that_cannot_be_reached_is_waited_for(desk: Desk) -> None:
    desk.make()
    desk.harness.cut_off.append("admin")
    clock = desk.harness._admin_ports.clock
    clock.call_later(200, desk.harness.cut_off.clear)
    [outcome] = desk.write(change())
    assert isinstance(outcome, Written)
