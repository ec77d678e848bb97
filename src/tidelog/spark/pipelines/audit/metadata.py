"""Metadata of a running cluster for an audit: assignment, ISR, compaction.

An audit needs no broker. With metadata, the audit finds missing replicas, lets replicas outside the
ISR be behind, and knows a compacted topic before its first compaction. The cluster is asked once,
before directories are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from tidelog.client.cluster import PartitionMetadata
from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.segments.listing import ListedLogDir

_POLICY: Final = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class ClusterAssignments:
    """The partitions of a cluster; empty if no cluster was asked."""

    cluster: str | None = None
    partitions: Mapping[TopicPartition, PartitionMetadata] = field(default_factory=dict)
    compacted: frozenset[str] = frozenset()


def ask_cluster(bootstrap: str) -> ClusterAssignments:
    """Return assignments, ISRs and compaction as a cluster's brokers report them.

    Raises KafkaError, ConfigError.
    """
    with BlockingClient(bootstrap, "tidelog-audit") as client:
        metadata = client.metadata(None)
        compacted = frozenset(
            topic
            for topic in sorted(metadata.topics)
            for value in client.describe_configs(ConfigResource(TOPIC, topic), [_POLICY])
            if "compact" in (value.value or "")
        )
    return ClusterAssignments(metadata.cluster_id, dict(metadata.all_partitions()), compacted)


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
