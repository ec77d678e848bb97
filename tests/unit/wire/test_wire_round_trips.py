"""Every message at every version comes back from the wire as it went."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.draws import for_draws
from tests.support.wire import Case, all_cases, joined, message, text

from tidelog.wire.codec import (
    decode_body,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.wire.encoding import OWN_PART_BYTES
from tidelog.wire.registry import API

CASES = list(all_cases())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_round_trip(case: Case) -> None:
    def check(draw: Random) -> None:
        key, version = case.api_key, case.version
        correlation_id = draw.randrange(-(2**31), 2**31)
        client_id = draw.choice([None, text(draw, 30)])
        sent = message(draw, case.message, version)
        if case.direction == "request":
            frame = joined(encode_request(key, version, correlation_id, client_id, sent))
            header, decoded = decode_request(frame)
            if API[key].request_header_version(version) == 0:
                client_id = None  # this header has none
            assert header == (key, version, correlation_id, client_id)
            header_alone, offset = decode_header(frame)
            assert header_alone == header
            assert decode_body(header, frame, offset) == sent
        else:
            frame = joined(encode_response(key, version, correlation_id, sent))
            got_id, decoded = decode_response(key, version, frame)
            assert got_id == correlation_id
        assert decoded == sent

    for_draws(40, case, check)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_defaults_round_trip(case: Case) -> None:
    sent = case.message()
    if case.direction == "request":
        frame = joined(encode_request(case.api_key, case.version, 1, None, sent))
        assert decode_request(frame)[1] == sent
    else:
        frame = joined(encode_response(case.api_key, case.version, 1, sent))
        assert decode_response(case.api_key, case.version, frame)[1] == sent


@pytest.mark.parametrize("case", CASES, ids=str)
def test_big_record_buffers_are_never_copied(case: Case) -> None:
    def check(draw: Random) -> None:
        sent = message(draw, case.message, case.version)
        encoded = (
            encode_request(case.api_key, case.version, 1, None, sent)
            if case.direction == "request"
            else encode_response(case.api_key, case.version, 1, sent)
        )
        given_buffers = [id(each) for each in big_records(sent)]
        own_parts = [id(part) for part in encoded if id(part) in given_buffers]
        assert own_parts == given_buffers
        assert all(len(part) > 0 for part in encoded)

    for_draws(10, case, check)


def big_records(value: object) -> list[bytes]:
    """The record buffers of 1 KiB or more in a message, in order."""
    if isinstance(value, bytes):
        return [value] if len(value) >= OWN_PART_BYTES else []
    if isinstance(value, list):
        return [found for each in value for found in big_records(each)]
    if hasattr(value, "__dataclass_fields__"):
        return [
            found
            for name in value.__dataclass_fields__
            for found in big_records(getattr(value, name))
        ]
    return []
