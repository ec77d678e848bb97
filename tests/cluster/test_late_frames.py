"""Batches that wait for a check on a thread are written as they came, whatever comes meanwhile."""

from __future__ import annotations

from tests.cluster.conftest import MakeCluster
from tests.support.cluster.raw_connections import MIB, RawConnection, request
from tests.support.cluster.values import read_values

from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.compression import GZIP
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.registry import API_VERSIONS, PRODUCE

TP = TopicPartition("late", 0)
#: Decompressing it takes longer than the requests behind it need to come.
LARGE = bytes(60 * MIB)
BEHIND = [b"%d" % number * 500 for number in range(8)]


def produce(correlation_id: int, batch: bytes | bytearray) -> bytes:
    data = PartitionProduceData(TP.partition, memoryview(batch))
    message = ProduceRequest(acks=1, topic_data=[TopicProduceData(TP.topic, [data])])
    return request(PRODUCE, 9, message, correlation_id)


def test_what_waits_for_a_check_is_written_as_it_came(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, 1, 1)
        client.await_topic(TP.topic)
    frames = [produce(1, build_batch([NewRecord(None, LARGE)], codec=GZIP))]
    frames += [
        produce(2 + number, build_batch([NewRecord(None, value)]))
        for number, value in enumerate(BEHIND)
    ]
    ping = request(API_VERSIONS, 3, ApiVersionsRequest("raw", "1"), 99)
    with RawConnection(cluster) as connection, RawConnection(cluster) as other:
        for frame in frames:
            connection.send(frame)
            # Its answer means that the broker has read what came before it.
            other.send(ping)
            other.answer()
            other.send(ping)
            other.answer()
        for _ in frames:
            _, answer = decode_response(PRODUCE, 9, connection.answer())
            (outcome,) = answer.responses[0].partition_responses
            assert outcome.error_code == 0, outcome.error_message
    values = read_values(cluster.bootstrap, TP)
    assert [(len(value), value[:1]) for value in values] == [
        (len(value), value[:1]) for value in (LARGE, *BEHIND)
    ]
