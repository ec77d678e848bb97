"""Translation of groups' committed offsets, and their commit in the target cluster.

If the copy has not reached a committed offset yet, a later run translates this offset, so a group
never skips records. A larger committed offset in the target stays, because the group already
consumes there. The coordinator accepts offsets only for a group without members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidelog.client.groups import FetchedOffset
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.copy.offset_map import OffsetTable

COMMITTED: Final = "committed"
UNCHANGED: Final = "unchanged"
AHEAD: Final = "the copy has not reached it"
FURTHER: Final = "the target's group is further"


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """A group's committed offset of one partition; `target` is None until it is translated.

    If a group's offsets could not be read, the partition is None and the outcome states the reason.
    """

    group: str
    source_partition: TopicPartition | None
    source: int | None
    target: int | None
    outcome: str
    #: Whether a coordinator refused the offset, or could not be reached.
    is_failed: bool = False


def translated(
    group: str,
    committed: Mapping[TopicPartition, FetchedOffset],
    in_target: Mapping[TopicPartition, FetchedOffset],
    maps: Mapping[TopicPartition, OffsetTable],
    names: Mapping[str, str],
) -> tuple[list[TranslatedOffset], dict[TopicPartition, FetchedOffset]]:
    """Return the outcome of each committed offset, and the offsets to commit in the target."""
    rows: list[TranslatedOffset] = []
    wanted: dict[TopicPartition, FetchedOffset] = {}
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
            wanted[there] = FetchedOffset(target, metadata=offset.metadata)
        rows.append(TranslatedOffset(group, tp, offset.offset, target, outcome))
    return rows, wanted


def translate_groups(
    source: BlockingClient,
    target: BlockingClient,
    groups: Sequence[str],
    maps: Mapping[TopicPartition, OffsetTable],
    names: Mapping[str, str],
) -> list[TranslatedOffset]:
    """Commit the translated offsets of groups in the target; return the outcomes.

    The failure of a coordinator is an outcome, and does not stop the copy.
    """
    found: list[TranslatedOffset] = []
    for group in groups:
        try:
            committed = source.committed(group, None)
            in_target = target.committed(group, None)
        except TidelogError as error:
            found.append(TranslatedOffset(group, None, None, None, str(error), is_failed=True))
            continue
        rows, wanted = translated(group, committed, in_target, maps, names)
        if wanted:
            try:
                target.commit(group, wanted)
            except TidelogError as error:
                rows = [
                    row
                    if row.outcome != COMMITTED
                    else replace(row, outcome=str(error), is_failed=True)
                    for row in rows
                ]
        found += rows
    return found
