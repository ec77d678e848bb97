"""Responses that clients do not read cost a broker no more than its budget for them."""

from __future__ import annotations

import resource

from tests.cluster.conftest import MakeCluster
from tests.support.cluster.raw_connections import (
    MIB,
    RawConnection,
    begin_peak,
    memory_bytes,
    peak_bytes,
    request,
)
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.registry import FETCH

READERS = 200
#: Requests that each of them sends at once.
PIPELINED = 40
PARTITIONS = 8
BATCHES = 8
ASKED_BYTES = 50 * MIB
FETCH_VERSION = 11
TOPIC = "large"
LIMIT_BYTES = 300 * MIB
SMALL = TopicPartition("small", 0)


def fill(cluster: LocalCluster) -> None:
    """More than one of the readers asks for, in batches of nearly 1 MiB."""
    value = bytes(1000 * 1024)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS, 1)
        client.await_topic(TOPIC)
        client.create_topic(SMALL.topic, 1, 1)
        client.await_topic(SMALL.topic)
    for partition in range(PARTITIONS):
        for _ in range(BATCHES):
            write_values(cluster.bootstrap, TopicPartition(TOPIC, partition), [value])


def fetch_frame() -> bytes:
    partitions = [FetchPartition(partition, -1, 0) for partition in range(PARTITIONS)]
    for each in partitions:
        each.partition_max_bytes = ASKED_BYTES
    message = FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=ASKED_BYTES, session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
    )  # fmt: skip
    return request(FETCH, FETCH_VERSION, message)


def test_readers_that_read_nothing_share_a_budget_and_others_are_served(
    make_cluster: MakeCluster,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2048), hard), hard))
    cluster = make_cluster(1)
    fill(cluster)
    frames = fetch_frame() * PIPELINED
    begin_peak(cluster)
    readers = [RawConnection(cluster) for _ in range(READERS)]
    try:
        for reader in readers:
            reader.send(frames)
        write_values(cluster.bootstrap, SMALL, [b"meanwhile"])
        assert read_values(cluster.bootstrap, SMALL) == [b"meanwhile"]
        values = read_values(cluster.bootstrap, TopicPartition(TOPIC, 0))
        (large,) = {len(value) for value in values}
        assert large == 1000 * 1024, "records are read while others read nothing"
        assert memory_bytes(cluster) < LIMIT_BYTES
        assert peak_bytes(cluster) < LIMIT_BYTES + 100 * MIB
    finally:
        for reader in readers:
            reader.reset()
