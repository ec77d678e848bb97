"""Commits of lake tables with a rule broken, which `LakeModel` must find broken.

Each variant has the smallest bounds that let its defect show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.support.models.lake_model import Bounds, World
from tests.support.models.variants import Replacement, by_name, variant

_PROTOCOL: Final = "tidelog.spark.lake.protocol"
_MODEL: Final = "tests.support.models.lake_model"


def _blind(what: str, value: Any) -> Replacement:
    """A run does not look at a part of the table."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda attempt, view: original(attempt, replace(view, **{what: value}))

    return (f"{_PROTOCOL}:next_step", make)


def _careless(what: str) -> Replacement:
    """A run does not compare a part of its plan with the table."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda attempt, view: original(replace(attempt, **{what: ()}), view)

    return (f"{_PROTOCOL}:next_step", make)


def _fence_too_low(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda attempt, view: original(attempt, replace(view, fence=view.fence - 1))


def _deleting(condition: Callable[[Any, int, Any], bool]) -> Replacement:
    """A vacuum deletes files by another condition."""

    def make(_: Any) -> Callable[..., Any]:
        return lambda staged, fence, referenced: [
            each for each in staged if condition(each, fence, referenced)
        ]

    return (f"{_PROTOCOL}:abandoned", make)


def _repeated(_: Any) -> Callable[[World], World]:
    """The table's library tries a refused commit again on the next version."""

    def next_version(world: World) -> World:
        requests = tuple(each._replace(base=world.version + 1) for each in world.requests)
        return world._replace(version=world.version + 1, requests=requests)

    return next_version


_FILES = ("FilesExist",)
_OFFSETS = ("EachOffsetOnce",)
_SMALL: Final = Bounds(1, 1)

LAKE_VARIANTS: Final = by_name(
    variant("fence_unread", _FILES, _blind("fence", 0), bounds=_SMALL),
    variant(
        "run_at_the_fence_fenced_too_late",
        _FILES,
        (f"{_PROTOCOL}:next_step", _fence_too_low),
        bounds=_SMALL,
    ),
    variant("own_commit_not_sought", _FILES, _blind("landed", ()), bounds=Bounds(1, 1, vacuums=0)),
    variant("offsets_not_compared", _OFFSETS, _careless("offsets"), bounds=Bounds(1, 1, vacuums=0)),
    variant(
        "merged_files_not_sought",
        _OFFSETS,
        _careless("inputs"),
        bounds=Bounds(2, 1, compactions=2, vacuums=0),
    ),
    variant("commits_repeated", _OFFSETS, (f"{_MODEL}:_next_version", _repeated), bounds=_SMALL),
    variant(
        "fence_not_committed",
        _FILES,
        (f"{_MODEL}:_fenced", lambda _: lambda world, fence: world),
        bounds=_SMALL,
    ),
    variant(
        "files_of_the_table_deleted",
        _FILES,
        _deleting(lambda each, fence, referenced: each.began < fence),
        bounds=_SMALL,
    ),
    variant(
        "files_beyond_the_fence_deleted",
        _FILES,
        _deleting(lambda each, fence, referenced: each.path not in referenced),
        bounds=_SMALL,
    ),
    variant(
        "files_at_the_fence_deleted",
        _FILES,
        _deleting(
            lambda each, fence, referenced: each.began <= fence and each.path not in referenced
        ),
        bounds=_SMALL,
    ),
)
