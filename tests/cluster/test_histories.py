"""Three client libraries through kills of leaders: what they were told goes together."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.conftest import MakeCluster, tidelog
from tests.cluster.recorded_clients import CONSUMERS, PATIENCE_S, PRODUCERS, Work

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.testing.histories import HistoryRecorder

TOPIC = "recorded"
PARTITIONS = 3
KILLS = 3
#: Acknowledged to each producer before a kill, and again after it.
ENOUGH = 200


def await_that(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def leader(cluster: LocalCluster, partition: int) -> int:
    return next(
        each.leader
        for each in cluster.status().partitions
        if (each.topic, each.partition) == (TOPIC, partition)
    )


def test_the_history_of_three_libraries_through_kills_has_no_anomaly(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(3, metadata_session_timeout_ms="3000")
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        client.await_topic(TOPIC, min_isr=3)
    path = tmp_path / "history.jsonl"
    with HistoryRecorder(str(path)) as recorder:
        work = Work(cluster.bootstrap, TOPIC, PARTITIONS, recorder)
        producers = [each(work, f"{each.__name__}-1") for each in PRODUCERS]
        consumers = [each(work, f"{each.__name__}-1") for each in CONSUMERS]
        for each in (*producers, *consumers):
            each.start()

        def progress(of: str) -> None:
            marks = [producer.acknowledged + ENOUGH for producer in producers]

            def reached() -> bool:
                for producer in producers:
                    assert producer.failure is None, producer.failure
                return all(
                    producer.acknowledged >= mark
                    for producer, mark in zip(producers, marks, strict=True)
                )

            await_that(reached, of)

        for number in range(KILLS):
            progress(f"records before kill {number}")
            killed = leader(cluster, number % PARTITIONS)
            cluster.kill(killed)
            progress(f"records after kill {number}")
            cluster.start(killed)
            cluster.await_full_isrs()

        work.no_more_sends.set()
        for producer in producers:
            producer.finish()
        tps = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        with BlockingClient(cluster.bootstrap) as client:
            ends = client.list_offsets(dict.fromkeys(tps, -1))
        work.ends = {tp.partition: ends[tp].offset for tp in tps}
        work.may_end.set()
        for consumer in consumers:
            consumer.finish()

    report = recorder.assert_sound()
    assert report.allowed == {}
    sent = sum(producer.count for producer in producers)
    assert (report.sent_records, report.acknowledged_records) == (sent, sent)
    assert report.polled_records == sent
    assert report.operations > sent + len(consumers)

    told = tidelog("history", "check", str(path))
    assert told.returncode == 0, told.stderr
    assert f"{sent} acknowledged, {sent} polled" in told.stdout
    assert told.stdout.endswith("nothing is anomalous\n")
