"""Half-received requests of many connections cost a broker no more than its budget for them."""

from __future__ import annotations

import threading
from typing import Any

from tests.cluster.conftest import MakeCluster
from tests.support.cluster.raw_connections import (
    MIB,
    RawConnection,
    ask,
    await_true,
    begin_peak,
    memory_bytes,
    peak_bytes,
    request,
)
from tests.support.cluster.values import read_values, write_values

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.registry import METADATA, PRODUCE

WRITERS = 30
SENT_FIRST = 20 * MIB
REQUEST_BYTES = 25 * MIB
BUDGET_BYTES = 100 * MIB
#: A buffer that grows is copied, and each connection has read the beginning of its request.
SLACK_BYTES = 80 * MIB
TP = TopicPartition("small", 0)


class Writer(threading.Thread):
    """Sends most of a large request, and its rest when it is told to."""

    def __init__(self, connection: RawConnection, frame: bytes, rest: threading.Event) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._frame = frame
        self._rest = rest
        self.has_sent_first = False
        self.answer: Any = None

    def run(self) -> None:
        """Send all of it, read the answer."""
        self._connection.send(self._frame[:SENT_FIRST])
        self.has_sent_first = True
        self._rest.wait()
        self._connection.send(self._frame[SENT_FIRST:])
        _, self.answer = decode_response(PRODUCE, 9, self._connection.answer())


def test_half_received_requests_of_many_connections_share_a_budget(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, queued_max_request_bytes=str(BUDGET_BYTES))
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, 1, 1)
        client.await_topic(TP.topic)
    data = PartitionProduceData(0, memoryview(bytes(REQUEST_BYTES)))
    message = ProduceRequest(acks=1, topic_data=[TopicProduceData("not-there", [data])])
    frame = request(PRODUCE, 9, message)
    before = memory_bytes(cluster)
    begin_peak(cluster)
    rest = threading.Event()
    connections = [RawConnection(cluster) for _ in range(WRITERS)]
    writers = [Writer(connection, frame, rest) for connection in connections]
    try:
        for writer in writers:
            writer.start()
        fitting = BUDGET_BYTES // REQUEST_BYTES
        await_true(
            lambda: sum(writer.has_sent_first for writer in writers) >= fitting - 1,
            "as many half-received requests as there is room for",
        )
        assert ask(cluster, METADATA, 12, MetadataRequest(None)).topics
        write_values(cluster.bootstrap, TP, [b"meanwhile"])
        assert read_values(cluster.bootstrap, TP) == [b"meanwhile"]
        assert sum(writer.has_sent_first for writer in writers) <= fitting
        rest.set()
        for writer in writers:
            writer.join(60.0)
            assert writer.answer is not None, "a request that was held is answered"
            (topic,) = writer.answer.responses
            assert topic.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert peak_bytes(cluster) - before < BUDGET_BYTES + SLACK_BYTES
    finally:
        rest.set()
        for connection in connections:
            connection.reset()
    assert "connections wait to send requests" in cluster.places()[1].last_lines(200)


def test_a_connection_that_holds_the_budget_and_sends_nothing_is_closed(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, queued_max_request_bytes=str(BUDGET_BYTES))
    data = PartitionProduceData(0, memoryview(bytes(60 * MIB)))
    message = ProduceRequest(acks=1, topic_data=[TopicProduceData("not-there", [data])])
    frame = request(PRODUCE, 9, message)
    with RawConnection(cluster) as silent, RawConnection(cluster) as waits:
        silent.send(frame[: 1 * MIB])
        assert ask(cluster, METADATA, 12, MetadataRequest(None)) is not None
        waits.send(frame)
        _, answer = decode_response(PRODUCE, 9, waits.answer())
        assert answer.responses[0].name == "not-there"
        assert silent.until_closed() == b""
    assert "of a request of 62,9" in cluster.places()[1].last_lines(200)
