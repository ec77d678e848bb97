"""Reassignments that a viewer of the console plans, begins, throttles and cancels.

`tidelog.client.planning` makes the plans, as for the command line. To begin a plan, a viewer sends
back the plan that the page showed, so no other moves can begin. The controller refuses each
partition whose replicas have changed since the plan was made (R18).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from tidelog.client.moving import MoveAsked
from tidelog.client.planning.cluster_state import ClusterState
from tidelog.client.planning.emptying import decommissioned, drained
from tidelog.client.planning.moves import MovePlan
from tidelog.client.planning.rebalancing import rebalanced
from tidelog.client.planning.topic_placement import on_brokers
from tidelog.console.views.tables import BadQuery, Document
from tidelog.core.errors import KafkaError
from tidelog.core.types import TopicPartition
from tidelog.core.wording import counted
from tidelog.local.cluster_reading import read_state
from tidelog.runtime.blocking import BlockingClient

Body = Mapping[str, Any]
#: Replicas by partition, the preferred leader first.
Replicas = Mapping[TopicPartition, tuple[int, ...]]

_KINDS: Final = ("rebalance", "drain", "decommission", "topic")
_UNITS: Final = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_MIB: Final = 1 << 20
#: Largest throttle in bytes a second: the maximum of the 64-bit integers that store it.
_MAX_RATE: Final = (1 << 63) - 1


def plan_moves(client: BlockingClient, body: Body) -> Document:
    """Plan moves if the body has `dry_run`; else begin the moves in the body's `plan`.

    In the body, `kind` (one of `_KINDS`) is the kind of plan. `brokers` are the brokers to empty,
    or the brokers that a topic moves to. `throttle` is a rate for each broker, as `10 MiB`. Raises
    BadQuery, and PlanError if no plan is possible.
    """
    throttle = rate_of(body)
    if client.reassignments().under_way:
        raise BadQuery("moves are under way: wait for their end, or cancel them first")
    if body.get("dry_run"):
        return _shown(_plan(read_state(client), body), throttle)
    targets, expected = _confirmed(body)
    found = client.reassign(targets, expected, throttle=throttle)
    return {"text": _outcome(found, "began"), "rows": []}


def _confirmed(body: Body) -> tuple[Replicas, Replicas]:
    """Return the replicas after and before each move of the plan that a viewer sends back."""
    plan = body.get("plan")
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    expected: dict[TopicPartition, tuple[int, ...]] = {}
    try:
        for topic, number, before, after in plan or ():
            if not isinstance(topic, str) or not _are_ids([number], before, after):
                raise ValueError(topic)
            tp = TopicPartition(topic, number)
            expected[tp], targets[tp] = tuple(before), tuple(after)
    except (ValueError, TypeError):
        targets = {}
    if not targets:
        raise BadQuery("plan: the moves of a dry run expected")
    return targets, expected


def _are_ids(*lists: Any) -> bool:
    return all(
        isinstance(each, list)
        and bool(each)
        and all(type(number) is int and number >= 0 for number in each)
        for each in lists
    )


def _plan(state: ClusterState, body: Body) -> MovePlan:
    kind = body.get("kind")
    if kind == "rebalance":
        return rebalanced(state)
    if kind not in _KINDS:
        raise BadQuery(f"kind={kind!r}: {', '.join(_KINDS)} expected")
    brokers = body.get("brokers")
    if not _are_ids(brokers):
        raise BadQuery(f"brokers={brokers!r}: a list of broker ids expected")
    chosen = tuple(dict.fromkeys(brokers or ()))
    if kind == "topic":
        topic = body.get("topic")
        if not isinstance(topic, str) or not topic:
            raise BadQuery("topic: the name of a topic expected")
        unknown = [each for each in chosen if each not in state.live]
        if unknown:
            raise BadQuery(f"brokers={unknown}: not registered")
        return on_brokers(state, topic, chosen)
    return (drained if kind == "drain" else decommissioned)(state, frozenset(chosen))


def _shown(plan: MovePlan, throttle: int | None) -> Document:
    """Return a plan with its rows, and the least time that its copies take."""
    rows = [
        {
            "topic": each.tp.topic,
            "partition": each.tp.partition,
            "before": _ids(each.before),
            "after": f"{_ids(each.after)} ({_size(each.moved_bytes)}: {each.reason})",
        }
        for each in plan.moves
    ]
    moves = [[each.tp.topic, each.tp.partition, each.before, each.after] for each in plan.moves]
    words = f"{counted(len(rows), 'move')}, which {'copies' if len(rows) == 1 else 'copy'}"
    text = f"{words} {_size(plan.moved_bytes)}." if rows else "Nothing would move."
    if throttle:
        seconds = max(_copied_by_broker(plan).values(), default=0) / throttle
        text += (
            f" At {_size(throttle)}/s for each broker, the copies take {seconds:,.0f} s or longer."
        )
    if plan.staying:
        text += f" {counted(len(plan.staying), 'partition', 'stays', 'stay')}: too few brokers."
    if plan.blocked:
        text += (
            f" {counted(len(plan.blocked), 'partition', 'has', 'have')} a replica on a dead broker."
        )
    return {"text": text, "rows": rows, "plan": moves}


def _copied_by_broker(plan: MovePlan) -> Counter[int]:
    """Return the bytes that each broker receives."""
    found: Counter[int] = Counter()
    for move in plan.moves:
        for broker in move.added:
            found[broker] += move.size_bytes
    return found


def throttle_moves(client: BlockingClient, body: Body) -> Document:
    """Set the throttle of all moves under way; 0 removes it."""
    rate = rate_of(body)
    if rate is None:
        raise BadQuery("throttle: a rate such as 10 MiB expected, or 0 to remove the throttle")
    targets = {tp: move.target for tp, move in client.reassignments().under_way.items()}
    if not targets:
        raise BadQuery("no partition moves now")
    what = f"at most {_size(rate)}/s for each broker" if rate else "no throttle"
    if body.get("dry_run"):
        return {"text": f"{counted(len(targets), 'move')} would have {what}.", "rows": []}
    found = client.reassign(targets, throttle=rate)
    return {"text": _outcome(found, f"now with {what}"), "rows": []}


def cancel_moves(client: BlockingClient, body: Body) -> Document:
    """Cancel all moves, under way and queued: their partitions return to the former replicas."""
    moves = client.reassignments()
    targets = {tp: [each.target] for tp, each in moves.under_way.items()}
    targets |= {tp: [*targets.get(tp, []), each.target] for tp, each in moves.queued.items()}
    if not targets:
        raise BadQuery("no partition moves now")
    if body.get("dry_run"):
        rows = [_row(tp, moves.under_way[tp]) for tp in targets if tp in moves.under_way]
        return {"text": f"{counted(len(targets), 'move')} would be cancelled.", "rows": rows}
    return {"text": _outcome(client.cancel_reassignments(targets), "cancelled"), "rows": []}


def _row(tp: TopicPartition, move: Any) -> Document:
    former = _ids(move.original) if move.original else "the former replicas"
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "before": _ids(move.target),
        "after": former,
    }


def _outcome(found: Mapping[TopicPartition, MoveAsked], what: str) -> str:
    """Return a sentence about requested moves; raise the error if all of them were refused.

    `what` is the verb of the sentence, such as `began`.
    """
    refused = {tp: each for tp, each in found.items() if each.error}
    if refused:
        tp, first = next(iter(refused.items()))
        if len(refused) == len(found):
            raise KafkaError(first.error, f"{tp}: {first.message}")
        done = len(found) - len(refused)
        return f"{done} of {len(found)} moves {what}. {tp} was refused: {first.message}"
    return f"{counted(len(found), 'move')} {what}."


def rate_of(body: Body) -> int | None:
    """Return the body's `throttle` (as `10 MiB` or `5000`) in bytes a second; None without one."""
    given = body.get("throttle")
    if given is None or given == "":
        return None
    text = str(given).strip().lower().removesuffix("/s").strip()
    number = text.rstrip("kmgib ").strip()
    unit = text[len(number) :].strip()
    if isinstance(given, bool) or unit not in _UNITS or not (number.isascii() and number.isdigit()):
        raise BadQuery(f"throttle={given!r}: a rate such as 10 MiB, or a number of bytes, expected")
    rate = int(number[:20]) * _UNITS[unit]
    if rate > _MAX_RATE:
        raise BadQuery(f"throttle={given!r}: too large")
    return rate


def _ids(replicas: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, replicas)) + "]"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:,.1f} MiB" if size_bytes >= _MIB else f"{size_bytes:,} bytes"
