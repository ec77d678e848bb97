"""The published state: brokers, topics, leaders and ISRs as the metadata store has them. The module
follows every transaction of the store.

This module parses the store's nodes with its own code, and checks their invariants. Leader epochs
never go back, and partition epochs rise. A leader epoch has one leader. A leader is in its ISR, and
the ISR is within the assignment. The controller epoch never goes back, and each state that a
controller writes carries the current controller epoch. A leader that writes its partition's state
itself changes neither the leader, the leader epoch nor the controller epoch (A12).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER, TopicId, TopicPartition, topic_id_from_text
from tidelog.metadata.store import Check, Create, Delete, Node, Op, OpResult, SetData
from tidelog.sim.listeners import CallbackList
from tidelog.sim.observed import moves
from tidelog.sim.observed.moves import MoveQueue, PublishedMove, target_of
from tidelog.sim.observed.replica_logs import LogKey, life_at

_TOPICS: Final = "/brokers/topics/"
_BROKERS: Final = "/brokers/ids/"
_DELETIONS: Final = "/admin/delete_topics/"
_REMOVALS: Final = "/admin/partitions_remove/"
_TOPIC_CONFIGS: Final = "/config/topics/"
_CONTROLLER_EPOCH: Final = "/controller_epoch"
_ONE_LIFE: Final = (0,)


@dataclass(slots=True)
class PublishedPartition:
    """The content of a partition's state node."""

    key: LogKey
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    #: Broker epoch of each member of the ISR; None if the state node records no broker epochs.
    isr_epochs: tuple[int, ...] | None
    #: Whether the leader was elected uncleanly and has not yet reported its recovery (V13).
    is_recovering: bool = False
    #: Broker epoch of each eligible leader replica (E1).
    elr: dict[int, int] = field(default_factory=dict)
    #: Time at which the present leader was published; a new leader epoch of the same leader does
    #: not change it.
    led_since_ns: int = 0
    #: Controller epoch in the state node; a leader that writes the state node itself keeps this
    #: epoch.
    controller_epoch: int = 0
    #: Target of a reassignment that is about to end: the ISR has been reduced to it (V52).
    reassigned_to: tuple[int, ...] = ()

    def epoch_of(self, member: int) -> int | None:
        """Return the broker epoch recorded for a member of the ISR or an eligible replica."""
        if self.isr_epochs is None:
            return self.elr.get(member)
        return dict(zip(self.isr, self.isr_epochs, strict=False)).get(member, self.elr.get(member))

    @property
    def members(self) -> tuple[int, ...]:
        """The ISR and the eligible replicas; each of these has had every committed record (E6)."""
        return (*self.isr, *(replica for replica in self.elr if replica not in self.isr))


@dataclass(slots=True)
class PublishedTopic:
    """The content of a topic node, and its history."""

    name: str
    topic_id: TopicId
    created_ns: int
    assignment: dict[int, tuple[int, ...]]
    #: Reassignments under way, by partition (V50).
    moving: dict[int, PublishedMove] = field(default_factory=dict)
    #: By partition, the lowest number of replicas that it ever had.
    fewest: dict[int, int] = field(default_factory=dict)
    #: Time at which the replicas of a partition, or their order, last changed.
    assigned_ns: dict[int, int] = field(default_factory=dict)
    #: By (partition, replica), the transaction that listed the replica for removal.
    leaving_since: dict[tuple[int, int], int] = field(default_factory=dict)
    #: Transaction that removed the topic node; -1 while the node exists.
    deleted_zxid: int = -1

    @property
    def is_internal(self) -> bool:
        """Whether the topic is one of tidelog's own, to which only brokers write."""
        return self.name.startswith("__")


class Published:
    """The published state that results from the transactions of a store."""

    def __init__(
        self,
        violate: Callable[[str], None],
        now_ns: Callable[[], int],
        min_insync_replicas: int = 1,
    ) -> None:
        self._violate = violate
        self._now_ns = now_ns
        self._default_minimum = min_insync_replicas
        #: The lowest min.insync.replicas that each topic's configuration ever had.
        self._minimums: dict[str, int] = {}
        #: Broker epoch of each registered broker.
        self.brokers: dict[int, int] = {}
        #: Topics that exist, by name.
        self.topics: dict[str, PublishedTopic] = {}
        #: Every topic that ever existed.
        self.all_topics: dict[TopicId, PublishedTopic] = {}
        self.partitions: dict[LogKey, PublishedPartition] = {}
        #: By (topic id, partition number), for partitions that were removed from their topic and
        #: added again: the first leader epoch of each incarnation, ascending.
        self._lives: dict[tuple[TopicId, int], list[int]] = {}
        #: Partitions that were removed from their topic, or whose removal was requested. The
        #: request for such a removal exists only in tidelog. The records of these partitions may be
        #: lost.
        self.removed: dict[LogKey, None] = {}
        self.controller_epoch = 0
        #: The latest transaction.
        self.zxid = 0
        #: Topics whose deletion was requested, with the transaction id of the request. The topic's
        #: nodes still exist until brokers have deleted the replicas.
        self.dying: dict[str, int] = {}
        self.elections = 0
        self.shrinks = 0
        self.expansions = 0
        #: Called when a partition's state changed: (state before or None, state now).
        self.on_state = CallbackList[[PublishedPartition | None, PublishedPartition]]()
        #: Called when a broker has registered: (broker id, broker epoch).
        self.on_broker = CallbackList[[int, int]]()
        #: Called when a replica is no longer assigned: (partition, broker id, transaction that
        #: listed it for removal).
        self.on_left = CallbackList[[LogKey, int, int]]()
        #: Called when a topic's node is written: (topic, transaction, reassignments before).
        self.on_moves = CallbackList[[PublishedTopic, int, dict[int, PublishedMove]]]()
        #: Called when a deleted topic's nodes are removed: (topic, transaction of the deletion
        #: request).
        self.on_topic_gone = CallbackList[[PublishedTopic, int]]()
        self._leaders: dict[tuple[LogKey, int], int] = {}
        #: The session of each registered broker.
        self._sessions: dict[int, int] = {}
        #: Number of state nodes that leaders wrote themselves (A12).
        self.direct_changes = 0
        #: If the current transaction does not check the controller epoch, the broker that wrote it;
        #: else None.
        self._writer: int | None = None
        self.queue = MoveQueue(violate, now_ns, self._target)

    def committed(
        self, zxid: int, session_id: int, ops: Sequence[Op], results: Sequence[OpResult]
    ) -> None:
        """Follow a transaction that the store applied."""
        self.zxid = zxid
        self._writer = _uncontrolled_writer(session_id, ops, self._sessions)
        for op, result in zip(ops, results, strict=True):
            path = result.path
            if path.startswith(_TOPICS):
                self._topic_changed(zxid, path[len(_TOPICS) :].split("/"), op, result)
            elif path.startswith(_BROKERS):
                self._broker_changed(int(path[len(_BROKERS) :]), session_id, op, result)
            elif path.startswith(_TOPIC_CONFIGS):
                self._config_changed(path[len(_TOPIC_CONFIGS) :], op)
            elif path.startswith(_DELETIONS):
                self._deletion_changed(zxid, path[len(_DELETIONS) :], op)
            elif path.startswith(_REMOVALS) and path.count("/") == 4:
                self._removal_changed(path[len(_REMOVALS) :].split("/"), op)
            elif path == _CONTROLLER_EPOCH and isinstance(op, SetData | Create):
                epoch = int(op.data or b"0")
                if epoch < self.controller_epoch:
                    self._violate(f"controller epoch {self.controller_epoch} went back to {epoch}")
                self.controller_epoch = epoch
        self.queue.committed(ops, results)

    def put_back(self, nodes: Mapping[str, Node], zxid: int) -> None:
        """Adopt a store that was restored from an older copy, which has the same topics.

        Leaders that were published after the copy was made stay recorded, because no leader epoch
        may get another leader.
        """
        self.zxid = zxid
        self.brokers.clear()
        self._sessions.clear()
        self.controller_epoch = int(nodes[_CONTROLLER_EPOCH].data)
        for key, now in list(self.partitions.items()):
            topic = self.all_topics[key.topic_id]
            node = nodes.get(f"{_TOPICS}{topic.name}/partitions/{key.partition}/state")
            if node is not None and topic.deleted_zxid < 0:
                found = _parsed(key, json.loads(node.data), node.stat.version)
                found.led_since_ns = now.led_since_ns
                self.partitions[key] = found

    def _target(self, partition: TopicPartition) -> tuple[int, ...] | None:
        """Return the target replicas of a partition, or its current replicas if it is not being
        reassigned; None if it is removed or its removal was requested.
        """
        topic, number = self.topics.get(partition.topic), partition.partition
        if topic is None or number not in topic.assignment or topic.name in self.dying:
            return None
        return target_of(topic.assignment[number], topic.moving.get(number))

    def _config_changed(self, name: str, op: Op) -> None:
        if isinstance(op, Delete):
            self._minimums.pop(name, None)
        elif isinstance(op, Create | SetData) and op.data:
            value = json.loads(op.data)["config"].get("min.insync.replicas")
            minimum = self._default_minimum if value is None else int(value)
            self._minimums[name] = min(minimum, self._minimums.get(name, minimum))

    def effective_minimum(self, key: LogKey) -> int:
        """Return the lowest ISR size at which a leader may commit a record (V60).

        It depends on the lowest min.insync.replicas that was ever set, because leaders may learn of
        changes late.
        """
        topic = self.all_topics[key.topic_id]
        minimum = self._minimums.get(topic.name, self._default_minimum)
        return min(minimum, topic.fewest.get(key.partition, 0))

    def quorum(self, state: PublishedPartition) -> int:
        """Return how many members must be alive before the controller may elect one of them (k of
        E6).
        """
        return min(self.effective_minimum(state.key), len(state.members))

    def _deletion_changed(self, zxid: int, name: str, op: Op) -> None:
        if isinstance(op, Create):
            self.dying[name] = zxid
        elif isinstance(op, Delete):
            self.dying.pop(name, None)

    def _removal_changed(self, parts: list[str], op: Op) -> None:
        """Record a request to remove one partition of a topic; only tidelog has such a request.

        From now on, records of the partition's current incarnation may be lost.
        """
        topic = self.topics.get(parts[0])
        if topic is not None and isinstance(op, Create):
            self.removed[self.key(topic.topic_id, int(parts[1]))] = None

    def lives(self, key: LogKey) -> Sequence[int]:
        """Return the first leader epochs of a partition's incarnations, ascending."""
        return self._lives.get(key[:2], _ONE_LIFE)

    def key(self, topic_id: TopicId, partition: int, leader_epoch: int = -1) -> LogKey:
        """Return the key of a partition's log.

        A partition that was removed from its topic and then added again has several incarnations.
        The key is that of the incarnation which had the leader epoch `leader_epoch`; -1 means the
        latest incarnation.
        """
        lives = self._lives.get((topic_id, partition), _ONE_LIFE)
        life = lives[-1] if leader_epoch < 0 else life_at(lives, leader_epoch)
        return LogKey(topic_id, partition, life)

    def find(self, partition: TopicPartition) -> LogKey | None:
        """Return the key of a partition in its latest incarnation; None if its topic does not
        exist.
        """
        topic = self.topics.get(partition.topic)
        return None if topic is None else self.key(topic.topic_id, partition.partition)

    def name(self, key: LogKey) -> TopicPartition:
        """Return topic and number of a partition, also if its topic was deleted."""
        return TopicPartition(self.all_topics[key.topic_id].name, key.partition)

    def states(self) -> Iterator[tuple[TopicPartition, LogKey, PublishedPartition | None]]:
        """Yield name, latest incarnation and state of each partition of the topics that exist."""
        for topic in self.topics.values():
            for number in topic.assignment:
                key = self.key(topic.topic_id, number)
                yield TopicPartition(topic.name, number), key, self.partitions.get(key)

    def is_over(self, key: LogKey) -> bool:
        """Return whether a partition's records may be lost, because its deletion or removal was
        requested.
        """
        return key in self.removed or self.promises_nothing(key.topic_id)

    def promises_nothing(self, topic_id: TopicId) -> bool:
        """Return whether a topic is gone or its deletion was requested."""
        topic = self.all_topics.get(topic_id)
        return topic is None or topic.deleted_zxid >= 0 or topic.name in self.dying

    def _broker_changed(self, broker_id: int, session_id: int, op: Op, result: OpResult) -> None:
        if isinstance(op, Create) and result.stat is not None:
            epoch = result.stat.czxid
            self.brokers[broker_id] = epoch
            self._sessions[broker_id] = session_id
            self.on_broker(broker_id, epoch)
        elif isinstance(op, Delete):
            self.brokers.pop(broker_id, None)

    def _topic_changed(self, zxid: int, parts: list[str], op: Op, result: OpResult) -> None:
        name = parts[0]
        if len(parts) == 1:
            if isinstance(op, Delete):
                topic = self.topics.pop(name, None)
                if topic is not None:
                    topic.deleted_zxid = zxid
                    if name in self.dying:
                        self.on_topic_gone(topic, self.dying[name])
            elif isinstance(op, Create | SetData) and op.data:
                self._topic_written(zxid, name, json.loads(op.data))
        elif len(parts) == 4 and parts[3] == "state" and isinstance(op, Create | SetData):
            topic = self.topics.get(name)
            if topic is None:
                self._violate(f"a state node of topic {name}, which does not exist, was written")
            elif op.data and result.stat is not None:
                value = json.loads(op.data)
                key = self._begun_by(topic, int(parts[2]), value)
                self._state_written(topic, key, value, result.stat.version)

    def _begun_by(self, topic: PublishedTopic, partition: int, value: dict[str, Any]) -> LogKey:
        """Return the key of the partition whose state was written.

        A partition that was removed and added again gets a new key; its leader epochs must be above
        all earlier ones (V71).
        """
        key = self.key(topic.topic_id, partition)
        before = self.partitions.get(key)
        begins = value.get("first_epochs", [0, 0])[0]
        if before is None or not value["isr"]:
            return key
        is_again = begins > key.life or (not before.isr and bool(value["isr"]))
        if not is_again:
            return key
        what = f"{topic.name}-{partition}"
        if before.isr and key not in self.removed:
            self._violate(f"{what} begins again without a removal (V71)")
        if value["leader_epoch"] <= before.leader_epoch:
            self._violate(
                f"{what}: leader epoch {before.leader_epoch} of its former life is not below"
                f" {value['leader_epoch']} of the next (V71)"
            )
        self._lives.setdefault(key[:2], [0]).append(max(begins, key.life + 1))
        return self.key(topic.topic_id, partition)

    def _topic_written(self, zxid: int, name: str, value: dict[str, Any]) -> None:
        topic_id = topic_id_from_text(value["topic_id"])
        assignment = {int(number): tuple(r) for number, r in value["partitions"].items()}
        topic = self.topics.get(name)
        if topic is not None and topic.topic_id == topic_id:
            gone = [number for number in topic.assignment if number not in assignment]
            if any(self.key(topic_id, number) not in self.removed for number in gone):
                self._violate(f"partitions {gone} of topic {name} have vanished (V70)")
            elif any(number < len(assignment) for number in gone):
                self._violate(f"partitions {gone} of topic {name} are not its highest (V71)")
            for number, fault in moves.wrong_changes(
                topic.moving, moves.moves_of(value), topic.assignment, assignment
            ):
                self._violate(f"{name}-{number}: {fault}")
            before, moving = topic.assignment, topic.moving
            self._reassigned(topic, assignment)
            self._note_moves(zxid, topic, value)
            for number in before.keys() & assignment.keys():
                self.queue.reassigned(
                    TopicPartition(name, number),
                    (before[number], moving.get(number)),
                    (assignment[number], topic.moving.get(number)),
                )
            return
        if topic_id in self.all_topics:
            self._violate(f"topic id {topic_id.hex()} of topic {name} was used before")
        self.topics[name] = self.all_topics[topic_id] = PublishedTopic(
            name, topic_id, self._now_ns(), assignment
        )
        self._note_moves(zxid, self.topics[name], value)

    def _reassigned(self, topic: PublishedTopic, assignment: dict[int, tuple[int, ...]]) -> None:
        """Check the replica lists that a write of a topic's node has changed.

        Before the controller removes replicas from the list, the ISR must be within the remaining
        replicas, and the brokers of the removed replicas must have stopped them (V52).
        """
        before, topic.assignment = topic.assignment, assignment
        for number, replicas in before.items():
            if number not in assignment:
                continue
            if replicas != assignment[number]:
                topic.assigned_ns[number] = self._now_ns()
            what = f"{topic.name}-{number}"
            key = self.key(topic.topic_id, number)
            state = self.partitions.get(key)
            strangers = [
                member
                for member in (state.isr if state else ())
                if member not in assignment[number]
            ]
            if strangers:
                self._violate(f"{what}: {strangers} of the ISR are assigned no more (V52)")
            for replica in replicas:
                if replica in assignment[number]:
                    continue
                since = topic.leaving_since.get((number, replica))
                if since is None:
                    self._violate(
                        f"{what}: {replica} is assigned no more without a reassignment (V52)"
                    )
                    continue
                self.on_left(key, replica, since)

    def _note_moves(self, zxid: int, topic: PublishedTopic, value: dict[str, Any]) -> None:
        before, topic.moving = topic.moving, moves.moves_of(value)
        self.on_moves(topic, zxid, before)
        topic.leaving_since = {
            (number, replica): topic.leaving_since.get((number, replica), zxid)
            for number, move in topic.moving.items()
            for replica in move.removing
        }
        for number, replicas in topic.assignment.items():
            topic.fewest[number] = min(topic.fewest.get(number, len(replicas)), len(replicas))

    def _state_written(
        self, topic: PublishedTopic, key: LogKey, value: dict[str, Any], version: int
    ) -> None:
        state = _parsed(key, value, version)
        before = self.partitions.get(key)
        if self._writer is not None:
            self._check_direct(f"{topic.name}-{key.partition}", self._writer, before, state)
        elif state.controller_epoch != self.controller_epoch:
            self._violate(
                f"{topic.name}-{key.partition}: controller epoch {state.controller_epoch} wrote"
                f" its state, where the controller epoch is {self.controller_epoch} (V3)"
            )
        same_leader = before is not None and before.leader == state.leader
        state.led_since_ns = before.led_since_ns if before and same_leader else self._now_ns()
        self.partitions[key] = state
        self._check_state(topic, before, state)
        if before is not None:
            fault = copies_lost(before, state, self.effective_minimum(key))
            if fault:
                self._violate(f"{topic.name}-{key.partition}: {fault}")
        if before is not None:
            if state.leader not in (before.leader, NO_LEADER):
                self.elections += 1
            if any(member not in state.isr for member in before.isr):
                self.shrinks += 1
            if any(member not in before.isr for member in state.isr):
                self.expansions += 1
        self.on_state(before, state)

    def _check_direct(
        self, what: str, writer: int, before: PublishedPartition | None, state: PublishedPartition
    ) -> None:
        """Check a state that a broker wrote: it must be the leader, and must change only the ISR
        (A12).
        """
        self.direct_changes += 1
        if before is None or before.leader != writer:
            leader = None if before is None else before.leader
            self._violate(
                f"{what}: broker {writer} wrote the state, where broker {leader} leads (A12)"
            )
            return
        kept = [(old.leader, old.leader_epoch, old.controller_epoch) for old in (before, state)]
        if kept[0] != kept[1]:
            self._violate(
                f"{what}: leader {writer} changed (leader, leader epoch, controller epoch) from"
                f" {kept[0]} to {kept[1]} (A12)"
            )

    def _check_state(
        self, topic: PublishedTopic, before: PublishedPartition | None, state: PublishedPartition
    ) -> None:
        what = f"{topic.name}-{state.key.partition}"
        if before is not None:
            if state.leader_epoch < before.leader_epoch:
                self._violate(
                    f"{what}: leader epoch {before.leader_epoch} went back to {state.leader_epoch}"
                )
            if state.partition_epoch <= before.partition_epoch:
                self._violate(
                    f"{what}: partition epoch {before.partition_epoch} became"
                    f" {state.partition_epoch}"
                )
            if state.leader != before.leader and state.leader_epoch == before.leader_epoch:
                self._violate(
                    f"{what}: leader {before.leader} became {state.leader} within leader epoch"
                    f" {state.leader_epoch}"
                )
        if state.leader != NO_LEADER:
            self.leads(state.key, state.leader_epoch, state.leader, what)
            if state.leader not in state.isr:
                self._violate(f"{what}: leader {state.leader} is not in the ISR {state.isr}")
        if state.is_recovering and len(state.isr) > 1:
            self._violate(f"{what}: ISR {state.isr} of a leader that has not recovered (A3)")
        if not state.isr and state.key not in self.removed:
            self._violate(f"{what}: empty ISR")
        assigned = topic.assignment.get(state.key.partition, ())
        strangers = [member for member in state.isr if member not in assigned]
        if strangers and state.key not in self.removed:
            self._violate(f"{what}: {strangers} of the ISR are not assigned ({assigned})")
        if state.isr_epochs is not None and len(state.isr_epochs) != len(state.isr):
            self._violate(f"{what}: isr_epochs {state.isr_epochs} of ISR {state.isr}")

    def leads(self, key: LogKey, leader_epoch: int, node_id: int, what: str) -> None:
        """Check that a broker is the only leader in a leader epoch.

        The broker leads according to published state, or according to the broker itself; `what` is
        the beginning of the violation's text.
        """
        leader = self._leaders.setdefault((key, leader_epoch), node_id)
        if leader != node_id:
            self._violate(f"{what}: {leader} and {node_id} both lead in epoch {leader_epoch}")


def _uncontrolled_writer(
    session_id: int, ops: Sequence[Op], sessions: Mapping[int, int]
) -> int | None:
    """Return the broker whose transaction does not check the controller epoch.

    Returns None if the transaction checks the controller epoch, or if no broker has the session.
    """
    if any(isinstance(op, Check) and op.path == _CONTROLLER_EPOCH for op in ops):
        return None
    return next((broker for broker, session in sessions.items() if session == session_id), None)


def _parsed(key: LogKey, value: Mapping[str, Any], version: int) -> PublishedPartition:
    """Return the content of a state node."""
    epochs = value.get("isr_epochs")
    return PublishedPartition(
        key=key,
        leader=value["leader"],
        leader_epoch=value["leader_epoch"],
        partition_epoch=version,
        isr=tuple(value["isr"]),
        isr_epochs=None if epochs is None else tuple(epochs),
        is_recovering=bool(value.get("leader_recovery_state", 0)),
        elr=dict(zip(value.get("elr", ()), value.get("elr_epochs", ()), strict=False)),
        controller_epoch=value["controller_epoch"],
        reassigned_to=tuple(value.get("reassigned_to", ())),
    )


def copies_lost(before: PublishedPartition, after: PublishedPartition, minimum: int) -> str:
    """Return what is wrong with a state that ends a reassignment; empty if nothing is (R3)."""
    target = after.reassigned_to
    if (
        not target
        or before.reassigned_to
        or len(after.members) >= min(minimum, len(before.members))
    ):
        return ""
    return (
        f"the reassignment to {target} ends with copies of committed records on {after.members}, of"
        f" {before.members}, where {minimum} are the minimum (R3)"
    )
