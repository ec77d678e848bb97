"""Metadata of a running cluster for an audit: assignment, ISR, topic ids, compaction, retention.

An audit needs no broker. With metadata, the audit finds missing replicas, permits replicas outside
the ISR to be behind, and recognises a compacted topic before its first compaction. With retention
settings and log starts, the audit decides whether retention explains that a replica begins late.
The cluster is asked once, before directories are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from tidelog.client.cluster import PartitionMetadata
from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.client.fetching import EARLIEST
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition, topic_id_to_text
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.pipelines.audit.start_checks import Retention
from tidelog.spark.segments.listing import ListedLogDir

_POLICY: Final = "cleanup.policy"
_TIME: Final = "retention.ms"
_SIZE: Final = "retention.bytes"
_SETTINGS: Final = (_POLICY, _TIME, _SIZE)


@dataclass(frozen=True, slots=True)
class ClusterAssignments:
    """The partitions of a cluster; empty if no cluster was asked."""

    cluster: str | None = None
    partitions: Mapping[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    compacted: frozenset[str] = frozenset()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    retention: Mapping[str, Retention] = field(default_factory=dict)
    #: The log start offset of each partition's leader.
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)


def ask_cluster(bootstrap: str) -> ClusterAssignments:
    """Return assignments, ISRs and compaction as a cluster's brokers report them.

    Raises KafkaError, ConfigError.
    """
    with BlockingClient(bootstrap, "tidelog-audit") as client:
        metadata = client.metadata(None)
        settings = {
            topic: {
                each.name: each.value or ""
                for each in client.describe_configs(ConfigResource(TOPIC, topic), _SETTINGS)
            }
            for topic in sorted(metadata.topics)
        }
        partitions = dict(metadata.all_partitions())
        led = {tp: EARLIEST for tp, each in partitions.items() if each.leader >= 0}
        listed = client.list_offsets(led) if led else {}
    return ClusterAssignments(
        metadata.cluster_id,
        partitions,
        frozenset(topic for topic, each in settings.items() if "compact" in each.get(_POLICY, "")),
        {
            topic: topic_id_to_text(each.topic_id)
            for topic, each in metadata.topics.items()
            if any(each.topic_id)
        },
        {topic: _retention(each) for topic, each in settings.items()},
        {tp: each.offset for tp, each in listed.items()},
    )


def _retention(settings: Mapping[str, str]) -> Retention:
    return Retention(
        "delete" in settings.get(_POLICY, "delete"),
        int(settings.get(_TIME) or -1),
        int(settings.get(_SIZE) or -1),
    )


def check_assignment(
    view: ClusterAssignments, directories: Sequence[ListedLogDir]
) -> list[AuditFinding]:
    """Return findings about missing replicas, and about replicas that are not assigned.

    Only replicas on brokers whose log directories were given to the audit are checked.
    """
    found: list[AuditFinding] = []
    brokers = {each.broker: each for each in directories if each.broker is not None}
    here = {
        (replica.tp, replica.broker): replica
        for directory in directories
        for replica in directory.replicas
    }
    for tp, assigned in view.partitions.items():
        found += [
            AuditFinding(
                FindingKind.MISSING,
                brokers[broker].path,
                f"broker {broker} is assigned a replica of {tp}, and none of its log directories"
                f" here has it",
                severity=Severity.DAMAGE if broker in assigned.isr else Severity.NOTICE,
                partition=str(tp),
                broker=f"broker {broker}",
            )
            for broker in assigned.replicas
            if broker in brokers and (tp, broker) not in here
        ]
    for (tp, place), replica in here.items():
        wanted = view.partitions.get(tp)
        if not view.partitions or (wanted is not None and place in wanted.replicas):
            continue
        found.append(
            AuditFinding(
                FindingKind.STRAY,
                replica.path,
                f"the cluster assigns no replica of {tp} to {replica.name}",
                severity=Severity.NOTICE,
                partition=str(tp),
                broker=replica.name,
            )
        )
    return found
