"""Changes: what their requests must have, what a dry run leaves undone."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.support.console_readings import group, metadata, partition, request
from tests.unit.console.test_requests import OWN, TOKEN, console

from tidelog.client.groups import FetchedOffset
from tidelog.console.actions import ACTIONS
from tidelog.console.security import RequestAccess
from tidelog.console.views.tables import BadQuery
from tidelog.core.types import TopicPartition
from tidelog.records.batch import iter_batches

TP = TopicPartition("t", 0)
PLACE = {"topic": "t", "partition": 0}


class Recorder:
    """A cluster in place of a client, which notes the changes."""

    def __init__(self, members: bool = False) -> None:
        self.known = group("g", {TP: 50}, {"m": [TP]} if members else None)
        self.changes: list[tuple[Any, ...]] = []

    def describe_group(self, name: str) -> Any:
        return self.known.description

    def committed(self, name: str) -> Any:
        return self.known.committed

    def positions(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {tp: {-2: 10, -1: 100}.get(at, 70) for tp, at in wanted.items()}

    def metadata(self, topics: Any = None) -> Any:
        return metadata({"t": [partition(0, 1, [1, 2, 3])]})

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **more: self.changes.append((name, *words, more))


def run(action: str, client: Recorder, **body: Any) -> Any:
    cluster: Any = client
    return ACTIONS[action](cluster, body)


@pytest.mark.parametrize(
    ("to", "after"),
    [("earliest", 10), ("latest", 100), ("55", 55), ("5", 10), ("900", 100), ("2026-01-31", 70)],
)
def test_a_reset_stays_within_the_log_and_a_dry_run_commits_nothing(to: str, after: int) -> None:
    client = Recorder()
    planned = run("reset", client, group="g", to=to, dry_run=True)
    assert planned["rows"] == [{**PLACE, "before": 50, "after": after}]
    assert client.changes == []
    assert run("reset", client, group="g", to=to) == planned
    assert client.changes == [("commit", "g", {TP: FetchedOffset(after)}, {})]


def test_a_group_with_members_is_not_reset() -> None:
    with pytest.raises(BadQuery, match="stop them"):
        run("reset", Recorder(members=True), group="g", to="earliest")


@pytest.mark.parametrize(
    ("action", "body", "word"),
    [
        ("reset", {"group": "g", "to": "soon"}, "to='soon'"),
        (
            "reset",
            {"group": "g", "to": "latest", "topic": "other"},
            "no committed offsets of other",
        ),
        ("reset", {"to": "latest"}, "group: a text"),
        ("elect", {"topic": "t", "partition": True}, "partition=True"),
        ("elect", {"topic": "t", "partition": -1}, "partition=-1"),
        ("move", {**PLACE, "brokers": []}, "a list of broker ids"),
        ("move", {**PLACE, "brokers": [1, True]}, "a list of broker ids"),
        ("move", {**PLACE, "brokers": [1, 1]}, "named twice"),
        ("move", {"topic": "t", "partition": 9, "brokers": [1]}, "no partition t-9"),
        ("configure", {"of": "broker", "name": "x", "key": "k"}, "a broker with its id"),
        ("configure", {"of": "topic", "name": "t", "key": "k", "value": 5}, "value: a text"),
        ("produce", {**PLACE, "value": None}, "texts expected"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused(
    action: str, body: dict[str, Any], word: str
) -> None:
    client = Recorder()
    with pytest.raises(BadQuery, match=word):
        run(action, client, **body)
    assert client.changes == []


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("elect", PLACE),
        ("move", {**PLACE, "brokers": [2, 3]}),
        ("move", {**PLACE, "brokers": None}),
        ("produce", {**PLACE, "value": "<b>"}),
    ],
)
def test_a_dry_run_says_what_would_be_done(action: str, body: dict[str, Any]) -> None:
    client = Recorder()
    assert "t-0" in run(action, client, **body, dry_run=True)["text"]
    assert client.changes == []


def test_a_written_record_has_the_time_of_now() -> None:
    class Writer(Recorder):
        def produce(self, tp: TopicPartition, batch: bytearray) -> int:
            (written,) = iter_batches(memoryview(batch))
            self.changes.append((tp, written.base_timestamp))
            return 7

    before_ms = time.time_ns() // 1_000_000
    client = Writer()
    assert "offset 7" in run("produce", client, **PLACE, value="x")["text"]
    ((tp, at_ms),) = client.changes
    assert tp == TP and before_ms <= at_ms <= time.time_ns() // 1_000_000


def test_brokers_check_a_configuration_in_a_dry_run() -> None:
    client = Recorder()
    run("configure", client, of="topic", name="t", key="retention.ms", value="5", dry_run=True)
    (change,) = client.changes
    assert change[0] == "alter_configs" and change[-1] == {"validate_only": True}


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("elect", b"[]", 400),
        ("elect", b"{not json", 400),
        ("elect", b"{}", 400),
        ("elect", b"\xff", 400),
        ("none", b"{}", 404),
        ("produce", b" " * (1 << 21), 413),
    ],
)
def test_bodies_that_are_no_change_get_a_sentence(name: str, body: bytes, status: int) -> None:
    app = console(RequestAccess(token=TOKEN)).asgi()
    answer = request(app, "POST", f"/api/actions/{name}", {**OWN, "x-tidelog-token": TOKEN}, body)
    assert answer.status == status and json.loads(answer.body)["error"]
