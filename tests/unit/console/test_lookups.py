"""Lookups: where a search for records begins."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.console.lookups import _start
from tidelog.console.views.tables import BadQuery
from tidelog.core.types import TopicPartition

TP = TopicPartition("t", 0)


class Times:
    """A client that finds each time at offset 70."""

    def positions(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, 70)


@pytest.mark.parametrize(
    ("where", "start"),
    [("latest", 90), ("", 90), ("earliest", 0), ("12", 12), ("-5", -5), ("2026-01-31T12:00", 70)],
)
def test_a_search_begins_at_an_offset_a_time_or_an_end(where: str, start: int) -> None:
    client: Any = Times()
    assert _start(client, TP, {"from": where}, 10, 100) == start


@pytest.mark.parametrize("where", ["²", "--5", "9" * 5_000, "yesterday"])
def test_another_beginning_is_refused_with_what_is_expected(where: str) -> None:
    client: Any = Times()
    with pytest.raises(BadQuery, match="an offset, earliest, latest, or a time"):
        _start(client, TP, {"from": where}, 10, 100)
