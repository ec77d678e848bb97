"""Clients of brokers whose sessions end under them."""

from __future__ import annotations

import logging
import time

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.clients.librdkafka import PATIENCE_S, produce

from tidelog.core.types import NO_LEADER
from tidelog.testing import Cluster

#: How long the controller's view takes to a broker that has registered again.
_SILENCE_S = 3.0


@pytest.mark.tidelog(config={"metadata.session.timeout.ms": 2000})
def test_a_polling_librdkafka_outlives_the_session_of_a_broker(
    tidelog_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka drops the brokers that a Metadata answer does not list. Without any it begins
    again with its bootstrap servers, and hangs for good where its connection closes meanwhile."""
    cluster = tidelog_cluster
    topic = cluster.create_topic("polled", replicas={0: [1]})
    log = logging.getLogger("librdkafka.polled")
    caplog.set_level(logging.DEBUG, log.name)
    consumer = Consumer(
        {
            # The one broker that it ever needs.
            "bootstrap.servers": cluster.bootstrap.split(",")[0],
            "group.id": "polling",
            "topic.metadata.refresh.interval.ms": 50,
            "debug": "metadata",
        },
        logger=log,
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert produce(cluster.bootstrap, topic, ["before"]) == []
        assert _next_value(consumer) == b"before"
        # Brokers end a process that is stopped while it holds the embedded store, as the controller
        # may be that creates the topic of groups.
        cluster.wait_for(
            lambda now: any(
                each.topic == "__consumer_offsets" and each.leader != NO_LEADER
                for each in now.partitions
            ),
            what="the topic of groups",
        )
        late = cluster.on_request("UpdateMetadata").from_brokers().on(1).once().delay(_SILENCE_S)
        cluster.pause(1)
        cluster.wait_for(
            lambda now: any(
                each.topic == topic and each.leader == NO_LEADER for each in now.partitions
            ),
            what="the end of broker 1's session",
        )
        cluster.resume(1)
        late.wait()
        assert produce(cluster.bootstrap, topic, ["after"]) == []
        assert _next_value(consumer) == b"after"
        assert [line for line in caplog.messages if "REBOOTSTRAP" in line] == []
    finally:
        consumer.close()


def _next_value(consumer: Consumer) -> bytes | None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            return message.value()
    raise AssertionError("the consumer is hung: no record within its patience")
