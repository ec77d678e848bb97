"""`tidelog topics describe`: partitions of topics, and with --replicas their replicas.

Metadata gives leaders and ISRs, DescribeTopicPartitions gives eligible replicas, and each leader
gives the progress of replicas (DescribeReplicas). A column stays empty if the broker does not serve
the request for its values. Reasons for missing leaders stand below the table, where an operator
looks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer

from tidelog.cli.completion import topic_names
from tidelog.cli.documents import (
    AwaitedMemberDescription,
    PartitionDescription,
    TopicDescription,
    document_of,
    prints,
)
from tidelog.cli.names import topics_named
from tidelog.cli.output import (
    DOUBTFUL,
    WRONG,
    Marked,
    marked_isr,
    marked_leader,
    print_table,
    print_text,
    say,
    time_text,
)
from tidelog.cli.target import ClusterOptions
from tidelog.client.cluster import ClusterMetadata, TopicMetadata
from tidelog.client.replica_requests import Eligibility, PartitionReplicas, ReplicaProgress
from tidelog.core import leader_wait
from tidelog.core.columns import cells, headings
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.types import NO_LEADER, TopicPartition, topic_id_to_text
from tidelog.local.status import PartitionStatus, describe_partitions
from tidelog.runtime.blocking import BlockingClient

_COLUMNS = (
    "partition", ("leader", marked_leader), ("epoch", "leader_epoch"), "replicas",
    ("isr", marked_isr), "elr", "last known elr", "offline", "high watermark",
)  # fmt: skip
_REPLICA_COLUMNS = (
    "partition", "broker", "role", "in isr", "log end", "lag", "lag ms", "last caught up",
    "pending", "why out",
)  # fmt: skip


@prints(list[TopicDescription])
def describe(
    cluster: ClusterOptions,
    name: Annotated[
        str | None, typer.Argument(help="The topic; default all.", autocompletion=topic_names)
    ] = None,
    replicas: Annotated[
        bool,
        typer.Option("--replicas", help="Show each replica: its lag, and why it is out of sync."),
    ] = False,
) -> None:
    """Show the partitions of a topic: leader, epoch, replicas, ISR, high watermark.

    The reason for a missing leader stands below the table. --replicas shows one line for each
    replica.
    """
    with cluster.client() as client:
        if name is not None:
            topics_named(client, [name])
        metadata = client.metadata(None if name is None else [name])
        topics = [each for each in metadata.topics.values() if each.error is ErrorCode.NONE]
        names = [topic.name for topic in topics]
        partitions = describe_partitions(client, metadata, names)
        eligibility = _eligibility(client, names)
        described = _described(client, metadata, topics) if replicas else {}
    documents = [_document(topic, partitions, eligibility, described) for topic in topics]
    if cluster.printed(documents):
        return
    for document in documents:
        title = f"{document.topic}  id {document.topic_id}"
        if replicas:
            _print_replicas(document, title)
        else:
            print_table(headings(_COLUMNS), cells(document.partitions, _COLUMNS), title=title)
        for partition in document.partitions:
            if partition.no_leader is not None:
                print_text(f"partition {partition.partition}: {partition.no_leader}", WRONG)
            if replicas and (frozen := _why_frozen(partition)) is not None:
                print_text(f"partition {partition.partition}: {frozen}", DOUBTFUL)


def _eligibility(client: BlockingClient, names: Sequence[str]) -> dict[TopicPartition, Eligibility]:
    """Return the eligible replicas; empty if the broker does not serve DescribeTopicPartitions."""
    if not names:
        return {}
    try:
        return client.eligibility(names)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {}


def _described(
    client: BlockingClient, metadata: ClusterMetadata, topics: Iterable[TopicMetadata]
) -> dict[TopicPartition, PartitionReplicas]:
    """Return the replicas as their leader describes them, else as another live broker does."""
    wanted: dict[int, list[TopicPartition]] = {}
    others = min(metadata.brokers, default=NO_LEADER)
    for topic in topics:
        for partition in topic.partitions.values():
            leader = partition.leader if partition.leader in metadata.brokers else others
            if leader != NO_LEADER:
                wanted.setdefault(leader, []).append(
                    TopicPartition(topic.name, partition.partition)
                )
    found: dict[TopicPartition, PartitionReplicas] = {}
    for broker_id, partitions in wanted.items():
        try:
            found.update(client.describe_replicas(broker_id, partitions))
        except TidelogError as error:
            say(f"broker {broker_id} does not describe its replicas: {error}")
    return found


def _document(
    topic: TopicMetadata,
    partitions: Iterable[PartitionStatus],
    eligibility: Mapping[TopicPartition, Eligibility],
    described: Mapping[TopicPartition, PartitionReplicas],
) -> TopicDescription:
    return TopicDescription(
        topic.name,
        topic_id_to_text(topic.topic_id),
        topic.is_internal,
        [
            _partition(each, eligibility, described)
            for each in partitions
            if each.topic == topic.name
        ],
    )


def _partition(
    status: PartitionStatus,
    eligibility: Mapping[TopicPartition, Eligibility],
    described: Mapping[TopicPartition, PartitionReplicas],
) -> PartitionDescription:
    tp = TopicPartition(status.topic, status.partition)
    eligible, progress = eligibility.get(tp), described.get(tp)
    wait = None if eligible is None else eligible.wait
    no_leader = None
    if status.leader == NO_LEADER and eligible is not None and wait is not None:
        no_leader = leader_wait.reason(wait, next(iter(eligible.last_known), NO_LEADER))
    return document_of(
        PartitionDescription,
        status,
        elr=None if eligible is None else eligible.eligible,
        last_known_elr=None if eligible is None else eligible.last_known,
        no_leader=no_leader,
        quorum=None if wait is None or no_leader is None else wait.quorum,
        members=None
        if wait is None or no_leader is None
        else [AwaitedMemberDescription(member, each.word) for member, each in wait.members],
        max_lag_ms=None if progress is None else progress.max_lag_ms,
        replica_progress=None if progress is None else list(progress.replicas),
    )


# tables


def _print_replicas(document: TopicDescription, title: str) -> None:
    rows = [
        _replica_row(partition, replica)
        for partition in document.partitions
        for replica in partition.replica_progress or ()
    ]
    print_table(_REPLICA_COLUMNS, rows, title=title)


def _replica_row(partition: PartitionDescription, replica: ReplicaProgress) -> tuple[object, ...]:
    role = "leader" if replica.leader else "follower"
    if partition.leader == NO_LEADER:
        role = "replica"
    return (
        partition.partition,
        replica.broker,
        role if replica.registered else Marked("not registered", WRONG),
        Marked.where(not replica.in_isr, "yes" if replica.in_isr else "no", DOUBTFUL),
        replica.log_end_offset,
        replica.lag_records,
        replica.lag_ms,
        time_text(replica.last_caught_up_ms),
        replica.pending_reads,
        _why_out(replica),
    )


def _why_frozen(partition: PartitionDescription) -> str | None:
    """Return why a leader commits no record while its partition has eligible replicas (E1)."""
    progress = partition.replica_progress or ()
    if not partition.elr or not any(replica.leader and replica.registered for replica in progress):
        return None
    eligible = ",".join(str(replica) for replica in partition.elr)
    return (
        f"no record is committed before eligible replicas {eligible} are back in the ISR, or it has"
        " as many members as min.insync.replicas of its leader and of the controller"
    )


def _why_out(replica: ReplicaProgress) -> str | None:
    """Return why and since when a replica is out of the ISR, and whether it is catching up."""
    if replica.in_isr:
        return None
    text = (replica.cause or ShrinkCause.UNKNOWN).sentence
    if replica.out_since_ms is not None:
        text += f", since {time_text(replica.out_since_ms)}"
    if replica.registered and replica.lag_records:
        text += f"; {replica.lag_records:,} records to go"
    return text
