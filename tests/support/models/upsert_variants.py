"""Commits of upserts with a rule broken, which `UpsertModel` must find broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.support.models.upsert_model import UpsertBounds
from tests.support.models.variants import Replacement, by_name, variant

_NEXT: Final = "tidelog.spark.lake.protocol:next_step"


def _careless(**changes: Any) -> Replacement:
    """A run does not compare a part of its plan with the table."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda attempt, view: original(replace(attempt, **changes), view)

    return (_NEXT, make)


def _own_partitions(original: Callable[..., Any]) -> Callable[..., Any]:
    """A run compares the next offsets of its own partitions alone, as an append may."""

    def compared(attempt: Any, view: Any) -> Any:
        own = tuple(each for each in attempt.offsets if each.end > each.start)
        return original(replace(attempt, offsets=own, is_upsert=False), view)

    return compared


UPSERT_VARIANTS: Final = by_name(
    variant("own_partitions_alone", ("KeyOnce",), (_NEXT, _own_partitions), bounds=UpsertBounds(2)),
    variant(
        "new_partitions_not_seen",
        ("KeyOnce",),
        _careless(is_upsert=False),
        bounds=UpsertBounds(2),
    ),
    variant(
        "replaced_files_not_sought",
        ("LatestRows",),
        _careless(inputs=()),
        bounds=UpsertBounds(2, 1, compactions=1),
    ),
    variant(
        "offsets_not_compared",
        ("LatestRows",),
        _careless(offsets=(), is_upsert=False),
        bounds=UpsertBounds(1),
    ),
)
