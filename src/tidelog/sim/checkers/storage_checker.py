"""Checks of the files on a broker's disk, by a reader of their formats that is independent of the
broker.

The `meta.properties` of each log directory names its broker. In each replica, batches are complete,
have correct checksums and are in order. There are no gaps between batches unless the topic is
compacted, and leader epochs never decrease. Index entries below the recovery point match batches,
offsets and timestamps. The leader epoch checkpoint agrees with the batches below the recovery
point. Producer snapshots are readable. No checkpoint has an offset above the log's end.

The module shares no code with `tidelog.log`, and implements the formats from Kafka's description.
Damage that a fault injected is no violation: the checker ignores flipped bits, and skips files that
a fault cut short.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import crc32c

from tidelog.core.types import topic_id_from_text
from tidelog.sim.batches import BrokenBatch, read_batches
from tidelog.sim.disk import Directory, File, SimDisk

_SEGMENT: Final = re.compile(r"(\d{20})\.(log|index|timeindex|snapshot)")
_ASIDE: Final = ("-delete", "-stray", "-future")
_INDEX_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA_AT: Final = 23
_MAX_TIMESTAMP_AT: Final = 35
_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_SNAPSHOT_CRC_FROM: Final = 6
_MAX_SEQUENCE: Final = 0x7FFFFFFF
_HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_LOG_STARTS: Final = "log-start-offset-checkpoint"
_LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
_METADATA: Final = "partition.metadata"
_WHOLE_METADATA_BYTES: Final = len("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
#: Names of the only files that a replica's directory may have if its creation failed or was
#: interrupted.
_BEGUN: Final = frozenset((_METADATA, f"{_METADATA}.tmp"))
_OWNER: Final = "meta.properties"


class StoredBatch(NamedTuple):
    """One batch of a log file."""

    position: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    last_sequence: int


class _DiskError(Exception):
    """The error for an invalid file or directory on a broker's disk."""


def check_disk(disk: SimDisk, broker_id: int, has_gaps: Callable[[str], bool]) -> list[str]:
    """Return the problems that were found on a broker's disk, one line for each.

    `has_gaps` returns whether a topic is compacted.
    """
    return _Disk(disk, broker_id, has_gaps).check()


class _Disk:
    def __init__(self, disk: SimDisk, broker_id: int, has_gaps: Callable[[str], bool]) -> None:
        self._disk = disk
        self._broker_id = broker_id
        self._has_gaps = has_gaps
        self._problems: list[str] = []
        root = disk.directory(disk.root)
        self._root = root
        self._ends: dict[str, int] = {}
        self._points: dict[str, int] = {}

    def check(self) -> list[str]:
        """Check the whole log directory and return its problems."""
        if not self._root.entries:
            return []  # no broker has opened the directory
        self._try(_OWNER, self._check_owner)
        self._try(_RECOVERY_POINTS, self._read_points)
        for name in sorted(self._root.entries):
            entry = self._root.entries[name]
            if isinstance(entry, Directory) and not name.endswith(_ASIDE):
                self._check_replica(name, entry)
        for name in (_RECOVERY_POINTS, _HIGH_WATERMARKS, _LOG_STARTS):
            self._try(name, lambda name=name: self._check_offsets(name))  # type: ignore[misc]
        return self._problems

    def _try(self, path: str, check: Callable[[], None]) -> None:
        try:
            check()
        except _DiskError as wrong:
            self._problems.append(f"{self._disk.root}/{path}: {wrong}")

    def _content(self, entry: object) -> bytes | None:
        """Return a file's undamaged content; None if there is no file or it was cut short."""
        if not isinstance(entry, File) or entry in self._disk.cut_files:
            return None
        return bytes(entry.undamaged())

    # The directory's own files

    def _check_owner(self) -> None:
        data = self._content(self._root.entries.get(_OWNER))
        if data is None:
            if _OWNER not in self._root.entries:
                raise _DiskError("it is not there")
            return
        fields = dict(line.split("=", 1) for line in _text(data).splitlines() if "=" in line)
        if fields.get("broker.id") != str(self._broker_id) or not fields.get("cluster.id"):
            raise _DiskError(f"{fields} is not broker {self._broker_id} of a cluster")

    def _read_points(self) -> None:
        self._points = self._offsets(_RECOVERY_POINTS)

    def _offsets(self, name: str) -> dict[str, int]:
        data = self._content(self._root.entries.get(name))
        if not data:
            return {}
        found = {}
        for line in _checkpoint_lines(data):
            fields = line.split()
            if len(fields) != 3 or not (fields[1].isdigit() and fields[2].isdigit()):
                raise _DiskError(f"{line!r} is not a topic, a partition and an offset")
            found[f"{fields[0]}-{fields[1]}"] = int(fields[2])
        return found

    def _check_offsets(self, name: str) -> None:
        for replica, offset in self._offsets(name).items():
            end = self._ends.get(replica)
            if end is not None and offset > end:
                raise _DiskError(f"it has offset {offset} for {replica}, which ends at {end}")

    # One replica

    def _check_replica(self, name: str, directory: Directory) -> None:
        gaps = self._has_gaps(name.rpartition("-")[0])
        problems = len(self._problems)
        self._try(f"{name}/{_METADATA}", lambda: self._check_metadata(directory))
        logs = {}
        for file_name, entry in sorted(directory.entries.items()):
            match = _SEGMENT.fullmatch(file_name)
            if match is not None and isinstance(entry, File) and match[2] == "log":
                logs[int(match[1])] = entry
        batches: dict[int, list[StoredBatch]] = {}
        previous: StoredBatch | None = None
        for base_offset, file in logs.items():
            path = f"{name}/{base_offset:020d}.log"
            if file in self._disk.cut_files:
                return  # skip: a fault cut the file short, and the broker has not noticed yet
            try:
                found = list(_batches(bytes(file.undamaged())))
                for batch in found:
                    _check_order(batch, previous, base_offset, gaps)
                    previous = batch
            except _DiskError as wrong:
                self._problems.append(f"{self._disk.root}/{path}: {wrong}")
                return
            batches[base_offset] = found
        if not logs:
            # If a directory has only the files of `_BEGUN`, the creation of its replica failed on a
            # full disk; the broker's next start removes the directory.
            if not directory.entries.keys() <= _BEGUN:
                self._problems.append(f"{self._disk.root}/{name}: there is no log file")
            return
        end = previous.last_offset + 1 if previous is not None else 0
        self._ends[name] = max(end, *logs)
        # Check only index files of segments below the recovery point, because a starting broker
        # ignores the others.
        point = self._points.get(name, 0)
        for base_offset, following in zip(logs, list(logs)[1:], strict=False):
            if following <= point:
                flipped = logs[base_offset].is_damaged
                self._check_indexes(name, directory, base_offset, batches[base_offset], flipped)
        every = [batch for found in batches.values() for batch in found]
        self._check_snapshots(name, directory, every, gaps)
        if len(self._problems) == problems:
            self._try(
                f"{name}/{_LEADER_EPOCHS}", lambda: self._check_epochs(name, directory, every)
            )

    def _check_metadata(self, directory: Directory) -> None:
        data = self._content(directory.entries.get(_METADATA))
        if data is None:
            return  # a power loss removed the file; the next flush writes it again
        fields = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
        topic_id = fields.get("topic_id")
        if topic_id is None and len(data) < _WHOLE_METADATA_BYTES:
            return  # a power loss left only a part of the file; the next flush writes it again
        try:
            topic_id_from_text(topic_id or "")
        except ValueError as error:
            raise _DiskError(f"it has no topic id: {error}") from None

    def _check_indexes(
        self,
        name: str,
        directory: Directory,
        base_offset: int,
        batches: list[StoredBatch],
        flipped: bool,
    ) -> None:
        """Check the index files of a segment.

        As in Kafka, a starting broker takes timestamps below the recovery point from batch headers,
        without a check of the CRC. With `flipped`, the segment has flipped bits, and the time index
        may contain a wrong timestamp until a read finds the damaged batch (V68).
        """
        for suffix, check in (("index", _check_index), ("timeindex", _check_time_index)):
            if flipped and check is _check_time_index:
                continue
            file_name = f"{base_offset:020d}.{suffix}"
            data = self._content(directory.entries.get(file_name))
            if data is None:
                continue
            self._try(
                f"{name}/{file_name}",
                lambda data=data, check=check: check(data, base_offset, batches),  # type: ignore[misc]
            )

    def _check_snapshots(
        self, name: str, directory: Directory, batches: list[StoredBatch], gaps: bool
    ) -> None:
        """Check producer snapshots; compare snapshots up to the recovery point with the batches.

        A snapshot above the recovery point may include batches that were truncated later (V39).
        """
        point, end = self._points.get(name, 0), self._ends[name]

        def check(data: bytes, offset: int) -> None:
            rows = _read_snapshot(data, offset, end)
            if offset <= point:
                _compare_snapshot(rows, offset, batches, gaps)

        for file_name, entry in sorted(directory.entries.items()):
            match = _SEGMENT.fullmatch(file_name)
            data = self._content(entry)
            if match is None or match[2] != "snapshot" or data is None:
                continue
            self._try(f"{name}/{file_name}", partial(check, data, int(match[1])))

    def _check_epochs(self, name: str, directory: Directory, batches: list[StoredBatch]) -> None:
        """Check that the leader epoch checkpoint agrees with batches below the recovery point.

        A starting broker ignores the leader epoch checkpoint above the recovery point (V39).
        """
        data = self._content(directory.entries.get(_LEADER_EPOCHS))
        if data is None:
            return
        entries: list[tuple[int, int]] = []
        for line in _checkpoint_lines(data):
            fields = line.split()
            if len(fields) != 2 or not (fields[0].isdigit() and fields[1].isdigit()):
                raise _DiskError(f"{line!r} is not an epoch and an offset")
            entry = int(fields[0]), int(fields[1])
            if entries and (entry[0] <= entries[-1][0] or entry[1] <= entries[-1][1]):
                raise _DiskError(f"{entry} cannot follow {entries[-1]}")
            entries.append(entry)
        point = self._points.get(name, 0)
        for batch in batches:
            if batch.last_offset >= point:
                return
            epochs = [epoch for epoch, start in entries if start <= batch.base_offset]
            if epochs and epochs[-1] != batch.leader_epoch:
                raise _DiskError(
                    f"offset {batch.base_offset} is of leader epoch {batch.leader_epoch}, and the"
                    f" file has {epochs[-1]}; the recovery point is {point}"
                )


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _DiskError(f"it is no text: {error}") from None


def _checkpoint_lines(data: bytes) -> list[str]:
    """Return the entries of a checkpoint file: a line with the version, a line with the number of
    entries, then one line for each entry.
    """
    lines = _text(data).splitlines()
    if len(lines) < 2 or lines[0] != "0" or lines[1] != str(len(lines) - 2):
        raise _DiskError(f"version and number {lines[:2]} do not fit {len(lines)} lines")
    return lines[2:]


def _batches(data: bytes) -> Iterator[StoredBatch]:
    """Yield the batches of a log file."""
    position = 0
    try:
        for batch in read_batches(data):
            delta = int.from_bytes(data[position + _LAST_OFFSET_DELTA_AT :][:4], "big")
            timestamp_ms = int.from_bytes(
                data[position + _MAX_TIMESTAMP_AT :][:8], "big", signed=True
            )
            yield StoredBatch(
                position, batch.base_offset, batch.base_offset + delta, batch.leader_epoch,
                timestamp_ms, batch.producer_id, batch.producer_epoch,
                (batch.base_sequence + delta) & _MAX_SEQUENCE,
            )  # fmt: skip
            position += batch.size_bytes
    except BrokenBatch as error:
        raise _DiskError(f"behind byte {position}: {error}") from None
    if position < len(data):
        raise _DiskError(f"{len(data) - position} bytes behind byte {position} are no batch")


def _check_order(
    batch: StoredBatch, previous: StoredBatch | None, base_offset: int, gaps: bool
) -> None:
    if batch.last_offset < base_offset or (batch.position and batch.base_offset < base_offset):
        raise _DiskError(f"offset {batch.base_offset} is below the file's")
    if previous is None:
        return
    expected = previous.last_offset + 1
    if batch.base_offset < expected or (batch.base_offset > expected and not gaps):
        raise _DiskError(
            f"byte {batch.position} has offset {batch.base_offset}, {expected} expected"
        )
    if batch.leader_epoch < previous.leader_epoch:
        raise _DiskError(
            f"byte {batch.position}: leader epoch {batch.leader_epoch} behind"
            f" {previous.leader_epoch}"
        )


def _check_index(data: bytes, base_offset: int, batches: list[StoredBatch]) -> None:
    """Check that each offset index entry has the last offset of the batch at its position."""
    if len(data) % _INDEX_ENTRY.size:
        raise _DiskError(f"{len(data)} bytes are not whole entries")
    starts = {batch.position: batch.last_offset for batch in batches}
    before = -1
    for relative, position in _INDEX_ENTRY.iter_unpack(data):
        if position <= before:
            raise _DiskError(f"position {position} behind {before}")
        before = position
        if starts.get(position) != base_offset + relative:
            raise _DiskError(
                f"offset {base_offset + relative} at byte {position}, where"
                f" {starts.get(position, 'no batch')} is"
            )


def _check_time_index(data: bytes, base_offset: int, batches: list[StoredBatch]) -> None:
    """Check that time index entries have the largest timestamp so far and a batch's last offset."""
    if len(data) % _TIME_ENTRY.size:
        raise _DiskError(f"{len(data)} bytes are not whole entries")
    timestamps = {batch.last_offset: batch.max_timestamp_ms for batch in batches}
    before = -1
    for timestamp_ms, relative in _TIME_ENTRY.iter_unpack(data):
        offset = base_offset + relative
        if timestamp_ms <= before:
            raise _DiskError(f"timestamp {timestamp_ms} behind {before}")
        before = timestamp_ms
        if timestamps.get(offset) != timestamp_ms:
            raise _DiskError(
                f"timestamp {timestamp_ms} for offset {offset}, which has"
                f" {timestamps.get(offset, 'no batch')}"
            )
    if data and before != max(timestamps.values()):
        raise _DiskError(f"it ends with {before}, {max(timestamps.values())} is the largest")


class _Row(NamedTuple):
    """One entry of a producer snapshot."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


def _read_snapshot(data: bytes, offset: int, end: int) -> list[_Row]:
    """Return the rows of a producer snapshot; its `offset` must not be above the log's end."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise _DiskError(f"{len(data)} bytes are no snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1 or len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise _DiskError(f"version {version} with {count} entries has {len(data)} bytes")
    if crc32c.crc32c(data[_SNAPSHOT_CRC_FROM:]) != crc:
        raise _DiskError("its checksum is wrong")
    if offset > end:
        raise _DiskError(f"it is of offset {offset}, and the log ends at {end}")
    rows = [_Row(*row) for row in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :])]
    for row in rows:
        if row.last_offset >= offset:
            raise _DiskError(f"producer {row.producer_id} has written offset {row.last_offset}")
    return rows


def _compare_snapshot(
    rows: list[_Row], offset: int, batches: list[StoredBatch], gaps: bool
) -> None:
    """Compare a producer snapshot with the batches.

    Each row must match its batch, unless compaction or retention removed the batch. The snapshot
    must have a row for the last batch of each producer.
    """
    there = {batch.last_offset: batch for batch in batches if batch.last_offset < offset}
    for row in rows:
        batch = there.get(row.last_offset)
        if batch is None and (gaps or not there or row.last_offset < min(there)):
            continue
        found = row.producer_id, row.producer_epoch, row.last_sequence
        if batch is None or found != (batch.producer_id, batch.producer_epoch, batch.last_sequence):
            raise _DiskError(
                f"producer {row.producer_id} epoch {row.producer_epoch} has written sequence"
                f" {row.last_sequence} at offset {row.last_offset}, where"
                f" {'no batch ends' if batch is None else f'the log has {batch}'}"
            )
    last = {batch.producer_id: batch for batch in there.values() if batch.producer_id >= 0}
    newest: dict[int, int] = {}
    for row in rows:
        newest[row.producer_id] = max(row.last_offset, newest.get(row.producer_id, -1))
    for producer_id, batch in last.items():
        if newest.get(producer_id, -1) < batch.last_offset:
            raise _DiskError(
                f"it does not have producer {producer_id} with offset {batch.last_offset}"
            )
