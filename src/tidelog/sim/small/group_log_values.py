"""The records of `__consumer_offsets`, read without brokers' code, and the state that they form.

The formats are those of Kafka 3.9. An offset has a key of version 1 and a value of version 1 or 3.
A group has a key of version 2 and a value of version 3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from tidelog.sim.small.coordinated_partition import ListedBatch, ListedRecord

K = TypeVar("K")
V = TypeVar("V")

_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_INCARNATION: Final = "tidelog.partition"


class OffsetName(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class LoggedOffset(NamedTuple):
    """A committed offset, as the log has it."""

    offset: int
    metadata: str
    commit_ms: int
    #: Time at which the offset expires; -1 if the broker's retention applies to it.
    expire_ms: int
    #: Id of the topic, and first leader epoch of the partition.
    incarnation: tuple[bytes, int] | None


class LoggedMember(NamedTuple):
    """A member of a generation, as the log has it."""

    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    assignment: bytes


class LoggedGroup(NamedTuple):
    """A generation, as the log has it."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[LoggedMember, ...]


class _Bytes:
    """Reads the fields of a key or value one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, layout: str) -> int:
        value: int
        (value,) = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return value

    def int16(self) -> int:
        return self._take(">h")

    def int32(self) -> int:
        return self._take(">i")

    def int64(self) -> int:
        return self._take(">q")

    def binary(self) -> bytes:
        return self._part(self.int32()) or b""

    def string(self) -> str:
        return self.nullable() or ""

    def nullable(self) -> str | None:
        data = self._part(self.int16())
        return None if data is None else data.decode()

    def _part(self, size: int) -> bytes | None:
        if size < 0:
            return None
        data = self._data[self._position : self._position + size]
        assert len(data) == size, "a field ends before its length"
        self._position += size
        return data

    def end(self) -> None:
        assert self._position == len(self._data), "bytes after the last field"


def name_of(record: ListedRecord) -> OffsetName | str:
    """Return the offset's name in a record's key, or the group's id if it is a group's record."""
    key = _Bytes(record.key)
    kind = key.int16()
    name: OffsetName | str = key.string()
    if kind == _OFFSET_KEY:
        name = OffsetName(str(name), key.string(), key.int32())
    else:
        assert kind == _GROUP_KEY, f"a coordinator of groups writes no key of version {kind}"
    key.end()
    return name


def offset_of(record: ListedRecord) -> LoggedOffset | None:
    """Return the value of an offset's record; None for a tombstone."""
    if record.value is None:
        return None
    value = _Bytes(record.value)
    version = value.int16()
    assert version in (1, 3), f"Kafka 3.9 writes no offset of version {version}"
    offset = value.int64()
    if version > 1:
        value.int32()
    metadata, commit_ms = value.string(), value.int64()
    expire_ms = value.int64() if version == 1 else -1
    value.end()
    incarnation = None
    for name, content in record.headers:
        if name == _INCARNATION and content is not None:
            incarnation = struct.unpack(">16si", content)
    return LoggedOffset(offset, metadata, commit_ms, expire_ms, incarnation)


def group_of(record: ListedRecord) -> LoggedGroup | None:
    """Return the value of a group's record; None for a tombstone."""
    if record.value is None:
        return None
    value = _Bytes(record.value)
    assert value.int16() == 3, "Kafka 3.9 writes groups of version 3"
    protocol_type, generation = value.string(), value.int32()
    protocol, leader, state_ms = value.nullable(), value.nullable(), value.int64()
    members = []
    for _ in range(value.int32()):
        member_id, instance_id = value.string(), value.nullable()
        value.string()
        value.string()
        rebalance_ms, session_ms = value.int32(), value.int32()
        members.append(
            LoggedMember(
                member_id, instance_id, session_ms, rebalance_ms, value.binary(), value.binary()
            )
        )
    value.end()
    return LoggedGroup(protocol_type, generation, protocol, leader, state_ms, tuple(members))


class LoggedState:
    """The state of all groups that the records up to an offset form."""

    def __init__(self) -> None:
        self.end = 0
        self._added = 0
        self.offsets: dict[OffsetName, LoggedOffset] = {}
        self.groups: dict[str, LoggedGroup] = {}

    def add(self, batches: Sequence[ListedBatch], end: int) -> None:
        """Add the records of the committed batches below the offset `end` that are not added."""
        while self._added < len(batches) and batches[self._added].base_offset < end:
            for record in batches[self._added].records:
                name = name_of(record)
                if isinstance(name, OffsetName):
                    _put(self.offsets, name, offset_of(record))
                else:
                    _put(self.groups, name, group_of(record))
            self._added += 1
        self.end = end

    def of_group(self, group: str) -> dict[tuple[str, int], LoggedOffset]:
        """Return the offsets of a group, by topic and partition."""
        return {
            (name.topic, name.partition): offset
            for name, offset in self.offsets.items()
            if name.group == group
        }


def _put(values: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
