"""A connection answers in the order of its requests, and bad bytes cost only the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.broker.connections import FakeBroker, FakeTransport, answers, frame

from tidelog.broker.server.connections import Connection
from tidelog.broker.server.requests import Pending, Request
from tidelog.core import limits, response_budget
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.wire.codec import decode_response, encode_request
from tidelog.wire.messages.api_versions import (
    ApiVersionsResponse,
)
from tidelog.wire.messages.describe_cluster import DescribeClusterResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.registry import API_VERSIONS, DESCRIBE_CLUSTER, METADATA


def connect(handle: Callable[[Request[Any]], Any]) -> tuple[Connection, FakeTransport, FakeBroker]:
    broker = FakeBroker(handle)
    transport = FakeTransport()
    return Connection(broker, transport), transport, broker  # type: ignore[arg-type]  # a fake stands in


def test_answers_leave_in_the_order_of_their_requests_whenever_they_are_completed() -> None:
    pendings = [Pending(), Pending()]
    handed = iter([*pendings, DescribeClusterResponse(cluster_id="c")])
    connection, transport, _ = connect(lambda request: next(handed))
    connection.frames_received([frame(1), frame(2), frame(3)])
    assert transport.sent == []
    pendings[1].complete(DescribeClusterResponse(cluster_id="b"))
    assert transport.sent == []
    pendings[0].complete(DescribeClusterResponse(cluster_id="a"))
    assert answers(transport) == [1, 2, 3]


def test_nothing_is_read_before_the_broker_serves() -> None:
    broker, transport = FakeBroker(lambda request: None), FakeTransport()
    broker.admission.is_serving = False
    connection = Connection(broker, transport)  # type: ignore[arg-type]  # a fake
    assert not transport.reading
    broker.admission.is_serving = True
    connection.begin()
    assert transport.reading


def test_an_answer_that_cannot_be_encoded_costs_its_connection_alone() -> None:
    pending = Pending()
    good, bad = DescribeClusterResponse(cluster_id="c"), DescribeClusterResponse(endpoint_type=2)
    handed = iter([good, pending, good])
    connection, transport, broker = connect(lambda request: next(handed))
    connection.frames_received([frame(1), frame(2), frame(3)])
    pending.complete(bad)
    assert answers(transport) == [1]
    assert transport.closed == "internal error in DescribeCluster version 0"
    assert broker.defects == ["the answer to DescribeCluster version 0 of client:1"]


def test_an_answer_given_while_its_request_is_handled_is_not_lost() -> None:
    def handle(request: Request[Any]) -> Pending:
        pending = Pending()
        pending.complete(DescribeClusterResponse(cluster_id="at once"))
        return pending

    connection, transport, _ = connect(handle)
    connection.frames_received([frame(9)])
    assert answers(transport) == [9]


def test_a_request_without_an_answer_does_not_hold_up_the_next() -> None:
    handed = iter([None, DescribeClusterResponse(cluster_id="c")])
    connection, transport, _ = connect(lambda request: next(handed))
    connection.frames_received([frame(1), frame(2)])
    assert answers(transport) == [2]


def test_appends_are_submitted_once_per_read_event_and_unwritten_ones_keep_their_bytes() -> None:
    connection, transport, broker = connect(lambda request: DescribeClusterResponse())
    connection.frames_received([frame(1), frame(2), frame(3)])
    assert (broker.submitted, transport.kept) == (1, 0)
    broker.written = False
    connection.frames_received([frame(4)])
    assert (broker.submitted, transport.kept) == (2, 1)


def test_malformed_bytes_close_the_connection_and_say_why() -> None:
    connection, transport, broker = connect(lambda request: DescribeClusterResponse())
    connection.frames_received([memoryview(b"\x00\x3c\x00\x00")])
    assert transport.closed is not None
    assert "malformed" in transport.closed
    assert broker.defects == []


def metadata_of(count: int) -> memoryview:
    """A Metadata request above 1 MiB with so many names."""
    name = "x" * (limits.LISTING_REQUEST_BYTES // count + 1)
    message = MetadataRequest([MetadataRequestTopic(name=name) for _ in range(count)])
    return memoryview(b"".join(map(bytes, encode_request(METADATA, 1, 1, "c", message))))[4:]


def listing(count: int) -> tuple[FakeTransport, FakeBroker, list[int]]:
    """What became of such a request, and how many names its handler got."""
    handled: list[int] = []

    def handle(request: Request[Any]) -> Any:
        handled.append(len(request.message.topics))
        return MetadataResponse()

    connection, transport, broker = connect(handle)
    broker.served = (METADATA,)
    connection.frames_received([metadata_of(count)])
    return transport, broker, handled


def test_a_large_request_is_served_by_what_it_lists_and_not_by_its_bytes() -> None:
    for count in (100, limits.MAX_LISTED_ENTRIES):
        transport, broker, handled = listing(count)
        assert (handled, transport.closed, broker.tracer.lines) == ([count], None, [])
        assert len(transport.sent) == 1


def test_a_request_that_lists_too_much_gets_its_own_error_and_a_line_in_the_log() -> None:
    count = limits.MAX_LISTED_ENTRIES + 1
    transport, broker, handled = listing(count)
    assert (handled, transport.closed) == ([], None)
    _, answer = decode_response(METADATA, 1, memoryview(transport.sent[0])[4:])
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}
    assert len(answer.topics) == count
    assert "refusing a Metadata request" in broker.tracer.lines[0]


def test_a_request_that_lists_too_much_to_refuse_closes_the_connection() -> None:
    transport, _, handled = listing(limits.MAX_REFUSED_ENTRIES + 1)
    assert (handled, transport.sent) == ([], [])
    assert "a Metadata request of" in str(transport.closed)
    assert "more than 250,000 entries" in str(transport.closed)


def test_an_unserved_version_closes_the_connection() -> None:
    connection, transport, _ = connect(lambda request: DescribeClusterResponse())
    connection.frames_received([frame(1, API_VERSIONS, 0)])
    # ApiVersions is the exception: it is answered at version 0 with the ranges (KIP-511).
    assert transport.closed is None
    correlation_id, answer = decode_response(API_VERSIONS, 0, memoryview(transport.sent[0])[4:])
    assert isinstance(answer, ApiVersionsResponse)
    assert correlation_id == 1
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [key.api_key for key in answer.api_keys] == [DESCRIBE_CLUSTER]
    connection.frames_received([memoryview(b"\x7f\x7f\x00\x00\x00\x00\x00\x01\xff\xff")])
    assert transport.closed is not None


def test_a_defect_in_a_handler_costs_one_request_and_is_reported() -> None:
    def handle(request: Request[Any]) -> Any:
        if request.header.correlation_id == 2:
            raise KeyError("a defect")
        return DescribeClusterResponse(cluster_id="c")

    connection, transport, broker = connect(handle)
    connection.frames_received([frame(1), frame(2), frame(3)])
    assert broker.defects == ["KeyError('a defect')"]
    assert answers(transport) == [1, 2, 3] and transport.closed is None
    _, answer = decode_response(DESCRIBE_CLUSTER, 0, memoryview(transport.sent[1])[4:])
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_defect_where_no_answer_is_wanted_closes_the_connection() -> None:
    connection, transport, broker = connect(lambda request: DescribeClusterResponse())

    def fail(request: Request[Any]) -> None:
        raise KeyError("a defect")

    broker.request_failed = lambda request, error: None  # type: ignore[method-assign]  # replaced
    broker.handle = fail
    connection.frames_received([frame(1), frame(2)])
    assert transport.sent == []
    assert transport.closed == "internal error in DescribeCluster, which has no response"


@pytest.mark.parametrize("kind", [InvariantError, AssertionError])
def test_a_broken_invariant_is_not_taken_for_a_defect_of_one_request(
    kind: type[AssertionError],
) -> None:
    def handle(request: Request[Any]) -> Any:
        raise kind("cannot be")

    connection, _, _ = connect(handle)
    with pytest.raises(kind):
        connection.frames_received([frame(1)])


def test_losing_the_connection_cancels_what_waits() -> None:
    cancelled: list[int] = []
    pending = Pending()
    pending.on_cancel(lambda: cancelled.append(1))
    connection, transport, broker = connect(lambda request: pending)
    connection.frames_received([frame(1)])
    connection.connection_lost("gone")
    assert cancelled == [1]
    assert broker.gone == [connection]
    pending.complete(DescribeClusterResponse())
    assert transport.sent == []


def test_too_many_requests_in_flight_stop_reading_until_answers_have_left() -> None:
    pendings: list[Pending] = []

    def handle(request: Request[Any]) -> Pending:
        pendings.append(Pending())
        return pendings[-1]

    connection, transport, _ = connect(handle)
    connection.frames_received(
        [frame(number) for number in range(limits.MAX_IN_FLIGHT_PER_CONNECTION)]
    )
    assert not transport.reading
    for pending in pendings:
        pending.complete(DescribeClusterResponse())
    assert transport.reading


def test_requests_of_one_packet_above_the_limit_are_begun_when_answers_have_left() -> None:
    pendings: list[Pending] = []

    def handle(request: Request[Any]) -> Pending:
        pendings.append(Pending())
        return pendings[-1]

    limit = limits.MAX_IN_FLIGHT_PER_CONNECTION
    connection, transport, broker = connect(handle)
    connection.frames_received([frame(number) for number in range(limit + 3)])
    assert len(pendings) == limit
    assert (transport.kept, transport.reading) == (1, False), "the others' bytes are still needed"
    pendings[0].complete(DescribeClusterResponse())
    assert len(pendings) == limit + 1
    assert not transport.reading
    for number in range(1, limit + 3):
        pendings[number].complete(DescribeClusterResponse())
    assert answers(transport) == list(range(limit + 3))
    assert transport.reading
    assert broker.submitted == 4


def test_answers_that_wait_for_others_count_as_what_the_peer_has_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response_budget, "MAX_SEND_QUEUE_BYTES", 100_000)
    first = Pending()
    big = DescribeClusterResponse(error_message="x" * 32_000)
    begun: list[int] = []

    def handle(request: Request[Any]) -> Any:
        begun.append(request.header.correlation_id)
        return big if len(begun) > 1 else first

    connection, transport, broker = connect(handle)
    room = broker.responses.clients
    connection.frames_received([frame(number) for number in range(20)])
    assert begun == [0, 1, 2, 3, 4]
    assert not transport.reading
    assert 4 * 32_000 < room.used_bytes < 5 * 32_000
    first.complete(DescribeClusterResponse())
    assert answers(transport) == list(range(20))
    assert transport.reading
    assert room.used_bytes == 0


def test_a_few_small_answers_that_wait_for_others_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(
        response_budget.ResponseShare,
        "hold",
        lambda share, size, has_progress: counted.append(size),
    )
    first = Pending()
    begun: list[int] = []

    def handle(request: Request[Any]) -> Any:
        begun.append(request.header.correlation_id)
        return DescribeClusterResponse() if len(begun) > 1 else first

    connection, transport, _ = connect(handle)
    connection.frames_received([frame(number) for number in range(5)])
    first.complete(DescribeClusterResponse())
    assert answers(transport) == list(range(5)) and counted == []


def test_requests_before_a_malformed_one_are_answered() -> None:
    connection, transport, _ = connect(lambda request: DescribeClusterResponse())
    connection.frames_received([frame(1), memoryview(b"\x00\x3c\x00\x00"), frame(2)])
    assert answers(transport) == [1]
    assert transport.closed is not None


def test_a_reader_that_takes_nothing_stops_being_read_from() -> None:
    connection, transport, _ = connect(lambda request: DescribeClusterResponse())
    transport.queued_bytes = limits.MAX_SEND_QUEUE_BYTES + 1
    connection.frames_received([frame(1)])
    assert not transport.reading
    transport.queued_bytes = 0
    connection.send_queue_changed(limits.MAX_SEND_QUEUE_BYTES + 1)
    assert transport.reading
