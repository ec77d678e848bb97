"""Requests of every API and version, whole and slightly wrong: read, and served by a broker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.fuzz.broker_targets import Broker, stream_of
from tests.fuzz.fuzzer import Target
from tests.fuzz.strategies import damaged, framed, requests
from tests.fuzz.tracing import Tracer
from tests.fuzz.wire_targets import Requests, Stream
from tests.support.draws import examples

from tidelog.wire.codec import decode_request
from tidelog.wire.registry import API

REQUESTS, STREAM = Requests(), Stream()
FRAMES = requests().map(framed)
_TRACERS: dict[str, Tracer] = {}


def bounded(target: Target, data: bytes) -> None:
    """Run an input with the effort that its size allows; raises what the target raises."""
    tracer = _TRACERS.setdefault(target.name, Tracer(*target.traced))
    limit = target.max_lines + target.max_lines_per_byte * len(data)
    error = tracer.run(lambda: target.run(data), limit).error
    if error is not None:
        raise error


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


@pytest.fixture(scope="module", autouse=True)
def codecs() -> None:
    """Codecs are made at first use, which is no effort of the input that comes by first."""
    for seed in REQUESTS.seeds():
        REQUESTS.run(seed)


@examples(400)
@given(request=requests())
def test_a_request_is_read_as_it_was_written(request: tuple[int, int, str | None, Any]) -> None:
    key, version, client_id, message = request
    frame = framed(request)
    if API[key].request_header_version(version) == 0:
        client_id = None  # this header has none
    assert decode_request(memoryview(frame)) == ((key, version, 7, client_id), message)
    bounded(REQUESTS, frame)


@examples(800)
@given(frame=damaged(FRAMES))
def test_a_wrong_request_is_read_or_refused(frame: bytes) -> None:
    bounded(REQUESTS, frame)


@examples(200)
@given(
    frames=st.lists(damaged(FRAMES), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 255), max_size=8),
    limit=st.sampled_from([50, 1000, 65_535]),
    wrong=st.booleans(),
)
def test_a_stream_is_cut_into_its_frames(
    frames: list[bytes], sizes: list[int], limit: int, wrong: bool
) -> None:
    sent = stream_of(frames) + (b"\xff\xff\xff\xff" if wrong else b"")
    reads = bytearray(limit.to_bytes(2, "big"))
    number = 0
    while sent:
        size = sizes[number % len(sizes)] if sizes else 200
        reads += bytes([min(size, len(sent))]) + sent[:size]
        sent, number = sent[size:], number + 1
    bounded(STREAM, bytes(reads))


@examples(300, HealthCheck.function_scoped_fixture)
@given(frames=st.lists(st.one_of(FRAMES, damaged(FRAMES, first=8)), min_size=1, max_size=3))
def test_a_broker_answers_or_closes_and_serves_others(broker: Broker, frames: list[bytes]) -> None:
    bounded(broker, stream_of(frames))


def test_whole_requests_are_answered() -> None:
    """The test above would prove little if every connection were closed."""
    fresh = Broker()
    try:
        harness = fresh.harness()
        for seed in islice(fresh.seeds(), 100):
            fresh.run(seed)
        assert harness.answers > 90
    finally:
        fresh.close()
