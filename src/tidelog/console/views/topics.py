"""The pages of topics: state, rates, sizes, and lag of groups; and the partitions of one topic.

A topic's records are the sum of its high watermarks, and its rate is the growth of this sum. A
topic's size is the size of its leaders' replicas, so it does not depend on the replication factor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tidelog.client.cluster import PartitionMetadata, TopicMetadata
from tidelog.client.upkeep import LogDirDescription
from tidelog.console.readings import ClusterReading, Samples
from tidelog.console.views.groups import groups_of_topics, lag_of
from tidelog.console.views.history import topic_day
from tidelog.console.views.tables import Document, TableQuery, text, window
from tidelog.core.types import NO_LEADER, TopicPartition, topic_id_to_text

#: The window in ms over which rates are averaged.
RATE_WINDOW_MS = 15_000
#: Maximum number of groups that a topic's row names.
_GROUPS_NAMED = 4


def topics_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of all topics."""
    topics = {} if reading.metadata is None else reading.metadata.topics
    rates = samples.topics.rates(RATE_WINDOW_MS)
    sizes = leader_sizes(reading)
    groups = groups_of_topics(reading)
    shows_internal = params.get("internal") == "1"
    rows = [
        _topic_row(topic, reading, rates.get(topic.name), sizes.get(topic.name), groups)
        for topic in topics.values()
        if shows_internal or not topic.is_internal
    ]
    return {
        "table": window(rows, TableQuery.from_params(params, "topic")),
        "internal": sum(topic.is_internal for topic in topics.values()),
        "partitions": sum(row["partitions"] for row in rows),
        "rate": sum(row["rate"] or 0 for row in rows),
    }


def _topic_row(
    topic: TopicMetadata,
    reading: ClusterReading,
    rate: float | None,
    size: int | None,
    groups: Mapping[str, list[Document]],
) -> Document:
    partitions = topic.partitions.values()
    states = Counter(state_of(each, reading.minimums.get(topic.name)) for each in partitions)
    readers = groups.get(topic.name, [])
    lags = [each["lag"] for each in readers if each["lag"] is not None]
    ends = [reading.ends.get(TopicPartition(topic.name, each)) for each in topic.partitions]
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replicas) for each in partitions), default=0),
        "state": worst(states),
        "under_replicated": len(topic.partitions) - states["in sync"],
        "records": sum(end for end in ends if end is not None),
        "rate": rate,
        "size": size,
        "lag": max(lags, default=None),
        "groups": readers[:_GROUPS_NAMED],
        "more_groups": max(0, len(readers) - _GROUPS_NAMED),
    }


#: States of a partition, the worst first.
STATES = ("no leader", "below min ISR", "out of sync", "in sync")


def state_of(partition: PartitionMetadata, minimum: int | None) -> str:
    """Return the state of a partition, one of STATES."""
    if partition.leader == NO_LEADER:
        return STATES[0]
    if minimum is not None and len(partition.isr) < min(minimum, len(partition.replicas)):
        return STATES[1]
    return STATES[2] if len(partition.isr) < len(partition.replicas) else STATES[3]


def worst(states: Iterable[str]) -> str:
    """Return the worst of the given partition states."""
    present = frozenset(states)
    return next((state for state in STATES if state in present), STATES[-1])


def leader_sizes(reading: ClusterReading) -> dict[str, int]:
    """Return the bytes of each topic: the sum of its partitions' leader replicas.

    A partition without a leader counts with the size of its largest replica.
    """
    sizes: Counter[str] = Counter()
    for tp, by_broker in replica_sizes(reading.log_dirs).items():
        placed = None if reading.metadata is None else reading.metadata.partition(tp)
        leader = NO_LEADER if placed is None else placed.leader
        sizes[tp.topic] += by_broker.get(leader, max(by_broker.values()))
    return dict(sizes)


def replica_sizes(
    directories: Iterable[LogDirDescription],
) -> dict[TopicPartition, dict[int, int]]:
    """Return the bytes of each replica by partition and broker."""
    found: dict[TopicPartition, dict[int, int]] = {}
    for directory in directories:
        for replica in directory.replicas:
            if not replica.future:
                found.setdefault(replica.tp, {})[directory.broker_id] = replica.size_bytes
    return found


def topic_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of one topic: its partitions, its groups, and records over time."""
    name = text(params, "name")
    topic = None if reading.metadata is None else reading.metadata.topics.get(name)
    if topic is None:
        return {"topic": name, "missing": f"There is no topic {name!r} in this cluster now."}
    sizes = replica_sizes(reading.log_dirs)
    rows = [
        _partition_row(TopicPartition(name, number), partition, reading, sizes)
        for number, partition in topic.partitions.items()
    ]
    rate = samples.topics.rates(RATE_WINDOW_MS).get(name)
    return {
        "topic": name,
        "topic_id": topic_id_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "min_isr": reading.minimums.get(name),
        "rate": rate,
        "size": leader_sizes(reading).get(name),
        "groups": groups_of_topics(reading).get(name, []),
        "day": topic_day(reading, samples, name),
        "history": samples.topics.points(name),
        "table": window(rows, TableQuery.from_params(params, "partition")),
    }


def _partition_row(
    tp: TopicPartition,
    partition: PartitionMetadata,
    reading: ClusterReading,
    sizes: Mapping[TopicPartition, Mapping[int, int]],
) -> Document:
    described = reading.described.get(tp)
    replicas = sizes.get(tp, {})
    lags = [
        lag
        for group in reading.groups.values()
        if tp in group.committed
        and (lag := lag_of(reading, tp, group.committed[tp].offset)) is not None
    ]
    move = None if reading.moves is None else reading.moves.under_way.get(tp)
    return {
        "partition": tp.partition,
        "state": state_of(partition, reading.minimums.get(tp.topic)),
        "leader": None if partition.leader == NO_LEADER else partition.leader,
        "preferred": partition.replicas[0] if partition.replicas else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "offline": list(partition.offline),
        "elr": [] if described is None else list(described.eligible),
        "end": reading.ends.get(tp),
        "size": replicas.get(partition.leader, max(replicas.values(), default=None)),
        "lag": max(lags, default=None),
        "moving_to": None if move is None else list(move.target),
    }
