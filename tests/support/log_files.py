"""Log directories written byte by byte, as Kafka's brokers leave them, for readers without brokers.

`Disk` is one broker's log directory. A replica is a list of batches, rolled into segments with
their indexes, and its entries in the checkpoints.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.core.types import TopicPartition
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, build_batch

TP = TopicPartition("flights", 0)
START_MS = 1_700_000_000_000
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


def batches(
    count: int, *, records: int = 10, first: int = 0, epoch: int = 0, value: bytes = b"v" * 90
) -> list[bytes]:
    """Return consecutive batches; each record's value names its offset."""
    made = []
    for number in range(count):
        base = first + number * records
        rows = [
            NewRecord(b"k%d" % (base + n), b"%d " % (base + n) + value, START_MS + base + n)
            for n in range(records)
        ]
        made.append(bytes(build_batch(rows, base_offset=base, leader_epoch=epoch)))
    return made


def ends(batch: bytes) -> int:
    """Return the offset after a batch."""
    return BatchView(batch).next_offset


@dataclass(frozen=True)
class Disk:
    """A log directory of one broker."""

    path: Path
    broker: int

    @classmethod
    def made(cls, path: Path, broker: int) -> Disk:
        """Create the directory with its owner."""
        path.mkdir(parents=True)
        text = f"#\nbroker.id={broker}\ncluster.id=test\nversion=0\n"
        (path / "meta.properties").write_text(text)
        return cls(path, broker)

    def replica(
        self,
        held: Sequence[bytes],
        *,
        tp: TopicPartition = TP,
        per_segment: int = 20,
        high: int | None = None,
        flushed: int | None = None,
        topic_id: str = TOPIC_ID,
        epochs: Sequence[tuple[int, int]] | None = None,
    ) -> Path:
        """Write a replica and its checkpoints; return its directory."""
        directory = self.path / f"{tp.topic}-{tp.partition}"
        directory.mkdir()
        for place in range(0, max(1, len(held)), per_segment):
            write_segment(directory, held[place : place + per_segment])
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        end = ends(held[-1]) if held else 0
        self.checkpoint("replication-offset-checkpoint", tp, end if high is None else high)
        last = held[len(held) - 1 - (len(held) - 1) % per_segment] if held else None
        rolled = BatchView(last).base_offset if last else 0
        point = rolled if flushed is None else flushed
        self.checkpoint("recovery-point-offset-checkpoint", tp, point)
        if epochs is None:
            epochs = epochs_of(held)
        lines = [f"{epoch} {start}" for epoch, start in epochs]
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        (directory / "leader-epoch-checkpoint").write_text(text)
        return directory

    def checkpoint(self, name: str, tp: TopicPartition, offset: int) -> None:
        """Set a partition's entry in one of the directory's checkpoints."""
        path = self.path / name
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        start = f"{tp.topic} {tp.partition} "
        lines = [line for line in lines if not line.startswith(start)] + [f"{start}{offset}"]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))

    def shut_down_cleanly(self) -> None:
        """Leave the marker of a clean shutdown."""
        (self.path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')


def epochs_of(held: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the leader epochs of batches with their first offsets."""
    found: list[tuple[int, int]] = []
    for batch in held:
        view = BatchView(batch)
        if not found or found[-1][0] != view.partition_leader_epoch:
            found.append((view.partition_leader_epoch, view.base_offset))
    return found


def write_segment(
    directory: Path, held: Sequence[bytes], *, base: int | None = None, interval: int = 4096
) -> Path:
    """Write a segment's log, offset index and time index; return the log's path."""
    if base is None:
        base = BatchView(held[0]).base_offset if held else 0
    stem = directory / f"{base:020d}"
    index, times, log = bytearray(), bytearray(), bytearray()
    since = 0
    largest, of_largest = -1, base
    for batch in held:
        view = BatchView(batch)
        if view.max_timestamp > largest:
            largest, of_largest = view.max_timestamp, view.last_offset
        if since > interval:
            index += struct.pack(">ii", view.last_offset - base, len(log))
            times += struct.pack(">qi", largest, of_largest - base)
            since = 0
        since += len(batch)
        log += batch
    if held and times[-12:] != struct.pack(">qi", largest, of_largest - base):
        times += struct.pack(">qi", largest, of_largest - base)
    path = stem.with_name(f"{stem.name}.log")
    path.write_bytes(log)
    stem.with_name(f"{stem.name}.index").write_bytes(index)
    stem.with_name(f"{stem.name}.timeindex").write_bytes(times)
    return path


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
