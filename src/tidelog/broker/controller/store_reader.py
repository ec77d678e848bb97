"""The reader of the cluster's published state, which it returns as events (V40, V41).

Each watch is set before its node is read, so that no change is missed. A watch fires once, so every
read of a node sets its watch again. Reads are pipelined in three rounds: lists of nodes, contents
of nodes, states of partitions. An unreadable node is named in the log and left unchanged (V25,
V35).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tidelog.broker.controller.reassignment_reader import ReassignmentReader
from tidelog.broker.controller.store_ops import producer_ids_found
from tidelog.controller.elections.leaders import MinimumRead, UncleanRead
from tidelog.controller.elections.preferred import PreferredElectionRead
from tidelog.controller.partitions.addition import AdditionsRead, FormerRead
from tidelog.controller.partitions.refusals import RequestsUnreadable
from tidelog.controller.partitions.removal import RemovalsRead
from tidelog.controller.producer_ids import ProducerIdsRead
from tidelog.controller.records import Move, Topic
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.topics.deletion import DeletionsRead
from tidelog.controller.topics.readings import StatesRead, TopicsRead
from tidelog.core.errors import ConfigError, KafkaError
from tidelog.core.names import validate_topic_name
from tidelog.core.ports import Tracer
from tidelog.core.tasks import Tasks
from tidelog.core.topic_config import validate_topic_configs
from tidelog.core.types import (
    NO_STAMP,
    ZERO_TOPIC_ID,
    BrokerInfo,
    PartitionState,
    StoreWentBack,
    TopicPartition,
)
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError, TopicAssignment
from tidelog.metadata.store import MetadataStore, Node, WatchCallback

T = TypeVar("T")
_UNCLEAN = "unclean.leader.election.enable"
_MINIMUM = "min.insync.replicas"


class StoreReader:
    """The reader of the metadata store for one controller term. The methods raise the store's
    errors.
    """

    def __init__(self, store: MetadataStore, tasks: Tasks, tracer: Tracer) -> None:
        self._store = store
        self._tasks = tasks
        self._tracer = tracer
        #: The last logged reason why a topic is unreadable. The controller reads such topics
        #: repeatedly, and logs each reason once.
        self._logged: dict[str, str] = {}
        #: The last logged reason why a partition's state is unreadable.
        self._logged_states: dict[TopicPartition, str] = {}
        self.reassignments = ReassignmentReader(store, tasks, self._report)

    async def lists(
        self, on_brokers: WatchCallback, on_topics: WatchCallback, on_deletions: WatchCallback
    ) -> tuple[list[str], list[str], list[str]]:
        """Watch and return the names of live brokers, of topics, and of topics to delete.

        The returned names are the children of `/brokers/ids`, `/brokers/topics` and
        `/admin/delete_topics`.
        """
        brokers, topics, deletions = await self._tasks.gather_ordered(
            self._watched(layout.BROKER_IDS, on_brokers),
            self._watched(layout.TOPICS, on_topics),
            self._watched(layout.DELETE_TOPICS, on_deletions),
        )
        # The node that marks an older store is watched, because an operator who accepts that store
        # removes the node (E8).
        await self._store.get(layout.STORE_WENT_BACK, on_brokers)
        return brokers, topics, deletions

    async def load(
        self,
        ids: Sequence[str],
        topics: Sequence[str],
        deletions: Sequence[str],
        on_topic: WatchCallback,
    ) -> tuple[TopicsRead, DeletionsRead, ProducerIdsRead, BrokersRead]:
        """Read the whole state for a new controller, and watch the topics' nodes."""
        broker_paths = [f"{layout.BROKER_IDS}/{name}" for name in ids]
        nodes = await self._store.get_many(
            [*broker_paths, layout.PRODUCER_ID_BLOCK, layout.STORE_WENT_BACK]
        )
        brokers = self._decode_brokers(ids, nodes[: len(ids)])
        producer_ids = producer_ids_found(nodes[len(ids)])
        found = await self._found(topics, on_topic)
        return (
            TopicsRead(topics, found),
            DeletionsRead(deletions),
            ProducerIdsRead(producer_ids),
            BrokersRead(brokers, self._went_back(nodes[-1])),
        )

    async def brokers(self, on_change: WatchCallback) -> BrokersRead:
        """Read all registrations, because the list of names does not show a restart (V10)."""
        ids = await self._watched(layout.BROKER_IDS, on_change)
        # A broker that finds the store older than its logs creates the node `STORE_WENT_BACK` when
        # it registers (E8).
        *nodes, mark = await self._store.get_many(
            [*(f"{layout.BROKER_IDS}/{name}" for name in ids), layout.STORE_WENT_BACK]
        )
        return BrokersRead(self._decode_brokers(ids, nodes), self._went_back(mark))

    def _went_back(self, node: Node | None) -> StoreWentBack | None:
        """Return what node `STORE_WENT_BACK` says; an unreadable node counts, too (E8)."""
        if node is None:
            return None
        try:
            return layout.decode_store_went_back(layout.STORE_WENT_BACK, node)
        except LayoutError as error:
            self._report(str(error), "taken for a mark")
            return StoreWentBack(-1, NO_STAMP, NO_STAMP, 0, zxid=node.stat.mzxid)

    async def topics(
        self, on_change: WatchCallback, on_topic: WatchCallback, known: Mapping[str, object]
    ) -> TopicsRead:
        """Read all topic names, and read and watch the nodes of topics that are not `known`."""
        names = await self._watched(layout.TOPICS, on_change)
        if self._logged or self._logged_states:
            there = dict.fromkeys(names)
            self._logged = {topic: why for topic, why in self._logged.items() if topic in there}
            self._logged_states = {
                partition: why
                for partition, why in self._logged_states.items()
                if partition.topic in there
            }
        new = [name for name in names if name not in known]
        return TopicsRead(names, await self._found(new, on_topic) if new else [])

    async def changed(self, topics: Sequence[Topic], on_topic: WatchCallback) -> list[str]:
        """Watch these topics' nodes; return the topics whose nodes differ from `topics`."""
        nodes = await self._topic_nodes([topic.name for topic in topics], on_topic)
        return [
            topic.name
            for topic, node in zip(topics, nodes, strict=True)
            if node is not None
            and (node.stat.version != topic.version or _is_replaced(topic, node))
        ]

    async def _topic_nodes(
        self, names: Sequence[str], on_topic: WatchCallback
    ) -> list[Node | None]:
        return await self._tasks.gather_ordered(
            *(self._store.get(layout.topic_path(name), on_topic) for name in names)
        )

    async def removals(self, on_change: WatchCallback) -> tuple[RemovalsRead, RequestsUnreadable]:
        """Read the administrators' requests to remove partitions (V7)."""
        decode = layout.decode_partition_removal
        found, unreadable = await self._requests(layout.PARTITIONS_REMOVE, decode, on_change)
        return RemovalsRead(found), RequestsUnreadable(unreadable, is_removal=True)

    async def additions(
        self, on_change: WatchCallback, seed: int
    ) -> tuple[AdditionsRead, RequestsUnreadable]:
        """Read the administrators' requests to add partitions (V7)."""
        decode = layout.decode_partition_addition
        found, unreadable = await self._requests(layout.PARTITIONS_ADD, decode, on_change)
        return AdditionsRead(found, seed), RequestsUnreadable(unreadable, is_removal=False)

    async def _requests(
        self, root: str, decode: Callable[[str, bytes], T], on_change: WatchCallback
    ) -> tuple[dict[str, dict[int, T]], list[TopicPartition]]:
        """Return requests below `root` by partition, and partitions of unreadable requests."""
        topics = await self._watched(root, on_change)
        numbers = await self._tasks.gather_ordered(
            *(self._watched(f"{root}/{name}", on_change) for name in topics)
        )
        paths = [
            f"{root}/{topic}/{number}"
            for topic, found in zip(topics, numbers, strict=True)
            for number in found
        ]
        nodes = await self._store.get_many(paths) if paths else []
        wanted: dict[str, dict[int, T]] = {}
        unreadable = []
        for path, node in zip(paths, nodes, strict=True):
            if node is None:
                continue
            topic = path.split("/")[-2]
            partition = -1
            try:
                partition = layout.parse_decimal_name(path)
                wanted.setdefault(topic, {})[partition] = decode(path, node.data)
            except LayoutError as error:
                self._report(str(error))
                if partition >= 0:
                    unreadable.append(TopicPartition(topic, partition))
        return {name: partitions for name, partitions in wanted.items() if partitions}, unreadable

    async def former(self, wanted: Sequence[TopicPartition]) -> FormerRead:
        """Read the state nodes that removed partitions left in the store (V71).

        A partition that is added with the same number needs higher leader epochs than these states.
        """
        paths = [layout.partition_state_path(partition) for partition in wanted]
        nodes = await self._store.get_many(paths)
        found: dict[TopicPartition, PartitionState | None] = dict.fromkeys(wanted)
        for partition, path, node in zip(wanted, paths, nodes, strict=True):
            if node is not None:
                try:
                    found[partition] = layout.decode_partition_state(path, node.data, node.stat)
                except LayoutError as error:
                    self._report(str(error))
        return FormerRead(found)

    async def states(self, wanted: Sequence[TopicPartition]) -> StatesRead:
        """Read again the state nodes that were unreadable."""
        paths = [layout.partition_state_path(partition) for partition in wanted]
        nodes = await self._store.get_many(paths)
        return StatesRead(
            {
                partition: self._state(partition, path, node)
                if node is not None
                else f"{path}: is gone"
                for partition, path, node in zip(wanted, paths, nodes, strict=True)
            }
        )

    async def isr_changes(
        self, on_change: WatchCallback
    ) -> tuple[list[str], dict[TopicPartition, PartitionState | str]]:
        """Read the notifications of ISR changes that leaders wrote themselves (A12).

        Returns the paths of the notifications, and the current states of the partitions that they
        name: a state, or why it is unreadable. Partitions without a state node are omitted.
        """
        names = await self._watched(layout.ISR_CHANGES, on_change)
        paths = [f"{layout.ISR_CHANGES}/{name}" for name in names]
        named: dict[TopicPartition, None] = {}
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            try:
                if node is not None:
                    named.update(dict.fromkeys(layout.decode_isr_change(path, node.data)))
            except LayoutError as error:
                # An unreadable notification names no partition, so it is removed like a readable
                # notification.
                self._report(str(error), "removed")
        if named:
            self._tracer.mark("direct_isr_changes_read")
        states = [layout.partition_state_path(partition) for partition in named]
        nodes = await self._store.get_many(states) if states else []
        found = {
            partition: self._state(partition, path, node)
            for partition, path, node in zip(named, states, nodes, strict=True)
            if node is not None
        }
        return paths, found

    async def log_dir_events(self, on_change: WatchCallback) -> tuple[list[str], list[int]]:
        """Return paths and broker ids of the notifications of failed log directories (D4)."""
        names = await self._watched(layout.LOG_DIR_EVENTS, on_change)
        paths = [f"{layout.LOG_DIR_EVENTS}/{name}" for name in names]
        brokers: dict[int, None] = {}
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            try:
                if node is not None:
                    brokers[layout.decode_log_dir_event(path, node.data)] = None
            except LayoutError as error:
                # An unreadable notification names no broker, so it is removed like a readable
                # notification.
                self._report(str(error), "removed")
        return paths, list(brokers)

    async def deletions(self, on_change: WatchCallback) -> DeletionsRead:
        """Read the administrators' requests to delete topics."""
        return DeletionsRead(await self._watched(layout.DELETE_TOPICS, on_change))

    async def preferred_election(self, on_change: WatchCallback) -> PreferredElectionRead | None:
        """Read the requested elections of preferred replicas (V8); None if there is no request."""
        path = layout.PREFERRED_REPLICA_ELECTION
        node = await self._store.get(path, on_change)
        if node is None:
            return None
        try:
            return PreferredElectionRead(layout.decode_partition_list(path, node.data))
        except LayoutError as error:
            # An unreadable request cannot be carried out, so the controller removes it like a
            # completed request.
            self._report(str(error), "removed")
            return PreferredElectionRead(())

    async def election_configs(self, names: Sequence[str]) -> tuple[UncleanRead, MinimumRead]:
        """Read the topic configurations on which elections depend."""
        paths = [layout.config_path("topics", name) for name in names]
        unclean: dict[str, bool | None] = {}
        minimums: dict[str, int | None] = {}
        nodes = await self._store.get_many(paths)
        for name, path, node in zip(names, paths, nodes, strict=True):
            try:
                configs = layout.decode_config(path, b"" if node is None else node.data)
            except LayoutError as error:
                self._report(str(error))
            else:
                unclean[name], minimums[name] = _unclean(configs), _minimum(configs)
        return UncleanRead(unclean), MinimumRead(minimums)

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
                # An unreadable registration is left out, and the broker counts as not registered.
                self._report(str(error))
        return dict(sorted(brokers.items()))

    async def _found(
        self, names: Sequence[str], on_topic: WatchCallback
    ) -> list[TopicFound | TopicUnreadable]:
        """Read topics from their nodes and configurations, and watch the nodes."""
        topics: list[Topic] = []
        found: list[TopicFound | TopicUnreadable] = []
        nodes = await self._topic_nodes(names, on_topic)
        paths = [layout.config_path("topics", name) for name in names]
        configs = await self._store.get_many(paths) if paths else []
        for name, node, config in zip(names, nodes, configs, strict=True):
            if node is None:
                self._logged.pop(name, None)
                continue
            try:
                topics.append(_decode_topic(name, node, config))
            except (LayoutError, KafkaError) as error:
                found.append(self._unreadable(name, str(error)))
        partitions = [partition for topic in topics for partition in topic.partitions]
        paths = [layout.partition_state_path(partition) for partition in partitions]
        states = await self._store.get_many(paths) if paths else []
        by_topic: dict[str, dict[int, PartitionState]] = {topic.name: {} for topic in topics}
        faults: dict[str, dict[int, str]] = {topic.name: {} for topic in topics}
        for topic_partition, path, node in zip(partitions, paths, states, strict=True):
            if node is None:
                continue
            name, partition = topic_partition
            state = self._state(topic_partition, path, node)
            if isinstance(state, str):
                faults[name][partition] = state
            else:
                by_topic[name][partition] = state
        for topic in topics:
            self._logged.pop(topic.name, None)
            found.append(TopicFound(topic, by_topic[topic.name], faults[topic.name]))
        return found

    def _state(
        self, topic_partition: TopicPartition, path: str, node: Node
    ) -> PartitionState | str:
        """Return a partition's state, or why it is unreadable; log each reason once."""
        try:
            state = layout.decode_partition_state(path, node.data, node.stat)
        except LayoutError as error:
            reason = str(error)
            if self._logged_states.get(topic_partition) != reason:
                self._logged_states[topic_partition] = reason
                self._report(reason)
            return reason
        self._logged_states.pop(topic_partition, None)
        return state

    def _unreadable(self, name: str, reason: str) -> TopicUnreadable:
        """Return an unreadable topic with the reason; log each reason once."""
        if self._logged.get(name) != reason:
            self._logged[name] = reason
            self._report(reason)
        return TopicUnreadable(name, reason)

    def _report(self, message: str, outcome: str = "left alone") -> None:
        self._tracer.event("unreadable_node", reason=message)
        self._tracer.log("controller", logging.ERROR, f"node cannot be read, {outcome}: {message}")


def _decode_topic(name: str, node: Node, config: Node | None) -> Topic:
    """Decode a topic; raises LayoutError, or KafkaError for an invalid topic name."""
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
        _minimum(configs),
    )


def _is_replaced(topic: Topic, node: Node) -> bool:
    """Return whether the node belongs to a later topic of the same name (V23).

    The node's version alone does not show that, because the node of every topic begins at version
    0.
    """
    try:
        found = layout.decode_topic_id(layout.topic_path(topic.name), node.data)
    except LayoutError:
        return True
    return found != topic.topic_id


def _moves(assignment: TopicAssignment, mzxid: int) -> dict[int, Move]:
    return {
        partition: Move(
            assignment.adding.get(partition, ()),
            assignment.removing.get(partition, ()),
            assignment.original.get(partition, ()),
            mzxid,
            assignment.throttles.get(partition, 0),
            partition in assignment.guarded,
        )
        for partition in sorted({**assignment.adding, **assignment.removing})
    }


def _unclean(configs: Mapping[str, str]) -> bool | None:
    value = configs.get(_UNCLEAN)
    return None if value is None else value == "true"


def _minimum(configs: Mapping[str, str]) -> int | None:
    """Return min.insync.replicas; None for an invalid value, which leaders also ignore."""
    value = configs.get(_MINIMUM)
    if value is None:
        return None
    try:
        return int(validate_topic_configs({_MINIMUM: value})[_MINIMUM])
    except ConfigError:
        # The controller does not log an invalid value, because the brokers that host the topic do
        # (`TopicConfig.lenient`).
        return None
