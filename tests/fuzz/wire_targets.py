"""Targets of the wire format: requests, answers, frames out of a stream, structs behind versions.

Whatever the bytes: a message or a ProtocolError; and a message goes back into bytes that are read
as the same message and written as the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.support.wire import Case, all_cases, data_cases, joined, message

from tidelog.broker.coordinators import offset_records
from tidelog.core.errors import ProtocolError
from tidelog.group.records import CommittedOffset
from tidelog.wire import codec
from tidelog.wire.data.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from tidelog.wire.frames import FIRST_BUFFER_BYTES, FrameError, FrameReader
from tidelog.wire.schema import SchemaError
from tidelog.wire.versioned import Versioned

CASES = list(all_cases())
REQUESTS = [case for case in CASES if case.direction == "request"]
RESPONSES = [case for case in CASES if case.direction == "response"]
DATA = data_cases()
_CASE_BYTES = 2
_LONGEST_SEED = 600


def drawn(case: Case) -> Iterator[Any]:
    """Messages for a codec: the defaults, and one that is drawn."""
    yield case.message()
    for number in range(20):
        found = message(Random(f"{case} {number}"), case.message, case.version, tame=True)
        if len(str(found)) < 2 * _LONGEST_SEED:
            yield found
            return


class Requests:
    """A request's frame without its size."""

    name = "requests"
    traced = ("wire/",)
    max_lines = 2_000
    max_lines_per_byte = 40

    def seeds(self) -> Iterator[bytes]:
        for case in REQUESTS:
            for each in drawn(case):
                frame = codec.encode_request(case.api_key, case.version, 7, "id", each)
                yield bytes(joined(frame))[:_LONGEST_SEED]

    def repair(self, data: bytes, draw: Random) -> bytes:
        """The header of a request that is spoken, so that the body is read."""
        case = draw.choice(REQUESTS)
        header = case.api_key.to_bytes(2, "big") + case.version.to_bytes(2, "big")
        key, version = (int.from_bytes(data[at : at + 2], "big") for at in (0, 2))
        spoken = any((each.api_key, each.version) == (key, version) for each in REQUESTS)
        return data if spoken and draw.random() < 0.9 else header + data[4:]

    def run(self, data: bytes) -> None:
        try:
            header, decoded = codec.decode_request(memoryview(data))
        except ProtocolError:
            return
        again = encode_request(header, decoded)
        header_again, decoded_again = codec.decode_request(again)
        is_same = (header_again, decoded_again) == (header, decoded)
        # A number that is none (NaN) equals nothing: the bytes decide below.
        assert is_same or "nan" in repr(decoded), "another request comes back"
        assert encode_request(header_again, decoded_again) == again, "it is written otherwise"


def encode_request(header: codec.RequestHeader, decoded: Any) -> memoryview:
    """A request's frame without its size."""
    key, version, correlation_id, client_id = header
    return joined(codec.encode_request(key, version, correlation_id, client_id, decoded))


class Responses:
    """The number of an answer's codec in two bytes, and its frame without its size."""

    name = "responses"
    traced = ("wire/",)
    max_lines = 2_000
    max_lines_per_byte = 40

    def seeds(self) -> Iterator[bytes]:
        for number, case in enumerate(RESPONSES):
            for each in drawn(case):
                frame = joined(codec.encode_response(case.api_key, case.version, 7, each))
                yield number.to_bytes(_CASE_BYTES, "big") + bytes(frame)[:_LONGEST_SEED]

    def repair(self, data: bytes, draw: Random) -> bytes:
        return data

    def run(self, data: bytes) -> None:
        case = RESPONSES[int.from_bytes(data[:_CASE_BYTES], "big") % len(RESPONSES)]
        key, version = case.api_key, case.version
        try:
            number, decoded = codec.decode_response(key, version, memoryview(data[_CASE_BYTES:]))
        except ProtocolError:
            return
        again = joined(codec.encode_response(key, version, number, decoded))
        assert codec.decode_response(key, version, again) == (number, decoded)


class Stream:
    """Bytes as a connection brings them: the limit of a frame (2 bytes), then reads, each behind
    its size (1 byte)."""

    name = "stream"
    traced = ("wire/frames.py", "core/buffers.py")
    max_lines = 500
    max_lines_per_byte = 60

    def seeds(self) -> Iterator[bytes]:
        frames = b"".join(len(one).to_bytes(4, "big") + one for one in (b"", b"a", b"b" * 90))
        yield b"\x10\0" + bytes([len(frames)]) + frames
        yield b"\x10\0" + b"".join(b"\1" + frames[at : at + 1] for at in range(len(frames)))
        yield b"\0\5\4\0\0\0\6" + b"\4\0\0\0\5" + b"\5abcde"

    def repair(self, data: bytes, draw: Random) -> bytes:
        return data

    def run(self, data: bytes) -> None:
        limit = int.from_bytes(data[:2], "big")
        reader = FrameReader(limit, first_buffer_bytes=8)
        sent = b""
        got: list[bytes] = []
        refused = False
        at = 2
        while at < len(data) and not refused:
            size, at = data[at], at + 1
            read, at = data[at : at + size], at + size
            while read and not refused:
                buffer = reader.get_buffer()
                assert len(buffer) > 0, "no room for the next bytes"
                taken = read[: len(buffer)]
                read = read[len(taken) :]
                buffer[: len(taken)] = taken
                sent += taken
                try:
                    frames = reader.received(len(taken))
                except FrameError as error:
                    frames, refused = error.frames, True
                got += [bytes(each) for each in frames]
                room = max(FIRST_BUFFER_BYTES, 2 * len(sent))
                assert reader.buffer_bytes <= room, "memory grows with what a size claims"
        assert (got, refused) == self._cut(sent, limit), "frames are cut elsewhere"

    @staticmethod
    def _cut(sent: bytes, limit: int) -> tuple[list[bytes], bool]:
        """The frames in what was sent, and whether a size in it cannot be one."""
        frames: list[bytes] = []
        at = 0
        while at + 4 <= len(sent):
            size = int.from_bytes(sent[at : at + 4], "big", signed=True)
            if not 0 <= size <= limit:
                return frames, True
            if at + 4 + size > len(sent):
                break
            frames.append(sent[at + 4 : at + 4 + size])
            at += 4 + size
        return frames, False


class GroupRecords:
    """A record of `__consumer_offsets`: the key's size (2 bytes), key and value; and the same
    bytes as what consumers send each other."""

    name = "group-records"
    traced = ("wire/", "broker/coordinators/offset_records.py")
    max_lines = 2_000
    max_lines_per_byte = 60

    def seeds(self) -> Iterator[bytes]:
        for number, case in enumerate(DATA):
            struct = case.draw(Random(f"{case}"))
            encoded = case.versioned.encode(struct, case.version)[:_LONGEST_SEED]
            key = DATA[number % 3].versioned
            name = key.encode(DATA[number % 3].draw(Random("key")), DATA[number % 3].version)
            yield len(name).to_bytes(2, "big") + name + encoded

    def repair(self, data: bytes, draw: Random) -> bytes:
        """A version in reach."""
        at = 2 + int.from_bytes(data[:2], "big") % max(len(data), 1)
        if draw.random() < 0.3:
            at = 2
        return data[:at] + bytes((0, draw.randrange(5))) + data[at + 2 :]

    def run(self, data: bytes) -> None:
        size = 2 + int.from_bytes(data[:2], "big")
        key, value = data[2:size], data[size:]
        for absent in (None, value):
            self._record(key, absent)
        structs: tuple[Versioned[Any], ...] = (SUBSCRIPTION, ASSIGNMENT)
        for versioned in structs:
            try:
                decoded = versioned.decode(value)
            except ProtocolError:
                continue
            version = min(int.from_bytes(value[:2], "big"), versioned.max_version)
            assert versioned.decode(versioned.encode(decoded, version)) == decoded

    @staticmethod
    def _record(key: bytes, value: bytes | None) -> None:
        try:
            record = offset_records.decode(key, value)
        except ProtocolError:
            return
        if record is None:
            return
        try:
            written = offset_records.encode(record, 0)
        except SchemaError:
            # Version 4 is read and not written: its strings may be longer than version 3 has room.
            assert value is not None and len(value) > 0x7FFF
            return
        again = offset_records.decode(written.key, written.value)
        assert again == without_what_version_1_lacks(record), "another record comes back"


def without_what_version_1_lacks(record: Any) -> Any:
    """An offset with an expiry of its own is written without its leader epoch."""
    value = record.value
    if isinstance(value, CommittedOffset) and value.expire_timestamp_ms != -1:
        return record._replace(value=value._replace(leader_epoch=-1))
    return record
