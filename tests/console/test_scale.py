"""A cluster of 3,000 topics and 10,000 partitions: pages send a window of it, and stay small."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from selenium import webdriver
from tests.console.conftest import Browser
from tests.console.serving import served

from tidelog.client.cluster import BrokerNode, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.console.poller import Poller, Publish
from tidelog.console.readings import ClusterReading
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

TOPICS, PARTITIONS = 3_000, 10_000
#: Most bytes of one live update, and most rows of a table, however large the cluster is.
MOST_BYTES, MOST_ROWS = 100_000, 200


def reading(number: int) -> ClusterReading:
    """A reading in which every partition has grown."""
    placed: dict[str, dict[int, PartitionMetadata]] = {}
    ends = {}
    for each in range(PARTITIONS):
        name, partition = f"topic-{each % TOPICS:04}", each // TOPICS
        placed.setdefault(name, {})[partition] = PartitionMetadata(
            partition, 1 + each % 3, 0, (1, 2, 3), (1, 2, 3)
        )
        ends[TopicPartition(name, partition)] = 1_000 * number + each
    brokers = {each: BrokerNode(each, "127.0.0.1", each) for each in (1, 2, 3)}
    topics = {name: TopicMetadata(name, partitions=found) for name, found in placed.items()}
    metadata = ClusterMetadata(brokers, 1, "large", topics)
    return ClusterReading(number, 1_800_000_000_000 + 1_000 * number, metadata, ends=ends)


class GrowingCluster(Poller):
    """A poller that publishes a new reading of a large cluster until it is closed."""

    def __init__(self, publish: Publish) -> None:
        super().__init__(BlockingClient("127.0.0.1:1"), publish)
        self._growth = threading.Thread(target=self._grow)
        self._stopped = threading.Event()
        self._send = publish

    def start(self) -> None:
        self._growth.start()

    def close(self) -> None:
        self._stopped.set()
        self._growth.join()

    def _grow(self) -> None:
        number = 1
        while True:
            self._send(reading(number))
            number += 1
            if self._stopped.wait(1.0):
                return


@pytest.fixture
def large(driver: webdriver.Chrome) -> Iterator[Browser]:
    with served(driver, GrowingCluster) as browser:
        yield browser


def test_a_large_cluster_is_a_small_page_that_stays_live(large: Browser) -> None:
    large.open("/topics")
    large.until(lambda: len(large.texts("tbody tr")) == MOST_ROWS, "the first rows")
    large.until_text("The first 200 of 3,000")
    large.shoot("topics-of-a-large-cluster")
    before = large.texts("tbody tr")[0]
    large.until(lambda: large.texts("tbody tr")[0] != before, "the rows have moved on")
    size = large.driver.execute_async_script(
        "const done = arguments[0];"
        "fetch('/api/view/topics').then((r) => r.text()).then((text) => done(text.length))"
    )
    assert 0 < size < MOST_BYTES
    large.press("/")
    large.press("topic-2999")
    large.until(lambda: large.texts("tbody tr a.row") == ["topic-2999"], "one topic is left")

    assert large.complaints() == []
