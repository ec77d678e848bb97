"""The nodes of a controller's writes, and how to check afterwards whether the store has them.

A `Unit` is a group of operations that go into one transaction together. The unit's witness is the
node that shows the outcome when it is read back. The controller compares the content of the witness
with its own write. The verdict is one of three: the unit was written, can still be written, or
conflicts with another client's write (V15, S2). The controller recognizes its own data by the
controller epoch or fresh topic id in it, and by the node's version. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.controller.elections.preferred import ForgetPreferredElection
from tidelog.controller.partitions.addition import AddPartitions
from tidelog.controller.partitions.refusals import ForgetRequest
from tidelog.controller.partitions.removal import QueueRemovals, RemovePartitions
from tidelog.controller.producer_ids import TakeProducerIds
from tidelog.controller.reassignments.cancelling import ForgetCancel
from tidelog.controller.reassignments.progress import WriteAssignments
from tidelog.controller.reassignments.stored_nodes import (
    AcceptRequest,
    ForgetAccepted,
    ForgetRequestNode,
    KeepQueue,
    KeepReassignments,
    SetFreeze,
)
from tidelog.controller.records import LastProducerId, Topic
from tidelog.controller.state_writes import NO_STATE, WritePartitionState
from tidelog.controller.topics.creation import CreateTopic
from tidelog.controller.topics.deletion import ForgetDeletion, QueueDeletion
from tidelog.controller.writes import Conflict, Outcome, Write, Written
from tidelog.core import limits
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError, TopicAssignment
from tidelog.metadata.paths import parent_of
from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SetData,
    TransactionFailed,
)

#: Maximum number of operations in one transaction of the controller, below the store's limit,
#: because the transaction also checks the controller epoch.
MAX_OPS = limits.MAX_TRANSACTION_OPS - 1
#: Maximum size in bytes of the operations in one transaction of the controller. It leaves room for
#: the check of the controller epoch, which is in the same transaction.
MAX_BYTES = limits.MAX_TRANSACTION_BYTES - 1024
_OP_OVERHEAD_BYTES = 64


class PendingVerdict:
    """The verdict of `Unit.judge` that the unit's nodes are not written yet, and can still be
    written.
    """


PENDING = PendingVerdict()
Verdict = Outcome | PendingVerdict


class Unit:
    """Operations of one of the controller's writes, which go into one transaction together."""

    __slots__ = ("alone", "ops", "parents", "witness", "write")

    def __init__(self, write: int, witness: str, ops: list[Op]) -> None:
        #: Index of the controller's write to which this group of operations belongs.
        self.write = write
        self.witness = witness
        self.ops = ops
        #: Parent nodes of the written nodes; the transaction also creates the missing parents.
        self.parents: tuple[str, ...] = ()
        #: Whether later operations depend on this `Unit`, so that it gets its own transaction.
        self.alone = False

    @property
    def size_bytes(self) -> int:
        """Bytes of the operations, as the store counts them."""
        return sum(_size_of(op) for op in self.ops)

    def judge(self, node: Node | None) -> Verdict:
        """Return the outcome of the operations, judged by `node` as read back from the store."""
        raise NotImplementedError

    def adapt(self, failure: TransactionFailed) -> bool:
        """Adjust the operations after a failure, if the read of node `witness` shows no conflict.

        Returns False if no adjustment lets the transaction succeed.
        """
        return False

    def make_parents(self, missing: Sequence[str]) -> None:
        """Prepend the creation of these parent nodes to the unit's operations."""
        self.ops[:0] = [Create(path, b"") for path in missing]

    def _drop_existing(self, failure: TransactionFailed) -> bool:
        """Drop the creation of a parent node, because another client created that node first."""
        if not isinstance(failure.error, NodeExists):
            return False
        kept = [
            op
            for op in self.ops
            if not (isinstance(op, Create) and not op.data and op.path == failure.error.path)
        ]
        dropped = len(kept) < len(self.ops)
        self.ops = kept
        return dropped


class StateUnit(Unit):
    """The write of a partition's state node."""

    __slots__ = ("_data", "_expected", "_state")

    def __init__(
        self, write: int, topic_partition: TopicPartition, state: PartitionState, expected: int
    ) -> None:
        path = layout.partition_state_path(topic_partition)
        self._state = state
        self._expected = expected
        self._data = layout.encode_partition_state(state)
        op: Op
        if expected == NO_STATE:
            op = Create(path, self._data)
        else:
            op = SetData(path, self._data, expected)
        super().__init__(write, path, [op])

    def judge(self, node: Node | None) -> Verdict:
        """Return `Written`, `PENDING`, or a `Conflict` with the state that the node holds."""
        if node is None:
            return PENDING if self._expected == NO_STATE else Conflict()
        if node.stat.version == self._state.partition_epoch and node.data == self._data:
            return Written(node.stat.mzxid)
        if node.stat.version == self._expected:
            return PENDING
        try:
            found = layout.decode_partition_state(self.witness, node.data, node.stat)
        except LayoutError as error:
            return Conflict(reason=str(error))
        return Conflict(state=found)

    def adapt(self, failure: TransactionFailed) -> bool:
        """Drop the creation of a parent node, because another client created that node first."""
        return self._drop_existing(failure)


class TopicUnit(Unit):
    """The nodes of a new topic and its first partitions; the topic's node is the witness."""

    __slots__ = ("_data",)

    def __init__(self, write: int, created: CreateTopic) -> None:
        made = created.made
        name = made.topic.name
        path = layout.topic_path(name)
        self._data = layout.encode_topic(_assignment(made.topic))
        super().__init__(
            write,
            path,
            [
                Create(path, self._data),
                Create(layout.config_path("topics", name), layout.encode_config(made.configs)),
                Create(layout.topic_partitions_path(name), b""),
            ],
        )

    def judge(self, node: Node | None) -> Verdict:
        """Return the outcome; the fresh topic id in the data proves that this write was made."""
        if node is None:
            return PENDING
        return Written(node.stat.mzxid) if node.data == self._data else Conflict()

    def adapt(self, failure: TransactionFailed) -> bool:
        """Overwrite a configuration that an earlier topic of the same name may have left."""
        config = self.ops[1]
        if not isinstance(failure.error, NodeExists) or not isinstance(config, Create):
            return False
        if failure.error.path != config.path:
            return False
        self.ops[1] = SetData(config.path, config.data, ANY_VERSION)
        return True


class AssignmentUnit(Unit):
    """The write of a topic's node with changed partitions or assignments."""

    __slots__ = ("_data", "_expected")

    def __init__(self, write: int, topic: Topic) -> None:
        path = layout.topic_path(topic.name)
        self._expected = topic.version - 1
        self._data = layout.encode_topic(_assignment(topic))
        super().__init__(write, path, [SetData(path, self._data, self._expected)])

    def judge(self, node: Node | None) -> Verdict:
        """Return `Written`, `PENDING`, or a `Conflict` with another client's write to the topic."""
        if node is None:
            return Conflict()
        if node.stat.version == self._expected + 1 and node.data == self._data:
            return Written(node.stat.mzxid)
        if node.stat.version == self._expected:
            return PENDING
        return Conflict(reason="the topic's node has changed")

    def adapt(self, failure: TransactionFailed) -> bool:
        """Adjust the operations to a node that another client created or deleted first."""
        if isinstance(failure.error, NoNode | NotEmpty):
            kept = [
                op
                for op in self.ops
                if not (isinstance(op, Delete) and op.path == failure.error.path)
            ]
            dropped = len(kept) < len(self.ops)
            self.ops = kept
            return dropped
        return self._drop_existing(failure)


class GrowthUnit(AssignmentUnit):
    """The write of a topic's node with more partitions than before."""

    __slots__ = ()

    def __init__(self, write: int, added: AddPartitions) -> None:
        super().__init__(write, added.growth.topic)
        self.parents = (layout.topic_partitions_path(added.growth.topic.name),)


class RemovalRequestUnit(Unit):
    """The write of a request to remove a partition; it replaces an earlier request."""

    __slots__ = ("_data",)

    def __init__(self, write: int, topic_partition: TopicPartition, drain: bool) -> None:
        path = layout.partition_request_path(topic_partition, is_removal=True)
        self._data = layout.encode_partition_removal(drain)
        super().__init__(write, path, [Create(path, self._data)])
        self.parents = (layout.partition_requests_path(topic_partition.topic, is_removal=True),)

    def judge(self, node: Node | None) -> Verdict:
        """Return `Written` if the node has the content, whichever client wrote it."""
        done = node is not None and node.data == self._data
        return Written() if done else PENDING

    def adapt(self, failure: TransactionFailed) -> bool:
        """Adjust the operations to a node that another client created or deleted first."""
        error, path = failure.error, self.witness
        if error.path != path:
            return self._drop_existing(failure)
        op: Op
        if isinstance(error, NodeExists):
            op = SetData(path, self._data, ANY_VERSION)
        elif isinstance(error, NoNode) and isinstance(self.ops[-1], Create):
            self.make_parents(self.parents)
            return True
        elif isinstance(error, NoNode):
            op = Create(path, self._data)
        else:
            return False
        self.ops[-1] = op
        return True


class RequestUnit(Unit):
    """The creation or deletion of an administrator's request node."""

    __slots__ = ("_present",)

    def __init__(self, write: int, path: str, present: bool) -> None:
        self._present = present
        op: Op = Create(path, b"") if present else Delete(path, ANY_VERSION)
        super().__init__(write, path, [op])

    def judge(self, node: Node | None) -> Verdict:
        """Return `Written` if the node exists (or is gone) as wanted, whichever client did it."""
        return Written() if (node is not None) == self._present else PENDING


class EntriesUnit(Unit):
    """The write of the entries that stay in `/admin/reassign_partitions`, or in the queue of
    reassignments (R8).
    """

    __slots__ = ("_data", "_expected")

    def __init__(self, write: int, path: str, kept: KeepReassignments | KeepQueue) -> None:
        self._expected = kept.expected_version
        self._data: bytes | None = None
        op: Op = Delete(path, kept.expected_version)
        if kept.entries:
            self._data = layout.encode_reassignments(list(kept.entries.values()))
            op = SetData(path, self._data, kept.expected_version)
            if kept.expected_version < 0:
                op = Create(path, self._data)
        super().__init__(write, path, [op])

    def judge(self, node: Node | None) -> Verdict:
        """Return `Written`, `PENDING`, or a `Conflict` with entries that another client wrote."""
        if node is None:
            if self._expected < 0:
                return PENDING
            return Written() if self._data is None else Conflict()
        if node.stat.version == self._expected:
            return PENDING
        if node.stat.version == self._expected + 1 and node.data == self._data:
            return Written(node.stat.mzxid)
        return Conflict(reason="another client has changed the reassignments")


class AcceptedUnit(Unit):
    """An accepted request to reassign a partition, which may replace an earlier request (R12)."""

    __slots__ = ("_data",)

    def __init__(self, write: int, accepted: AcceptRequest) -> None:
        path = layout.accepted_reassignment_path(accepted.topic_partition)
        self._data = layout.encode_accepted_reassignment(accepted.replicas)
        ops: list[Op] = [Create(path, self._data)]
        if accepted.is_again:
            # The node of an accepted request is deleted and created again, because its creation
            # transaction identifies the reassignment.
            ops.insert(0, Delete(path, ANY_VERSION))
        super().__init__(write, path, ops)
        root = layout.REASSIGNMENTS
        self.parents = (root, f"{root}/{accepted.topic_partition.topic}")

    def judge(self, node: Node | None) -> Verdict:
        """Return `Written` if the node has the wanted content; else `PENDING`: replace it."""
        if node is not None and node.data == self._data:
            return Written(node.stat.czxid)
        return PENDING

    def adapt(self, failure: TransactionFailed) -> bool:
        """Adjust the operations to a node that another client created or deleted first."""
        error = failure.error
        deletes = any(isinstance(op, Delete) for op in self.ops)
        if isinstance(error, NoNode) and deletes:
            self.ops = [op for op in self.ops if not isinstance(op, Delete)]
            return True
        if isinstance(error, NoNode):
            made = {op.path for op in self.ops}
            missing = [path for path in self.parents if path not in made][-1:]
            self.make_parents(missing)
            return bool(missing)
        if isinstance(error, NodeExists) and error.path == self.witness and not deletes:
            self.ops.insert(len(self.ops) - 1, Delete(self.witness, ANY_VERSION))
            return True
        return self._drop_existing(failure)


class ForgottenUnit(Unit):
    """The deletion of a reassignment request's node, and of its parent if that becomes empty."""

    __slots__ = ()

    def __init__(self, write: int, path: str, parent: str | None) -> None:
        ops: list[Op] = [Delete(path, ANY_VERSION)]
        if parent is not None:
            ops.append(Delete(parent, ANY_VERSION))
        super().__init__(write, path, ops)

    def judge(self, node: Node | None) -> Verdict:
        """Return `Written` if the node is gone, whichever client deleted it; else `PENDING`."""
        return Written() if node is None else PENDING

    def adapt(self, failure: TransactionFailed) -> bool:
        """Keep a parent node that has other children, and skip a parent node that is gone."""
        path = failure.error.path
        kept = [op for op in self.ops if op.path != path]
        dropped = path != self.witness and len(kept) < len(self.ops)
        self.ops = kept if dropped else self.ops
        return dropped


class ProducerIdsUnit(Unit):
    """The write of the last granted block of producer ids."""

    __slots__ = ("_data", "_expected")

    def __init__(self, write: int, taken: TakeProducerIds) -> None:
        path = layout.PRODUCER_ID_BLOCK
        self._expected = taken.expected_version
        self._data = layout.encode_producer_id_block(taken.broker_id, taken.first, taken.last)
        op: Op
        if taken.expected_version < 0:
            op = Create(path, self._data)
        else:
            op = SetData(path, self._data, taken.expected_version)
        super().__init__(write, path, [op])

    def judge(self, node: Node | None) -> Verdict:
        """Return `Written`, `PENDING`, or a `Conflict` with another controller's block of ids."""
        version = -1 if node is None else node.stat.version
        if version == self._expected:
            return PENDING
        if node is not None and version == self._expected + 1 and node.data == self._data:
            return Written()
        return Conflict(producer_ids=producer_ids_found(node))


def producer_ids_found(node: Node | None) -> LastProducerId | None:
    """Return the content of `/latest_producer_id_block`; None if it is unreadable."""
    if node is None:
        return LastProducerId(last_id=-1, version=-1)
    if not node.data:
        return LastProducerId(last_id=-1, version=node.stat.version)
    try:
        _, _, last = layout.decode_producer_id_block(layout.PRODUCER_ID_BLOCK, node.data)
    except LayoutError:
        return None
    return LastProducerId(last, node.stat.version)


def units_of(index: int, write: Write) -> list[Unit]:
    """Return each `Unit` of a write; a topic too large for one transaction needs several units."""
    match write:
        case WritePartitionState():
            topic_partition = write.topic_partition
            state_unit = StateUnit(index, topic_partition, write.state, write.expected_epoch)
            if write.expected_epoch == NO_STATE:
                state_unit.parents = (
                    layout.topic_partitions_path(topic_partition.topic),
                    layout.partition_path(topic_partition),
                )
            return [state_unit]
        case CreateTopic():
            made = write.made
            return _with_states(index, TopicUnit(index, write), made.topic.name, made.states)
        case AddPartitions():
            growth = write.growth
            return _with_states(index, GrowthUnit(index, write), growth.topic.name, growth.states)
        case WriteAssignments():
            return [AssignmentUnit(index, write.topic)]
        case KeepReassignments():
            return [EntriesUnit(index, layout.REASSIGN_PARTITIONS, write)]
        case KeepQueue():
            return [EntriesUnit(index, layout.REASSIGNMENT_QUEUE, write)]
        case SetFreeze():
            return [RequestUnit(index, layout.FREEZE_REASSIGNMENTS, present=write.is_frozen)]
        case AcceptRequest():
            return [AcceptedUnit(index, write)]
        case ForgetAccepted():
            path = layout.accepted_reassignment_path(write.topic_partition)
            return [ForgottenUnit(index, path, parent_of(path) if write.is_last else None)]
        case ForgetRequestNode():
            is_single = write.path.startswith(f"{layout.PARTITIONS_REASSIGNED}/")
            parent = parent_of(write.path) if is_single else None
            return [ForgottenUnit(index, write.path, parent)]
        case RemovePartitions():
            return _removal_units(index, write)
        case QueueRemovals():
            return [
                RemovalRequestUnit(index, TopicPartition(write.name, partition), drain)
                for partition, drain in write.wanted.items()
            ]
        case ForgetRequest():
            path = layout.partition_request_path(write.topic_partition, is_removal=write.is_removal)
            return [RequestUnit(index, path, present=False)]
        case QueueDeletion():
            return [RequestUnit(index, layout.delete_topic_path(write.name), present=True)]
        case ForgetDeletion():
            return [RequestUnit(index, layout.delete_topic_path(write.name), present=False)]
        case ForgetPreferredElection():
            return [RequestUnit(index, layout.PREFERRED_REPLICA_ELECTION, present=False)]
        case ForgetCancel():
            return [RequestUnit(index, layout.CANCEL_REASSIGNMENTS, present=False)]
        case TakeProducerIds():
            return [ProducerIdsUnit(index, write)]
        case _:
            raise TypeError(f"not a conditional write: {write!r}")


def _assignment(topic: Topic) -> TopicAssignment:
    moves = topic.moves.items()
    return TopicAssignment(
        topic.topic_id,
        topic.assignments,
        {partition: move.adding for partition, move in moves if move.adding},
        {partition: move.removing for partition, move in moves if move.removing},
        {partition: move.original for partition, move in moves if move.original},
        {partition: move.throttle for partition, move in moves if move.throttle},
        tuple(partition for partition, move in moves if move.is_guarded),
    )


def _removal_units(index: int, write: RemovePartitions) -> list[Unit]:
    """Return the units that remove partitions; the first unit writes the topic's node.

    The first unit also deletes the requests that the removal fulfils. A request whose deletion does
    not fit into the first transaction gets a later unit, when its partition no longer exists.
    """
    name = write.topic.name
    first: Unit = AssignmentUnit(index, write.topic)
    units = [first]
    paths = [
        layout.partition_request_path(TopicPartition(name, partition), is_removal=True)
        for partition in write.partitions
    ]
    parent = layout.partition_requests_path(name, is_removal=True)
    size_bytes = first.size_bytes
    for path in [*paths, parent]:
        delete = Delete(path, ANY_VERSION)
        size_bytes += _size_of(delete)
        if len(units) == 1 and len(first.ops) < MAX_OPS and size_bytes <= MAX_BYTES:
            first.ops.append(delete)
        elif path != parent:
            units.append(RequestUnit(index, path, present=False))
    first.alone = len(units) > 1
    return units


def _with_states(
    index: int, first: Unit, topic: str, states: Mapping[int, PartitionState]
) -> list[Unit]:
    """Return a topic's units: first its node with as many states as fit, then the other states."""
    units: list[Unit] = [first]
    size_bytes = first.size_bytes
    for partition, state in sorted(states.items()):
        topic_partition = TopicPartition(topic, partition)
        expected = state.partition_epoch - 1
        unit = StateUnit(index, topic_partition, state, expected)
        if expected == NO_STATE:
            unit.make_parents([layout.partition_path(topic_partition)])
        size_bytes += unit.size_bytes
        fits = len(first.ops) + len(unit.ops) <= MAX_OPS and size_bytes <= MAX_BYTES
        if fits and len(units) == 1:
            first.ops.extend(unit.ops)
        else:
            units.append(unit)
    first.alone = len(units) > 1
    return units


def batches(units: Sequence[Unit]) -> list[list[Unit]]:
    """Pack the units, in their order, into transactions that do not exceed the store's limits."""
    packed: list[list[Unit]] = []
    ops = size_bytes = 0
    sealed = True
    for unit in units:
        added_bytes = unit.size_bytes
        full = ops + len(unit.ops) > MAX_OPS or size_bytes + added_bytes > MAX_BYTES
        if sealed or full or unit.alone:
            packed.append([])
            ops = size_bytes = 0
        packed[-1].append(unit)
        ops += len(unit.ops)
        size_bytes += added_bytes
        sealed = unit.alone
    return packed


def _size_of(op: Op) -> int:
    data = op.data if isinstance(op, Create | SetData) else b""
    return len(op.path) + len(data) + _OP_OVERHEAD_BYTES
