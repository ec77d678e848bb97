"""The anomalies by name: what each means, and when it is allowed.

The names are Jepsen's for Kafka, but for `never-sent`, which is ours. An anomaly that Kafka's
promises allow is named and counted all the same: a test may want fewer than Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

#: So many of each name are kept and told; all are counted.
KEPT_OF_EACH: Final = 100


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an anomaly is, and when it is allowed."""

    text: str
    allowed: str = "never"


ANOMALIES: Final[Mapping[str, Meaning]] = {
    "lost-write": Meaning(
        "an acknowledged record was never polled, and one behind it was", "with acks 0 and 1"
    ),
    "unseen": Meaning(
        "an acknowledged record was never polled, nor anything behind it", "with acks 0 and 1"
    ),
    "duplicate": Meaning(
        "one value stands at several offsets",
        "without idempotence; in two incarnations of a topic, where the send named none; where"
        " retention has taken the first",
    ),
    "inconsistent-offsets": Meaning("one offset held two values"),
    "never-sent": Meaning("a polled value was sent by nobody, or to another partition"),
    "G1a": Meaning(
        "the record of a send that failed, or of a transaction that aborted, was polled"
    ),
    "precommitted-read": Meaning("a transaction polled what it had sent itself"),
    "int-poll-skip": Meaning("within one operation, polls passed over a record"),
    "int-nonmonotonic-poll": Meaning("within one operation, polls went back"),
    "poll-skip": Meaning(
        "between two operations, a consumer passed over a record", "with subscribe"
    ),
    "nonmonotonic-poll": Meaning("between two operations, a consumer went back", "with subscribe"),
    "nonmonotonic-send": Meaning("a producer's later send stands before an earlier one"),
    "int-nonmonotonic-send": Meaning(
        "within one operation, a later record stands before an earlier one", "without idempotence"
    ),
    "int-send-skip": Meaning("within one operation, another writer came in between", "always"),
    "G0": Meaning("transactions wrote before each other in a circle", "always"),
    "G1c": Meaning(
        "transactions saw or overwrote each other in a circle",
        "where an order of writes is part of the circle",
    ),
}


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One of them, with the lines of the operations involved."""

    name: str
    is_allowed: bool
    partition: str
    what: str
    lines: tuple[int, ...]

    def __str__(self) -> str:
        where = f" {self.partition}:" if self.partition else ""
        return f"{self.name}:{where} {self.what}"


@dataclass(slots=True)
class Report:
    """What a history shows."""

    operations: int = 0
    #: Records that sends tell of, and that polls told for the first time.
    sent_records: int = 0
    polled_records: int = 0
    acknowledged_records: int = 0
    #: The earliest begin.
    begin: int = 0
    #: Those that are told; of each name the first ones.
    anomalies: list[Anomaly] = field(default_factory=list)
    #: All of them, by name.
    forbidden: dict[str, int] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Whether there is no anomaly that is not allowed."""
        return not self.forbidden

    @property
    def forbidden_anomalies(self) -> list[Anomaly]:
        """Those that are told and not allowed."""
        return [each for each in self.anomalies if not each.is_allowed]

    def add(
        self, name: str, is_allowed: bool, partition: str, what: str, lines: Sequence[int]
    ) -> None:
        """Count an anomaly, and keep it if few of its name are."""
        counts = self.allowed if is_allowed else self.forbidden
        count = counts[name] = counts.get(name, 0) + 1
        if count <= KEPT_OF_EACH:
            told = tuple(dict.fromkeys(line for line in lines if line > 0))
            self.anomalies.append(Anomaly(name, is_allowed, partition, what, told))
