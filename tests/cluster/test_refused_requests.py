"""What a broker refuses, with the reason where the version has room for one; and nothing hangs.

Damaged batches, impossible topics and configurations; what was refused leaves no trace.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
from crc32c import crc32c
from tests.support.cluster.raw_connections import (
    MIB,
    RawConnection,
    ask,
    begin_peak,
    peak_bytes,
    pid_of,
    request,
)
from tests.support.cluster.values import read_values, write_values
from tests.support.records import record_bytes
from tests.support.requests.by_version import produce_of, sensible_request, versions_of

from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records import compression
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.registry import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)

TP = TopicPartition("refusing", 0)
#: The first version of Produce whose answers have room for a reason (KIP-467).
REASON_VERSION = 8
COMPRESSED = [codec for codec in compression.NAMES if codec]
#: What a decompressed batch may have here.
MAX_DECOMPRESSED_BYTES = 4 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = str(tmp_path_factory.mktemp("refusals") / "cluster")
    config = {"max.decompressed.message.bytes": str(MAX_DECOMPRESSED_BYTES)}
    made = LocalCluster(directory, 1, config=config)
    try:
        made.up()
        with BlockingClient(made.bootstrap) as client:
            client.create_topic(TP.topic, 1, 1)
            client.await_topic(TP.topic)
        yield made
    finally:
        made.down(timeout_s=5.0)


@pytest.fixture(autouse=True)
def nothing_left(cluster: LocalCluster) -> Iterator[None]:
    """What was refused is not in the log, and the process goes on."""
    pid = pid_of(cluster)
    with BlockingClient(cluster.bootstrap) as client:
        before = client.list_offsets({TP: -1})[TP].offset
    yield
    assert pid_of(cluster) == pid
    assert write_values(cluster.bootstrap, TP, [b"good"]) == before
    assert read_values(cluster.bootstrap, TP)[before:] == [b"good"]


# -- batches ------------------------------------------------------------------------------------


def refused(cluster: LocalCluster, records: bytes | bytearray | None) -> tuple[ErrorCode, str]:
    """Error and reason of a Produce, which is the same error without a reason before version 8."""
    codes = []
    for version in (versions_of(PRODUCE)[0], REASON_VERSION - 1, REASON_VERSION, 11):
        answer = ask(cluster, PRODUCE, version, produce_of(records, TP.topic))
        (partition,) = answer.responses[0].partition_responses
        codes.append(partition.error_code)
        if version < REASON_VERSION:
            assert partition.error_message is None
    assert len(dict.fromkeys(codes)) == 1, codes
    assert partition.base_offset == -1
    assert partition.record_errors == []
    return ErrorCode(partition.error_code), partition.error_message or ""


def batch(count: int = 3, codec: int = compression.NONE, **options: Any) -> bytearray:
    records = [NewRecord(b"key", b"value %d" % number, 1_000) for number in range(count)]
    return build_batch(records, codec=codec, **options)


def resealed(data: bytearray) -> bytearray:
    """With a right CRC over whatever is in it now."""
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data


def patched(form: str, position: int, value: int, **options: Any) -> bytearray:
    """A batch with one header field overwritten, and a right CRC."""
    data = batch(**options)
    struct.pack_into(form, data, position, value)
    return resealed(data)


def with_payload(payload: bytes, codec: int, count: int = 1) -> bytearray:
    """A batch whose header is right about everything but what its records are."""
    data = batch(count, codec)[:61] + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    return resealed(data)


def records_of(*deltas: int) -> bytes:
    """Uncompressed records with these offset deltas."""
    return b"".join(record_bytes(0, delta=delta) for delta in deltas)


def test_a_wrong_crc_is_a_corrupt_message(cluster: LocalCluster) -> None:
    data = batch()
    data[-1] ^= 1
    code, reason = refused(cluster, data)
    assert code is ErrorCode.CORRUPT_MESSAGE
    assert "CRC is 0x" in reason


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes left"),
        (None, "0 bytes left"),
        (bytes(60), "60 bytes left"),
        (batch()[:-1], "bytes long, but only"),
        (patched(">i", 8, -1), "length is -1"),
        (patched(">i", 8, -(2**31)), "length is -2147483648"),
        (patched(">i", 8, 0), "length is 0"),
        (patched(">i", 8, 48), "length is 48"),
        (patched(">i", 8, 2**31 - 1), "bytes long, but only"),
        (patched(">i", 8, 100_000), "100012 bytes long, but only"),
        (patched(">b", 16, 1), "magic is 1"),
        (patched(">b", 16, -1), "magic is -1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_whole_batch_is_a_corrupt_message(
    cluster: LocalCluster, data: bytearray | None, words: str
) -> None:
    code, reason = refused(cluster, data)
    assert code is ErrorCode.CORRUPT_MESSAGE
    assert words in reason


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (patched(">i", 57, -1), "may be negative"),
        (patched(">i", 57, 0), "record count is 0"),
        (patched(">i", 57, 2**31 - 1), "record count is 2147483647"),
        (patched(">i", 23, -1), "may be negative"),
        (patched(">i", 23, 7), "last offset delta 7"),
        (patched(">q", 0, 5), "base offset is 5"),
        (patched(">h", 21, 0x20), "control batches"),
        (patched(">h", 21, 0x08), "LogAppendTime"),
        (patched(">i", 53, -2, producer=Producer(7, 0, 0)), "sequence -2"),
        (batch() + batch(), "one batch per partition"),
        (batch() + b"\0", "1 bytes follow the batch"),
        (with_payload(b"", compression.NONE), "record 0"),
        (with_payload(b"\x01" * 20, compression.NONE), "record 0"),
        (with_payload(b"\xff" * 20, compression.NONE), "record 0"),
        (with_payload(records_of(0, 0, 0), compression.NONE, 3), "record 1: its offset delta is 0"),
        (with_payload(records_of(0, 1, -2), compression.NONE, 3), "record 2: its offset delta"),
        (with_payload(records_of(0, 1, 2), compression.NONE, 5), "record 3: the records end"),
        (with_payload(records_of(0)[:-9] + b"\x20" + b"\xff" * 16, 0), "a number has too many"),
        (with_payload(b"\xfe\xff\xff\xff\x0f" * 4, compression.NONE), "does not fit"),
        (with_payload(b"\x10\0\0\0\xfe\x7f" + bytes(3), compression.NONE), "a key of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_batch_that_contradicts_itself_is_an_invalid_record(
    cluster: LocalCluster, data: bytearray, words: str
) -> None:
    code, reason = refused(cluster, data)
    assert code is ErrorCode.INVALID_RECORD
    assert words in reason


@pytest.mark.parametrize("codec", COMPRESSED, ids=compression.NAMES.get)
@pytest.mark.parametrize("garbage", [b"", b"\0", b"\xff" * 100, b"garbage" * 10])
def test_what_cannot_be_decompressed_is_a_corrupt_message(
    cluster: LocalCluster, codec: int, garbage: bytes
) -> None:
    code, reason = refused(cluster, with_payload(garbage, codec))
    assert code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert reason


@pytest.mark.parametrize("codec", COMPRESSED, ids=compression.NAMES.get)
def test_compressed_bytes_that_end_early_are_refused(cluster: LocalCluster, codec: int) -> None:
    whole = bytes(batch(50, codec)[61:])
    for size in (1, len(whole) // 2, len(whole) - 1):
        code, reason = refused(cluster, with_payload(whole[:size], codec, 50))
        assert code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert reason


@pytest.mark.parametrize("codec", COMPRESSED, ids=compression.NAMES.get)
@pytest.mark.parametrize(
    "inside", [b"", b"\0" * 100, b"\xff" * 100, b"\xfe\xff\xff\xff\x0f" * 9, b"\x0c" + b"\0" * 5]
)
def test_compressed_records_that_are_none_are_invalid(
    cluster: LocalCluster, codec: int, inside: bytes
) -> None:
    code, reason = refused(cluster, with_payload(compression.compress(codec, inside), codec))
    assert code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert reason


def snappy_that_claims(size: int) -> bytes:
    """Raw snappy whose first bytes tell of an output of that size."""
    claim = bytearray()
    while size > 0x7F:
        claim.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(claim) + bytes([size]) + b"\0a" * 50


#: Much out of little: 64 MiB of zeros, but snappy, which cannot, and lies about it.
BOMBS = {
    compression.GZIP: bytes(cramjam.gzip.compress(bytes(64 * MIB))),
    compression.SNAPPY: snappy_that_claims(2**31 - 1),
    compression.LZ4: compression.compress(compression.LZ4, bytes(64 * MIB)),
    compression.ZSTD: bytes(cramjam.zstd.compress(bytes(64 * MIB))),
}


@pytest.mark.parametrize("codec", COMPRESSED, ids=compression.NAMES.get)
def test_a_bomb_is_refused_and_costs_no_more_than_is_allowed(
    cluster: LocalCluster, codec: int
) -> None:
    begin_peak(cluster)
    before = peak_bytes(cluster)
    code, reason = refused(cluster, with_payload(BOMBS[codec], codec))
    assert code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert f"more than {MAX_DECOMPRESSED_BYTES} bytes" in reason
    assert peak_bytes(cluster) - before < 3 * MAX_DECOMPRESSED_BYTES


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_compression_is_named(cluster: LocalCluster, codec: int) -> None:
    code, reason = refused(cluster, patched(">h", 21, codec))
    assert code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert str(codec) in reason


def test_a_batch_that_is_too_large_is_told_the_limit(cluster: LocalCluster) -> None:
    code, reason = refused(cluster, build_batch([NewRecord(None, bytes(2 * MIB))]))
    assert code is ErrorCode.MESSAGE_TOO_LARGE
    assert "1048588 (max.message.bytes)" in reason


def test_a_transactional_batch_is_refused_by_name(cluster: LocalCluster) -> None:
    data = batch(producer=Producer(7, 0, 0), transactional=True)
    code, reason = refused(cluster, data)
    assert code is ErrorCode.INVALID_TXN_STATE
    assert "transaction" in reason


def test_a_refused_request_without_acknowledgement_closes_the_connection(
    cluster: LocalCluster,
) -> None:
    message = produce_of(batch()[:-1], TP.topic)
    message.acks = 0
    with RawConnection(cluster) as connection:
        connection.send(request(PRODUCE, 9, message))
        assert connection.until_closed() == b""


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_acks_that_mean_nothing_are_named(cluster: LocalCluster, acks: int) -> None:
    message = produce_of(batch(), TP.topic)
    message.acks = acks
    answer = ask(cluster, PRODUCE, 9, message).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert str(acks) in answer.error_message


def test_a_batch_that_lies_beyond_its_first_record_is_refused(cluster: LocalCluster) -> None:
    """Consumers of librdkafka stop at such a record, for good and without an error."""
    first = bytes(batch(1)[61:])
    lie = with_payload(first + b"\xff" * 40, compression.NONE, 3)
    assert refused(cluster, lie) == (
        ErrorCode.INVALID_RECORD,
        "record batch at byte 0: record 1: a number has too many bytes",
    )


# -- topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["nowhere", "", "no/topic", "..", "x" * 300])
@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH])
def test_a_topic_that_is_not_there_is_unknown(
    cluster: LocalCluster, api_key: int, topic: str
) -> None:
    version = 12 if api_key == FETCH else versions_of(api_key)[-1]
    answer = ask(cluster, api_key, version, sensible_request(api_key, version, topic, b""))
    assert codes_of(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("partition", [1, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH])
def test_a_partition_that_is_not_there_is_unknown(
    cluster: LocalCluster, api_key: int, partition: int
) -> None:
    version = 12 if api_key == FETCH else versions_of(api_key)[-1]
    message = sensible_request(api_key, version, TP.topic, b"", partition)
    assert codes_of(ask(cluster, api_key, version, message)) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


def test_a_topic_id_that_is_not_there_is_unknown(cluster: LocalCluster) -> None:
    answer = ask(cluster, FETCH, 17, sensible_request(FETCH, 17, "", b"\7" * 16))
    assert codes_of(answer) == [ErrorCode.UNKNOWN_TOPIC_ID]
    asked = MetadataRequest([MetadataRequestTopic(b"\7" * 16, None)])
    (topic,) = ask(cluster, METADATA, 12, asked).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def codes_of(answer: Any) -> list[int]:
    """The errors of all partitions of an answer, each once."""
    topics = answer.responses if hasattr(answer, "responses") else answer.topics
    codes: dict[int, None] = {}
    for topic in topics:
        for name in ("partitions", "partition_responses"):
            for partition in getattr(topic, name, []):
                codes[partition.error_code] = None
    return list(codes)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\0b"])
def test_a_bad_topic_name_is_refused_wherever_a_topic_is_made(
    cluster: LocalCluster, name: str
) -> None:
    code, reason = creation(cluster, CreatableTopic(name, 1, 1))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "topic name" in reason
    asked = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (topic,) = ask(cluster, METADATA, 12, asked).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def creation(cluster: LocalCluster, topic: CreatableTopic) -> tuple[ErrorCode, str]:
    """Error and reason of a topic's creation, the same at every version."""
    codes = []
    for version in versions_of(CREATE_TOPICS):
        (result,) = ask(cluster, CREATE_TOPICS, version, CreateTopicsRequest([topic])).topics
        codes.append(result.error_code)
        assert result.name == topic.name
        assert result.error_message
    assert len(dict.fromkeys(codes)) == 1, codes
    return ErrorCode(codes[0]), result.error_message


def test_more_replicas_than_live_brokers_are_refused_with_both_numbers(
    cluster: LocalCluster,
) -> None:
    code, reason = creation(cluster, CreatableTopic("wide", 1, 77))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "77" in reason
    assert "live brokers, 1" in reason


def assigned(*assignments: tuple[int, list[int]]) -> CreatableTopic:
    chosen = [CreatableReplicaAssignment(partition, ids) for partition, ids in assignments]
    return CreatableTopic("odd", -1, -1, chosen)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (CreatableTopic("odd", 0, 1), ErrorCode.INVALID_PARTITIONS, "not 0"),
        (CreatableTopic("odd", -7, 1), ErrorCode.INVALID_PARTITIONS, "not -7"),
        (CreatableTopic("odd", 2**31 - 1, 1), ErrorCode.INVALID_PARTITIONS, "at most 10000"),
        (CreatableTopic("odd", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "not 0"),
        (CreatableTopic("odd", 1, -32_768), ErrorCode.INVALID_REPLICATION_FACTOR, "-32768"),
        (CreatableTopic(TP.topic, 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
        (assigned((0, [99])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "99"),
        (assigned((0, [1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (assigned((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replicas"),
        (assigned((0, [-1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "negative"),
        (assigned((3, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "0 to n-1"),
        (assigned((0, [1]), (0, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each once"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_topic_that_cannot_be_is_refused_with_what_is_wrong(
    cluster: LocalCluster, topic: CreatableTopic, code: ErrorCode, words: str
) -> None:
    found, reason = creation(cluster, topic)
    assert found is code
    assert words in reason


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("retention.ms", "soon", ["retention.ms='soon'", "an integer of at least -1"]),
        ("retention.ms", "-2", ["retention.ms='-2'", "an integer of at least -1"]),
        ("retention.ms", None, ["retention.ms", "null", "an integer of at least -1"]),
        ("cleanup.policy", "shred", ["cleanup.policy='shred'", "delete, compact"]),
        ("min.insync.replicas", "0", ["min.insync.replicas='0'", "at least 1"]),
        ("unclean.leader.election.enable", "maybe", ["='maybe'", "true or false"]),
        ("segment.bytes", "99999999999", ["segment.bytes='99999999999'", "an integer"]),
        ("compression.type", "brotli", ["compression.type='brotli'", "producer or uncompressed"]),
        ("retentoin.ms", "1", ["retentoin.ms", "did you mean retention.ms?"]),
    ],
)
def test_a_bad_configuration_is_refused_with_key_value_and_what_would_be_right(
    cluster: LocalCluster, key: str, value: str | None, words: list[str]
) -> None:
    topic = CreatableTopic("odd", 1, 1, configs=[CreatableTopicConfig(key, value)])
    code, reason = creation(cluster, topic)
    assert code is ErrorCode.INVALID_CONFIG
    for each in words:
        assert each in reason


def test_one_bad_topic_of_a_request_does_not_keep_the_others_from_being_made(
    cluster: LocalCluster,
) -> None:
    wanted = [CreatableTopic("fine", 1, 1), CreatableTopic("a/b", 1, 1)]
    made = ask(cluster, CREATE_TOPICS, 7, CreateTopicsRequest(wanted)).topics
    assert [each.error_code for each in made] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    names = [DeleteTopicState("fine"), DeleteTopicState("nowhere")]
    gone = ask(cluster, DELETE_TOPICS, 6, DeleteTopicsRequest(names, timeout_ms=10_000)).responses
    assert [each.error_code for each in gone] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# -- records ------------------------------------------------------------------------------------


def test_every_bad_record_is_named_with_its_reason(cluster: LocalCluster) -> None:
    """KIP-467: by index, in order; other faults than those of records name none."""
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic("keyed", 1, 1, {"cleanup.policy": "compact"})
        client.create_topic("timed", 1, 1, {"message.timestamp.before.max.ms": "60000"})
        for topic in ("keyed", "timed"):
            client.await_topic(topic)
    now_ms = time.time_ns() // 1_000_000
    keyless = [NewRecord(None if n % 10 == 3 else b"k", b"v", now_ms) for n in range(100)]
    old = [NewRecord(b"k", b"v", now_ms - 3_600_000 * (n % 2)) for n in range(5)]
    for topic, records, code, words, bad in (
        ("keyed", keyless, ErrorCode.INVALID_RECORD, "no key", range(3, 100, 10)),
        ("timed", old, ErrorCode.INVALID_TIMESTAMP, f"timestamp {now_ms - 3_600_000}", (1, 3)),
    ):
        for codec in (compression.NONE, compression.LZ4):
            message = produce_of(build_batch(records, codec=codec), topic)
            answer = ask(cluster, PRODUCE, REASON_VERSION, message)
            (partition,) = answer.responses[0].partition_responses
            assert partition.error_code == code and partition.base_offset == -1
            assert [each.batch_index for each in partition.record_errors] == [*bad]
            reasons = [each.batch_index_error_message for each in partition.record_errors]
            assert all(words in (reason or "") for reason in reasons)
            assert f"{len(reasons)} of {len(records)} records" in partition.error_message
