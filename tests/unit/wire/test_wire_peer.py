"""A client connection's books: who asked, whose answer this is, who waited too long."""

from __future__ import annotations

import pytest
from tests.support.wire import joined

from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.wire.codec import decode_request, encode_response
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse
from tidelog.wire.peer import LATE, CorrelationIds, Peer
from tidelog.wire.registry import API_VERSIONS, METADATA, PRODUCE
from tidelog.wire.schema import SchemaError


def ask(peer: Peer, token: object, now_ms: int = 0, timeout_ms: int = 100) -> int:
    """Sends a Metadata request; its correlation id."""
    parts = peer.send(METADATA, 9, MetadataRequest(), now_ms, timeout_ms, token)
    return decode_request(joined(parts))[0].correlation_id


def answer(correlation_id: int, controller_id: int = 0) -> memoryview:
    response = MetadataResponse(controller_id=controller_id)
    return joined(encode_response(METADATA, 9, correlation_id, response))


def test_answers_find_their_tokens_in_order() -> None:
    peer = Peer("me")
    first, second = ask(peer, "first"), ask(peer, "second")
    assert peer.in_flight == 2
    assert peer.received(answer(first, 7)) == ("first", MetadataResponse(controller_id=7))
    assert peer.received(answer(second))[0] == "second"
    assert peer.in_flight == 0


def test_requests_carry_the_client_id() -> None:
    parts = Peer("me").send(METADATA, 9, MetadataRequest(), 0, 1, None)
    assert decode_request(joined(parts))[0].client_id == "me"


def test_connections_may_number_their_requests_in_one_row() -> None:
    ids = CorrelationIds()
    first, second = Peer("me", ids), Peer("me", ids)
    assert [ask(first, ""), ask(second, ""), ask(first, "")] == [0, 1, 2]
    assert ask(Peer("me"), "") == 0


def test_each_answer_is_read_at_the_version_of_its_request() -> None:
    peer = Peer(None)
    peer.send(METADATA, 0, MetadataRequest(), 0, 1, "old")
    ask(peer, "new")
    old = joined(encode_response(METADATA, 0, 0, MetadataResponse()))
    assert peer.received(old)[0] == "old"
    assert peer.received(answer(1))[0] == "new"


def test_an_answer_out_of_order_is_a_protocol_error() -> None:
    peer = Peer(None)
    ask(peer, "first")
    second = ask(peer, "second")
    with pytest.raises(ProtocolError, match="correlation id 1 where 0 is due"):
        peer.received(answer(second))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\0", b"\0\0\0\0\0junk"])
def test_bytes_that_are_no_answer_are_a_protocol_error(frame: bytes) -> None:
    peer = Peer(None)
    ask(peer, "first")
    with pytest.raises(ProtocolError):
        peer.received(memoryview(frame))


def test_an_answer_to_nothing_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="to no request"):
        Peer(None).received(answer(0))


def test_requests_expire_at_their_own_deadlines_once() -> None:
    peer = Peer(None)
    ask(peer, "slow", now_ms=0, timeout_ms=100)
    ask(peer, "fast", now_ms=10, timeout_ms=20)
    assert peer.next_deadline_ms() == 30
    assert peer.expired(29) == []
    assert peer.expired(30) == ["fast"]
    assert peer.expired(30) == []
    assert peer.next_deadline_ms() == 100
    assert peer.expired(500) == ["slow"]
    assert peer.next_deadline_ms() is None


def test_the_answer_of_an_expired_request_is_late_and_keeps_the_order() -> None:
    peer = Peer(None)
    first, second = ask(peer, "first", timeout_ms=5), ask(peer, "second")
    assert peer.expired(5) == ["first"]
    assert peer.received(answer(first))[0] is LATE
    assert peer.received(answer(second))[0] == "second"
    assert repr(LATE) == "LATE"


def test_closing_returns_the_tokens_that_still_wait() -> None:
    peer = Peer(None)
    ask(peer, "expired", timeout_ms=5)
    ask(peer, "waiting")
    peer.expired(5)
    assert peer.close() == ["waiting"]
    assert peer.close() == []


def test_a_produce_without_acks_awaits_no_answer() -> None:
    peer = Peer(None)
    peer.send(PRODUCE, 9, ProduceRequest(acks=0), 0, 1, "silent")
    assert peer.in_flight == 0
    peer.send(PRODUCE, 9, ProduceRequest(acks=1), 0, 1, "loud")
    frame = joined(encode_response(PRODUCE, 9, 1, ProduceResponse()))
    assert peer.received(frame)[0] == "loud"


def test_a_message_that_cannot_be_sent_leaves_no_trace() -> None:
    peer = Peer(None)
    with pytest.raises(SchemaError):
        peer.send(METADATA, 0, MetadataRequest(topics=None), 0, 1, "bad")
    assert peer.in_flight == 0
    assert ask(peer, "good") == 0


def test_correlation_ids_start_again_after_the_last() -> None:
    peer = Peer(None, CorrelationIds(0x7FFFFFFF))
    assert ask(peer, "last") == 0x7FFFFFFF
    assert ask(peer, "first") == 0


class TestVersions:
    def peer(self, *ranges: tuple[int, int, int]) -> Peer:
        peer = Peer(None)
        peer.learn_versions(ApiVersionsResponse(api_keys=[ApiVersion(*each) for each in ranges]))
        return peer

    def test_the_highest_common_version_is_chosen(self) -> None:
        peer = self.peer((METADATA, 0, 99), (PRODUCE, 0, 5))
        assert peer.version(METADATA) == 13
        assert peer.version(METADATA, 9) == 9
        assert peer.version(PRODUCE) == 5

    @pytest.mark.parametrize(
        ("ranges", "error"),
        [
            ([], "does not serve Produce"),
            ([(PRODUCE, 0, 2)], "serves Produce 0 to 2; this side needs 3 to 11"),
            ([(PRODUCE, 12, 13)], "serves Produce 12 to 13; this side needs 3 to 11"),
        ],
    )
    def test_no_common_version_is_an_error_with_both_ranges(
        self, ranges: list[tuple[int, int, int]], error: str
    ) -> None:
        with pytest.raises(KafkaError, match=error) as caught:
            self.peer(*ranges).version(PRODUCE)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION

    def test_an_unsupported_version_answer_teaches_the_ranges(self) -> None:
        peer = Peer(None)
        peer.send(API_VERSIONS, 4, ApiVersionsRequest(), 0, 1, "versions")
        refusal = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(API_VERSIONS, 0, 3)])
        token, response = peer.received(joined(encode_response(API_VERSIONS, 0, 0, refusal)))
        assert (token, response.error_code) == ("versions", 35)
        peer.learn_versions(response)
        assert peer.version(API_VERSIONS) == 3
