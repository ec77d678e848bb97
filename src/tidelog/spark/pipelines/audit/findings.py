"""Findings of an audit: the problem, its file, its byte and its offset.

Findings travel as JSON between tasks, kept results and the driver. `DAMAGE` makes the audit fail. A
`NOTICE` informs the operator of a result of a crash, a deletion or an interrupted compaction, which
the next start of the broker repairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from tidelog.core.dataclass import dataclass

#: Maximum number of findings of one kind for a range or a file; further findings are only counted.
KEPT_OF_A_KIND: Final = 20


class FindingKind(StrEnum):
    """The kind of a problem that an audit found."""

    CHECKSUM = "checksum"
    NO_BATCH = "no batch"
    HEADER = "batch header"
    FRAMES = "compression frames"
    OFFSET_ORDER = "offset order"
    GAP = "gap"
    EPOCH_ORDER = "epoch order"
    EPOCH_CHECKPOINT = "epoch checkpoint"
    INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    SNAPSHOT = "producer snapshot"
    CUT_TAIL = "cut tail"
    SWAPPED = "swapped segment"
    OFFSET_RANGE = "offset range"
    LOG_START = "log start"
    LOG_END = "log end"
    SHORT = "short replica"
    MISSING = "missing replica"
    DIVERGED = "diverged"
    BATCHED = "batched differently"
    COMPACTED = "compacted differently"
    ORPHAN = "orphan"
    STRAY = "stray"
    FUTURE = "future replica"
    UNREADABLE = "unreadable"
    CHECKPOINT = "checkpoint"
    CHECKPOINTED_OFFSET = "checkpointed offset"
    OLD_FORMAT = "old format"
    DUPLICATE = "duplicate replica"
    MOVED = "moved replica"
    TOPIC_ID = "topic id"
    OTHER_TOPIC = "other topic"
    OWNER = "owner"
    OTHER_CLUSTER = "other cluster"
    CHANGING = "changing"


class Severity(StrEnum):
    """Whether a finding makes the audit fail."""

    DAMAGE = "damage"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One finding; `also` is the number of omitted findings of this kind in the file."""

    kind: FindingKind
    path: str
    sentence: str
    position: int | None = None
    offset: int | None = None
    severity: Severity = Severity.DAMAGE
    also: int = 0
    #: The partition, which the driver fills in.
    partition: str = ""
    broker: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> AuditFinding:
        """Return the finding that JSON values describe."""
        kind, severity = FindingKind(values["kind"]), Severity(values["severity"])
        return cls(**{**values, "kind": kind, "severity": severity})


class Collector:
    """The findings of one file, at most KEPT_OF_A_KIND of each kind."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: dict[FindingKind, list[AuditFinding]] = {}
        self._also: dict[FindingKind, int] = {}

    def add(
        self,
        kind: FindingKind,
        sentence: str,
        position: int | None = None,
        offset: int | None = None,
        severity: Severity = Severity.DAMAGE,
    ) -> None:
        """Add a finding, or only count it after KEPT_OF_A_KIND findings of its kind."""
        kept = self._found.setdefault(kind, [])
        if len(kept) < KEPT_OF_A_KIND:
            kept.append(AuditFinding(kind, self._path, sentence, position, offset, severity))
        else:
            self._also[kind] = self._also.get(kind, 0) + 1

    def all(self) -> list[AuditFinding]:
        """Return the findings; the last of each kind has the number of omitted findings."""
        found: list[AuditFinding] = []
        for kind, kept in self._found.items():
            found += [*kept[:-1], replace(kept[-1], also=self._also.get(kind, 0))]
        return found
