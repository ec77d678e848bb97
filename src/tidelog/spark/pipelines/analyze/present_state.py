"""The current state of a cluster, the last state in an analysis of its past.

Brokers report partitions, leaders, ISRs and min.insync.replicas. A partition without any event has
not changed, so its current state held all the time. The current min.insync.replicas is used for all
times, because no event reports an earlier value.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition, topic_id_to_text
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.analyze.partition_history import Snapshot

_MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class PresentState:
    """The partitions of a cluster at one time."""

    time_ms: int
    partitions: Mapping[TopicPartition, Snapshot]
    min_isr: Mapping[str, int]
    #: Number of replicas by broker.
    replicas: Mapping[int, int] = field(default_factory=dict)


def present_state(client: BlockingClient) -> PresentState:
    """Return the state of all partitions now. Raises KafkaError."""
    metadata = client.metadata()
    time_ms = time.time_ns() // 1_000_000
    partitions: dict[TopicPartition, Snapshot] = {}
    replicas: Counter[int] = Counter()
    for tp, found in metadata.all_partitions():
        topic = metadata.topics[tp.topic]
        partitions[tp] = Snapshot(
            topic_id=topic_id_to_text(topic.topic_id),
            time_ms=time_ms,
            leader=found.leader,
            isr=found.isr,
            leader_epoch=found.leader_epoch,
        )
        replicas.update(found.replicas)
    min_isr: dict[str, int] = {}
    for name in metadata.topics:
        try:
            values = client.describe_configs(ConfigResource(TOPIC, name), [_MIN_ISR])
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue  # the topic was just deleted: leave it out of the present state
        min_isr[name] = next((int(each.value) for each in values if each.value), 1)
    return PresentState(time_ms, partitions, min_isr, dict(replicas))
