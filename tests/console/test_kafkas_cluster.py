"""The console of a cluster of Apache Kafka's brokers, in a real Chromium.

Each page opens. What needs an API of tidelog's own is missing, and the page says so in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from selenium import webdriver
from tests.console.conftest import TOKEN, TOPIC, Browser, fill, running_console
from tests.console.test_changes import press, until_dialog
from tests.support.cluster.broker_processes import KafkaBroker, require_kafka
from tests.support.cluster.zookeepers import start_server

from tidelog.client.groups import FetchedOffset
from tidelog.core.types import TopicPartition
from tidelog.local.ports import free_ports
from tidelog.runtime.blocking import BlockingClient

pytestmark = pytest.mark.soak

KEYS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
NO_EVENTS = "This cluster has no topic __cluster_events"
NO_PORT = "only tidelog's brokers have an admin port"
#: Each page's address, a text that it must show, and the sentence about what is missing.
PAGES = {
    "cluster": ("/", "Brokers", NO_EVENTS),
    "broker": ("/broker?id=1", "Broker 1", NO_PORT),
    "topics": ("/topics", TOPIC, None),
    "topic": (f"/topic?name={TOPIC}", "Partitions", None),
    "partition": (
        f"/partition?topic={TOPIC}&partition=0",
        "High watermark",
        "These brokers do not serve DescribeReplicas",
    ),
    "groups": ("/groups", "billing", None),
    "group": ("/group?name=billing", "480", None),
    "moves": ("/moves", "No partition moves now.", None),
    "disks": ("/disks", "healthy", None),
    "records": (f"/records?topic={TOPIC}&partition=0&from=earliest", "plain text", None),
    "configuration": (
        "/configuration?of=broker&name=1&q=min.insync",
        "min.insync.replicas",
        None,
    ),
    "events": ("/events", "Events", NO_EVENTS),
    "failovers": ("/failovers", "Failovers", NO_EVENTS),
}


@pytest.fixture(scope="module")
def kafka(driver: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two brokers of Kafka's with a topic of records and groups; their addresses."""
    require_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    server = start_server(directory / "zookeeper")

    brokers = [
        KafkaBroker(directory / str(number), number, port, server.address, KEYS)
        for number, port in enumerate(free_ports(2), 1)
    ]
    try:
        for broker in brokers:
            broker.spawn()
        for broker in brokers:
            broker.await_up()
        bootstrap = ",".join(broker.address for broker in brokers)
        with BlockingClient(bootstrap) as client:
            client.create_topic(TOPIC, 3, 2)
            client.await_topic(TOPIC)
            fill(client)
        yield bootstrap
    finally:
        for broker in brokers:
            broker.kill()
        server.stop()


@pytest.fixture(scope="module")
def kafkas_console(kafka: str) -> Iterator[str]:
    with running_console(kafka, "--allow-changes") as address:
        yield address


@pytest.fixture
def kafkas_browser(driver: webdriver.Chrome, kafkas_console: str) -> Iterator[Browser]:
    made = Browser(driver, kafkas_console)
    made.complaints()
    yield made
    assert made.complaints() == []


@pytest.mark.parametrize("name", PAGES)
def test_each_page_opens_and_says_what_the_cluster_does_not_offer(
    kafkas_browser: Browser, name: str
) -> None:
    path, text, sentence = PAGES[name]
    kafkas_browser.open(path)
    kafkas_browser.until_text(text)
    if sentence is not None:
        kafkas_browser.until_text(sentence)
    kafkas_browser.shoot(f"kafka-{name}")
    page = kafkas_browser.text
    assert not re.search(r"failed:|defect|UNSUPPORTED_VERSION|undefined|NaN", page), page


def test_a_partition_of_kafkas_shows_what_its_protocol_has(kafkas_browser: Browser) -> None:
    kafkas_browser.open(f"/partition?topic={TOPIC}&partition=1")
    kafkas_browser.until_text("500")
    cells = kafkas_browser.texts("tbody tr td")
    assert "leader" in cells and "follower" in cells and any("yes" in each for each in cells)


def test_a_record_is_written_and_read_and_offsets_are_reset(
    kafka: str, kafkas_browser: Browser
) -> None:
    tp = TopicPartition(TOPIC, 2)
    with BlockingClient(kafka) as client:
        client.commit("to-reset", {TopicPartition(TOPIC, 1): FetchedOffset(400)})
        kafkas_browser.open(f"/partition?topic={TOPIC}&partition=2#token={TOKEN}")
        press(kafkas_browser, "Write a record")
        until_dialog(kafkas_browser, "Value")
        script = "document.querySelector('dialog textarea').value = 'by hand'"
        kafkas_browser.driver.execute_script(script)
        press(kafkas_browser, "Show what would be done")
        until_dialog(kafkas_browser, "7 bytes would be written")
        press(kafkas_browser, "Write a record")
        until_dialog(kafkas_browser, "offset 0")
        kafkas_browser.open(f"/records?topic={tp.topic}&partition={tp.partition}&from=earliest")
        kafkas_browser.until_text("by hand")
        kafkas_browser.open("/group?name=to-reset")
        press(kafkas_browser, "Reset offsets")
        press(kafkas_browser, "Show what would be done")
        until_dialog(kafkas_browser, f"{TOPIC}-1: 400 to 0")
        press(kafkas_browser, "Reset offsets")
        until_dialog(kafkas_browser, "Done")
        assert client.committed("to-reset")[TopicPartition(TOPIC, 1)].offset == 0
