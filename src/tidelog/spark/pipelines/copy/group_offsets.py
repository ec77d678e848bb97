"""Committed offsets of groups, translated with the offset table and committed in the target.

An offset that the copy has not reached is left for a later run, so a group never skips records. An
offset of the target that is already further is kept: its consumers have moved there. Only a group
without members can be set; the coordinator refuses others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.client.groups import CommittedOffset
from tidelog.core.errors import KafkaError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.copy.offset_map import OffsetMap

COMMITTED: Final = "committed"
UNCHANGED: Final = "unchanged"
AHEAD: Final = "the copy has not reached it"
FURTHER: Final = "the target's group is further"


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """A group's offset of one partition in both clusters; `target` None: not translated yet."""

    group: str
    source_partition: TopicPartition
    source: int
    target: int | None
    outcome: str


def translated(
    group: str,
    committed: Mapping[TopicPartition, CommittedOffset],
    in_target: Mapping[TopicPartition, CommittedOffset],
    maps: Mapping[TopicPartition, OffsetMap],
    names: Mapping[str, str],
) -> tuple[list[TranslatedOffset], dict[TopicPartition, CommittedOffset]]:
    """Return what becomes of each committed offset, and the offsets to commit in the target."""
    rows: list[TranslatedOffset] = []
    wanted: dict[TopicPartition, CommittedOffset] = {}
    for tp, offset in committed.items():
        known = maps.get(tp)
        if tp.topic not in names or known is None:
            continue
        target = known.translate(offset.offset)
        there = TopicPartition(names[tp.topic], tp.partition)
        present = in_target.get(there)
        if target is None:
            outcome = AHEAD
        elif present is not None and present.offset == target:
            outcome = UNCHANGED
        elif present is not None and present.offset > target:
            outcome = FURTHER
        else:
            outcome = COMMITTED
            wanted[there] = CommittedOffset(target, metadata=offset.metadata)
        rows.append(TranslatedOffset(group, tp, offset.offset, target, outcome))
    return rows, wanted


def translate_groups(
    source: BlockingClient,
    target: BlockingClient,
    groups: Sequence[str],
    maps: Mapping[TopicPartition, OffsetMap],
    names: Mapping[str, str],
) -> list[TranslatedOffset]:
    """Commit the translated offsets of groups in the target; return what became of each."""
    found: list[TranslatedOffset] = []
    for group in groups:
        committed = source.committed(group, None)
        in_target = target.committed(group, None)
        rows, wanted = translated(group, committed, in_target, maps, names)
        if wanted:
            try:
                target.commit(group, wanted)
            except KafkaError as error:
                rows = [
                    row
                    if row.outcome != COMMITTED
                    else TranslatedOffset(
                        row.group, row.source_partition, row.source, row.target, f"refused: {error}"
                    )
                    for row in rows
                ]
        found += rows
    return found
