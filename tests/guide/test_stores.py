"""The guide to saving and moving metadata and topics, typed on a local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.guide.documents import ROOT, Terminal, end, sections
from tests.support.cluster.values import read_values
from tests.support.cluster.writers import writing
from tests.support.cluster.zookeepers import start_server

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster

GUIDE = sections(ROOT / "docs" / "guide" / "operate" / "stores.md")
TYPED = {word: text for each in GUIDE.values() for word, text in each.named.items()}
TOPIC, PARTITIONS = "flights", 4
RECORDS_PER_SECOND = 100


def typed(terminal: Terminal, word: str, code: int = 0) -> str:
    """Return what a block of the guide prints; it must end with this code."""
    running = terminal.start(TYPED[word])
    try:
        output, errors = running.communicate()
    finally:
        end(running)
    assert running.returncode == code, f"{TYPED[word]}{output}{errors}"
    return output


def store_of(cluster: LocalCluster) -> set[str]:
    """The metadata stores that the brokers' files name."""
    lines = [
        line
        for number in cluster.broker_ids
        for line in Path(cluster.place(number).properties_path).read_text().splitlines()
    ]
    return {line.partition("=")[2] for line in lines if line.startswith("metadata.store=")}


def check_all_arrived_once(bootstrap: str, sent: int) -> None:
    """Compare the topic with what the producer sent: numbers, round the partitions."""
    for number in range(PARTITIONS):
        values = read_values(bootstrap, TopicPartition(TOPIC, number))
        assert values == [b"%d" % value for value in range(number, sent, PARTITIONS)]


@pytest.mark.soak
def test_metadata_is_saved_put_back_and_moved_under_a_producer(
    terminal: Terminal, tmp_path: Path
) -> None:
    server = start_server(tmp_path / "zookeeper", maxSessionTimeout="30000")
    typed(terminal, "begin")
    directory = str(tmp_path / "tidelog-cluster")
    cluster = LocalCluster.existing(directory)
    embedded = {f"embedded:{directory}/metadata"}
    assert store_of(cluster) == embedded
    variables = TYPED["variables"].replace("zk1:2181", server.address)
    terminal.environment["ZOOKEEPER"] = variables.strip().partition("=")[2]
    with writing(cluster.bootstrap, TOPIC, PARTITIONS, RECORDS_PER_SECOND) as writer:
        typed(terminal, "backup")
        terminal.run("tidelog topics create later --partitions 1 --replication-factor 3\n")
        terminal.run("tidelog produce later one two three\n")
        typed(terminal, "restore")
        assert "tidelog store accept" in typed(terminal, "look", 1)
        topics, _, strays = typed(terminal, "strays").partition("broker")
        assert TOPIC in topics and "later" not in topics
        assert "later" in strays and TOPIC not in strays
        typed(terminal, "accept")
        after_restore = writer.written
        typed(terminal, "zookeeper")
        assert store_of(cluster) == {terminal.environment["ZOOKEEPER"]}
        in_zookeeper = writer.written
        assert in_zookeeper > after_restore, "the producer wrote to brokers on ZooKeeper"
        typed(terminal, "embedded")
        assert store_of(cluster) == embedded
        cluster.await_full_isrs()
    assert writer.written > in_zookeeper
    assert writer.refused == []
    check_all_arrived_once(cluster.bootstrap, writer.written)


@pytest.mark.soak
def test_a_topic_is_saved_by_spark_and_written_back_the_same(terminal: Terminal) -> None:
    typed(terminal, "begin")
    lines = "".join(f"key-{number % 50}:value {number}\n" for number in range(3000))
    (terminal.directory / "lines").write_text(lines)
    terminal.run(f"tidelog produce {TOPIC} -K : -H source=guide -l lines\n")
    terminal.run(f"tidelog produce {TOPIC} without a key\n")
    terminal.save(GUIDE["Write the topic back"].files)
    typed(terminal, "save")
    before = (terminal.directory / "flights.before").read_text().splitlines()
    assert len(before) == 3003
    typed(terminal, "lose")
    typed(terminal, "writeback")
    assert (terminal.directory / "flights.after").read_text().splitlines() == before
