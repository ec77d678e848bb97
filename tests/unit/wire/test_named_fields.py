"""Messages changed by the names of their fields."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from tidelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse
from tidelog.wire.messages.sync_group import SyncGroupResponse
from tidelog.wire.named_fields import with_fields


def test_named_fields_are_replaced_and_others_stay() -> None:
    broker = MetadataResponseBroker(1, "a", 9092)
    found = with_fields(
        MetadataResponse(brokers=[broker], controller_id=1),
        {
            "controller_id": 2,
            "topics": [{"name": "t", "partitions": [{"leader_id": 3, "isr_nodes": [3, 4]}]}],
        },
    )
    partition = MetadataResponsePartition(leader_id=3, isr_nodes=[3, 4])
    topic = MetadataResponseTopic(name="t", partitions=[partition])
    assert found == MetadataResponse(brokers=[broker], controller_id=2, topics=[topic])


def test_structs_and_absent_values() -> None:
    found = with_fields(
        PartitionProduceResponse(error_message="gone"),
        {"current_leader": {"leader_id": 2}, "error_message": None},
    )
    assert found == PartitionProduceResponse(current_leader=LeaderIdAndEpoch(2, -1))


@pytest.mark.parametrize("value", [b"\x01\xff", "01ff", bytearray(b"\x01\xff")])
def test_bytes_may_be_text_in_hexadecimal(value: object) -> None:
    assert with_fields(SyncGroupResponse(), {"assignment": value}).assignment == b"\x01\xff"


@pytest.mark.parametrize(
    ("message", "fields", "reason"),
    [
        (MetadataResponse(), {"borkers": []}, "^borkers: no field; MetadataResponse has .*brokers"),
        (MetadataResponse(), {"brokers": 3}, "^brokers: 3: a list expected"),
        (MetadataResponse(), {"brokers": [3]}, r"brokers\[0\]: 3: the fields of .*Broker expected"),
        (
            MetadataResponse(),
            {"brokers": [{"port": "x"}]},
            r"brokers\[0\].port: 'x': an integer of 32",
        ),
        (MetadataResponse(), {"controller_id": True}, "controller_id: True: an integer of 32 bits"),
        (MetadataResponse(), {"controller_id": 1 << 31}, "an integer of 32 bits expected"),
        (MetadataResponse(), {"topics": [{"topic_id": "00"}]}, "topic_id: '00': 16 bytes expected"),
        (
            SyncGroupResponse(),
            {"assignment": "xy"},
            "assignment: 'xy': bytes or hexadecimal digits",
        ),
        (SyncGroupResponse(), {"assignment": 7}, "bytes or hexadecimal digits expected"),
        (SyncGroupResponse(), {"error_code": None}, "error_code: None: an integer of 16 bits"),
        (PartitionProduceResponse(), {"error_message": 1}, "1: a value of type str expected"),
        (DescribeTopicPartitionsResponse(), {"next_cursor": 1}, "the fields of Cursor expected"),
    ],
)
def test_wrong_fields_are_named_with_their_path(
    message: Any, fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        with_fields(message, fields)
