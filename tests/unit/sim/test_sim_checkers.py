"""Checkers against hand-made files, commits and claims: right passes, wrong is told."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from tests.support.sim import checked

from tidelog.core.types import TopicPartition, topic_id_to_text
from tidelog.metadata.store import ANY_VERSION, Create, Delete, Op, OpResult, SetData, Stat
from tidelog.sim.batches import encode_batch
from tidelog.sim.checkers.client_checker import ClientChecker
from tidelog.sim.checkers.replication_checker import ReplicationChecker
from tidelog.sim.client_history import ClientHistory, Outcome, Produce
from tidelog.sim.disk import File, Loss, SimDisk
from tidelog.sim.observed.claims import ReplicaClaim
from tidelog.sim.observed.published_state import Published
from tidelog.sim.observed.replica_logs import LogKey, NodeLogs

TOPIC_ID = bytes(range(16))
KEY = LogKey(TOPIC_ID, 0)
NAME = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
SEGMENT = f"{DIRECTORY}/00000000000000000000.log"


def stored(numbers: list[int], base_offset: int, epoch: int) -> bytes:
    raw = bytearray(encode_batch(numbers, [0] * len(numbers), timestamp_ms=1))
    raw[0:8] = base_offset.to_bytes(8, "big")
    raw[12:16] = epoch.to_bytes(4, "big")
    return bytes(raw)


class Node:
    """A broker as the checkers see one."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.incarnation = 1
        self.disk = SimDisk("/data")
        self.logs = NodeLogs(node_id, [self.disk])
        self.is_leader = False
        self.leader_epoch = 0
        self.high_watermark = 0
        self.in_flight: tuple[tuple[int, int], ...] = ()
        self.maximal_isr: tuple[int, ...] = (1, 2, 3)
        self.is_up = True
        self.disk.make_directories(DIRECTORY)
        text = f"version: 0\ntopic_id: {topic_id_to_text(TOPIC_ID)}\n"
        self.write(f"{DIRECTORY}/partition.metadata", text.encode())
        self.write(SEGMENT, b"")

    def write(self, path: str, content: bytes, position: int | None = None) -> None:
        file = self.disk.find(path) or self.disk.create(path)
        assert isinstance(file, File)
        if content:
            where = len(file.data) if position is None else position
            self.disk.write(file, path, [content], where)

    def append(self, numbers: list[int], base_offset: int, epoch: int = 0) -> None:
        self.write(SEGMENT, stored(numbers, base_offset, epoch))

    def truncate(self, size_bytes: int) -> None:
        self.disk.truncate(self.disk.file(SEGMENT), size_bytes)

    def claims(self, changed: Collection[LogKey]) -> Iterator[ReplicaClaim]:
        if self.is_up:
            maximal_isr = self.maximal_isr if self.is_leader else ()
            yield ReplicaClaim(
                KEY,
                NAME,
                self.is_leader,
                self.leader_epoch,
                self.high_watermark,
                self.in_flight,
                maximal_isr,
            )


class Setup:
    """Three nodes, a topic with one partition, everybody in sync under broker epochs 11 to 13."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.zxid = 100
        self.now_ns = 0
        self.published = Published(self.violations.append, lambda: self.now_ns, 2)
        self.history = ClientHistory()
        self.nodes: dict[int, Any] = {node_id: Node(node_id) for node_id in (1, 2, 3)}
        run = checked(
            self.violations, lambda: self.now_ns, published=self.published, brokers=self.nodes
        )
        self.checker = ReplicationChecker(run, self.history.may_be_gone_before)
        self.clients = ClientChecker(run, self.history, self.checker)
        for node_id, node in self.nodes.items():
            self.checker.add(node)
            self.register(node_id, 10 + node_id)
        self.commit(Create("/controller_epoch", b"1"))
        topic = {
            "version": 3,
            "topic_id": topic_id_to_text(TOPIC_ID),
            "partitions": {"0": [1, 2, 3]},
        }
        self.commit(Create("/brokers/topics/t", json.dumps(topic).encode()))
        self.version = -1
        self.state(1, 0, [1, 2, 3], [11, 12, 13])

    def commit(self, op: Op, version: int = 0, session_id: int = 1) -> None:
        self.zxid += 1
        stat = None if isinstance(op, Delete) else Stat(version, self.zxid, self.zxid, 0)
        self.published.committed(self.zxid, session_id, [op], [OpResult(op.path, stat)])

    def lose_power(self, node_id: int) -> None:
        """A node dies, with every unsynced change."""
        node = self.nodes[node_id]
        node.disk.sync_directory("/")
        node.disk.lose_power(random.Random(1), Loss.ALL_UNSYNCED)
        node.is_up = False
        self.checker.crashed(node, lossy=True)

    def register(self, node_id: int, broker_epoch: int) -> None:
        self.zxid = broker_epoch - 1
        path = f"/brokers/ids/{node_id}"
        self.commit(Create(path, b"{}", ephemeral=True), session_id=1_000 + node_id)

    def state(
        self,
        leader: int,
        epoch: int,
        isr: list[int],
        isr_epochs: list[int],
        *,
        by: int = 0,
        controller_epoch: int = 1,
    ) -> None:
        """Another state, which a controller wrote, or the broker `by` itself."""
        self.version += 1
        value = {
            "leader": leader,
            "leader_epoch": epoch,
            "isr": isr,
            "isr_epochs": isr_epochs,
            "controller_epoch": controller_epoch,
            "version": 1,
        }
        path = "/brokers/topics/t/partitions/0/state"
        data = json.dumps(value).encode()
        op = SetData(path, data, ANY_VERSION) if self.version else Create(path, data)
        self.commit(op, self.version, 1_000 + by if by else 1)

    def look(self, *node_ids: int) -> None:
        for node_id in node_ids or self.nodes:
            self.checker.after_event(self.nodes[node_id])

    def replicate(self, numbers: list[int], base_offset: int, *node_ids: int) -> None:
        for node_id in node_ids or self.nodes:
            self.nodes[node_id].append(numbers, base_offset)
        self.look()

    def lead(self, node_id: int, epoch: int, high_watermark: int) -> None:
        node = self.nodes[node_id]
        node.is_leader, node.leader_epoch, node.high_watermark = True, epoch, high_watermark
        self.look(node_id)


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_a_replicated_batch_is_committed_read_and_acknowledged(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 2)
    assert setup.checker.truths[KEY].committed == [1, 2]
    operation = Produce(101, "t", 0, -1, 7, (1, 2), 0)
    setup.history.produce_begins(operation)
    setup.history.produce_ends(operation, Outcome.DONE, 5, 0)
    setup.history.read(102, TOPIC_ID, 0, 0, [1])
    setup.history.read(102, TOPIC_ID, 0, 1, [2])
    assert setup.clients.read_end == {KEY: 2}
    assert setup.violations == []


def test_a_leader_may_write_the_isr_itself(setup: Setup) -> None:
    setup.commit(SetData("/controller_epoch", b"2", ANY_VERSION))
    setup.state(1, 0, [1, 2], [11, 12], by=1)
    assert setup.violations == []
    assert setup.published.direct_changes == 1


@pytest.mark.parametrize(
    "by, leader, epoch, controller_epoch, told",
    [
        (2, 1, 0, 1, "broker 2 wrote the state, where broker 1 leads (A12)"),
        (1, 1, 1, 1, "changed (leader, leader epoch, controller epoch) from (1, 0, 1)"),
        (1, 2, 0, 1, "changed (leader, leader epoch, controller epoch) from (1, 0, 1)"),
        (1, 1, 0, 2, "changed (leader, leader epoch, controller epoch) from (1, 0, 1)"),
    ],
)
def test_a_broker_that_writes_more_than_the_isr_of_its_own_partition_is_told(
    setup: Setup, by: int, leader: int, epoch: int, controller_epoch: int, told: str
) -> None:
    setup.state(leader, epoch, [1, 2], [11, 12], by=by, controller_epoch=controller_epoch)
    assert told in setup.violations[0]


def test_a_high_watermark_above_a_member_of_the_isr_is_told(setup: Setup) -> None:
    setup.replicate([1, 2], 0, 1, 2)
    setup.lead(1, 0, 2)
    assert "member 3 of the maximal ISR" in setup.violations[0]


def test_a_member_that_restarted_since_its_recorded_epoch_does_not_count(setup: Setup) -> None:
    setup.replicate([1, 2], 0, 1, 2)
    setup.register(3, 200)
    setup.lead(1, 0, 2)
    assert setup.violations == []


def test_a_member_that_lost_data_in_a_crash_does_not_count(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lose_power(3)
    setup.lead(1, 0, 2)
    assert setup.violations == []


def test_a_member_that_registered_anew_and_then_lost_data_is_told_from_a_steady_one(
    setup: Setup,
) -> None:
    state = setup.published.partitions[KEY]
    assert not setup.checker.has_lost(state, 3)
    setup.register(3, 200)
    setup.checker.crashed(setup.nodes[3], lossy=True)
    assert setup.checker.has_lost(state, 3)
    setup.state(1, 0, [1, 2, 3], [11, 12, 201])
    assert not setup.checker.has_lost(setup.published.partitions[KEY], 3)


def test_a_member_whose_registration_arrived_after_its_death_has_lost_data(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lose_power(3)
    setup.register(3, 200)
    setup.state(1, 0, [1, 2, 3], [11, 12, 200])
    assert setup.checker.has_lost(setup.published.partitions[KEY], 3)
    setup.lead(1, 0, 2)
    assert setup.violations == []


def test_a_member_is_unchanged_while_its_process_and_its_registration_stand(setup: Setup) -> None:
    state = setup.published.partitions[KEY]
    assert [setup.checker.is_unchanged(state, member) for member in (1, 2, 3, 4)] == [
        True, True, True, False,
    ]  # fmt: skip
    setup.commit(Delete("/brokers/ids/1", ANY_VERSION))
    setup.nodes[2].incarnation += 1
    setup.register(3, 200)
    assert not any(setup.checker.is_unchanged(state, member) for member in (1, 2, 3))


@pytest.mark.rule("V60")
@pytest.mark.parametrize("configured", [None, 1, 2])
def test_what_too_few_replicas_have_is_not_committed(setup: Setup, configured: int | None) -> None:
    if configured is not None:
        config = {"version": 1, "config": {"min.insync.replicas": str(configured)}}
        setup.commit(Create("/config/topics/t", json.dumps(config).encode()))
    setup.state(1, 1, [1], [11])
    setup.replicate([1], 0, 1)
    setup.lead(1, 1, 1)
    told = "t-0: the leader of epoch 1 committed offset 0, which only [1] ever had (V60)"
    assert setup.violations == ([] if configured == 1 else [told])


@pytest.mark.rule("A8")
@pytest.mark.parametrize("published_first", [True, False])
def test_a_leader_that_waits_for_less_than_the_published_isr_is_told(
    setup: Setup, published_first: bool
) -> None:
    setup.state(1, 1, [1, 2], [11, 12])
    setup.nodes[1].maximal_isr = (1, 2)
    setup.lead(1, 1, 0)
    assert setup.violations == []
    if published_first:
        setup.state(1, 1, [1, 2, 3], [11, 12, 13])
    else:
        setup.nodes[1].maximal_isr = (1,)
        setup.look(1)
    assert "t-0: leader 1 of epoch 1 does not wait for" in setup.violations[0]


@pytest.mark.rule("V31")
def test_a_leader_that_appends_under_an_epoch_that_is_over_is_told(setup: Setup) -> None:
    setup.replicate([1], 0)
    setup.lead(1, 2, 1)
    setup.nodes[1].append([2], 1, epoch=2)
    setup.look(1)
    assert setup.violations == []
    setup.nodes[1].append([3], 2, epoch=1)
    setup.look(1)
    assert setup.violations == [
        "t-0 offset 2: leader 1 appended record 3 under epoch 1 when its epoch was 2 (V31)"
    ]


@pytest.mark.rule("V3")
def test_a_state_of_an_earlier_controller_is_told(setup: Setup) -> None:
    setup.commit(SetData("/controller_epoch", b"2", ANY_VERSION))
    setup.state(1, 1, [1, 2], [11, 12])
    assert setup.violations == [
        "t-0: controller epoch 1 wrote its state, where the controller epoch is 2 (V3)"
    ]


@pytest.mark.rule("V70")
def test_partitions_may_be_added_and_none_may_vanish(setup: Setup) -> None:
    topic = {"version": 3, "topic_id": topic_id_to_text(TOPIC_ID)}
    for partitions in ({"0": [1, 2, 3], "1": [2]}, {"1": [2]}):
        data = json.dumps({**topic, "partitions": partitions}).encode()
        setup.commit(SetData("/brokers/topics/t", data, ANY_VERSION))
        assert setup.violations == ["partitions [0] of topic t have vanished (V70)"] * (
            "0" not in partitions
        )


@pytest.mark.parametrize("registers_again", [False, True])
def test_a_role_taken_for_a_topic_that_was_gone_before_is_told(
    setup: Setup, registers_again: bool
) -> None:
    setup.lead(1, 0, 0)
    setup.commit(Delete("/brokers/topics/t", ANY_VERSION))
    if registers_again:
        setup.register(1, 200)
    setup.look(1)
    assert setup.violations == []
    setup.lead(1, 1, 0)
    assert [text.partition(": ")[2] for text in setup.violations] == [
        f"node 1 took a role in epoch 1 for its replica of topic {KEY}, which was gone before it"
        " registered"
    ] * registers_again


def test_a_member_of_the_isr_that_cuts_committed_records_is_told(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 2)
    setup.nodes[2].truncate(0)
    setup.look(2)
    assert "cut its log" in setup.violations[0]
    assert setup.checker.truncations == 1


def test_publishing_an_isr_with_a_member_that_lacks_records_is_told(setup: Setup) -> None:
    setup.state(1, 0, [1, 2], [11, 12])
    setup.replicate([1, 2], 0, 1, 2)
    setup.lead(1, 0, 2)
    assert setup.violations == []
    setup.state(1, 0, [1, 2, 3], [11, 12, 13])
    assert "was published" in setup.violations[0]


def test_a_joining_in_flight_counts_too(setup: Setup) -> None:
    setup.state(1, 0, [1, 2], [11, 12])
    setup.replicate([1, 2], 0, 1, 2)
    setup.nodes[1].in_flight = ((3, 13),)
    setup.lead(1, 0, 2)
    assert "its joining was proposed" in setup.violations[0]


def test_a_joining_that_is_proposed_later_counts_from_then_on(setup: Setup) -> None:
    setup.state(1, 0, [1, 2], [11, 12])
    setup.replicate([1, 2], 0, 1, 2)
    setup.lead(1, 0, 2)
    assert setup.violations == []
    setup.nodes[1].in_flight = ((1, 11), (2, 12), (3, 13))
    setup.look(1)
    assert "its joining was proposed" in setup.violations[0]


def test_what_a_deposed_leader_proposes_does_not_count(setup: Setup) -> None:
    setup.state(1, 0, [1, 2], [11, 12])
    setup.replicate([1, 2], 0, 1, 2)
    setup.lead(1, 0, 2)
    setup.state(2, 1, [1, 2], [11, 12])
    setup.nodes[1].in_flight = ((3, 13),)
    setup.look(1)
    assert setup.violations == []


def test_a_leader_without_committed_records_is_told(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 2)
    setup.register(3, 300)
    setup.nodes[3].truncate(0)
    setup.look(3)
    assert setup.violations == []
    setup.lead(3, 1, 0)
    assert "leads in epoch 1 without" in setup.violations[0]


def test_a_late_leader_of_a_lower_epoch_need_not_have_what_a_higher_one_committed(
    setup: Setup,
) -> None:
    # Simulator seed 605: a paused broker hears that it led before another one was elected.
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 2)
    setup.state(3, 1, [1, 2, 3], [11, 12, 13])
    setup.state(2, 2, [1, 2], [11, 12])
    setup.replicate([3], 2, 1, 2)
    setup.lead(2, 2, 3)
    setup.lead(3, 1, 2)
    assert setup.violations == []
    setup.register(1, 300)
    setup.nodes[1].truncate(0)
    setup.lead(1, 3, 0)
    assert "leads in epoch 3 without" in setup.violations[0]


def test_two_leaders_of_one_epoch_are_told(setup: Setup) -> None:
    setup.lead(1, 0, 0)
    setup.lead(2, 0, 0)
    assert "both lead in epoch 0" in setup.violations[0]


def test_a_log_that_begins_behind_what_may_be_gone_is_told(setup: Setup) -> None:
    setup.replicate([1, 2, 3], 0)
    setup.lead(1, 0, 3)
    setup.history.record_deletion_begins(TOPIC_ID, 0, 2)
    follower = setup.nodes[2]
    second, third = (f"{DIRECTORY}/{start:020d}.log" for start in (2, 3))
    follower.disk.unlink(SEGMENT)
    follower.write(second, stored([3], 2, 0))
    setup.look(2)
    assert setup.violations == []
    follower.disk.unlink(second)
    follower.write(third, b"")
    setup.look(2)
    assert "the log of node 2 begins at offset 3; 3 records are committed" in setup.violations[-1]


def test_a_log_that_begins_behind_what_is_committed_is_told(setup: Setup) -> None:
    setup.replicate([1, 2, 3], 0)
    setup.lead(1, 0, 2)
    setup.history.record_deletion_begins(TOPIC_ID, 0, 100)
    leader = setup.nodes[1]
    leader.disk.unlink(SEGMENT)
    leader.write(f"{DIRECTORY}/{3:020d}.log", b"")
    setup.look(1)
    assert "begins at offset 3; 2 records are committed" in setup.violations[-1]


def test_a_leaders_high_watermark_that_goes_back_within_its_term_is_told(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 2)
    setup.lead(1, 0, 1)
    assert "went back from 2 to 1" in setup.violations[0]


def test_a_new_leader_may_begin_with_a_lower_high_watermark(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 2)
    setup.state(2, 1, [2, 3], [12, 13])
    setup.lead(2, 1, 0)
    setup.lead(2, 1, 2)
    assert setup.violations == []


def test_a_follower_that_differs_below_its_high_watermark_is_told(setup: Setup) -> None:
    setup.state(1, 0, [1, 2], [11, 12])
    setup.replicate([1, 2], 0, 1, 2)
    setup.lead(1, 0, 2)
    node = setup.nodes[3]
    node.append([8, 9], 0, epoch=5)
    node.high_watermark = 2
    setup.look(3)
    assert "offset 0, below the high watermark of node 3" in setup.violations[0]


def lost_a_truncation(setup: Setup) -> Any:
    """Node 3, out of the ISR, whose power loss brought back what a truncation had taken, below a
    high watermark that was written down later."""
    setup.state(1, 0, [1, 2], [11, 12])
    setup.replicate([1, 2], 0, 1, 2)
    setup.lead(1, 0, 2)
    node = setup.nodes[3]
    node.append([8, 9], 0, epoch=5)
    setup.look(3)
    setup.checker.crashed(node, lossy=True)
    node.incarnation = 2
    node.high_watermark = 2
    setup.look(3)
    assert setup.violations == []
    return node


def test_a_replica_that_lost_a_truncation_counts_from_its_reconciliation_on(setup: Setup) -> None:
    node = lost_a_truncation(setup)
    node.truncate(0)
    node.high_watermark = 0
    setup.look(3)
    node.append([1, 2], 0)
    node.high_watermark = 2
    setup.look(3)
    assert setup.violations == []
    node.truncate(0)
    node.append([6, 7], 0, epoch=6)
    setup.look(3)
    assert "offset 0, below the high watermark of node 3" in setup.violations[0]


def test_a_replica_that_lost_data_and_agrees_all_the_same_counts_at_once(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 2)
    node = setup.nodes[3]
    setup.checker.crashed(node, lossy=True)
    node.high_watermark = 2
    setup.look(3)
    assert setup.violations == []
    node.high_watermark = 3
    setup.look(3)
    assert "its log ends at 2" in setup.violations[0]


def test_a_replica_that_lost_a_truncation_and_leads_or_joins_counts_at_once(setup: Setup) -> None:
    node = lost_a_truncation(setup)
    node.is_leader, node.leader_epoch = True, 1
    setup.look(3)
    assert "leads in epoch 1 without" in setup.violations[0]
    setup.violations.clear()
    again = Setup()
    lost_a_truncation(again)
    again.register(3, 200)
    again.state(1, 0, [1, 2, 3], [11, 12, 200])
    assert "was published" in again.violations[0]


def test_one_offset_and_epoch_with_two_records_is_told(setup: Setup) -> None:
    setup.nodes[1].append([1], 0)
    setup.nodes[2].append([2], 0)
    setup.look()
    assert "epoch 0: record 2 on node 2, record 1 elsewhere" in setup.violations[0]


def test_a_high_watermark_beyond_the_log_or_any_leader_is_told(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.nodes[2].high_watermark = 3
    setup.look(2)
    assert "its log ends at 2" in setup.violations[0]
    setup.nodes[3].high_watermark = 1
    setup.look(3)
    assert "no leader ever had more than 0" in setup.violations[1]


def test_leader_epochs_that_go_back_are_told(setup: Setup) -> None:
    setup.lead(1, 3, 0)
    setup.nodes[1].leader_epoch = 2
    setup.nodes[1].is_leader = False
    setup.look(1)
    assert "went back from leader epoch 3 to 2" in setup.violations[0]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ((1, -1, [1], [11]), "leader epoch 0 went back"),
        ((2, 0, [1, 2], [11, 12]), "leader 1 became 2 within leader epoch 0"),
        ((2, 1, [1, 3], [11, 13]), "leader 2 is not in the ISR"),
        ((-1, 1, [], []), "empty ISR"),
        ((1, 1, [1, 4], [11, 14]), "not assigned"),
        ((1, 1, [1, 2], [11]), "isr_epochs"),
    ],
)
def test_published_state_that_cannot_be_is_told(
    setup: Setup, state: tuple[int, int, list[int], list[int]], message: str
) -> None:
    setup.state(*state)
    assert any(message in violation for violation in setup.violations)


def test_elections_shrinks_and_expansions_are_counted(setup: Setup) -> None:
    setup.state(2, 1, [2, 3], [12, 13])
    setup.state(-1, 2, [2], [12])
    setup.state(2, 3, [2, 3], [12, 13])
    published = setup.published
    assert (published.elections, published.shrinks, published.expansions) == (2, 2, 1)


def test_the_controller_epoch_never_goes_back(setup: Setup) -> None:
    setup.commit(SetData("/controller_epoch", b"5", 0))
    setup.commit(SetData("/controller_epoch", b"4", 0))
    assert "went back to 4" in setup.violations[0]


def test_an_acknowledgement_before_commitment_is_told(setup: Setup) -> None:
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 1)
    operation = Produce(101, "t", 0, -1, 7, (1, 2), 0)
    setup.history.produce_begins(operation)
    setup.history.produce_ends(operation, Outcome.DONE, 5, 0)
    assert "acknowledged and not committed" in setup.violations[0]


def test_a_leader_that_refuses_the_sequence_of_the_oldest_open_batch_is_told(setup: Setup) -> None:
    setup.now_ns = 50
    setup.state(2, 1, [1, 2, 3], [11, 12, 13])
    setup.state(2, 1, [1, 2], [11, 12])
    operation = Produce(101, "t", 0, -1, 7, (1, 2), 0, sent_ns=[40])
    setup.history.sequence_refused(operation, 2)
    operation.sent_ns.append(60)
    setup.history.sequence_refused(operation, 1)
    assert setup.violations == []
    setup.history.sequence_refused(operation, 2)
    assert "leader 2 refused the sequence of the oldest open batch" in setup.violations[0]


def test_reading_what_is_not_committed_or_another_record_is_told(setup: Setup) -> None:
    for number in (1, 2, 3):
        setup.history.produce_begins(Produce(101, "t", 0, 1, -1, (number,), 0))
    setup.replicate([1, 2], 0)
    setup.lead(1, 0, 1)
    setup.history.read(102, TOPIC_ID, 0, 1, [2])
    setup.history.read(102, TOPIC_ID, 0, 0, [3])
    setup.history.read(102, TOPIC_ID, 0, 0, [77])
    assert "of which only 1 records are committed" in setup.violations[0]
    assert "where record 1 is committed" in setup.violations[1]
    assert "was never sent" in setup.violations[2]


def test_logs_follow_appends_cuts_rolls_and_removal() -> None:
    node = Node(1)
    cuts: list[int] = []
    node.logs.on_cut = lambda log, end: cuts.append(end)
    node.append([1, 2], 0)
    node.append([3], 2)
    node.logs.follow()
    log = node.logs.logs[KEY]
    assert (log.start, log.numbers, log.epochs) == (0, [1, 2, 3], [0, 0, 0])
    node.write(f"{DIRECTORY}/00000000000000000003.log", stored([4], 3, 1))
    node.logs.follow()
    assert (log.numbers, log.epochs) == ([1, 2, 3, 4], [0, 0, 0, 1])
    node.append([9], 3)  # a roll has happened: the first segment must not grow
    node.logs.follow()
    size = len(stored([1, 2], 0, 0))
    node.disk.unlink(f"{DIRECTORY}/00000000000000000003.log")
    node.truncate(size)
    node.append([5], 2, epoch=2)
    node.logs.follow()
    assert (log.numbers, log.epochs) == ([1, 2, 5], [0, 0, 2])
    node.disk.rename(DIRECTORY, "/data/t-0.abc-delete")
    node.logs.follow()
    assert node.logs.logs == {}
    assert cuts


def test_a_log_that_loses_its_beginning_is_neither_cut_nor_grown() -> None:
    node = Node(1)
    told: list[tuple[str, int]] = []
    node.logs.on_cut = lambda log, end: told.append(("cut", end))
    node.append([1, 2], 0)
    node.write(f"{DIRECTORY}/{2:020d}.log", stored([3, 4], 2, 1))
    node.logs.follow()
    node.logs.on_grown = lambda log, first: told.append(("grown", first))
    node.disk.unlink(SEGMENT)
    node.write(f"{DIRECTORY}/{4:020d}.log", stored([5], 4, 1))
    node.logs.follow()
    log = node.logs.logs[KEY]
    assert (log.start, log.numbers, log.epochs) == (2, [3, 4, 5], [1, 1, 1])
    assert told == [("grown", 4)]
    node.disk.unlink(f"{DIRECTORY}/{4:020d}.log")
    node.logs.follow()
    assert told[1:] == [("cut", 5)]


def test_a_torn_tail_ends_the_log_before_it() -> None:
    node = Node(1)
    node.append([1], 0)
    node.write(SEGMENT, stored([2], 1, 0)[:-1] + b"\xff")
    node.append([3], 2)
    node.logs.follow()
    log = node.logs.logs[KEY]
    assert log.numbers == [1]
    node.truncate(len(stored([1], 0, 0)))
    node.append([4], 1)
    node.logs.follow()
    assert log.numbers == [1, 4]
