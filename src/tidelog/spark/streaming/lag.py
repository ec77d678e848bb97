"""Lag of a streaming query, from the progress that Spark reports after each batch.

`sources[i].endOffset` is the end of the batch, and `sources[i].latestOffset` the end of the logs
when the batch was planned. `endOffset` and `latestOffset` have offsets in the form {"topic": {"0":
23}}. The lag is defined for format("tidelog") and for Spark's Kafka connector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.streaming.offset_json import CheckpointError, Offsets, offsets_from_json


@dataclass(frozen=True, slots=True)
class Lag:
    """The number of offsets by which a query was behind when its last batch was planned."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        """Number of offsets by which the query is behind, over all partitions."""
        return sum(self.by_partition.values())

    @property
    def largest(self) -> int:
        """Number of offsets by which the query is behind in its slowest partition."""
        return max(self.by_partition.values(), default=0)


def lag_of(progress: Mapping[str, Any]) -> Lag:
    """Return the lag in a query's progress: `query.lastProgress`, or `json.loads(progress.json)`.

    Sources that are not Kafka sources do not contribute to the lag.
    """
    behind: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        ends = offsets_in(source.get("endOffset"))
        for tp, latest in offsets_in(source.get("latestOffset")).items():
            if tp in ends:
                behind[tp] = max(0, latest - ends[tp])
    return Lag(behind)


def offsets_in(field: Any) -> Offsets:
    """Return the offsets in a field of the progress; no offsets if the source is not Kafka."""
    try:
        given = json.loads(field) if isinstance(field, str) else field
        return offsets_from_json(given)
    except (CheckpointError, ValueError):
        return {}
