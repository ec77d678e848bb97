"""Lookups: where a search for records begins, and the keys of a configuration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.client.configs import ConfigValue
from tidelog.console.lookups import _start, configuration_document
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


@pytest.mark.parametrize(
    ("source", "shown"),
    [("DEFAULT_CONFIG", []), ("STATIC_BROKER_CONFIG", ["tidelog.test.disk.faults"])],
)
def test_keys_of_test_clusters_are_shown_only_where_they_are_set(
    source: str, shown: list[str]
) -> None:
    values = [
        ConfigValue("log.dirs", "/data", "STATIC_BROKER_CONFIG", True, False),
        ConfigValue("tidelog.test.disk.faults", "", source, True, False),
    ]
    client: Any = SimpleNamespace(
        describe_configs=lambda resource, with_synonyms: values,
        metadata=lambda topics: SimpleNamespace(brokers={1: None}),
    )
    rows = configuration_document(client, {"of": "broker", "name": "1"})["table"]["rows"]
    assert [row["name"] for row in rows] == ["log.dirs", *shown]
