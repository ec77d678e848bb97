"""Findings about reassignments that cannot end, and about queued reassignments that cannot begin.

The functions are pure. A move ends when each added replica is in the ISR. A move cannot end while
the brokers of its added replicas are down, or while the leader's log grows at least as fast as the
added replicas copy it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.core.wording import brokers_text
from tidelog.local.doctor.cluster_facts import ClusterFacts
from tidelog.local.doctor.diagnosis import degraded, notice
from tidelog.local.health import ClusterPlace, Finding
from tidelog.local.remedy_commands import command_on, quoted


def of_moves(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    """Yield the findings about moves."""
    if facts.moves is None:
        return
    never = {each.tp: each for each in facts.progress if each.is_never}
    for tp, move in facts.moves.under_way.items():
        absent = [each for each in move.adding if not facts.is_registered(each)]
        partition = facts.metadata.partition(tp)
        if absent:
            message = (
                f"the move of {tp} cannot end: {brokers_text(absent, 'is', 'are')} to be added, and"
                " not registered"
            )
            yield _stuck(facts, place, tp, message, absent)
        elif move.adding and partition is not None and partition.leader == NO_LEADER:
            message = f"the move of {tp} cannot end: the partition has no leader to copy from"
            remedy = command_on("tidelog topics describe", tp.topic, f" --replicas{place.option}")
            yield degraded("move_stuck", message, remedy, brokers=move.adding, partitions=[tp])
        elif tp in never:
            rate = never[tp].rate or 0
            message = (
                f"the move of {tp} cannot end: producers write at least as fast as it copies"
                f" ({round(rate):,} bytes/s over {facts.watched_s:g} s)"
            )
            remedy = _faster(facts, place, tp, move.throttle or never[tp].configured_rate)
            yield degraded("move_never", message, remedy, brokers=move.adding, partitions=[tp])
        elif move.paused:
            message = f"the move of {tp} pauses: {move.paused}"
            remedy = command_on("tidelog topics describe", tp.topic, f" --replicas{place.option}")
            yield notice("move_paused", message, remedy, brokers=move.adding, partitions=[tp])
    yield from _queued(facts, place)


def _stuck(
    facts: ClusterFacts,
    place: ClusterPlace,
    tp: TopicPartition,
    message: str,
    absent: list[int],
) -> Finding:
    start = f"tidelog up{place.option}" if place.directory else f"start {brokers_text(absent)}"
    remedy = f"{start}; or give the move up: {_cancel(facts, place, tp)}"
    return degraded("move_stuck", message, remedy, brokers=absent, partitions=[tp])


def _cancel(facts: ClusterFacts, place: ClusterPlace, tp: TopicPartition) -> str:
    """Return the command that cancels one move, and no other."""
    assert facts.moves is not None, "the caller has the moves"
    moving = {*facts.moves.under_way, *facts.moves.queued}
    if [each for each in moving if each.topic == tp.topic] == [tp]:
        return f"tidelog reassign cancel --topic {quoted(tp.topic)}{place.option}"
    move = facts.moves.under_way.get(tp) or facts.moves.queued[tp]
    entry = {"topic": tp.topic, "partition": tp.partition, "replicas": list(move.target)}
    document = quoted(json.dumps({"partitions": [entry]}))
    return f"tidelog reassign cancel --json {document}{place.option}"


def _faster(
    facts: ClusterFacts, place: ClusterPlace, tp: TopicPartition, throttle: int | None
) -> str:
    if throttle:
        return (
            f"raise the throttle of {throttle:,} bytes/s: execute the move of {tp.topic} again with"
            f" a larger --throttle, or 0 to end it; tidelog reassign list{place.option}"
        )
    return f"slow its producers down, or give it up: {_cancel(facts, place, tp)}"


def _queued(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    assert facts.moves is not None, "the caller has the moves"
    for tp, queued in facts.moves.queued.items():
        absent = [each for each in queued.target if not facts.is_registered(each)]
        if absent:
            message = (
                f"the queued move of {tp} cannot begin:"
                f" {brokers_text(absent, 'is', 'are')} its target, and not registered"
            )
            yield _stuck(facts, place, tp, message, absent)
