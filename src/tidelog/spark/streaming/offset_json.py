"""Offsets of a stream in the checkpoint: the JSON of Spark's Kafka connector.

The JSON `{"topic": {"0": 23}}` means that the next record of partition 0 has offset 23. Spark
stores the JSON of the offsets in `offsets/N` of the checkpoint, so tidelog and the connector can
continue from each other's checkpoints.

The end offsets of a query's first batch may have one more key, FIRST_BATCH_PINNED.
FIRST_BATCH_PINNED is no legal topic name and has no partitions, so the connector ignores it. See
`starts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition

Offsets = dict[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]

#: Key in the end offsets of a query's first batch if the batch reads no records of the partitions
#: that start at "latest".
FIRST_BATCH_PINNED: Final = "(first batch: latest)"


class CheckpointError(TidelogError):
    """The error for offsets in a checkpoint that are not offsets of a Kafka source."""


def offsets_to_json(offsets: Mapping[TopicPartition, int], *, is_pinned: bool = False) -> Any:
    """Return offsets in the connector's form, sorted by topic and partition."""
    found: OffsetsJson = {}
    for tp in sorted(offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    if is_pinned:
        found[FIRST_BATCH_PINNED] = {}
    return found


def offsets_from_json(given: object) -> Offsets:
    """Return the offsets in a checkpoint's JSON. Raises CheckpointError."""
    if not isinstance(given, dict):
        raise _unusable(given)
    found: Offsets = {}
    for topic, entries in given.items():
        if not isinstance(entries, dict):
            raise _unusable(given)
        for number, offset in entries.items():
            if not (number.isascii() and number.isdigit() and _is_offset(offset)):
                raise _unusable(given)
            found[TopicPartition(topic, int(number))] = offset
    return found


def is_pinned(given: Mapping[str, object]) -> bool:
    """Return whether the offsets have the key FIRST_BATCH_PINNED."""
    return FIRST_BATCH_PINNED in given


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _unusable(given: object) -> CheckpointError:
    return CheckpointError(
        f'the checkpoint has the offsets {given!r}; expected JSON like {{"topic": {{"0": 23}}}},'
        " as a query of format tidelog or kafka leaves it"
    )
