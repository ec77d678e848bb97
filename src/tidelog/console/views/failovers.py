"""The last failovers, phase by phase, from the death of a leader to the first acknowledgement.

A `failover` event has the controller's phases and a sample of its partitions. `takeover` events of
the same partitions and leader epochs have the new leaders' phases. This module joins the events of
both kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.console.readings import ClusterReading, Event, Samples
from tidelog.console.views.causes import EventLog, chain
from tidelog.console.views.tables import Document
from tidelog.controller import cluster_events as kinds

#: Maximum number of failovers on the page; each failover shows at most _PARTITIONS partitions.
_SHOWN: Final = 15
_PARTITIONS: Final = 20
#: The phases that a new leader measures, in their order.
_LEADER_PHASES: Final = ("connect", "truncate", "first_fetch", "acknowledge")


def failovers_view(
    reading: ClusterReading, samples: Samples, params: Mapping[str, str]
) -> Document:
    """Return the page of the last failovers."""
    log = EventLog(reading.events)
    positions = [
        position
        for position, event in enumerate(reading.events)
        if event["kind"] == kinds.FAILOVER and isinstance(event.get("phases_ms"), dict)
    ]
    takeovers = {
        _leadership(event): event for event in reading.events if event["kind"] == kinds.TAKEOVER
    }
    return {
        "total": len(positions),
        "failovers": [
            _failover(log, position, takeovers) for position in reversed(positions[-_SHOWN:])
        ],
    }


def _leadership(event: Mapping[str, Any]) -> tuple[object, ...]:
    return event.get("topic"), event.get("partition"), event.get("leader_epoch")


def _failover(
    log: EventLog, position: int, takeovers: Mapping[tuple[object, ...], Event]
) -> Document:
    event = log[position]
    phases = [
        {"name": name, "ms": ms}
        for name, ms in event["phases_ms"].items()
        if isinstance(ms, int) and ms >= 0
    ]
    detection = event.get("detection_ms")
    is_detected = isinstance(detection, int) and detection >= 0
    sample = [each for each in event.get("sample") or () if isinstance(each, dict)]
    found = [takeovers[key] for key in map(_leadership, sample) if key in takeovers]
    return {
        "time_ms": event.get("time_ms"),
        "cause": event.get("cause", "death"),
        "brokers": event.get("brokers") or [],
        "controller_epoch": event.get("controller_epoch"),
        "partitions": event.get("partitions"),
        "unanswered": event.get("unanswered"),
        "detection_ms": detection if is_detected else None,
        "phases": ([{"name": "detect", "ms": detection}] if is_detected else []) + phases,
        "whole_ms": sum(each["ms"] for each in phases) + (detection if is_detected else 0),
        "leaders": _leader_phases(found),
        "sample": sample[:_PARTITIONS],
        "more": max(0, len(sample) - _PARTITIONS),
        "why": chain(log, position)["because"],
    }


def _leader_phases(takeovers: Sequence[Event]) -> list[Document]:
    """Return, for each known phase, the time at which the slowest new leader completed it."""
    found = []
    for name in _LEADER_PHASES:
        times = [
            ms
            for event in takeovers
            if isinstance(ms := (event.get("phases_ms") or {}).get(name), int) and ms >= 0
        ]
        if times:
            found.append({"name": name, "ms": max(times), "leaders": len(times)})
    return found
