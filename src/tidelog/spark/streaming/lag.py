"""Lag of a streaming query, from the progress that Spark reports after each batch.

`sources[i].endOffset` is where the batch ended, `sources[i].latestOffset` where the logs ended when
it was planned; both have the offsets as {"topic": {"0": 23}}. Works for format("tidelog") and for
Spark's Kafka connector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.core.types import TopicPartition
from tidelog.spark.streaming.offset_json import CheckpointError, Offsets, offsets_from_json


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a query was behind when its last batch was planned."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        """Offsets behind, in all partitions."""
        return sum(self.by_partition.values())

    @property
    def largest(self) -> int:
        """Offsets behind, in the partition that is furthest behind."""
        return max(self.by_partition.values(), default=0)


def lag_of(progress: Mapping[str, Any]) -> Lag:
    """Return the lag in a query's progress: `query.lastProgress`, or `json.loads(progress.json)`.

    Sources that are no Kafka sources count nothing.
    """
    behind: dict[TopicPartition, int] = {}
    for source in progress["sources"]:
        ends = offsets_in(source.get("endOffset"))
        for tp, latest in offsets_in(source.get("latestOffset")).items():
            if tp in ends:
                behind[tp] = max(0, latest - ends[tp])
    return Lag(behind)


def offsets_in(field: Any) -> Offsets:
    """Return the offsets in a field of the progress; none where it is another kind of source's."""
    try:
        given = json.loads(field) if isinstance(field, str) else field
        return offsets_from_json(given)
    except (CheckpointError, ValueError):
        return {}
