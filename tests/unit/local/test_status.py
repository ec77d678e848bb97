"""What a cluster looks like from outside, where brokers say little."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.client.fake_logs import FakeLogs

from tidelog.local import status
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
