"""Mutants of the moves that a broker plans itself: drains and balancing (D12, D15).

Each plans into a directory that is closed, or never comes to rest.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import Catalogue

CATALOGUE: Final = Catalogue()
_breaks = CATALOGUE.breaks
_PROFILE: Final = "drained_directories"


@_breaks(
    "D12",
    "tidelog.broker.replicas.placement.log_dir_placement:LogDirPlacement._why_closed",
    "tidelog.broker.replicas.placement.planned_directory_moves:PlannedDirectoryMoves._is_closed",
    "tidelog.broker.replicas.placement.directory_moves:DirectoryMoves._check_cordon",
    profile=_PROFILE,
)
def drain_places_into_cordon(*_: Any) -> Any:
    """A drain moves replicas into directories that are cordoned or drained themselves."""
    return (
        lambda placement, directory, leaving: "",
        lambda planned, path: False,
        lambda moves, path: None,
    )


@_breaks(
    "D15",
    "tidelog.log.log_dir_balance:_next",
    profile=_PROFILE,
)
def balance_without_hysteresis(_: Any) -> Any:
    """Balancing begins at any difference, and moves the largest replica whatever that brings."""

    def move(volumes: Any, threshold: float, goal: float, is_under_way: bool) -> Any:
        if any(each.is_touched for each in volumes) or len(volumes) < 2:
            return None
        high = max(volumes, key=lambda each: each.fill)
        low = min(volumes, key=lambda each: each.fill)
        if high.fill <= low.fill or not low.open or not high.replicas:
            return None
        return high, low, high.replicas[-1]

    return move
