"""Peers that break the protocol cost themselves: the broker lives, small, and serves the others."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import MakeCluster
from tests.support.cluster.raw_connections import (
    MIB,
    RawConnection,
    ask,
    await_true,
    descriptors,
    memory_bytes,
    pid_of,
    request,
    sized,
)
from tests.support.cluster.values import read_values, write_values
from tests.support.requests.by_version import CLIENT_APIS, SERVED, sensible_request, versions_of

from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_REQUEST_BYTES, MAX_SEND_QUEUE_BYTES
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.wire.registry import (
    API,
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
)

TP = TopicPartition("abused", 0)
SEED = 20_240_917
GROWTH_BYTES = 20 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker; topics are made on demand only, so that nothing grows by right."""
    directory = str(tmp_path_factory.mktemp("abuse") / "cluster")
    made = LocalCluster(directory, 1, config={"auto.create.topics.enable": "false"})
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


@pytest.fixture(scope="module")
def topic_id(cluster: LocalCluster) -> bytes:
    return make_topic(cluster)


def make_topic(cluster: LocalCluster, replication_factor: int = 1) -> bytes:
    with BlockingClient(cluster.bootstrap) as client:
        made = client.create_topic(TP.topic, 1, replication_factor)
        client.await_topic(TP.topic)
    return made


@pytest.fixture(autouse=True)
def unharmed(cluster: LocalCluster, topic_id: bytes) -> Iterator[None]:
    """After each test the same process serves a normal client, and has met no defect of its own."""
    before = pid_of(cluster)
    yield
    assert pid_of(cluster) == before
    offset = write_values(cluster.bootstrap, TP, [b"still here"])
    assert read_values(cluster.bootstrap, TP)[offset:] == [b"still here"]
    log = Path(cluster.places()[1].log_path).read_text(encoding="utf-8", errors="replace")
    assert "unexpected error" not in log


# -- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", CLIENT_APIS, ids=lambda key: API[key].name)
def test_every_version_that_is_advertised_is_answered(
    cluster: LocalCluster, topic_id: bytes, api_key: int
) -> None:
    told = ask(cluster, API_VERSIONS, 3, ApiVersionsRequest("tidelog-tests", "1"))
    (served,) = (each for each in told.api_keys if each.api_key == api_key)
    versions = versions_of(api_key)
    # Produce: librdkafka compresses only where it finds version 0 (KAFKA-18659).
    first = 0 if api_key == PRODUCE else versions[0]
    assert (served.min_version, served.max_version) == (first, versions[-1])
    subjects = [(TP.topic, topic_id, 0), (TP.topic, topic_id, 7), ("nowhere", b"\7" * 16, 0)]
    for version in versions:
        messages = [sensible_request(api_key, version, *subject) for subject in subjects]
        # A request that names no partition is the same for both: a second member would only wait.
        for message in [each for n, each in enumerate(messages) if each not in messages[:n]]:
            answer = ask(cluster, api_key, version, message)
            assert type(answer) is API[api_key].response


@pytest.mark.parametrize("api_key", CLIENT_APIS, ids=lambda key: API[key].name)
def test_strings_that_are_no_utf_8_are_read_in_every_request(
    cluster: LocalCluster, topic_id: bytes, api_key: int
) -> None:
    version = versions_of(api_key)[-1]
    frame = request(api_key, version, sensible_request(api_key, version, TP.topic, topic_id, 0))
    for text in (b"raw", TP.topic.encode()):
        frame = frame.replace(text, b"\xff" * len(text))
    with RawConnection(cluster) as connection:
        connection.send(frame)
        _, answer = decode_response(api_key, version, connection.answer())
        assert type(answer) is API[api_key].response
        connection.ask(API_VERSIONS, 0, ApiVersionsRequest())


def test_names_that_are_no_utf_8_are_refused_and_metadata_keeps_the_replacement(
    cluster: LocalCluster,
) -> None:
    names = MetadataRequest([MetadataRequestTopic(name="BADNAME")])
    part = OffsetCommitRequestPartition(0, 1, committed_metadata="METAmeta")
    commit = OffsetCommitRequest("no-utf-8", topics=[OffsetCommitRequestTopic(TP.topic, [part])])
    fetch = OffsetFetchRequest("no-utf-8", topics=[OffsetFetchRequestTopic(TP.topic, [0])])
    with RawConnection(cluster) as connection:
        connection.send(request(METADATA, 1, names).replace(b"BADNAME", b"\xed\xa0\x80name"))
        _, answer = decode_response(METADATA, 1, connection.answer())
        (topic,) = answer.topics
        assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, "\ufffdname")
        connection.ask(FIND_COORDINATOR, 2, FindCoordinatorRequest("no-utf-8"))
        await_true(
            lambda: connection.ask(OFFSET_FETCH, 5, fetch).error_code == ErrorCode.NONE,
            "the coordinator",
        )
        connection.send(request(OFFSET_COMMIT, 7, commit).replace(b"META", b"\xff\xfe\xc3\xa9"))
        _, answer = decode_response(OFFSET_COMMIT, 7, connection.answer())
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        (kept,) = connection.ask(OFFSET_FETCH, 5, fetch).topics[0].partitions
        assert kept.metadata == "\ufffd\ufffd\u00e9meta"


@pytest.mark.parametrize("api_key", sorted(API), ids=lambda key: API[key].name)
def test_a_version_that_is_not_served_closes_the_connection(
    cluster: LocalCluster, api_key: int
) -> None:
    api = API[api_key]
    spoken = range(api.min_version, api.max_version + 2)
    served = versions_of(api_key) if api_key in SERVED else range(0)
    for version in (-1, -32_768, *(each for each in spoken if each not in served), 32_767):
        if api_key == API_VERSIONS:
            continue
        with RawConnection(cluster) as connection:
            connection.send(sized(struct.pack(">hhih", api_key, version, 1, -1)))
            assert connection.until_closed() == b""


@pytest.mark.parametrize("version", [-1, 5, 32_767])
def test_a_version_of_api_versions_that_is_not_served_is_answered_with_those_that_are(
    cluster: LocalCluster, version: int
) -> None:
    with RawConnection(cluster) as connection:
        connection.send(sized(struct.pack(">hhih", API_VERSIONS, version, 9, -1) + b"anything"))
        correlation_id, answer = decode_response(API_VERSIONS, 0, connection.answer())
        assert correlation_id == 9
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        served = {each.api_key: each.max_version for each in answer.api_keys}
        assert served[METADATA] == 13
        assert connection.ask(METADATA, 12, MetadataRequest(None)).topics


@pytest.mark.parametrize("api_key", [-1, -32_768, 99, 1_000, 32_767])
def test_an_unknown_api_closes_the_connection(cluster: LocalCluster, api_key: int) -> None:
    with RawConnection(cluster) as connection:
        connection.send(sized(struct.pack(">hhih", api_key, 0, 1, -1)))
        assert connection.until_closed() == b""


# -- frames -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_REQUEST_BYTES + 1, 2**31 - 1])
def test_a_size_that_no_request_can_have_closes_the_connection(
    cluster: LocalCluster, size: int
) -> None:
    before = memory_bytes(cluster)
    with RawConnection(cluster) as connection:
        connection.send(sized(bytes(100), size))
        assert connection.until_closed() == b""
    assert memory_bytes(cluster) - before < GROWTH_BYTES


def test_requests_before_a_bad_frame_are_answered(cluster: LocalCluster) -> None:
    with RawConnection(cluster) as connection:
        good = request(METADATA, 12, MetadataRequest(None), 41)
        connection.send(good + sized(b"", -5))
        assert decode_response(METADATA, 12, connection.answer())[0] == 41
        assert connection.until_closed() == b""


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\0" * 4,
        sized(b"\0"),
        sized(b"\0" * 9),
        sized(struct.pack(">hhih", METADATA, 1, 1, -2)),
        sized(struct.pack(">hhih", METADATA, 1, 1, 32_767) + b"short"),
    ],
    ids=["http", "tls", "empty", "one byte", "half a header", "size -2", "long id"],
)
def test_what_is_no_request_closes_the_connection(cluster: LocalCluster, stream: bytes) -> None:
    with RawConnection(cluster) as connection:
        connection.send(stream)
        assert connection.until_closed() == b""


@pytest.mark.parametrize("api_key", sorted(SERVED), ids=lambda key: API[key].name)
def test_a_request_that_is_cut_short_closes_the_connection(
    cluster: LocalCluster, topic_id: bytes, api_key: int
) -> None:
    for version in {versions_of(api_key)[0]: 0, versions_of(api_key)[-1]: 0}:
        if api_key in CLIENT_APIS:
            message = sensible_request(api_key, version, TP.topic, topic_id)
        else:
            message = API[api_key].request()
        body = request(api_key, version, message)[4:]
        header_bytes = 13
        for end in range(header_bytes, len(body), max(1, len(body) // 12)):
            with RawConnection(cluster) as connection:
                connection.send(sized(body[:end]))
                assert connection.until_closed() == b"", (version, end)


@pytest.mark.parametrize("api_key", sorted(SERVED), ids=lambda key: API[key].name)
def test_lengths_that_nothing_backs_close_the_connection(
    cluster: LocalCluster, api_key: int
) -> None:
    hostile = [b"\x7f\xff\xff\xff" * 30, b"\xff\xff\xff\xff\x07" * 30, b"\x80\0\0\0" * 30]
    before = memory_bytes(cluster)
    for version in versions_of(api_key):
        for body in hostile:
            header = struct.pack(">hhih", api_key, version, 1, -1)
            if API[api_key].is_flexible(version):
                header += b"\0"
            with RawConnection(cluster) as connection:
                connection.send(sized(header + body))
                connection.end()
                connection.until_closed()
    assert memory_bytes(cluster) - before < GROWTH_BYTES


# -- slow and silent peers ----------------------------------------------------------------------


def test_a_request_that_comes_byte_by_byte_is_answered_and_holds_up_nobody(
    cluster: LocalCluster,
) -> None:
    with RawConnection(cluster) as slow, RawConnection(cluster) as other:
        for number, byte in enumerate(request(METADATA, 12, MetadataRequest(None), 7)):
            slow.send(bytes([byte]))
            assert other.ask(METADATA, 12, MetadataRequest([]), number) is not None
        assert decode_response(METADATA, 12, slow.answer())[0] == 7


def test_half_sent_requests_cost_what_was_sent_of_them(cluster: LocalCluster) -> None:
    before, open_before = memory_bytes(cluster), descriptors(cluster)
    claims = struct.pack(">hhih", PRODUCE, 9, 1, -1) + b"\0" + bytes(1_000)
    connections = [RawConnection(cluster) for _ in range(300)]
    try:
        for connection in connections:
            connection.send(sized(claims, MAX_REQUEST_BYTES))
        # Behind all of them: what the broker had to read, it has read.
        write_values(cluster.bootstrap, TP, [b"meanwhile"])
        assert descriptors(cluster) > open_before + 300
        assert memory_bytes(cluster) - before < GROWTH_BYTES
    finally:
        for connection in connections:
            connection.reset()
    await_true(lambda: descriptors(cluster) <= open_before, "the descriptors' return")


def test_who_asks_for_much_and_reads_nothing_costs_little(
    cluster: LocalCluster, topic_id: bytes
) -> None:
    """A thousand fetches of a megabyte in one packet: answers are made as they are taken."""
    write_values(cluster.bootstrap, TP, [random.Random(SEED).randbytes(MIB - 1024)])
    with BlockingClient(cluster.bootstrap) as client:
        last = client.list_offsets({TP: -1})[TP].offset - 1
    wanted = [FetchTopic(TP.topic, topic_id, [FetchPartition(0, -1, last, partition_max_bytes=1)])]
    message = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MIB, topics=wanted)
    fetches = [request(FETCH, 12, message, number) for number in range(1_000)]
    before = memory_bytes(cluster)
    with RawConnection(cluster) as connection:
        connection.send(b"".join(fetches))
        assert ask(cluster, METADATA, 12, MetadataRequest(None)).topics
        assert memory_bytes(cluster) - before < MAX_SEND_QUEUE_BYTES + GROWTH_BYTES
        for number in range(1_000):
            answered, answer = decode_response(FETCH, 12, connection.answer())
            assert answered == number
            assert len(answer.responses[0].partitions[0].records) > MIB // 2


def test_connections_that_come_and_go_leave_nothing(cluster: LocalCluster) -> None:
    open_before = descriptors(cluster)
    for number in range(300):
        with RawConnection(cluster) as connection:
            if number % 3 == 0:
                connection.ask(METADATA, 12, MetadataRequest([]))
            elif number % 3 == 1:
                connection.send(request(METADATA, 12, MetadataRequest(None)))
                connection.reset()
    await_true(lambda: descriptors(cluster) <= open_before, "the descriptors' return")


def test_connections_above_the_limit_are_closed_and_the_others_served(
    make_cluster: MakeCluster,
) -> None:
    small = make_cluster(1, name="small", max_connections="20")
    connections = [RawConnection(small) for _ in range(25)]
    try:
        for refused in connections[20:]:
            assert refused.until_closed() == b""
        assert connections[0].ask(METADATA, 12, MetadataRequest([])) is not None
    finally:
        for connection in connections:
            connection.reset()
    await_true(lambda: descriptors(small) < 40, "the descriptors' return")
    make_topic(small)
    write_values(small.bootstrap, TP, [b"served"])


def test_an_idle_connection_is_closed_and_the_brokers_own_are_made_again(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, name="impatient", connections_max_idle_ms="320")
    with RawConnection(cluster) as connection:
        connection.ask(METADATA, 12, MetadataRequest([]))
        assert connection.until_closed() == b""
    # The controller's channels were closed like this one; its next commands need them.
    make_topic(cluster, replication_factor=3)
    write_values(cluster.bootstrap, TP, [b"served"])
