"""Committed offsets of topics and partitions whose deletion no coordinator has noticed.

A broker learns of a deletion from the controller, and writes tombstones for the offsets of its
groups. A deletion while a partition of `__consumer_offsets` changes its leader may reach no
coordinator, so each offset carries the incarnation of its partition (G6). At the end of a load, the
coordinator deletes each offset of an earlier topic of the same name. If an offset and this broker's
metadata have different incarnations, the store decides which incarnation is older, because the
broker may not know the newer topic yet. An offset that a Kafka broker wrote has no incarnation and
belongs to the current topic of its name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.core.coordinator_shard import CoordinatorPhase
from tidelog.core.types import ZERO_TOPIC_ID, TopicPartition
from tidelog.group.partition import GroupPartition
from tidelog.group.records import NO_PARTITION, PartitionIncarnation
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError, TopicAssignment
from tidelog.metadata.store import StoreError

if TYPE_CHECKING:
    from tidelog.broker.cluster_view import ClusterView
    from tidelog.broker.services import Services

#: Number of offsets compared in one turn of the event loop, so that a turn takes a few
#: milliseconds.
_OFFSETS_PER_TURN: Final = 5_000
_RETRY_MS: Final = 200
#: By topic name and partition: partition incarnations for which offsets were committed, and which
#: this broker's metadata does not name. These incarnations may have ended.
_Suspects = dict[str, dict[TopicPartition, dict[PartitionIncarnation, None]]]


def incarnation(view: ClusterView, partition: TopicPartition) -> PartitionIncarnation:
    """Return the current incarnation of a partition, as far as this broker knows."""
    topic = view.topics.get(partition.topic)
    if topic is None:
        return PartitionIncarnation(first_leader_epoch=NO_PARTITION)
    known = topic.partitions.get(partition.partition)
    if known is None:
        return PartitionIncarnation(topic.topic_id, NO_PARTITION)
    return PartitionIncarnation(topic.topic_id, known.first_leader_epoch)


async def check_topics(services: Services, core: GroupPartition, name: str) -> bool:
    """Report to the coordinator `core` the topics and partitions that ended before its load began.

    Returns False if the leadership ended during this call. If a committed offset has a newer
    incarnation of its partition than this broker's metadata, the coordinator does not serve clients
    yet, because new commits would get the older incarnation.
    """
    while core.phase is CoordinatorPhase.LOADING:
        suspects = await _suspects(services, core)
        if core.phase is not CoordinatorPhase.LOADING:
            return False
        if not suspects:
            return True
        try:
            is_behind = await _judge(services, core, suspects)
        except StoreError as error:
            is_behind = True
            services.tracer.log(
                "server", logging.WARNING, f"loading {name} waits for the store: {error}"
            )
        if not is_behind:
            return core.phase is CoordinatorPhase.LOADING
        await services.tasks.sleep(_RETRY_MS)
    return False


async def _suspects(services: Services, core: GroupPartition) -> _Suspects:
    """Return the incarnations of loaded offsets that differ from this broker's metadata."""
    view = services.view
    found: _Suspects = {}
    turn_in = _OFFSETS_PER_TURN
    for group in list(core.groups.values()):
        for partition, offset in group.offsets.items():
            committed = offset.incarnation
            if committed.topic_id != ZERO_TOPIC_ID and (
                view.partition(partition) is None or committed != incarnation(view, partition)
            ):
                of_topic = found.setdefault(partition.topic, {})
                of_topic.setdefault(partition, {})[committed] = None
        turn_in -= len(group.offsets)
        if turn_in <= 0:
            turn_in = _OFFSETS_PER_TURN
            await services.tasks.sleep(0)
            if core.phase is not CoordinatorPhase.LOADING:
                break
    return found


async def _judge(
    services: Services,
    core: GroupPartition,
    suspects: _Suspects,
) -> bool:
    """Report ended topics and partitions to `core`; return whether the broker's metadata lags.

    Raises StoreError if the store cannot be read. If a topic's node cannot be decoded, its offsets
    stay, and clients do not get the offsets while the broker's metadata has another topic of the
    name.
    """
    names = sorted(suspects)
    nodes = await services.store.get_many([layout.topic_path(name) for name in names])
    is_behind = False
    if core.phase is not CoordinatorPhase.LOADING:
        return is_behind
    later: dict[TopicPartition, int] = {}
    for name, node in zip(names, nodes, strict=True):
        stored = None
        try:
            if node is not None:
                stored = layout.decode_topic(layout.topic_path(name), node.data)
        except LayoutError:
            continue
        for partition, incarnations in suspects[name].items():
            for committed in incarnations:
                if not _judge_one(services.view, core, stored, partition, committed):
                    continue
                if _is_of_shown_topic(services.view, partition, committed):
                    later[partition] = max(
                        later.get(partition, NO_PARTITION), committed.first_leader_epoch
                    )
                else:
                    is_behind = True
    return is_behind or await _are_published_later(services, later)


def _is_of_shown_topic(
    view: ClusterView, partition: TopicPartition, committed: PartitionIncarnation
) -> bool:
    return incarnation(view, partition).topic_id == committed.topic_id


async def _are_published_later(services: Services, later: dict[TopicPartition, int]) -> bool:
    """Return whether the store has one of these incarnations, so UpdateMetadata will show it.

    `later` maps partitions to first leader epochs above those in the broker's metadata. A load must
    not wait for an incarnation that the store lacks: a restored store may have lost the
    incarnation, or a Kafka controller may have dropped it, and then no controller will publish it.
    """
    if not later:
        return False
    paths = [layout.partition_state_path(partition) for partition in later]
    nodes = await services.store.get_many(paths)
    for path, node, first_leader_epoch in zip(paths, nodes, later.values(), strict=True):
        try:
            if node is not None:
                state = layout.decode_partition_state(path, node.data, node.stat)
                if state.first_epochs[0] >= first_leader_epoch:
                    return True
        except LayoutError:
            continue
    return False


def _judge_one(
    view: ClusterView,
    core: GroupPartition,
    stored: TopicAssignment | None,
    partition: TopicPartition,
    committed: PartitionIncarnation,
) -> bool:
    """Report incarnation `committed` if it ended; return whether the broker's metadata lags behind.

    The coordinator does not wait for a topic that the broker's metadata lacks, because the topic
    may be about to be deleted. The coordinator waits neither for a partition whose state the
    controller could not read (V35) nor for a topic published without its id.
    """
    if (
        stored is None
        or stored.topic_id != committed.topic_id
        or partition.partition not in stored.partitions
    ):
        core.incarnation_ended(partition, committed)
        return False
    known = view.partition(partition)
    if known is None or known.leader_epoch < 0:
        return False
    present = incarnation(view, partition)
    if present.topic_id == ZERO_TOPIC_ID:
        return False
    if present.topic_id == committed.topic_id and committed.has_ended(present):
        core.incarnation_ended(partition, committed)
        return False
    return present != committed
