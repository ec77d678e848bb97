"""Control batches: the markers that end a transaction (KIP-98).

A control record's key is (version 0, type), its value (version 0, coordinator epoch), big-endian.
Unknown types get a name and are never rejected, because newer brokers write further types. Source:
ControlRecordType, EndTransactionMarker.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.records.batch import NO_SEQUENCE, BatchView, InvalidBatch
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.reader import read_columns

ABORT = 0
COMMIT = 1
TYPE_NAMES = {
    ABORT: "ABORT",
    COMMIT: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlMarker(NamedTuple):
    """The content of a control batch; `coordinator_epoch` is -1 except for ABORT and COMMIT."""

    control_type: int
    coordinator_epoch: int
    timestamp_ms: int

    @property
    def name(self) -> str:
        """The name of the marker's type."""
        return TYPE_NAMES.get(self.control_type, f"UNKNOWN({self.control_type})")


def build_end_marker(
    control_type: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
) -> bytearray:
    """Return the batch that commits or aborts a producer's transaction on this partition."""
    if control_type not in (ABORT, COMMIT):
        raise ValueError(f"a transaction ends with ABORT (0) or COMMIT (1), not {control_type}")
    record = NewRecord(_KEY.pack(0, control_type), _VALUE.pack(0, coordinator_epoch), timestamp_ms)
    producer = Producer(producer_id, producer_epoch, NO_SEQUENCE)
    return build_batch([record], producer=producer, transactional=True, control=True)


def read_marker(batch: BatchView) -> ControlMarker | None:
    """Return the marker in a control batch, None for a batch emptied by compaction.

    Raises CorruptBatch for a malformed marker.
    """
    if batch.record_count == 0:
        return None
    columns = read_columns(batch, with_headers=False, max_decompressed_bytes=1 << 20)
    key, value = columns.keys[0], columns.values[0]
    if key is None or len(key) < _KEY.size:
        raise InvalidBatch(batch.position, "the key of a control record has at least 4 bytes")
    version, control_type = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidBatch(batch.position, f"control record of version {version}")
    if control_type not in (ABORT, COMMIT):
        return ControlMarker(control_type, -1, columns.timestamps_ms[0])
    if value is None or len(value) < _VALUE.size:
        raise InvalidBatch(batch.position, "the value of an end marker has at least 6 bytes")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return ControlMarker(control_type, coordinator_epoch, columns.timestamps_ms[0])
