"""The targets of `tidelog groups reset`: options resolved against the log.

Offsets are kept within the log of each partition. Relative targets need a committed offset; a
partition without one is left out with a message.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import typer

from tidelog.cli.names import NotFoundError, PartitionWord, partitions_named
from tidelog.cli.offsets import positions
from tidelog.cli.output import say
from tidelog.cli.times import duration_ms, record_time, timestamp_ms
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """One of: a timestamp of ListOffsets, an offset, or a shift of the committed offset."""

    timestamp: int | None = None
    offset: int | None = None
    shift: int | None = None


def plan_of(
    flags: Mapping[str, bool],
    *,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
) -> ResetPlan:
    """Return the one chosen way; raise a usage error for none and for several."""
    values = {
        "--to-offset": to_offset,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--shift-by": shift_by,
    }
    given = [name for name, is_set in flags.items() if is_set]
    given += [name for name, value in values.items() if value is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} were given" if given else "none was given"
        raise typer.BadParameter(f"one of {', '.join([*flags, *values])} is needed; {found}")
    if to_offset is not None:
        return ResetPlan(offset=to_offset)
    if to_datetime is not None:
        return ResetPlan(timestamp=record_time(timestamp_ms(to_datetime)))
    if by_duration is not None:
        moment_ms = time.time_ns() // 1_000_000 - duration_ms(by_duration, signed=True)
        return ResetPlan(timestamp=record_time(moment_ms))
    if shift_by is not None:
        return ResetPlan(shift=shift_by)
    by_flag = {
        "--to-earliest": ResetPlan(timestamp=EARLIEST),
        "--to-latest": ResetPlan(timestamp=LATEST),
        "--to-current": ResetPlan(shift=0),
    }
    return by_flag[given[0]]


def targets(
    client: BlockingClient, group: str, words: list[PartitionWord] | None, plan: ResetPlan
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return committed offsets and targets, of the named or of all committed partitions."""
    if words is None:
        committed = client.committed(group)
        chosen = list(committed)
        if not chosen:
            raise NotFoundError(f"group {group!r} has committed nothing: name topics with --topic")
    else:
        chosen = partitions_named(client, words)
        committed = client.committed(group, chosen)
    before = {tp: each.offset for tp, each in committed.items()}
    starts = positions(client, dict.fromkeys(chosen, EARLIEST))
    ends = positions(client, dict.fromkeys(chosen, LATEST))
    wanted = _wanted(client, chosen, before, plan)
    after = {}
    for tp, offset in wanted.items():
        after[tp] = min(max(offset, starts[tp]), ends[tp])
        if after[tp] != offset:
            say(
                f"tidelog: {tp} holds offsets {starts[tp]} to {ends[tp]}: {after[tp]}, not {offset}"
            )
    return before, after


def _wanted(
    client: BlockingClient,
    chosen: list[TopicPartition],
    before: Mapping[TopicPartition, int],
    plan: ResetPlan,
) -> dict[TopicPartition, int]:
    if plan.timestamp is not None:
        return positions(client, dict.fromkeys(chosen, plan.timestamp))
    if plan.offset is not None:
        return dict.fromkeys(chosen, plan.offset)
    for tp in chosen:
        if tp not in before:
            say(f"tidelog: {tp} is left out: nothing is committed for it")
    return {tp: before[tp] + (plan.shift or 0) for tp in chosen if tp in before}
