"""Targets of what a broker finds on its disk when it starts: files of a log, and checkpoints.

Whatever the bytes: the directory opens, or an error says what is wrong with it. A log that is open
can be read from its start to its end, written to, and is the same when it is opened again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, cast

from tests.fuzz.mutation import mutated
from tests.fuzz.record_targets import RECORDS, repaired, with_crc
from tests.support.log import (
    TP,
    Life,
    SimLogHarness,
    append,
    batch_of,
)

from tidelog.core.errors import ConfigError, ErrorCode, KafkaError, StorageError
from tidelog.core.ports import Files
from tidelog.log import names
from tidelog.log.checkpoints import (
    DamagedCheckpoint,
    format_leader_epochs,
    format_offsets,
    parse_leader_epochs,
    parse_offsets,
)
from tidelog.log.config import LogConfig
from tidelog.log.directory_files import (
    format_meta_properties,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_partition_metadata,
)
from tidelog.log.index import DamagedIndex, OffsetIndex, TimeIndex
from tidelog.log.producer_state import ProducerState
from tidelog.records.batch import BatchView, CorruptBatch, iter_batches
from tidelog.records.builder import Producer, build_batch
from tidelog.sim.files import SimFiles

_ROOT = "/logs"
_LOG = f"{_ROOT}/topic-0"
#: What a part of an input is written to, by its number.
FILES = (
    f"{_LOG}/00000000000000000000.log",
    f"{_LOG}/00000000000000000000.index",
    f"{_LOG}/00000000000000000000.timeindex",
    f"{_LOG}/00000000000000000003.log",
    f"{_LOG}/00000000000000000003.index",
    f"{_LOG}/00000000000000000003.timeindex",
    f"{_LOG}/00000000000000000003.snapshot",
    f"{_LOG}/00000000000000000006.snapshot",
    f"{_LOG}/leader-epoch-checkpoint",
    f"{_LOG}/partition.metadata",
    f"{_ROOT}/recovery-point-offset-checkpoint",
    f"{_ROOT}/replication-offset-checkpoint",
    f"{_ROOT}/log-start-offset-checkpoint",
    f"{_ROOT}/cleaner-offset-checkpoint",
    f"{_ROOT}/.kafka_cleanshutdown",
    f"{_ROOT}/meta.properties",
    f"{_LOG}/00000000000000000000.log.swap",
    f"{_LOG}/00000000000000000003.log.cleaned",
    f"{_LOG}/00000000000000000000.log.deleted",
)
_LOGS = tuple(number for number, path in enumerate(FILES) if ".log" in path)
_HEAD = struct.Struct(">BH")
_CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=64)


def parts_of(data: bytes) -> list[tuple[int, bytes]]:
    """The files of an input: number and content, each behind number (1 byte) and size (2)."""
    parts = []
    at = 0
    while at + _HEAD.size <= len(data):
        number, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        parts.append((number % len(FILES), data[at : at + size]))
        at += size
    return parts


def joined_parts(parts: list[tuple[int, bytes]]) -> bytes:
    """The inverse of `parts_of`."""
    return b"".join(_HEAD.pack(number, len(each)) + each for number, each in parts)


class LogFiles:
    """The files of a log directory with one partition."""

    name = "log-files"
    traced = ("log/", "records/batch.py")
    max_lines = 60_000
    max_lines_per_byte = 400

    def seeds(self) -> Iterator[bytes]:
        first = batch_of([b"a" * 40, b"b", b"c"], producer=Producer(5, 0, 0), leader_epoch=0)
        second = batch_of([b"d", b"e" * 30, b"f"], base_offset=3, codec=1, leader_epoch=1)
        both = bytes(first) + bytes(second)
        epochs = format_leader_epochs([(0, 0), (1, 3)])
        marker = b'{"version":0,"brokerEpoch":7}'
        identity = format_partition_metadata(bytes(range(1, 17)))
        meta = format_meta_properties("cluster", 1)

        def offsets(offset: int) -> bytes:
            return format_offsets({TP: offset})

        index = OffsetIndex(0)
        index.append(2, 0)
        index.append(5, len(first))
        times = TimeIndex(0)
        times.append(BatchView(first).max_timestamp, 2)
        snapshot = _snapshot(first)
        yield joined_parts([(0, both)])
        yield joined_parts([(0, both), (8, epochs), (9, identity), (10, offsets(3)), (15, meta)])
        yield joined_parts(
            [
                *((0, both), (1, index.to_bytes()), (2, times.to_bytes()), (8, epochs)),
                *((9, identity), (7, snapshot), (10, offsets(6)), (11, offsets(6))),
                *((14, marker), (15, meta)),
            ]
        )
        yield joined_parts(
            [
                *((0, bytes(first)), (3, bytes(second)), (6, snapshot), (8, epochs)),
                *((9, identity), (10, offsets(3)), (12, offsets(2)), (13, offsets(3))),
            ]
        )
        yield joined_parts([(0, bytes(first)), (3, bytes(second)), (14, marker), (10, offsets(6))])
        yield joined_parts(
            [(16, bytes(first)), (3, bytes(second)), (17, bytes(second)), (18, b"x")]
        )
        gap = build_batch(RECORDS, base_offset=20, leader_epoch=2)
        yield joined_parts([(0, bytes(first) + bytes(gap)), (10, offsets(23)), (14, marker)])

    def repair(self, data: bytes, draw: Random) -> bytes:
        """One file alone changed, with right checksums; the others as they are."""
        parts = parts_of(data)
        if not parts:
            return data
        at = draw.randrange(len(parts))
        number, content = parts[at]
        content = mutated(content, [each for _, each in parts], draw)
        if number in _LOGS:
            content = repaired(content, draw) if draw.random() < 0.3 else with_crc(content)
        parts[at] = (number, content[:2000])
        return joined_parts(parts)

    def run(self, data: bytes) -> None:
        harness = SimLogHarness(config=_CONFIG)
        files = cast(Files, SimFiles(cast(Any, Life()), harness.disk, harness.draw))
        files.mkdir(_LOG)
        for number, content in parts_of(data):
            files.replace_file(FILES[number], content, sync=True)
        try:
            directory = harness.open()
        except (StorageError, ConfigError) as error:
            assert _ROOT in str(error), "an error that does not say where"
            return
        for log in list(directory.logs.values()):
            assert 0 <= log.log_start_offset <= log.log_end_offset
            end = log.log_end_offset
            found = _batches(log, end)
            if end < 2**62:
                append(log, [b"new"], epoch=2**31 - 1)
                assert log.log_end_offset == end + 1
            if found is None or end >= 2**62:
                return
            again = harness.open().logs[log.topic_partition]
            assert again.log_end_offset == end + 1, "what was written is not there"
            assert _batches(again, end) == found, "other records when it is opened again"


def _batches(log: Any, below: int) -> list[tuple[int, bytes]] | None:
    """The batches of a log with their base offsets; None where a reader meets damage below the
    recovery point, which nobody looks for when a log is opened."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            part = log.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True).result()
            walk = iter_batches(part.data)
            for batch in walk:
                data = bytes(batch.buffer[batch.position : batch.end_position])
                if batch.base_offset < below:
                    found.append((batch.base_offset, data))
        except (CorruptBatch, StorageError):
            return None
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE, error
            return None
        if walk.end_position != len(part.data):
            return None
        if not len(part.data):
            break  # records there were have gone, all up to the end
        assert part.next_offset > offset, "a read that leads nowhere"
        offset = part.next_offset
    return found


def _snapshot(batch: bytearray) -> bytes:
    state = ProducerState()
    state.append(BatchView(batch), 0)
    return state.to_snapshot()


class SmallFiles:
    """A byte that chooses the kind, and the content of a checkpoint, an index or an identity."""

    name = "small-files"
    traced = ("log/", "core/types.py")
    max_lines = 500
    max_lines_per_byte = 100

    def seeds(self) -> Iterator[bytes]:
        yield b"\0" + format_leader_epochs([(0, 0), (3, 100)])
        yield b"\1" + format_offsets({TP: 5})
        yield b"\2" + format_meta_properties("cluster", 1)
        yield b"\3" + format_partition_metadata(bytes(range(1, 17)))
        yield b'\4{"version":0,"brokerEpoch":7}'
        yield b"\5" + struct.pack(">iiii", 5, 42, 9, 80)
        yield b"\6" + struct.pack(">qiqi", 500, 4, 600, 9)
        yield b"\7" + b"topic.with.dots-17"
        yield b"\x08" + b"t-1.0123456789abcdef0123456789abcdef-stray"

    def repair(self, data: bytes, draw: Random) -> bytes:
        """The second line tells how many follow."""
        lines = data[1:].split(b"\n")
        if len(lines) > 1 and data[0] < 2:
            lines[1] = str(len([each for each in lines[2:] if each])).encode()
            return data[:1] + b"\n".join(lines)
        return data

    def run(self, data: bytes) -> None:
        kinds: tuple[Callable[[bytes], None], ...] = (
            _epochs, _offsets, _meta, _identity, _marker, _index, _times, _name, _aside,
        )  # fmt: skip
        kinds[(data[0] if data else 0) % len(kinds)](data[1:])


def _epochs(data: bytes) -> None:
    try:
        entries = parse_leader_epochs(data)
    except DamagedCheckpoint:
        return
    assert parse_leader_epochs(format_leader_epochs(entries)) == entries


def _offsets(data: bytes) -> None:
    try:
        offsets = parse_offsets(data)
    except DamagedCheckpoint:
        return
    assert parse_offsets(format_offsets(offsets)) == offsets


def _meta(data: bytes) -> None:
    try:
        parse_meta_properties(data)
    except ValueError:
        return


def _identity(data: bytes) -> None:
    try:
        topic_id = parse_partition_metadata(data)
    except ValueError:
        return
    assert parse_partition_metadata(format_partition_metadata(topic_id)) == topic_id


def _marker(data: bytes) -> None:
    try:
        last, earlier = parse_clean_shutdown(data)
        assert all(-1 <= each < 2**63 for each in (last, *earlier))
    except ValueError:
        return


def _index(data: bytes) -> None:
    try:
        index = OffsetIndex.from_bytes(7, data, 4096)
    except DamagedIndex:
        return
    again = OffsetIndex.from_bytes(7, index.to_bytes(), 4096)
    assert again.entries() == index.entries()
    for offset, position in index.entries():
        assert index.floor(offset) <= position < 4096


def _times(data: bytes) -> None:
    try:
        index = TimeIndex.from_bytes(7, data)
    except DamagedIndex:
        return
    assert TimeIndex.from_bytes(7, index.to_bytes()).entries() == index.entries()


def _name(data: bytes) -> None:
    found = names.parse_directory_name(data.decode("latin-1"))
    if found is not None:
        assert str(found) == data.decode("latin-1"), "another partition's directory"


def _aside(data: bytes) -> None:
    names.parse_aside_name(data.decode("latin-1"))
