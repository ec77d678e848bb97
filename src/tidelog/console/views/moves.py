"""The page of reassignments: moves under way with their progress, queued moves, and findings.

Progress compares bytes that brokers report (`tidelog.client.move_progress`); a rate is null until
two readings have the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.move_progress import MoveProgress
from tidelog.console.readings import ClusterReading, Samples
from tidelog.console.views.findings import findings_of, of_moves_under_way
from tidelog.console.views.tables import Document, TableQuery, window


def moves_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of all moves."""
    moves = reading.moves
    progress = {each.tp: each for each in reading.progress}
    rows = []
    for tp, move in ({} if moves is None else moves.under_way).items():
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "state": "under way",
                "target": list(move.target),
                "adding": list(move.adding),
                "removing": list(move.removing),
                "throttle": move.throttle or None,
                "reason": move.paused,
                **_progress(progress.get(tp)),
            }
        )
    for place, (tp, queued) in enumerate(({} if moves is None else moves.queued).items(), 1):
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "state": f"queued, {place}",
                "target": list(queued.target),
                "adding": [],
                "removing": [],
                "throttle": None,
                "reason": queued.reason,
                **_progress(None),
            }
        )
    return {
        "findings": findings_of(of_moves_under_way(reading)),
        "is_frozen": moves is not None and moves.is_frozen,
        "knows_queue": moves is not None and moves.knows_queue,
        "under_way": 0 if moves is None else len(moves.under_way),
        "queued": 0 if moves is None else len(moves.queued),
        "left": sum(each.left_bytes or 0 for each in reading.progress),
        "rate": sum(each.rate or 0 for each in reading.progress),
        "table": window(rows, TableQuery.from_params(params, "topic")),
    }


def _progress(found: MoveProgress | None) -> Document:
    if found is None:
        return dict.fromkeys(("step", "done", "bytes", "rate", "left_ms", "is_never", "limit"))
    return {
        "step": str(found.state),
        "done": found.done_bytes,
        "bytes": found.total_bytes,
        "rate": found.rate,
        "left_ms": found.left_ms,
        "is_never": found.is_never,
        "limit": found.configured_rate,
    }
