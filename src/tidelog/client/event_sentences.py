"""Cluster events as documents and sentences (docs/reference/events.md).

`read_event` parses the value of a record of `__cluster_events`, and `event_sentence` writes an
event's facts for people. Commands and the console show the same sentences.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.core.leader_wait import LeaderWait, MemberStatus, reason


def read_event(value: bytes | memoryview | None) -> dict[str, Any]:
    """Return the event in a record's value; a value without an event gets the kind `unreadable`."""
    try:
        event = json.loads(bytes(value or b""))
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict) and isinstance(event.get("kind"), str):
        return event
    return {"kind": "unreadable", "value": bytes(value or b"").decode("utf-8", "replace")}


def event_sentence(event: Mapping[str, Any]) -> str:
    """Return the facts of an event; for an unknown kind, the sentence lists all its fields."""
    what = _WORDS.get(event["kind"], _plain)
    try:
        return _filled(what, event) if isinstance(what, str) else what(event)
    except (KeyError, TypeError, AttributeError):
        # An event from a later version or from another program is written as a list of its fields.
        return _plain(event)


def _plain(event: Mapping[str, Any]) -> str:
    known = ("version", "kind", "time_ms", "told_by")
    return " ".join(f"{name}={value}" for name, value in event.items() if name not in known)


def _members(isr: list[int]) -> str:
    return "[" + ",".join(map(str, isr)) + "]"


class _EventFields(string.Formatter):
    """A formatter that puts an event's fields into a sentence, and lists of brokers in brackets."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return _members(value) if isinstance(value, list) else str(value)


def _filled(sentence: str, event: Mapping[str, Any]) -> str:
    """Return the template `sentence` filled with the event's fields.

    If the event names replicas that left the ISR, the sentence ends with these replicas.
    """
    left = [f"{replica['broker']}: {replica['cause']}" for replica in event.get("left", ())]
    ending = f", left {', '.join(left)}" if left else ""
    return _EventFields().vformat(sentence, (), event) + ending


def _partition(event: Mapping[str, Any]) -> str:
    return f"{event['topic']}-{event['partition']}"


def _failover(event: Mapping[str, Any]) -> str:
    phases = ", ".join(f"{name} {ms} ms" for name, ms in event["phases_ms"].items())
    whole = sum(event["phases_ms"].values())
    cause = f" ({event['cause']})" if "cause" in event else ""
    if event.get("detection_ms", -1) >= 0:
        phases = f"detect {event['detection_ms']} ms before, {phases}"
    return (
        f"from brokers {_members(event['brokers'])}{cause}: {event['partitions']} partitions in"
        f" {whole} ms ({phases}), {event['unanswered']} unanswered"
    )


def _takeover(event: Mapping[str, Any]) -> str:
    phases = ", ".join(
        f"{name.replace('_', ' ')} {f'after {ms} ms' if ms >= 0 else '-'}"
        for name, ms in event["phases_ms"].items()
    )
    followers = _members([state["follower"] for state in event["followers"]])
    return (
        f"{_partition(event)} epoch {event['leader_epoch']} leader {event['leader']} followers"
        f" {followers}: {phases} ({event['ended_by']})"
    )


def _unclean_election(event: Mapping[str, Any]) -> str:
    end, reported = event["log_end_offset"], event["told_high_watermark"]
    lost = f"lost: {end} up to {reported} and later" if reported > end else f"lost: from {end} on"
    return (
        f"{_partition(event)} leader {event['leader']} epoch {event['leader_epoch']} after epoch"
        f" {event['latest_epoch']}, {lost}; uncertain: from {event['high_watermark']} on"
    )


def _leader_awaited(event: Mapping[str, Any]) -> str:
    members = tuple(
        (member["broker"], MemberStatus[member["status"].upper()]) for member in event["members"]
    )
    wait = LeaderWait(members, event["quorum"], event["is_waiting"])
    return f"{_partition(event)} epoch {event['leader_epoch']} {reason(wait, event['last_leader'])}"


def _reassignment_begun(event: Mapping[str, Any]) -> str:
    word = "returns to" if event["replicas"] == event["original"] else "moves to"
    return (
        f"{_partition(event)} {word} {_members(event['replicas'])}: adds"
        f" {_members(event['adding'])}, removes {_members(event['removing'])}"
    )


def _behind(event: Mapping[str, Any]) -> str:
    word = "took its commands" if event["is_over"] else "has not taken its commands"
    return _filled(f"{_BROKER} {word} for {{behind_ms}} ms", event)


def _controller(event: Mapping[str, Any]) -> str:
    cause = f" ({event['cause']})" if "cause" in event else ""
    return f"broker {event['controller']} controller epoch {event['controller_epoch']}{cause}"


_BROKER: Final = "broker {broker} epoch {broker_epoch}"
#: The text of each kind of event: a template with names of fields, or a function.
_WORDS: Final[Mapping[str, str | Callable[[Mapping[str, Any]], str]]] = {
    "leader_change": "{topic}-{partition} leader {previous_leader} -> {leader} epoch {leader_epoch}"
    " ISR {isr} ({cause})",
    "isr_change": "{topic}-{partition} ISR {previous_isr} -> {isr} leader {leader} epoch"
    " {leader_epoch} ({cause})",
    "failover": _failover,
    "first_fetch": "{topic}-{partition} epoch {leader_epoch}: broker {follower} fetched from"
    " {leader} after {first_fetch_ms} ms",
    "takeover": _takeover,
    "unclean_election": _unclean_election,
    "leader_awaited": _leader_awaited,
    "reassignment_begun": _reassignment_begun,
    "reassignment_ended": "{topic}-{partition} is at {replicas}",
    "session_loss": _BROKER,
    "shutdown": _BROKER,
    "registration": _BROKER,
    "commands_behind": _behind,
    "log_dir_failed": _BROKER + " gave up {log_dir} ({operation}: {error}): {replicas} replicas are"
    " offline, of which it led {led}",
    "log_dir_slow": _BROKER + ": {log_dir} is slow: {slow} of {operations} operations took"
    " {threshold_ms} ms or longer, up to {longest_ms} ms",
    "log_dir_fast_again": _BROKER + ": {log_dir} is fast again after {slow_ms} ms",
    "controller_election": _controller,
    "controller_resignation": _controller,
}
