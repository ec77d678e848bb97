"""The timeline of cluster events, the latest first, with a filter by kind.

The table's filter also finds brokers and partitions, because each row has a sentence that names
them. An event about a partition links to the partition's page, which shows the causes of the event.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter

from tidelog.client.event_sentences import event_sentence
from tidelog.console.readings import ClusterReading, Event, Samples
from tidelog.console.views.tables import BadQuery, Document, TableQuery, window
from tidelog.controller.cluster_events import KINDS

#: The severity of each kind of event; kinds that are not listed have the severity `note`.
_LEVELS = {
    "session_loss": "bad",
    "unclean_election": "bad",
    "log_dir_failed": "bad",
    "store_went_back": "bad",
    "leader_awaited": "warn",
    "log_dir_slow": "warn",
    "commands_behind": "warn",
    "events_dropped": "warn",
    "isr_change": "note",
    "takeover": "good",
    "registration": "good",
    "log_dir_fast_again": "good",
    "reassignment_ended": "good",
}


def events_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of the timeline. Raises BadQuery for an unknown kind."""
    kind = params.get("kind", "")
    if kind and kind not in KINDS:
        raise BadQuery(f"kind={kind!r}: one of {', '.join(KINDS)} expected")
    counts = Counter(str(event["kind"]) for event in reading.events)
    events = [event for event in _latest_first(reading.events) if not kind or event["kind"] == kind]
    query = TableQuery.from_params(params, "")
    if query.words or query.sort:
        table = window([_row(event) for event in events], query)
    else:  # only the shown rows: 20,000 sentences would take long
        rows = [_row(event) for event in events[: query.limit]]
        table = {"rows": rows, "matching": len(events), "total": len(events)}
    return {
        "kinds": [{"kind": each, "count": counts[each]} for each in KINDS if counts[each]],
        "table": table,
    }


def _latest_first(events: Sequence[Event]) -> list[Event]:
    """Return events by their times: several brokers append them, so offsets have another order.

    An event without a time has that of the event before it.
    """
    times_ms = itertools.accumulate(events, _known_time_ms, initial=0)
    found = list(zip(itertools.islice(times_ms, 1, None), events, strict=True))
    found.sort(key=itemgetter(0))
    return [event for _, event in reversed(found)]


def _known_time_ms(before_ms: int, event: Event) -> int:
    time_ms = event.get("time_ms")
    return time_ms if isinstance(time_ms, int) else before_ms


def _row(event: Event) -> Document:
    time_ms = event.get("time_ms")
    partition = event.get("partition")
    has_place = isinstance(event.get("topic"), str) and isinstance(partition, int)
    return {
        "time_ms": time_ms if isinstance(time_ms, int) else None,
        "kind": event["kind"],
        "level": _LEVELS.get(event["kind"], "note"),
        "reporter": event.get("told_by") if isinstance(event.get("told_by"), int) else None,
        "text": event_sentence(event),
        "topic": event["topic"] if has_place else None,
        "partition": partition if has_place else None,
    }
