"""Reads the cluster's published state for a controller, and tells it as events (V40, V41).

Watches are set before what they watch is read, so that no change is missed; they fire once and are
set anew with the next reading. Reads are pipelined: one round for the lists, one for the nodes, one
for the states. Nodes that cannot be read are named and left alone (V25, V35).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tidelog.broker.store_ops import producer_ids_found
from tidelog.controller.events import (
    BrokersRead,
    DeletionsRead,
    PreferredElectionRead,
    ProducerIdsRead,
    ReassignmentsRead,
    TopicsRead,
    UncleanRead,
)
from tidelog.controller.image import ReassignmentsFound, Topic, TopicFound, TopicUnreadable
from tidelog.controller.moves import Move
from tidelog.core.errors import KafkaError
from tidelog.core.names import validate_topic_name
from tidelog.core.ports import Tracer
from tidelog.core.tasks import Tasks
from tidelog.core.types import ZERO_TOPIC_ID, BrokerInfo, PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError, TopicAssignment
from tidelog.metadata.store import MetadataStore, Node, WatchCallback

_UNCLEAN = "unclean.leader.election.enable"


class StoreReader:
    """Reads for one term of office; errors of the store pass through."""

    def __init__(self, store: MetadataStore, tasks: Tasks, tracer: Tracer) -> None:
        self._store = store
        self._tasks = tasks
        self._tracer = tracer

    async def lists(
        self, on_brokers: WatchCallback, on_topics: WatchCallback, on_deletions: WatchCallback
    ) -> tuple[list[str], list[str], list[str]]:
        """Names below `/brokers/ids`, `/brokers/topics` and `/admin/delete_topics`, watched."""
        brokers, topics, deletions = await self._tasks.gather_ordered(
            self._watched(layout.BROKER_IDS, on_brokers),
            self._watched(layout.TOPICS, on_topics),
            self._watched(layout.DELETE_TOPICS, on_deletions),
        )
        return brokers, topics, deletions

    async def load(
        self, ids: Sequence[str], topics: Sequence[str], deletions: Sequence[str]
    ) -> tuple[TopicsRead, DeletionsRead, ProducerIdsRead, BrokersRead]:
        """Everything, for a controller that begins."""
        broker_paths = [f"{layout.BROKER_IDS}/{name}" for name in ids]
        topic_paths = _topic_paths(topics)
        nodes = await self._store.get_many([*broker_paths, layout.PRODUCER_ID_BLOCK, *topic_paths])
        brokers = self._decode_brokers(ids, nodes[: len(ids)])
        producer_ids = producer_ids_found(nodes[len(ids)])
        found = await self._found(topics, nodes[len(ids) + 1 :])
        return (
            TopicsRead(topics, found),
            DeletionsRead(deletions),
            ProducerIdsRead(producer_ids),
            BrokersRead(brokers),
        )

    async def brokers(self, on_change: WatchCallback) -> BrokersRead:
        """All registrations: a bounce shows in a node's creation id only (V10)."""
        ids = await self._watched(layout.BROKER_IDS, on_change)
        nodes = await self._store.get_many([f"{layout.BROKER_IDS}/{name}" for name in ids])
        return BrokersRead(self._decode_brokers(ids, nodes))

    async def topics(self, on_change: WatchCallback, known: Mapping[str, object]) -> TopicsRead:
        """All names, and the nodes of topics that are not `known`."""
        names = await self._watched(layout.TOPICS, on_change)
        new = [name for name in names if name not in known]
        nodes = await self._store.get_many(_topic_paths(new)) if new else []
        return TopicsRead(names, await self._found(new, nodes))

    async def deletions(self, on_change: WatchCallback) -> DeletionsRead:
        """The topics that somebody wants to be deleted."""
        return DeletionsRead(await self._watched(layout.DELETE_TOPICS, on_change))

    async def preferred_election(self, on_change: WatchCallback) -> PreferredElectionRead | None:
        """What an administrator wants to be led by preferred replicas (V8); None for nothing."""
        path = layout.PREFERRED_REPLICA_ELECTION
        node = await self._store.get(path, on_change)
        if node is None:
            return None
        try:
            return PreferredElectionRead(layout.decode_partition_list(path, node.data))
        except LayoutError as error:
            # Nothing can be done for it: it is taken away like one that is done.
            self._report(str(error))
            return PreferredElectionRead(())

    async def reassignments(self, on_change: WatchCallback) -> ReassignmentsRead:
        """Where an administrator wants partitions to be (R1)."""
        path = layout.REASSIGN_PARTITIONS
        node = await self._store.get(path, on_change)
        if node is None:
            return ReassignmentsRead(None)
        try:
            entries = layout.decode_reassignments(path, node.data)
        except LayoutError as error:
            # Nothing can be done for it: it is taken away like one that is done.
            self._report(str(error))
            entries = []
        return ReassignmentsRead(
            ReassignmentsFound(node.stat.version, {one.topic_partition: one for one in entries})
        )

    async def unclean(self, names: Sequence[str]) -> UncleanRead:
        """unclean.leader.election.enable of these topics, as it is now."""
        paths = [layout.config_path("topics", name) for name in names]
        found: dict[str, bool | None] = {}
        nodes = await self._store.get_many(paths)
        for name, path, node in zip(names, paths, nodes, strict=True):
            try:
                configs = layout.decode_config(path, b"" if node is None else node.data)
            except LayoutError as error:
                self._report(str(error))
            else:
                found[name] = _unclean(configs)
        return UncleanRead(found)

    async def _watched(self, path: str, on_change: WatchCallback) -> list[str]:
        return await self._store.children(path, on_change) or []

    def _decode_brokers(
        self, ids: Sequence[str], nodes: Sequence[Node | None]
    ) -> dict[int, BrokerInfo]:
        brokers: dict[int, BrokerInfo] = {}
        for name, node in zip(ids, nodes, strict=True):
            if node is None:
                continue
            path = f"{layout.BROKER_IDS}/{name}"
            try:
                broker_id = layout.parse_decimal_name(path)
                brokers[broker_id] = layout.decode_broker(path, broker_id, node)
            except LayoutError as error:
                # A registration in the making has no data yet; its own transaction fills it.
                self._report(str(error))
        return dict(sorted(brokers.items()))

    async def _found(
        self, names: Sequence[str], nodes: Sequence[Node | None]
    ) -> list[TopicFound | TopicUnreadable]:
        """Topics from their nodes and configurations (as `_topic_paths` has them)."""
        topics: list[Topic] = []
        found: list[TopicFound | TopicUnreadable] = []
        count = len(names)
        for name, node, config in zip(names, nodes[:count], nodes[count:], strict=True):
            if node is None:
                continue
            try:
                topics.append(_decode_topic(name, node, config))
            except (LayoutError, KafkaError) as error:
                self._report(str(error))
                found.append(TopicUnreadable(name, str(error)))
        partitions = [one for topic in topics for one in topic.partitions()]
        paths = [layout.partition_state_path(one) for one in partitions]
        states = await self._store.get_many(paths) if paths else []
        by_topic: dict[str, dict[int, PartitionState]] = {topic.name: {} for topic in topics}
        faults: dict[str, str] = {}
        for topic_partition, path, state in zip(partitions, paths, states, strict=True):
            self._decode_state(topic_partition, path, state, by_topic, faults)
        for topic in topics:
            if topic.name in faults:
                self._report(faults[topic.name])
                found.append(TopicUnreadable(topic.name, faults[topic.name]))
            else:
                found.append(TopicFound(topic, by_topic[topic.name]))
        return found

    @staticmethod
    def _decode_state(
        topic_partition: TopicPartition,
        path: str,
        node: Node | None,
        by_topic: dict[str, dict[int, PartitionState]],
        faults: dict[str, str],
    ) -> None:
        if node is None:
            return
        try:
            state = layout.decode_partition_state(path, node.data, node.stat)
        except LayoutError as error:
            faults.setdefault(topic_partition.topic, str(error))
        else:
            by_topic[topic_partition.topic][topic_partition.partition] = state

    def _report(self, message: str) -> None:
        self._tracer.event("unreadable_node", reason=message)
        self._tracer.log(
            "controller", logging.ERROR, f"left alone, as it cannot be read: {message}"
        )


def _topic_paths(names: Sequence[str]) -> list[str]:
    return [
        *(layout.topic_path(name) for name in names),
        *(layout.config_path("topics", name) for name in names),
    ]


def _decode_topic(name: str, node: Node, config: Node | None) -> Topic:
    """Raises LayoutError or KafkaError (a name that no topic can have)."""
    path = layout.topic_path(name)
    validate_topic_name(name)
    assignment = layout.decode_topic(path, node.data)
    if assignment.topic_id == ZERO_TOPIC_ID:
        raise LayoutError(path, "topic_id is missing")
    configs = {}
    if config is not None:
        configs = layout.decode_config(layout.config_path("topics", name), config.data)
    return Topic(
        name,
        assignment.topic_id,
        assignment.partitions,
        _unclean(configs),
        node.stat.version,
        _moves(assignment, node.stat.mzxid),
    )


def _moves(assignment: TopicAssignment, mzxid: int) -> dict[int, Move]:
    return {
        partition: Move(
            assignment.adding.get(partition, ()),
            assignment.removing.get(partition, ()),
            assignment.original.get(partition, ()),
            mzxid,
        )
        for partition in sorted({**assignment.adding, **assignment.removing})
    }


def _unclean(configs: Mapping[str, str]) -> bool | None:
    value = configs.get(_UNCLEAN)
    return None if value is None else value == "true"
