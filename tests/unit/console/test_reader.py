"""Reads of parts of a cluster of which one broker does not respond."""

from __future__ import annotations

from typing import Any

from tests.support.console_readings import group, reading

from tidelog.console.reader import read_groups
from tidelog.core.errors import RequestTimeout
from tidelog.core.types import TopicPartition

TP = TopicPartition("t", 0)


def test_committed_offsets_are_read_while_a_leader_hangs() -> None:
    known = group("g", {TP: 50})

    class Client:
        def list_groups(self) -> Any:
            return [known.listing]

        def describe_group(self, _name: str) -> Any:
            return known.description

        def committed(self, _name: str) -> Any:
            return known.committed

        def positions(self, _wanted: Any) -> Any:
            raise RequestTimeout("broker 1 does not respond")

    client: Any = Client()
    found = read_groups(client, reading(ends={TP: 90}, starts={TP: 10}))
    assert found == {"groups": {"g": known}, "starts": {TP: 10}}
