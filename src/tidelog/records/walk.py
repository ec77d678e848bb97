"""The leader's walk over every record of a client's batch, compiled where possible.

Kafka's LogValidator reads each record before it appends a batch. LogValidator checks framing,
offset deltas 0, 1, 2, …, keys if the topic is compacted, and timestamps within bounds. The function
`walk` makes the checks of LogValidator. The compiled walk (`_walk.c`, built at installation) takes
2 to 6 ns a record, the Python walk 1.2 µs. The compiled walk and the Python walk return the same
verdict for the same bytes. A broker without the compiled walk logs its absence when the broker
starts.

A 32-bit number has at most five bytes and a 64-bit number at most ten, because Kafka's readers
reject longer numbers. Sizes below -1 are rejected, because librdkafka's readers cannot skip them.
Sources: LogValidator, DefaultRecord.readFrom, ByteUtils.readVarint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.core.ports import Buffer

if TYPE_CHECKING:
    compiled: Any
else:
    try:
        from tidelog.records import _walk as compiled
    except ImportError:
        compiled = None

#: Version of arguments and result that this module requires of the compiled walk.
_VERSION = 1

MIN_INT64 = -(2**63)
MAX_INT64 = 2**63 - 1
#: The timestamp field of a record without a timestamp; such a record is valid for any bounds.
_NO_TIMESTAMP = -1
#: Minimum size of a record's body: attributes, timestamp delta, offset delta, key size, value size,
#: header count.
_MIN_BODY_BYTES = 6

# The numbers of the faults of a record's framing (sizes, counts, deltas), as in the enum of
# _walk.c.
_TOO_EARLY = 1
_LONG_NUMBER = 2
_SIZE = 3
_PAST_END = 4
_OFFSET_DELTA = 5
_TIMESTAMP = 6
_KEY = 7
_VALUE = 8
_HEADER_COUNT = 9
_HEADER_KEY = 10
_HEADER_VALUE = 11
_SIZE_OFF = 12
_LEFT_OVER = 13

_REASONS = {
    _TOO_EARLY: "the records end too early",
    _LONG_NUMBER: "a number has too many bytes",
    _SIZE: "a size of {} bytes does not fit",
    _PAST_END: "its fields are longer than the record",
    _OFFSET_DELTA: "its offset delta is {}",
    _TIMESTAMP: "the base timestamp and a delta of {} pass 64 bits",
    _KEY: "a key of {} bytes does not fit",
    _VALUE: "a value of {} bytes does not fit",
    _HEADER_COUNT: "{} headers do not fit",
    _HEADER_KEY: "a header key of {} bytes does not fit",
    _HEADER_VALUE: "a header value of {} bytes does not fit",
    _SIZE_OFF: "its fields end {} bytes before the record",
    _LEFT_OVER: "{} bytes are left after the last record",
}


class Bad(NamedTuple):
    """A record that the topic does not accept, in a legible batch."""

    #: Index of the record in the batch.
    record: int
    timestamp_ms: int
    #: Whether the record lacks the key that a compacted topic needs; if False, its timestamp is out
    #: of bounds.
    keyless: bool


class Rejected(NamedTuple):
    """The reason to reject a batch: a fault of framing, or bad records."""

    #: Number of the framing fault (`_SIZE`, ...); 0 if every record is legible.
    fault: int
    #: Index of the record with the fault.
    record: int
    #: The wrong size, count or delta in the illegible record.
    value: int
    #: The first bad records, at most `room` (an argument of `Walk`).
    bad: list[tuple[int, int, bool]]
    #: The number of all bad records in the batch, which may be larger than the length of `bad`.
    bad_count: int

    @property
    def reason(self) -> str:
        """The fault of the framing in words."""
        reason = _REASONS[self.fault].format(self.value)
        return reason if self.fault == _LEFT_OVER else f"record {self.record}: {reason}"


#: `walk(data, start, end, count, base_timestamp, earliest, latest, keys_required, room)` returns
#: the largest timestamp of the `count` records in `data[start:end]`. For rejected records, `walk`
#: returns the fields of a Rejected with at most `room` bad records. Timestamps are in ms;
#: -1 and timestamps from `earliest` to `latest` are good.
Walk = Callable[[Buffer, int, int, int, int, int, int, bool, int], "int | tuple[Any, ...]"]


class _Fault(Exception):
    """A fault of a record's framing: the kind's number, and the wrong size, count or delta."""

    def __init__(self, fault: int, value: int = 0) -> None:
        super().__init__(fault, value)
        self.fault = fault
        self.value = value


def walk_in_python(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    keys_required: bool,
    room: int,
) -> int | tuple[Any, ...]:
    """Walk without the compiled extension; tests compare the compiled walk with this function."""
    data = bytes(memoryview(buffer)[start:end])
    bad: list[tuple[int, int, bool]] = []
    bad_count = 0
    largest = MIN_INT64
    position = record = 0
    try:
        for record in range(count):
            position, timestamp, keyless = _record(data, position, record, base_timestamp)
            if timestamp > largest:
                largest = timestamp
            keyless = keyless and keys_required
            if keyless or not (earliest <= timestamp <= latest or timestamp == _NO_TIMESTAMP):
                bad_count += 1
                if len(bad) < room:
                    bad.append((record, timestamp, keyless))
        if position != len(data):
            record = count
            raise _Fault(_LEFT_OVER, len(data) - position)
    except _Fault as error:
        return error.fault, record, error.value, [], 0
    if bad_count:
        return 0, 0, 0, bad, bad_count
    return largest


def _record(
    data: bytes, position: int, expected_delta: int, base_timestamp: int
) -> tuple[int, int, bool]:
    """Check one record; return its end position, its timestamp, and whether its key is null.

    `position` is where the record begins. Raises _Fault for a record that is not legible, or whose
    offset delta is not `expected_delta`.
    """
    size, position = _number(data, position, len(data), 5, _TOO_EARLY)
    end = position + size
    if size < _MIN_BODY_BYTES or end > len(data):
        raise _Fault(_SIZE, size)
    delta, position = _number(data, position + 1, end, 10)
    timestamp = base_timestamp + delta
    if not MIN_INT64 <= timestamp <= MAX_INT64:
        raise _Fault(_TIMESTAMP, delta)
    delta, position = _number(data, position, end, 5)
    if delta != expected_delta:
        raise _Fault(_OFFSET_DELTA, delta)
    key_size, position = _number(data, position, end, 5)
    if not -1 <= key_size <= end - position:
        raise _Fault(_KEY, key_size)
    if key_size > 0:
        position += key_size
    size, position = _number(data, position, end, 5)
    if not -1 <= size <= end - position:
        raise _Fault(_VALUE, size)
    if size > 0:
        position += size
    if position < end and not data[position]:
        position += 1
    else:
        position = _headers(data, position, end)
    if position != end:
        raise _Fault(_SIZE_OFF, end - position)
    return position, timestamp, key_size < 0


def _headers(data: bytes, position: int, end: int) -> int:
    count, position = _number(data, position, end, 5)
    if not 0 <= count <= (end - position) // 2:
        raise _Fault(_HEADER_COUNT, count)
    for _ in range(count):
        _, position = _sized(data, position, end, _HEADER_KEY, smallest=0)
        _, position = _sized(data, position, end, _HEADER_VALUE)
    return position


def _sized(data: bytes, position: int, end: int, fault: int, smallest: int = -1) -> tuple[int, int]:
    """Return the size of a field (-1 for a null field) and the position after the field.

    Raises _Fault with the number `fault` for a size below `smallest`, or if the field reaches
    beyond `end`.
    """
    size, position = _number(data, position, end, 5)
    if not smallest <= size <= end - position:
        raise _Fault(fault, size)
    return size, position + max(size, 0)


def _number(
    data: bytes, position: int, end: int, max_bytes: int, early: int = _PAST_END
) -> tuple[int, int]:
    """Return a zigzag number and the position after it.

    Raises _Fault: `early` if the number reaches beyond `end`, or _LONG_NUMBER if the number has
    more than `max_bytes` bytes.
    """
    if position < end:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        if position + 1 < end and data[position + 1] < 0x80:
            value = byte & 0x7F | data[position + 1] << 7
            return (value >> 1) ^ -(value & 1), position + 2
    value = 0
    for number in range(max_bytes):
        if position >= end:
            raise _Fault(early)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            if max_bytes == 5 and value >= 2**32:
                break
            value &= 2**64 - 1
            return (value >> 1) ^ -(value & 1), position
    raise _Fault(_LONG_NUMBER)


def is_compiled() -> bool:
    """Return whether the compiled walk exists and has the version that this module requires."""
    return compiled is not None and getattr(compiled, "VERSION", 0) == _VERSION


walk: Walk = compiled.walk if is_compiled() else walk_in_python

#: Returns a bytearray of a given size, with arbitrary content if the extension is compiled.
uninitialised: Callable[[int], bytearray] = compiled.room if is_compiled() else bytearray
