"""Healthy log directories of three brokers, and the places in them where damage is planted.

`healthy` writes the directories with the brokers' own log, after a crash or a clean shutdown. A
`Site` is a copy of these directories with one drawn replica; a mutilation changes files there.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.log import StepLane, UnsyncedFiles, drive, open_directory

from tidelog.core.types import CleanEpochs, TopicPartition
from tidelog.log.config import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.records.batch import BatchView, iter_batches
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity

TOPICS = ("flights", "delays")
PARTITIONS = 2
START_MS = 1_700_000_000_000
_IDS = {"flights": bytes(range(1, 17)), "delays": bytes(range(101, 117))}
_CONFIG = LogConfig(segment_bytes=5_000, index_interval_bytes=600)
BATCHES = 60
#: Records of a batch; a segment has about 12 batches.
RECORDS = 5


def healthy(root: Path, *, is_clean: bool) -> None:
    """Write the directories of three brokers that have the same replicas of each partition."""
    path = root / "broker-1"
    lane = StepLane(str(path), UnsyncedFiles())
    directory = open_directory(lane, _CONFIG, cluster_id="test", broker_id=1)
    marks = {}
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            tp = TopicPartition(topic, partition)
            log = directory.create(tp, _IDS[topic], _CONFIG).result()
            _fill(log)
            marks[tp] = log.log_end_offset
    directory.write_high_watermarks(marks).result()
    directory.checkpoint().result()
    if is_clean:
        drive(directory.close(CleanEpochs(7)))
    for number in (2, 3):
        shutil.copytree(path, root / f"broker-{number}")
        owner = root / f"broker-{number}" / "meta.properties"
        owner.write_text(owner.read_text().replace("broker.id=1", f"broker.id={number}"))


def _fill(log: PartitionLog) -> None:
    """Append batches of two producers and of a client without a producer id, in three epochs."""
    sequences = {7: 0, 8: 0}
    for number in range(BATCHES):
        first = number * RECORDS
        rows = [
            NewRecord(b"k%d" % n, b"%d " % n + b"v" * 50, START_MS + n)
            for n in range(first, first + RECORDS)
        ]
        producer = Producer()
        if number % 3 and number < BATCHES - 6:
            producer_id = 6 + number % 3
            producer = Producer(producer_id, 0, sequences[producer_id])
            sequences[producer_id] += RECORDS
        batch = build_batch(rows, producer=producer)
        log.plan_leader_append(batch, number // 25, START_MS + first)
        log.submit_planned()


@dataclass
class Site:
    """A copy of healthy directories, with one drawn replica of one broker."""

    root: Path
    draw: random.Random
    is_clean: bool
    tp: TopicPartition
    broker: int
    #: The path that a finding should name; empty if any path will do.
    named: list[Path] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        """The log directory of the drawn broker."""
        return self.root / f"broker-{self.broker}"

    @property
    def replica(self) -> Path:
        """The directory of the drawn replica."""
        return self.directory / str(self.tp)

    @property
    def logs(self) -> list[Path]:
        """The log files of the replica; the last one is that of the active segment."""
        return sorted(self.replica.glob("*.log"))

    def sealed(self) -> Path:
        """Draw the log file of a segment that is not active."""
        return self.draw.choice(self.logs[:-1])

    def middle(self) -> Path:
        """Draw the log file of a segment between the first and the active one."""
        return self.draw.choice(self.logs[1:-1])

    def inner_batch(self, log: Path) -> BatchView:
        """Draw a batch of a log file that is neither the first nor the last one."""
        return self.draw.choice(list(iter_batches(log.read_bytes()))[1:-1])

    def put(self, path: Path, data: bytes) -> None:
        """Replace a file; the healthy directories have a link to the old file."""
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def write(self, path: Path, data: bytes) -> None:
        """Replace a file, and expect a finding about it."""
        self.put(path, data)
        self.named.append(path)

    def patch(self, path: Path, position: int, data: bytes) -> None:
        """Overwrite bytes of a file, and expect a finding about it."""
        content = bytearray(path.read_bytes())
        content[position : position + len(data)] = data
        self.write(path, bytes(content))

    def flip(self, path: Path, position: int) -> None:
        """Flip a drawn bit of a byte, and expect a finding about the file."""
        value = path.read_bytes()[position] ^ 1 << self.draw.randrange(8)
        self.patch(path, position, bytes([value]))

    def checkpoint(self, name: str, offset: int | None) -> None:
        """Set or drop the replica's entry in a checkpoint of the log directory."""
        path = self.directory / name
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        start = f"{self.tp.topic} {self.tp.partition} "
        lines = [line for line in lines if not line.startswith(start)]
        if offset is not None:
            lines.append(f"{start}{offset}")
        self.write(path, "\n".join(["0", str(len(lines)), *lines, ""]).encode())

    def epochs(self, *lines: str) -> None:
        """Write the replica's leader-epoch checkpoint."""
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        self.write(self.replica / "leader-epoch-checkpoint", text.encode())


def resealed(batch: bytearray) -> bytes:
    """Return a changed batch with the right checksum."""
    batch[17:21] = struct.pack(">I", BatchView(batch).computed_crc())
    return bytes(batch)


Plant = Callable[[Site], None]


class Mutilation(NamedTuple):
    """Damage that a test plants, and the finding that must show it."""

    kind: FindingKind
    #: The damage, for the reader of the page.
    damage: str
    plant: Plant
    #: Whether the damage needs directories after a clean shutdown (True) or a crash (False).
    needs_clean: bool | None
    #: The severity of the finding after a crash, and after a clean shutdown.
    severities: tuple[Severity, Severity]

    @property
    def name(self) -> str:
        """The name of the function that plants the damage."""
        return getattr(self.plant, "__name__", "")

    def is_shown_by(self, finding: AuditFinding, site: Site) -> bool:
        """Return whether a finding has the expected kind, severity and place."""
        return (
            finding.kind is self.kind
            and finding.severity is self.severities[site.is_clean]
            and (not site.named or any(finding.path == str(path) for path in site.named))
        )


#: All mutilations, in the order of their modules.
MUTILATIONS: list[Mutilation] = []


def plants(
    kind: FindingKind,
    damage: str,
    *,
    needs_clean: bool | None = None,
    severity: Severity = Severity.DAMAGE,
    after_crash: Severity | None = None,
) -> Callable[[Plant], Plant]:
    """Register a function that plants damage; `after_crash` is its severity after a crash."""

    def register(plant: Plant) -> Plant:
        severities = (after_crash or severity, severity)
        MUTILATIONS.append(Mutilation(kind, damage, plant, needs_clean, severities))
        return plant

    return register
