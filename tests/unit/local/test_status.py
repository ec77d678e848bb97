"""What a cluster looks like from outside, where brokers say little."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.client.fake_logs import FakeLogs

from tidelog.client.cluster import BrokerNode
from tidelog.local import LocalCluster, status
from tidelog.local.status import known_metadata
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.metadata import MetadataResponse
from tidelog.wire.registry import METADATA


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("flights", 2)
    yield made
    made.close()


def test_a_broker_that_knows_nothing_yet_is_asked_again(logs: FakeLogs) -> None:
    knowing = logs[1].handler(METADATA)
    logs[1].script(METADATA, MetadataResponse(), MetadataResponse(), knowing)
    with BlockingClient(logs[1].bootstrap) as client:
        assert list(known_metadata(client, 5_000).topics) == ["flights"]
    assert len(logs[1].asked(METADATA)) == 3


def test_a_cluster_that_no_broker_knows_is_not_reached(
    logs: FakeLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs[1].on(METADATA, lambda _: MetadataResponse())
    # The time is over at once.
    monkeypatch.setattr(status, "known_metadata", lambda client, _: known_metadata(client, 0))
    seen = status.remote_status(logs[1].bootstrap, 30_000)
    assert (seen.reached, seen.brokers, seen.partitions) == (False, (), ())


def test_a_remote_broker_is_up_or_down(logs: FakeLogs) -> None:
    """Its process is not looked at: the metadata has it, or names it as a replica alone."""
    metadata = SimpleNamespace(
        brokers={1: BrokerNode(1, "h", 9, None)},
        controller_id=1,
        all_partitions=lambda: [
            (None, SimpleNamespace(replicas=(1, 2), leader=1, isr=(1,), offline=())),
        ],
    )
    states = [each.state for each in status.brokers_of(cast(Any, metadata))]
    assert states == ["up", "down"]


def test_a_local_broker_has_the_state_of_its_process() -> None:
    place = SimpleNamespace(host="h", port=9)
    fake = SimpleNamespace(place=lambda _: place)
    of_process = LocalCluster._broker_status
    states = [
        of_process(cast(LocalCluster, fake), 1, cast(Any, process), None, status.Holding()).state
        for process in (
            SimpleNamespace(pid=1, is_paused=False),
            SimpleNamespace(pid=1, is_paused=True),
            None,
        )
    ]
    assert states == ["running", "paused", "stopped"]
