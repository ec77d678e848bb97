"""The anomalies by name, each with its meaning and the conditions that allow it.

The names are Jepsen's for Kafka, except `never-sent`, which only this project uses. An anomaly that
Kafka's promises allow is reported and counted, too, because a test may want stronger promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from tidelog.core.dataclass import dataclass

#: Maximum number of anomalies of each name that a report describes; all are counted.
KEPT_OF_EACH: Final = 100


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of an anomaly, and the conditions that allow it."""

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
    "never-sent": Meaning("a polled value has no send, or was sent to another partition"),
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
    """One anomaly of a history, with the line numbers of its operations."""

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
    """The judgement of a history."""

    operations: int = 0
    #: Number of sent records; `polled_records` counts the distinct values in polls.
    sent_records: int = 0
    polled_records: int = 0
    acknowledged_records: int = 0
    #: Time in ns at which the first operation began, by the clock of the history.
    begin: int = 0
    #: The first KEPT_OF_EACH forbidden and allowed anomalies of each name.
    anomalies: list[Anomaly] = field(default_factory=list)
    #: Number of all forbidden anomalies, by name; `allowed` counts the allowed anomalies.
    forbidden: dict[str, int] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Whether the history has no forbidden anomaly."""
        return not self.forbidden

    @property
    def forbidden_anomalies(self) -> list[Anomaly]:
        """The reported anomalies that are forbidden."""
        return [each for each in self.anomalies if not each.is_allowed]

    def add(
        self, name: str, is_allowed: bool, partition: str, what: str, lines: Sequence[int]
    ) -> None:
        """Count an anomaly, and keep it if fewer than KEPT_OF_EACH of its name are kept."""
        assert name in ANOMALIES, name
        counts = self.allowed if is_allowed else self.forbidden
        count = counts[name] = counts.get(name, 0) + 1
        if count <= KEPT_OF_EACH:
            involved = tuple(dict.fromkeys(line for line in lines if line > 0))
            self.anomalies.append(Anomaly(name, is_allowed, partition, what, involved))
