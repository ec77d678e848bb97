"""Mutants: brokers with one rule broken, which the checkers must catch.

A mutant is a named replacement of one module attribute, in force while a run lasts. Where its
target is gone or its shape has changed, applying it fails: a mutant that changes nothing would
prove nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """`module.attribute` (the attribute may be dotted) becomes `make(original)`."""

    name: str
    module: str
    attribute: str
    make: Callable[[Any], Any]
    #: The profile under which it is looked for.
    profile: str = "default"


class MutantGoneError(LookupError):
    """The attribute that a mutant replaces is not there."""


def _truncate_to_high_watermark(_: Any) -> Any:
    """Becoming follower cuts to the high watermark (V32 as Design V3 had it)."""
    return min


def _acknowledge_at_once(_: Any) -> Any:
    """acks=all is answered when the leader has the batch (breaks V64)."""
    return lambda watchers, offset, wait: wait.acknowledged()


def _only_to_high_watermark(_: Any) -> Any:
    """A follower joins the ISR at the leader's high watermark (V63 without the epoch rule)."""
    return lambda log_end_offset, high_watermark, start_offset: log_end_offset >= high_watermark


def _nobody(_: Any) -> Any:
    """Recorded broker epochs are not looked at (breaks V10)."""
    return lambda state, brokers: ()


def _always(_: Any) -> Any:
    """Topics are told apart by name alone (breaks V23)."""
    return lambda own, asked: True


def _leave_unflushed(_: Any) -> Any:
    """A clean stop leaves its marker and does not flush its logs (breaks E3)."""

    async def close_logs(logs: Any) -> None:
        del logs

    return close_logs


def _whatever_is_written(original: Any) -> Any:
    """Compaction takes the log's end for its high watermark."""

    def cleanable(
        segments: Any, config: Any, checkpoint: Any, start: Any, end: Any, _: Any, *rest: Any
    ) -> Any:
        return original(segments, config, checkpoint, start, end, end, *rest)

    return cleanable


def _none_of_a_key(_: Any) -> Any:
    """Compaction drops the last record of a key with those before it."""
    return lambda batch_filter, batch, record: (
        batch.base_offset + record.offset_delta > batch_filter._map.latest_offset
    )


def _replicated_at_once(_: Any) -> Any:
    """A coordinator answers when its records are in its own log (breaks G1)."""
    return lambda partition, offset, wait: wait.acknowledged()


def _any_generation(_: Any) -> Any:
    """Members commit for whatever generation they believe in."""
    return lambda group, generation_id: True


def _never(_: Any) -> Any:
    """Commands are carried out in whatever order they come (breaks V30)."""
    return lambda latest_correlation_id, correlation_id: False


def _watch_no_more(_: Any) -> Any:
    """Who registers anew does not look for the changes that it missed."""
    return lambda live_configs: None


def _high_watermark(_: Any) -> Any:
    """A coordinator loads what is surely committed, not what may be (breaks G1)."""
    return lambda partition: partition.high_watermark


MUTANTS: Final[Mapping[str, Mutant]] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "truncate_to_high_watermark",
            "tidelog.replication.truncation",
            "offset_on_becoming_follower",
            _truncate_to_high_watermark,
        ),
        Mutant(
            "ack_before_replication",
            "tidelog.broker.purgatory",
            "PartitionWatchers.wait_for_acks",
            _acknowledge_at_once,
        ),
        Mutant(
            "expand_without_epoch_rule",
            "tidelog.replication.isr",
            "reached",
            _only_to_high_watermark,
            profile="slow_catch_up",
        ),
        Mutant(
            "bounce_unnoticed",
            "tidelog.controller.liveness",
            "restarted_members",
            _nobody,
            profile="quick_restarts",
        ),
        Mutant(
            "topic_id_unchecked",
            "tidelog.replication.commands",
            "topic_id_matches",
            _always,
            profile="topic_churn",
        ),
        Mutant(
            "commands_out_of_order",
            "tidelog.replication.commands",
            "is_overtaken",
            _never,
            profile="late_commands",
        ),
        Mutant("clean_stop_unflushed", "tidelog.log.directory", "close_logs", _leave_unflushed),
        Mutant(
            "compaction_ignores_high_watermark",
            "tidelog.log.cleaner",
            "cleanable",
            _whatever_is_written,
            profile="compaction",
        ),
        Mutant(
            "compaction_drops_last_value",
            "tidelog.log.compaction",
            "BatchFilter._stays",
            _none_of_a_key,
            profile="compaction",
        ),
        Mutant(
            "offsets_acked_before_replicated",
            "tidelog.broker.coordinators.appends",
            "await_replication",
            _replicated_at_once,
            profile="slow_followers",
        ),
        Mutant(
            "generation_unchecked",
            "tidelog.group.offsets",
            "is_current",
            _any_generation,
        ),
        Mutant(
            "loaded_to_hw_only",
            "tidelog.broker.coordinators.loading",
            "load_end",
            _high_watermark,
            profile="slow_catch_up",
        ),
        Mutant(
            "missed_changes_stay_missed",
            "tidelog.broker.live_configs",
            "LiveConfigs.session_renewed",
            _watch_no_more,
            profile="topic_changes",
        ),
    )
}


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The mutant is in force within; no name: nothing is."""
    if not name:
        yield
        return
    mutant = MUTANTS.get(name)
    if mutant is None:
        raise MutantGoneError(f"there is no mutant {name!r}; there are {', '.join(MUTANTS)}")
    with replaced(mutant):
        yield


@contextmanager
def replaced(mutant: Mutant) -> Iterator[None]:
    """A mutant that need not be among `MUTANTS` is in force within; raises MutantGoneError."""
    owner: Any = importlib.import_module(mutant.module)
    *path, last = mutant.attribute.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    if owner is None or last not in vars(owner):
        raise MutantGoneError(
            f"{mutant.module}.{mutant.attribute}: the target of {mutant.name} is gone"
        )
    original = vars(owner)[last]
    setattr(owner, last, mutant.make(original))
    try:
        yield
    finally:
        setattr(owner, last, original)
