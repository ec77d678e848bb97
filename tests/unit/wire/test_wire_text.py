"""Strings that are no UTF-8 are read as Kafka reads them: malformed bytes are replaced."""

from __future__ import annotations

import pytest

from tidelog.core.errors import ProtocolError
from tidelog.core.ports import Buffer
from tidelog.wire import codec, decoding
from tidelog.wire.codec import decode_request, encode_request
from tidelog.wire.data.consumer_protocol import SUBSCRIPTION, ConsumerProtocolSubscription
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.produce import ProduceRequest, TopicProduceData
from tidelog.wire.registry import METADATA, OFFSET_COMMIT, PRODUCE
from tidelog.wire.text import replaced_text

#: What `new String(bytes, UTF_8)` gives in OpenJDK 17 for these bytes.
AS_JAVA = {
    b"\xff": 1,
    b"\x80": 1,
    b"\xc0\x80": 2,
    b"\xc3": 1,
    b"\xc3A": 1,
    b"\xe2\x82": 1,
    b"\xe2\x82A": 1,
    b"\xe0\x80\x80": 3,
    b"\xed\xa0\x80": 1,
    b"\xed\xa0": 1,
    b"\xed\xa0A": 1,
    b"\xed\xbf\xbf\xed\xa0\x80": 2,
    b"\xf0\x90\x80": 1,
    b"\xf0\x90\x80A": 1,
    b"\xf4\x90\x80\x80": 4,
    b"\xf8\x88\x80\x80\x80": 5,
    b"\xfe\xff": 2,
}


@pytest.mark.parametrize("data", AS_JAVA)
def test_malformed_bytes_become_as_many_replacements_as_in_java(data: bytes) -> None:
    text = replaced_text(b"a" + data + "ü".encode())
    assert text.startswith("a")
    assert text.endswith("ü")
    assert text.count("\ufffd") == AS_JAVA[data]
    assert len(text) == 2 + AS_JAVA[data] + data.count(b"A")


def broken(frame: list[Buffer], mark: bytes) -> memoryview:
    """The frame without its size, with malformed bytes in the place of `mark`."""
    whole = b"".join(map(bytes, frame))[4:]
    assert mark in whole
    return memoryview(whole.replace(mark, b"\xff" * len(mark)))


@pytest.mark.parametrize("version", [2, 7, 9])
def test_every_string_of_a_request_is_read(version: int) -> None:
    partition = OffsetCommitRequestPartition(0, 7, committed_metadata="MMMM")
    message = OffsetCommitRequest(
        "GGGG", topics=[OffsetCommitRequestTopic("TTTT", partitions=[partition])]
    )
    frame = encode_request(OFFSET_COMMIT, version, 1, "CCCC", message)
    for number, mark in enumerate((b"CCCC", b"GGGG", b"TTTT", b"MMMM")):
        header, read = decode_request(broken(frame, mark))
        (topic,) = read.topics
        (part,) = topic.partitions
        texts = [header.client_id, read.group_id, topic.name, part.committed_metadata]
        assert texts.pop(number) == "\ufffd" * 4
        assert "\ufffd" not in "".join(texts)
        assert part.committed_offset == 7, "what follows is read, too"


def test_strings_of_messages_with_records_and_of_arrays_are_read() -> None:
    produce = encode_request(
        PRODUCE, 8, 1, "c", ProduceRequest(topic_data=[TopicProduceData("TT")])
    )
    assert decode_request(broken(produce, b"TT"))[1].topic_data[0].name == "\ufffd" * 2
    message = MetadataRequest([MetadataRequestTopic(name="TT"), MetadataRequestTopic(name="ok")])
    read = decode_request(broken(encode_request(METADATA, 1, 1, "c", message), b"TT"))[1]
    assert [topic.name for topic in read.topics] == ["\ufffd" * 2, "ok"]


def test_strings_of_responses_and_of_what_members_send_each_other_are_read() -> None:
    raw = SUBSCRIPTION.encode(ConsumerProtocolSubscription(["TT"]), 1)
    assert SUBSCRIPTION.decode(raw.replace(b"TT", b"\xff\xfe")).topics == ["\ufffd\ufffd"]
    assert SUBSCRIPTION.decode(raw).topics == ["TT"]


def test_a_text_that_no_response_could_repeat_is_malformed() -> None:
    mark = b"M" * 20_000
    partition = OffsetCommitRequestPartition(0, 7, committed_metadata=mark.decode())
    message = OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic("t", partitions=[partition])]
    )
    frame = encode_request(OFFSET_COMMIT, 2, 1, "c", message)
    with pytest.raises(ProtocolError, match="60000 bytes when its malformed ones are replaced"):
        decode_request(broken(frame, mark))


def test_strings_that_are_utf_8_are_read_by_the_plain_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(data: object) -> str:
        raise AssertionError("this costs time")

    monkeypatch.setattr(decoding, "replaced_text", never)
    monkeypatch.setattr(codec, "replaced_text", never)
    message = MetadataRequest([MetadataRequestTopic(name="äöü")])
    read = decode_request(
        memoryview(b"".join(map(bytes, encode_request(METADATA, 1, 1, "ü", message))))[4:]
    )
    assert read[1].topics[0].name == "äöü"
