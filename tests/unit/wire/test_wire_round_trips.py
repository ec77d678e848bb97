"""Every message at every version comes back from the wire as it went."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.wire.wire_strategies import Case, all_cases, messages

from tidelog.wire.codec import (
    decode_body,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.wire.primitives import Buffer

CASES = list(all_cases())


def joined(parts: list[Buffer]) -> memoryview:
    """The frame without its size, after checking the size."""
    whole = b"".join(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return memoryview(whole)[4:]


def thorough(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_round_trip(case: Case) -> None:
    @thorough(20)
    @given(
        message=messages(case.message, case.version),
        correlation_id=st.integers(-(2**31), 2**31 - 1),
        client_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    )
    def check(message: object, correlation_id: int, client_id: str | None) -> None:
        key, version = case.api_key, case.version
        if case.direction == "request":
            frame = joined(encode_request(key, version, correlation_id, client_id, message))
            header, decoded = decode_request(frame)
            assert header == (key, version, correlation_id, client_id)
            header_alone, offset = decode_header(frame)
            assert header_alone == header
            assert decode_body(header, frame, offset) == message
        else:
            frame = joined(encode_response(key, version, correlation_id, message))
            got_id, decoded = decode_response(key, version, frame)
            assert got_id == correlation_id
        assert decoded == message

    check()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_defaults_round_trip(case: Case) -> None:
    message = case.message()
    if case.direction == "request":
        frame = joined(encode_request(case.api_key, case.version, 1, None, message))
        assert decode_request(frame)[1] == message
    else:
        frame = joined(encode_response(case.api_key, case.version, 1, message))
        assert decode_response(case.api_key, case.version, frame)[1] == message


@pytest.mark.parametrize("case", CASES, ids=str)
def test_big_record_buffers_are_never_copied(case: Case) -> None:
    @thorough(5)
    @given(message=messages(case.message, case.version))
    def check(message: object) -> None:
        encode = (
            encode_request(case.api_key, case.version, 1, None, message)
            if case.direction == "request"
            else encode_response(case.api_key, case.version, 1, message)
        )
        given_buffers = [id(each) for each in big_records(message)]
        own_parts = [id(part) for part in encode if id(part) in given_buffers]
        assert own_parts == given_buffers
        assert all(len(part) > 0 for part in encode)

    check()


def big_records(value: object) -> list[bytes]:
    """The record buffers of 1 KiB or more in a message, in order."""
    if isinstance(value, bytes):
        return [value] if len(value) >= 1024 else []
    if isinstance(value, list):
        return [found for each in value for found in big_records(each)]
    if hasattr(value, "__dataclass_fields__"):
        return [
            found
            for name in value.__dataclass_fields__
            for found in big_records(getattr(value, name))
        ]
    return []
