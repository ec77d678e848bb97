"""Any bytes give a message or a ProtocolError: nothing else, and no memory beyond their worth."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples, for_draws
from tests.support.wire import Case, all_cases, decode, encode, message

from tidelog.core.errors import ProtocolError
from tidelog.wire import codec
from tidelog.wire.primitives import encode_uvarint
from tidelog.wire.registry import API, FETCH, LEADER_AND_ISR, METADATA, PRODUCE

CASES = list(all_cases())

#: Lengths that no frame can back: 2^31-1 and 2^32-2 elements, negative ones, endless varints.
HOSTILE_BODIES = [
    b"\x7f\xff\xff\xff" * 20,
    b"\xff\xff\xff\xff\x07" * 20,
    b"\xff\xff\xff\xff\x0f" * 20,
    b"\xff\xff\xff\xff\xff\xff\xff\xff" * 20,
    b"\x80\x00\x00\x00" * 20,
    b"\x00" * 10 + b"\x7f\xff\xff\xff" * 20,
    b"\x00" * 11 + b"\xff\xff\xff\xff\x07" * 20,
]


def mutated(draw: Random, case: Case) -> bytes:
    """A valid body, then cut, overwritten, or with bytes put in or taken out."""
    body = bytearray(encode(case, message(draw, case.message, case.version)))
    del body[4000:]
    for _ in range(draw.randint(1, 4)):
        at = draw.randint(0, len(body))
        match draw.choice(["cut", "set", "put", "take", "length"]):
            case "cut":
                del body[at:]
            case "set":
                body[at : at + 1] = draw.randbytes(1)
            case "put":
                body[at:at] = draw.randbytes(draw.randint(1, 6))
            case "take":
                del body[at : at + draw.randint(1, 6)]
            case "length":
                body[at : at + 4] = draw.choice(HOSTILE_BODIES)[:5]
    return bytes(body)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_bytes_give_a_message_or_a_protocol_error(case: Case) -> None:
    def check(draw: Random) -> None:
        noise = draw.random() < 0.2
        body = draw.randbytes(draw.randint(0, 200)) if noise else mutated(draw, case)
        try:
            decoded = decode(case, body)
        except ProtocolError:
            return
        assert type(decoded) is case.message
        assert decode(case, encode(case, decoded)) == decoded

    for_draws(60, case, check)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_cut_of_a_valid_body_is_a_protocol_error(case: Case) -> None:
    def check(draw: Random) -> None:
        body = encode(case, message(draw, case.message, case.version))
        for length in range(0, len(body), max(1, len(body) // 50)):
            with pytest.raises(ProtocolError):
                decode(case, body[:length])
        if case.direction == "response":
            with pytest.raises(ProtocolError):
                decode(case, body + b"\0")
        else:  # librdkafka sends more than a request: ignored, as Kafka does
            assert decode(case, body + b"\1\0\0") == decode(case, body)

    for_draws(3, case, check)


@pytest.mark.parametrize("case", [case for case in CASES if case.flexible], ids=str)
def test_more_unknown_tags_than_one_byte_can_count_are_passed_over(case: Case) -> None:
    body = encode(case, case.message())
    assert body.endswith(b"\0"), "no tagged field is set"
    tags = b"".join(encode_uvarint(1000 + number) + b"\1x" for number in range(200))
    assert decode(case, body[:-1] + encode_uvarint(200) + tags) == case.message()


@examples(300)
@given(frame=st.binary(max_size=100))
def test_any_frame_gives_a_request_or_a_protocol_error(frame: bytes) -> None:
    try:
        header, request = codec.decode_request(memoryview(frame))
    except ProtocolError:
        return
    assert type(request) is API[header.api_key].request


@pytest.mark.parametrize("case", CASES, ids=str)
def test_claimed_lengths_allocate_nothing(case: Case) -> None:
    decode(case, encode(case, case.message()))
    for body in HOSTILE_BODIES:
        tracemalloc.start()
        try:
            decode(case, body)
        except ProtocolError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 32 * 1024


@pytest.mark.parametrize(
    ("api_key", "version", "before_the_array"),
    [
        (FETCH, 4, b"\xff\xff\xff\xff" + bytes(4 + 4 + 4 + 1)),
        (METADATA, 1, b""),
        (PRODUCE, 3, b"\xff\xff" + bytes(2 + 4)),
    ],
)
def test_two_billion_elements_are_refused_by_name(
    api_key: int, version: int, before_the_array: bytes
) -> None:
    body = before_the_array + b"\x7f\xff\xff\xff" + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=r"claims \d+ bytes where 1000 are left"):
            decode(Case(api_key, version, "request"), body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * 1024


def test_a_compact_array_of_two_billion_elements_is_refused() -> None:
    head = bytes(4 + 1 + 4 + 8 + 1)
    with pytest.raises(ProtocolError, match=r"LeaderAndIsrRequest\.topic_states claims"):
        decode(Case(LEADER_AND_ISR, 7, "request"), head + b"\xff\xff\xff\xff\x07" + bytes(100))
