"""The target offsets of `tidelog groups reset`, computed from its options and the log.

Targets outside a partition's log are clamped to its bounds. A relative target skips partitions
without a committed offset, and a message names each of these partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from tidelog.cli.names import NotFoundError, PartitionWord, partitions_named
from tidelog.cli.output import say
from tidelog.cli.times import duration_ms, record_time, timestamp_ms
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The target of `groups reset`: a timestamp for ListOffsets, an offset, or a shift of the
    committed offset.
    """

    timestamp: int | None = None
    offset: int | None = None
    shift: int | None = None


def _since(duration: str) -> ResetPlan:
    moment_ms = time.time_ns() // 1_000_000 - duration_ms(duration, signed=True)
    return ResetPlan(timestamp=record_time(moment_ms))


#: The options that choose a target, each with the function from its value to the target.
_WAYS: Final[Mapping[str, Callable[[Any], ResetPlan]]] = {
    "--to-earliest": lambda _: ResetPlan(timestamp=EARLIEST),
    "--to-latest": lambda _: ResetPlan(timestamp=LATEST),
    "--to-current": lambda _: ResetPlan(shift=0),
    "--to-offset": lambda offset: ResetPlan(offset=offset),
    "--to-datetime": lambda text: ResetPlan(timestamp=record_time(timestamp_ms(text))),
    "--by-duration": _since,
    "--shift-by": lambda shift: ResetPlan(shift=shift),
}


def plan_of(values: Mapping[str, object]) -> ResetPlan:
    """Return the target of the given option; raise a usage error unless exactly one is given.

    In `values`, None and False mark an option that is not given.
    """
    given = [name for name, value in values.items() if value is not None and value is not False]
    if len(given) != 1:
        found = f"{' and '.join(given)} were given" if given else "none was given"
        raise typer.BadParameter(f"one of {', '.join(_WAYS)} is needed; {found}")
    return _WAYS[given[0]](values[given[0]])


def targets(
    client: BlockingClient, group: str, words: list[PartitionWord] | None, plan: ResetPlan
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the committed offsets and the target offsets of partitions.

    `words` names the partitions; None means all partitions with a committed offset.
    """
    if words is None:
        committed = client.committed(group)
        chosen = list(committed)
        if not chosen:
            raise NotFoundError(f"group {group!r} has committed nothing: name topics with --topic")
    else:
        chosen = partitions_named(client, words)
        committed = client.committed(group, chosen)
    before = {tp: each.offset for tp, each in committed.items()}
    starts = client.positions(dict.fromkeys(chosen, EARLIEST))
    ends = client.positions(dict.fromkeys(chosen, LATEST))
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
        return client.positions(dict.fromkeys(chosen, plan.timestamp))
    if plan.offset is not None:
        return dict.fromkeys(chosen, plan.offset)
    for tp in chosen:
        if tp not in before:
            say(f"tidelog: {tp} is left out: nothing is committed for it")
    return {tp: before[tp] + (plan.shift or 0) for tp in chosen if tp in before}
