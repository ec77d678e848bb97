"""Brokers that are stopped beyond their sessions and resumed (V47), as real processes."""

from __future__ import annotations

import pytest
from tests.cluster.conftest import MakeCluster
from tests.cluster.test_faults import TP, await_status, create, partition
from tests.support.cluster.raw_connections import RawConnection, request
from tests.support.cluster.values import read_values, write_values

from tidelog.core.errors import ErrorCode
from tidelog.records.builder import NewRecord, build_batch
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.registry import LIST_OFFSETS, METADATA, PRODUCE

_LATEST = -1
#: API and version of each request, in the order in which they are sent.
_ASKED = ((LIST_OFFSETS, 7), (PRODUCE, 9), (METADATA, 12))


def _requests() -> list[bytes]:
    latest = ListOffsetsRequest(
        topics=[ListOffsetsTopic(TP.topic, [ListOffsetsPartition(0, timestamp=_LATEST)])]
    )
    data = PartitionProduceData(0, build_batch([NewRecord(None, b"lost")]))
    produce = ProduceRequest(
        acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(TP.topic, [data])]
    )
    metadata = MetadataRequest([MetadataRequestTopic(name=TP.topic)])
    return [
        request(api_key, version, message, number)
        for number, ((api_key, version), message) in enumerate(
            zip(_ASKED, (latest, produce, metadata), strict=True)
        )
    ]


@pytest.mark.rule("V47")
def test_a_leader_that_was_stopped_beyond_its_session_answers_nothing_stale(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, metadata_session_timeout_ms="2000")
    create(cluster)
    write_values(cluster.bootstrap, TP, [b"before"])
    paused = partition(cluster.status()).leader
    with RawConnection(cluster, paused) as connection:
        connection.ask(METADATA, 12, MetadataRequest([]))
        cluster.pause(paused)
        await_status(
            cluster, lambda now: partition(now).leader not in (-1, paused), "another leader"
        )
        others = ",".join(
            place.address for number, place in cluster.places().items() if number != paused
        )
        write_values(others, TP, [b"while paused"])
        # They wait in the socket and are there in the first turn after the pause.
        connection.send(b"".join(_requests()))
        cluster.resume(paused)
        offsets, produced, metadata = (
            decode_response(api_key, version, connection.answer())[1] for api_key, version in _ASKED
        )
    codes = [
        offsets.topics[0].partitions[0].error_code,
        produced.responses[0].partition_responses[0].error_code,
    ]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert metadata.topics[0].partitions[0].leader_id not in (-1, paused)
    cluster.await_full_isrs()
    assert read_values(cluster.bootstrap, TP) == [b"before", b"while paused"]
