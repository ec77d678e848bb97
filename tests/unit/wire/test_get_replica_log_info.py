"""GetReplicaLogInfo in bytes, as the definitions of Kafka 4.1 have it (no library knows it yet)."""

from __future__ import annotations

from tidelog.wire.codec import encode_request, encode_response
from tidelog.wire.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    GetReplicaLogInfoTopic,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)
from tidelog.wire.registry import GET_REPLICA_LOG_INFO

TOPIC_ID = bytes(range(16))
#: Compact lengths are one more than the number of elements; each struct ends with its tags.
REQUEST = b"\x02" + TOPIC_ID + b"\x03" + b"\0\0\0\0" + b"\0\0\0\x07" + b"\0" + b"\0"
LOG = b"\0\0\0\x07" + b"\0\0\0\x05" + b"\0\0\0\x06" + b"\0\0\0\0\0\0\x01\0" + b"\0\0"
RESPONSE = (
    b"\0\0\0\0"  # throttle time
    + b"\0\0\0\0\0\0\0\x09"  # broker epoch
    + b"\x01"  # truncated
    + b"\x02" + TOPIC_ID + b"\x02" + LOG + b"\0" + b"\0" + b"\0"
)  # fmt: skip


def test_the_request_is_kafkas() -> None:
    request = GetReplicaLogInfoRequest([GetReplicaLogInfoTopic(TOPIC_ID, [0, 7])])
    frame = b"".join(map(bytes, encode_request(GET_REPLICA_LOG_INFO, 0, 1, "c", request)))
    assert frame.endswith(REQUEST)


def test_the_response_is_kafkas_as_long_as_the_start_of_the_log_is_not_in_it() -> None:
    log = PartitionLogInfo(7, 5, 6, 256)
    response = GetReplicaLogInfoResponse(0, 9, True, [TopicPartitionLogInfo(TOPIC_ID, [log])])
    frame = b"".join(map(bytes, encode_response(GET_REPLICA_LOG_INFO, 0, 1, response)))
    assert frame.endswith(RESPONSE)
    log.log_start_offset = 100
    longer = b"".join(map(bytes, encode_response(GET_REPLICA_LOG_INFO, 0, 1, response)))
    # The tag, 20,000, takes three bytes, its size one, the offset eight.
    assert len(longer) == len(frame) + 3 + 1 + 8
