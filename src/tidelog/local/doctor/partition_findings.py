"""Findings about partitions: why replicas are out of sync, durability, preferred leaders.

The functions are pure. Leaders know why a replica left the ISR (DescribeReplicas), and the cause
determines the remedy. Findings about the durability of topics are notices: the cluster works until
a broker is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.client.replica_requests import PartitionReplicas, ReplicaProgress
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.core.wording import brokers_text, counted
from tidelog.local.doctor.cluster_facts import ClusterFacts
from tidelog.local.doctor.diagnosis import degraded, notice, some
from tidelog.local.health import ClusterPlace, Finding
from tidelog.local.remedy_commands import command_on

#: With at least this number of replicas, one replica can be down without a stop of writes or a risk
#: of data loss.
_REPLICAS = 3
#: Causes after which a replica returns by itself once its broker is registered.
_OF_BROKER = frozenset({ShrinkCause.SHUTDOWN, ShrinkCause.BOUNCE, ShrinkCause.SESSION})


def of_partitions(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    """Yield the findings about partitions."""
    yield from _out_of_sync(facts, place)
    yield from _durability(facts, place)
    yield from _preferred(facts, place)


def _out_of_sync(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    """Yield a finding per broker and cause, as a cause seldom affects only one partition."""
    found: dict[tuple[int, ShrinkCause], list[tuple[PartitionReplicas, ReplicaProgress]]] = {}
    for described in facts.described.values():
        for replica in described.replicas:
            if replica.cause is not None:
                found.setdefault((replica.broker, replica.cause), []).append((described, replica))
    for (broker_id, cause), replicas in sorted(found.items()):
        names = [each.tp for each, _ in replicas]
        lag = sum(replica.lag_records or 0 for _, replica in replicas)
        message = (
            f"broker {broker_id} is out of the ISR of {counted(len(names), 'partition')}"
            f" ({some(names)}): {cause.sentence}"
        )
        if facts.is_registered(broker_id) and lag:
            message += f"; {counted(lag, 'record')} to fetch"
        leaders = sorted({each.leader for each, _ in replicas if each.leader != NO_LEADER})
        remedy = _remedy(facts, place, cause, broker_id, leaders, names[0])
        brokers = [broker_id, *leaders]
        yield degraded("out_of_sync", message, remedy, brokers=brokers, partitions=names)


def _remedy(
    facts: ClusterFacts,
    place: ClusterPlace,
    cause: ShrinkCause,
    broker_id: int,
    leaders: list[int],
    tp: TopicPartition,
) -> str:
    """Return the remedy that brings a replica back into the ISR, by the cause for which it left."""
    option = place.option
    look = command_on("tidelog topics describe", tp.topic, f" --replicas{option}")
    if not facts.is_registered(broker_id):
        if place.directory:
            return f"tidelog up{option}"
        return f"start broker {broker_id}; the end of its log says why it stopped"
    if cause in _OF_BROKER:
        return f"wait until it has caught up: {look}"
    if cause is ShrinkCause.NO_FETCH:
        return (
            f"on the machine of broker {broker_id}: nc -vz to the inter-broker listener of"
            f" {brokers_text(leaders)}; its log has the error of the connection"
        )
    if cause is ShrinkCause.LEADER_READ:
        slow = leaders[0] if leaders else broker_id
        return f"look at the leader's disk: tidelog log-dirs describe --broker {slow}{option}"
    if cause in (ShrinkCause.DISK, ShrinkCause.OFFLINE):
        return f"tidelog log-dirs describe --broker {broker_id}{option}, then replace the disk"
    if cause is ShrinkCause.SLOW:
        return (
            f"look for a throttle and a slow disk: tidelog reassign list{option}; tidelog log-dirs"
            f" describe --broker {broker_id}{option}"
        )
    return look


def _durability(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    """Yield the partitions whose replication factor and min.insync.replicas do not fit together.

    If a partition has fewer replicas than min.insync.replicas, tidelog needs all its replicas
    (V60), and brokers of Kafka refuse its writes with acks=all.
    """
    groups: dict[str, list[TopicPartition]] = {}
    for tp, partition in facts.metadata.all_partitions():
        if tp.topic == CONSUMER_OFFSETS:
            continue  # other findings cover the replication of coordinators
        replicas, minimum = len(partition.replicas), facts.minimums.get(tp.topic)
        kind = _kind(replicas, minimum, len(facts.metadata.brokers))
        if kind is not None:
            groups.setdefault(kind, []).append(tp)
    for kind, partitions in groups.items():
        topics = list(dict.fromkeys(tp.topic for tp in partitions))
        message = f"{counted(len(topics), 'topic')} ({some(topics)}): {_DURABILITY[kind]}"
        step = _more_durable(facts, place, kind, topics[0])
        yield notice(kind, message, step, partitions=partitions)


def _more_durable(facts: ClusterFacts, place: ClusterPlace, kind: str, topic: str) -> str:
    """Return the commands that give a topic at least 3 replicas, one of which may be out of sync.

    A min.insync.replicas above the size of the present ISR would stop writes. If the ISR is too
    small for the new value, the returned text begins with the condition that the replicas must be
    in sync first.
    """
    partitions = [each for _, each in facts.partitions_of(topic)]
    replicas = min(len(each.replicas) for each in partitions)
    minimum = max(replicas, _REPLICAS) - 1
    command = "tidelog topics alter"
    step = command_on(command, topic, f" --config min.insync.replicas={minimum}{place.option}")
    if replicas >= _REPLICAS:
        is_early = any(len(each.isr) < minimum for each in partitions)
        return f"once its replicas are in sync: {step}" if is_early else step
    more = command_on(command, topic, f" --replication-factor {_REPLICAS} --wait{place.option}")
    step = more if kind == "min_isr_needs_all" else f"{more} && {step}"
    if len(facts.metadata.brokers) < _REPLICAS:
        return f"add brokers until there are {_REPLICAS}, then {step}"
    return step


def _kind(replicas: int, minimum: int | None, brokers: int) -> str | None:
    """Return the kind of the finding about a partition's durability; None for no finding."""
    if replicas == 1:
        return "single_replica" if brokers > 1 else None
    if minimum is None:
        return None
    if minimum > replicas:
        return "min_isr_above_replicas"
    if minimum == replicas:
        return "min_isr_needs_all"
    return "min_isr_one" if minimum == 1 else None


#: By kind of finding, a sentence about the consequence of the topic's settings.
_DURABILITY = {
    "single_replica": "one replica for each partition, so the loss of one disk loses its records",
    "min_isr_above_replicas": (
        "min.insync.replicas is above the number of replicas: the stop of any one broker stops"
        " writes with acks=all"
    ),
    "min_isr_needs_all": (
        "min.insync.replicas equals the number of replicas: the stop of any one broker stops writes"
        " with acks=all"
    ),
    "min_isr_one": (
        "min.insync.replicas is 1: while followers are out of sync, a record is acknowledged that"
        " only its leader has"
    ),
}


def _preferred(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    """Yield the partitions that another replica leads although the preferred replica could lead."""
    moved = [
        tp
        for tp, partition in facts.metadata.all_partitions()
        if partition.leader not in (NO_LEADER, partition.replicas[0])
        and partition.replicas[0] in partition.isr
        and facts.is_registered(partition.replicas[0])
    ]
    if moved:
        message = (
            f"{counted(len(moved), 'partition', 'is', 'are')} not led by the preferred replica:"
            f" {some(moved)}"
        )
        step = f"tidelog leaders elect --all{place.option}"
        yield notice("leader_not_preferred", message, step, partitions=moved)
