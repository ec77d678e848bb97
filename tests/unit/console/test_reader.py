"""Reads of parts of a cluster of which one broker does not respond."""

from __future__ import annotations

from typing import Any

from tests.support.console_readings import group, metadata, reading

from tidelog.console.reader import read_groups
from tidelog.core.errors import RequestTimeout
from tidelog.core.types import TopicPartition

TP = TopicPartition("t", 0)


def test_committed_offsets_are_read_while_a_leader_hangs() -> None:
    known = group("g", {TP: 50})

    class Client:
        def list_groups(self, _brokers: Any, _loading: Any) -> Any:
            return [known.listing]

        def describe_group(self, _name: str) -> Any:
            return known.description

        def committed(self, _name: str) -> Any:
            return known.committed

        def positions(self, _wanted: Any) -> Any:
            raise RequestTimeout("broker 1 does not respond")

    client: Any = Client()
    one = metadata({}, brokers=[1])
    found = read_groups(client, reading(metadata=one, ends={TP: 90}, starts={TP: 10}))
    assert found == {"groups": {"g": known}, "starts": {TP: 10}, "silent_coordinators": {}}


def test_groups_of_other_brokers_are_listed_while_a_broker_loads_or_is_silent() -> None:
    kept, listed = group("kept", {}), group("listed", {})

    class Client:
        def list_groups(self, brokers: Any, loading: set[int]) -> Any:
            if brokers == [1]:
                raise RequestTimeout("broker 1 does not respond")
            if brokers == [2]:
                loading.add(2)
                return [listed.listing]
            return []

        def describe_group(self, name: str) -> Any:
            return {"kept": kept, "listed": listed}[name].description

        def committed(self, _name: str) -> Any:
            return {}

    client: Any = Client()
    found = read_groups(client, reading(metadata=metadata({}), groups={"kept": kept}))
    assert sorted(found["groups"]) == ["kept", "listed"]
    assert found["silent_coordinators"][1] == "broker 1 does not respond"
    assert "loads groups" in found["silent_coordinators"][2]
    assert 3 not in found["silent_coordinators"]
