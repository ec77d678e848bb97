"""Notices: reports of a decision's effects, for the log, for traces and for observers.

Each concern of the controller (topics, partitions, elections, ...) has its own kinds of notice.
Notices change nothing in the controller.
"""

from __future__ import annotations

from typing import Any, TypeVar

from tidelog.core.dataclass import dataclass

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class UnmetRequest:
    """A stored request that the controller cannot carry out; for the log."""

    text: str


@dataclass(frozen=True, slots=True)
class TopicOutdated:
    """Notice: another writer has changed a topic's node, which must be read again."""

    name: str


class Notices:
    """Notices by kind, each kind in the order in which its notices were added."""

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[type, list[Any]] = {}

    def add(self, notice: object) -> None:
        """Add a notice after earlier notices of its kind."""
        self._by_kind.setdefault(type(notice), []).append(notice)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the notices of one kind."""
        return self._by_kind.get(kind, [])

    def copy(self) -> Notices:
        """Return an independent copy."""
        other = Notices()
        other._by_kind = {kind: list(notices) for kind, notices in self._by_kind.items()}
        return other
