"""The writer of ISR changes into state nodes (A12, V6), as in Kafka before version 2.7.

A broker uses this module if its `inter.broker.protocol.version` is below 2.7. One task takes all
queued changes, reads the partitions' state nodes, and lets `replication.direct_isr` decide. One
transaction then writes the nodes, provided that their versions have not changed. The same
transaction creates a notification, from which the controller learns of the changes. After a failed
transaction the task reads all nodes again and decides again, because another writer has changed a
node, or the store's response was lost. The leader includes a change in its maximal ISR until a read
shows the outcome of the change (A8, S2). While the store is unreachable, the changes wait (S3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.replicas.hosting.isr_change_queue import IsrChangeQueue, IsrChanges
from tidelog.broker.store_access import UNREACHED
from tidelog.core import limits
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError
from tidelog.metadata.store import (
    Create,
    Node,
    NodeExists,
    NoNode,
    Op,
    OutcomeUnknown,
    SetData,
    TransactionFailed,
)
from tidelog.replication import direct_isr

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.replication.isr import IsrChange

_FIRST_RETRY_MS = 50
_MAX_RETRY_MS = 800
#: Pause in milliseconds before a change is retried whose node was unreadable; an administrator must
#: repair the node.
_UNREADABLE_RETRY_MS = 5_000
#: Limits of the writes in one transaction, in operations and bytes, which leave room for the
#: notification.
_MAX_WRITES = limits.MAX_TRANSACTION_OPS - 1
_MAX_BYTES = limits.MAX_TRANSACTION_BYTES // 2
#: Bytes that notification and transaction need for each partition, besides path and data.
_OVERHEAD_BYTES = 128


@dataclass(frozen=True, slots=True)
class _Write:
    """A state node that this broker will write, with its new content and its expected version."""

    state: PartitionState
    op: SetData


class _Reading(NamedTuple):
    """State nodes, topic nodes and broker epochs, as read before a transaction with ISR changes."""

    states: Mapping[TopicPartition, Node | None]
    topics: Mapping[str, Node | None]
    #: Broker epochs of the registered brokers among the ISR members.
    registered: Mapping[int, int]


class StateNodeWriter(IsrChangeQueue):
    """The queue of one broker, and the task that writes its changes."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        #: Whether the task that writes the changes runs or is about to begin.
        self._is_writing = False
        self._failures = 0

    def retry(self, partition: Partition, change: IsrChange, after_ms: int = 0) -> None:
        """Write a change again after a pause, unless a newer change supersedes it (A8)."""

        def again() -> None:
            if not self._closed:
                self._queue.setdefault(partition.topic_partition, (partition, change))
                self._soon()

        self._services.serving_timers.after(max(after_ms, _FIRST_RETRY_MS), again)

    def controller_changed(self) -> None:
        """Do nothing: leaders write state nodes themselves, and do not ask the controller."""

    # the task

    def _soon(self) -> None:
        if not self._is_writing and not self._closed:
            self._is_writing = True
            self._services.ports.loop.call_soon(self._spawn)

    def _spawn(self) -> None:
        if not self._closed:
            self._services.tasks.spawn("ISR changes", self._run())

    async def _run(self) -> None:
        try:
            while self._queue and not self._closed:
                changes, self._queue = self._queue, {}
                try:
                    await self._settle(changes)
                except UNREACHED as error:
                    await self._wait(changes, str(error))
        finally:
            self._is_writing = False

    async def _wait(self, changes: IsrChanges, why: str) -> None:
        """Pause, then let each leader decide on its change again: outcomes are unknown (S3, A8)."""
        services = self._services
        services.tracer.mark("direct_isr_change_waits")
        services.tracer.log(
            "server", logging.INFO, f"{len(changes)} ISR changes wait for the store: {why}"
        )
        for topic_partition, (partition, change) in changes.items():
            if _is_to_be_sent(partition, change):
                self._queue.setdefault(topic_partition, (partition, change))
            else:
                partition.role.change_unanswered(change)
        await self._pause()

    async def _pause(self) -> None:
        delay_ms = min(_FIRST_RETRY_MS << min(self._failures, 10), _MAX_RETRY_MS)
        self._failures += 1
        await self._services.tasks.sleep(delay_ms)

    async def _settle(self, changes: IsrChanges) -> None:
        """Write changes until each has its outcome; settled changes leave `changes`.

        Raises StoreUnavailable, OutcomeUnknown or SessionExpired if the store cannot be read.
        """
        while True:
            self._drop_unwanted(changes)
            if not changes or self._closed:
                return
            reading = await self._read(changes)
            # While the task read, a command with a newer state may have arrived (A9).
            self._drop_unwanted(changes)
            writes = self._decide(changes, reading)
            if writes:
                await self._write(changes, writes)

    def _drop_unwanted(self, changes: IsrChanges) -> None:
        for topic_partition, (partition, change) in list(changes.items()):
            leadership = partition.leadership
            if leadership is None or not leadership.is_wanted(change):
                del changes[topic_partition]

    async def _read(self, changes: IsrChanges) -> _Reading:
        partitions = list(changes)
        topics = list(dict.fromkeys(partition.topic for partition in partitions))
        members = sorted({member for _, change in changes.values() for member in change.isr})
        nodes = await self._services.store.get_many(
            [
                *map(layout.partition_state_path, partitions),
                *map(layout.topic_path, topics),
                *map(layout.broker_path, members),
            ]
        )
        brokers = nodes[len(partitions) + len(topics) :]
        return _Reading(
            dict(zip(partitions, nodes, strict=False)),
            dict(zip(topics, nodes[len(partitions) :], strict=False)),
            {
                member: node.stat.czxid
                for member, node in zip(members, brokers, strict=True)
                if node is not None
            },
        )

    def _decide(self, changes: IsrChanges, reading: _Reading) -> dict[TopicPartition, _Write]:
        """Report the outcomes that the nodes show; return the nodes to write in one transaction."""
        writes: dict[TopicPartition, _Write] = {}
        size_bytes = 0
        for topic_partition, (partition, change) in list(changes.items()):
            node = reading.states[topic_partition]
            if _is_to_be_sent(partition, change):
                # From here on the leader waits for the outcome and does not replace the change.
                partition.role.change_sent(change)
            verdict = self._judge(partition, change, reading)
            if verdict is None:
                del changes[topic_partition]
                partition.role.change_unanswered(change, _UNREADABLE_RETRY_MS)
            elif verdict.state is None:
                del changes[topic_partition]
                partition.role.change_refused(change, verdict.error)
            elif not verdict.is_new:
                del changes[topic_partition]
                self._found(partition, change, verdict.state)
            elif node is not None:
                path = layout.partition_state_path(topic_partition)
                data = layout.rewrite_isr(path, node.data, verdict.state)
                size_bytes += len(path) + len(data) + len(topic_partition.topic) + _OVERHEAD_BYTES
                if writes and (len(writes) >= _MAX_WRITES or size_bytes > _MAX_BYTES):
                    break
                op = SetData(path, data, node.stat.version)
                writes[topic_partition] = _Write(verdict.state, op)
        return writes

    def _judge(
        self, partition: Partition, change: IsrChange, reading: _Reading
    ) -> direct_isr.Verdict | None:
        """Decide about one change; return None if an unreadable node prevents the decision."""
        leadership = partition.leadership
        if leadership is None:
            return direct_isr.Verdict(ErrorCode.FENCED_LEADER_EPOCH)
        topic_partition = partition.topic_partition
        try:
            if not _is_same_topic(partition, reading.topics[topic_partition.topic]):
                return direct_isr.Verdict(ErrorCode.UNKNOWN_TOPIC_ID)
            node = reading.states[topic_partition]
            state = None
            if node is not None:
                path = layout.partition_state_path(topic_partition)
                state = layout.decode_partition_state(path, node.data, node.stat)
        except LayoutError as error:
            # The leader itself retries. If an administrator repairs the node without changing the
            # state, the controller sends no command that could start a retry (A3).
            self._services.tracer.log(
                "server",
                logging.WARNING,
                f"partition {topic_partition}: its ISR stays {list(leadership.isr.committed)}"
                f" until the node is repaired: {error}; next attempt in {_UNREADABLE_RETRY_MS} ms",
            )
            return None
        return direct_isr.judge(
            change,
            state,
            self._services.broker_id,
            leadership.replicas,
            leadership.minimum,
            reading.registered,
        )

    def _found(self, partition: Partition, change: IsrChange, state: PartitionState) -> None:
        """Settle a change that the state in the store already contains or supersedes."""
        tracer = self._services.tracer
        if direct_isr.holds_already(change, state):
            tracer.mark("direct_isr_change_found_made")
        else:
            tracer.mark("direct_isr_change_overtaken")
            tracer.log(
                "server",
                logging.INFO,
                f"partition {partition.topic_partition}: ISR change to {list(change.isr)} lost to"
                f" another writer; the state node has partition epoch {state.partition_epoch}, ISR"
                f" {list(state.isr)}",
            )
        _accepted(partition, change, state)

    async def _write(self, changes: IsrChanges, writes: Mapping[TopicPartition, _Write]) -> None:
        """Write nodes and their notification; changes that were not written stay in `changes`."""
        notification = layout.encode_isr_change(list(writes))
        ops: list[Op] = [write.op for write in writes.values()]
        ops.append(Create(layout.ISR_CHANGE_PREFIX, notification, sequence=True))
        tracer = self._services.tracer
        try:
            await self._services.store.transact(ops)
        except OutcomeUnknown as error:
            tracer.mark("direct_isr_change_unknown")
            tracer.event("isr_changes_unanswered", count=len(writes), why=str(error))
            return
        except TransactionFailed as failure:
            tracer.mark("direct_isr_change_conflict")
            tracer.event("isr_changes_conflict", count=len(writes), why=str(failure))
            if failure.index == len(writes) and isinstance(failure.error, NoNode):
                await self._make_root()
            elif self._failures:
                await self._pause()
            else:
                # Another writer changed the nodes first; the next read shows the new state.
                self._failures = 1
            return
        self._failures = 0
        for topic_partition, write in writes.items():
            partition, change = changes.pop(topic_partition)
            _accepted(partition, change, write.state)

    async def _make_root(self) -> None:
        """Create the parent node of the notifications again, because another program removed it."""
        try:
            await self._services.store.transact([Create(layout.ISR_CHANGES, b"")])
        except TransactionFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise


def _is_to_be_sent(partition: Partition, change: IsrChange) -> bool:
    leadership = partition.leadership
    return leadership is not None and leadership.is_to_be_sent(change)


def _accepted(partition: Partition, change: IsrChange, state: PartitionState) -> None:
    partition.role.change_accepted(
        change, state.isr, state.leader_epoch, state.partition_epoch, bool(state.elr)
    )


def _is_same_topic(partition: Partition, node: Node | None) -> bool:
    """Return whether the topic's node belongs to the topic of this replica (V23)."""
    path = layout.topic_path(partition.topic_partition.topic)
    return node is not None and layout.decode_topic_id(path, node.data) == partition.topic_id
