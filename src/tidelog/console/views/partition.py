"""The page of one partition: leader, replicas with offsets, log directories, causes of changes.

Conditions describe the present state, such as refused writes or a throttle. Chains of causes show
which events led to each change of leader or ISR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.client.cluster import PartitionMetadata
from tidelog.client.replica_requests import PartitionReplicas, ReplicaProgress
from tidelog.client.throttles import LISTS, rate_of
from tidelog.client.upkeep import LogDirDescription
from tidelog.console.readings import HIGH_WATERMARK_KEY, ClusterReading, Samples, replica_key
from tidelog.console.views.causes import EventLog, chain
from tidelog.console.views.groups import assigned_to, lag_of
from tidelog.console.views.tables import Document, number, text
from tidelog.console.views.topics import state_of
from tidelog.core import leader_wait
from tidelog.core.types import NO_LEADER, TopicPartition

#: Maximum number of a partition's events whose causes are shown.
_EXPLAINED: Final = 25


def viewed_partition(params: Mapping[str, str]) -> TopicPartition:
    """Return the partition that the parameters `topic` and `partition` name. Raises BadQuery."""
    return TopicPartition(text(params, "topic"), number(params, "partition"))


def partition_view(
    reading: ClusterReading, samples: Samples, params: Mapping[str, str]
) -> Document:
    """Return the page of one partition."""
    tp = viewed_partition(params)
    partition = None if reading.metadata is None else reading.metadata.partition(tp)
    title: Document = {"topic": tp.topic, "partition": tp.partition}
    if partition is None or reading.metadata is None:
        return {**title, "missing": f"There is no partition {tp} in this cluster now."}
    described = reading.described.get(tp)
    minimum = reading.minimums.get(tp.topic)
    log = EventLog(reading.events)
    chains = [chain(log, position) for position in log.of_partition(tp)[:_EXPLAINED]]
    is_preferred = bool(partition.replicas) and partition.leader == partition.replicas[0]
    return {
        **title,
        "state": state_of(partition, minimum),
        "leader": None if partition.leader == NO_LEADER else partition.leader,
        "preferred": partition.replicas[0] if partition.replicas else None,
        "is_preferred": is_preferred,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": None if described is None else described.partition_epoch,
        "isr": list(partition.isr),
        "elr": None if described is None else list(described.eligible),
        "min_isr": minimum,
        "high_watermark": reading.ends.get(tp),
        "conditions": list(_conditions(tp, partition, reading)),
        "replicas": [
            _replica(tp, broker, partition, described, reading) for broker in partition.replicas
        ],
        "history": _history(tp, partition, samples),
        "groups": _groups(tp, reading),
        "why": chains,
    }


def _history(tp: TopicPartition, partition: PartitionMetadata, samples: Samples) -> list[Document]:
    series = [("high watermark", HIGH_WATERMARK_KEY)]
    series += [(f"broker {broker}", str(broker)) for broker in partition.replicas]
    return [
        {"name": name, "points": samples.replicas.points(replica_key(tp, key))}
        for name, key in series
    ]


def _replica(
    tp: TopicPartition,
    broker: int,
    partition: PartitionMetadata,
    described: PartitionReplicas | None,
    reading: ClusterReading,
) -> Document:
    progress = _progress(described, broker)
    directory, future = _places(tp, broker, reading)
    brokers = {} if reading.metadata is None else reading.metadata.brokers
    size = (
        next((each.size_bytes for each in directory.replicas if each.tp == tp), None)
        if (directory is not None)
        else None
    )
    return {
        "broker": broker,
        "is_leader": broker == partition.leader,
        "in_isr": broker in partition.isr,
        "is_eligible": described is not None and broker in described.eligible,
        "is_offline": broker in partition.offline,
        "is_registered": broker in brokers,
        "log_start": None if progress is None else progress.log_start_offset,
        "log_end": None if progress is None else progress.log_end_offset,
        "lag": None if progress is None else progress.lag_records,
        "lag_ms": None if progress is None else progress.lag_ms,
        "last_caught_up_ms": None if progress is None else progress.last_caught_up_ms,
        "out_cause": None if progress is None else progress.out_cause,
        "out_since_ms": None if progress is None else progress.out_since_ms,
        "directory": None if directory is None else directory.path,
        "size": size,
        "moving_to_directory": None if future is None else future.path,
    }


def _progress(described: PartitionReplicas | None, broker: int) -> ReplicaProgress | None:
    replicas = () if described is None else described.replicas
    return next((each for each in replicas if each.broker == broker), None)


def _places(
    tp: TopicPartition, broker: int, reading: ClusterReading
) -> tuple[LogDirDescription | None, LogDirDescription | None]:
    """Return a replica's log directory, and the log directory to which the replica is moving."""
    found: list[LogDirDescription | None] = [None, None]
    for directory in reading.log_dirs:
        if directory.broker_id == broker:
            for replica in directory.replicas:
                if replica.tp == tp:
                    found[replica.future] = directory
    return found[0], found[1]


def _conditions(
    tp: TopicPartition, partition: PartitionMetadata, reading: ClusterReading
) -> Iterator[Document]:
    """Yield present conditions with reasons: a missing leader, refused writes, moves, throttles."""
    described = reading.described.get(tp)
    if partition.leader == NO_LEADER:
        reason = "no member of the ISR can lead"
        if described is not None and described.wait is not None:
            reason = leader_wait.reason(described.wait, described.last_leader)
        yield {"level": "bad", "text": f"No leader: {reason}."}
    minimum = reading.minimums.get(tp.topic, 1)
    if len(partition.isr) < min(minimum, len(partition.replicas)):
        yield {
            "level": "bad",
            "text": f"Writes with acks=all are refused (NOT_ENOUGH_REPLICAS): the ISR has"
            f" {len(partition.isr)} of min.insync.replicas={minimum} members.",
        }
    if partition.leader != NO_LEADER and partition.leader != partition.replicas[0]:
        yield {
            "level": "note",
            "text": f"Broker {partition.leader} leads; the preferred leader is"
            f" broker {partition.replicas[0]}.",
        }
    moves = reading.moves
    if moves is not None and tp in moves.under_way:
        move = moves.under_way[tp]
        yield {"level": "note", "text": f"The partition moves to brokers {_ids(move.target)}."}
        if move.paused:
            yield {"level": "warn", "text": f"The copy is paused: {move.paused}."}
        if move.throttle:
            yield {
                "level": "note",
                "text": f"The move has a throttle of {move.throttle:,} bytes a second and broker.",
            }
        rate = rate_of(reading.throttles, tp, move)
        if rate is not None:
            yield {
                "level": "warn",
                "text": f"A configured throttle limits the copy to {rate:,} bytes a second.",
            }
    elif any(each.resource.name == tp.topic and each.key in LISTS for each in reading.throttles):
        yield {
            "level": "warn",
            "text": "The topic has throttled replicas, although the partition does not move:"
            " `tidelog reassign cancel --throttles` removes the throttle.",
        }
    if moves is not None and tp in moves.queued:
        queued = moves.queued[tp]
        reason = queued.reason or "it is about to begin"
        yield {"level": "note", "text": f"A move to {_ids(queued.target)} is queued: {reason}."}


def _ids(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))


def _groups(tp: TopicPartition, reading: ClusterReading) -> list[Document]:
    found = []
    for name, group in reading.groups.items():
        if tp in group.committed:
            offset = group.committed[tp].offset
            member = assigned_to(group.description).get(tp)
            lag = lag_of(reading, tp, offset)
            found.append({"group": name, "committed": offset, "lag": lag, "member": member})
    return found
