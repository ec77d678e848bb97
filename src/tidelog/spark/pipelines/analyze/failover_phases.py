"""The latency budget of failovers: from the first sign of a death to the first acknowledgement.

The module converts `failover` and `takeover` events to durations by phase, without Spark. A
failover event has the times of the controller and a sample of the partitions. The times of the new
leader come from the takeover event of a sampled partition, with the same leader epoch. Takeovers
for other reasons (created topics, preferred leaders) belong to no failover.

The phase `first acknowledgement` ends with the first acknowledged record, so on an idle partition
it lasts until a producer writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.analyze.partition_history import Handover

DETECTION: Final = "detection"
ELECTION: Final = "election"
PROPAGATION: Final = "propagation"
UNTIL_LED: Final = "all until led"
CONNECT: Final = "followers connected"
TRUNCATE: Final = "followers truncated"
FIRST_FETCH: Final = "first follower fetch"
ACKNOWLEDGE: Final = "first acknowledgement"
UNTIL_ACKNOWLEDGED: Final = "all until acknowledged"
#: The phases in the order of a failover, each with the clock that measures it.
PHASES: Final = {
    DETECTION: "from the first sign of the death to the store's notice (only seen deaths)",
    ELECTION: "the controller reads, decides and writes",
    PROPAGATION: "from the durable decision until the new leader took its role",
    UNTIL_LED: "sum of the phases above, for each partition",
    CONNECT: "from the role until the last follower connected",
    TRUNCATE: "from the role until the last follower that truncated fetched again",
    FIRST_FETCH: "from the role until the first follower fetched",
    ACKNOWLEDGE: "from the role until the first record was committed",
    UNTIL_ACKNOWLEDGED: "from the first sign until the first record was committed",
}
_ELECTION_STEPS: Final = ("read", "decide", "write")
_OF_TAKEOVER: Final = {
    "connect": CONNECT,
    "truncate": TRUNCATE,
    "first_fetch": FIRST_FETCH,
    "acknowledge": ACKNOWLEDGE,
}


@dataclass(frozen=True, slots=True)
class SampledPartition:
    """A partition in a failover event; `detection_ms` is None if no sign of the death is known."""

    topic: str
    partition: int
    leader_epoch: int
    noticed_ms: int
    detection_ms: int | None
    led_ms: int
    election_ms: int

    @property
    def handover(self) -> Handover:
        """The time in which the partition had no responding leader, from the old leader's death to
        its successor's takeover.
        """
        begun = self.noticed_ms - (self.detection_ms or 0)
        return Handover(self.leader_epoch, begun, self.noticed_ms + self.led_ms)


@dataclass(frozen=True, slots=True)
class Failover:
    """One failover, with the times that its controller measured."""

    time_ms: int
    controller: int
    brokers: tuple[int, ...]
    cause: str
    partitions: int
    detection_ms: int | None
    election_ms: int
    propagation_ms: int
    superseded: int
    unanswered: int
    led: tuple[SampledPartition, ...]

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Failover:
        """Return the failover in an event; raise KeyError, TypeError or ValueError for an invalid
        event.
        """
        phases = {name: int(value) for name, value in event["phases_ms"].items()}
        election_ms = sum(phases[step] for step in _ELECTION_STEPS)
        propagation_ms = phases["command"] + phases["lead"]
        seen = int(event["detection_ms"])
        detection_ms = seen if seen >= 0 else None
        noticed_ms = int(event["time_ms"]) - election_ms - propagation_ms
        led = tuple(
            SampledPartition(
                str(each["topic"]),
                int(each["partition"]),
                int(each["leader_epoch"]),
                noticed_ms,
                detection_ms,
                int(each["led_ms"]),
                election_ms,
            )
            for each in event["sample"]
        )
        return cls(
            time_ms=int(event["time_ms"]),
            controller=int(event["told_by"]),
            brokers=tuple(int(each) for each in event["brokers"]),
            cause=str(event["cause"]),
            partitions=int(event["partitions"]),
            detection_ms=detection_ms,
            election_ms=election_ms,
            propagation_ms=propagation_ms,
            superseded=int(event["superseded"]),
            unanswered=int(event["unanswered"]),
            led=led,
        )


def durations(
    led: Iterable[SampledPartition], takeover: Mapping[str, Any] | None
) -> list[tuple[str, int]]:
    """Return (phase, ms) pairs of a new leader, from its failover and takeover events.

    A partition that several failovers name with the same epoch is counted once.
    """
    part = next(iter(led), None)
    if part is None:
        return []
    found = [
        (ELECTION, part.election_ms),
        (PROPAGATION, max(0, part.led_ms - part.election_ms)),
    ]
    if part.detection_ms is not None:
        found.insert(0, (DETECTION, part.detection_ms))
        found.append((UNTIL_LED, part.detection_ms + part.led_ms))
    if takeover is None:
        return found
    for name, phase in _OF_TAKEOVER.items():
        value = int(takeover["phases_ms"].get(name, -1))
        if value >= 0:
            found.append((phase, value))
            if name == "acknowledge" and part.detection_ms is not None:
                found.append((UNTIL_ACKNOWLEDGED, part.detection_ms + part.led_ms + value))
    return found
