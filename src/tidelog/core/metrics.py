"""Numbers that a broker keeps of itself, under the names that dashboards use.

A metric is declared here with its meaning; an undeclared one cannot be counted. Labels are few and
bounded (brokers of the cluster, phases of failovers). Finished labels are dropped, so that nothing
grows. Reads no clock and writes nothing: other modules publish the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

COMMANDS_OVERDUE: Final = "tidelog_controller_commands_overdue"
COMMANDS_REPEATED: Final = "tidelog_controller_commands_repeated_total"
COMMANDS_DROPPED: Final = "tidelog_controller_commands_dropped_total"
PARTITIONS_UNLED: Final = "tidelog_controller_partitions_unled"
FAILOVERS: Final = "tidelog_controller_failovers_total"
FAILOVER_MS: Final = "tidelog_controller_failover_ms_total"
TAKEOVERS: Final = "tidelog_takeovers_total"
TAKEOVER_MS: Final = "tidelog_takeover_ms_total"
EVENTS_DROPPED: Final = "tidelog_cluster_events_dropped_total"

METRICS: Final[Mapping[str, str]] = {
    COMMANDS_OVERDUE: "1 while a broker has not answered commands for controller.socket.timeout.ms",
    COMMANDS_REPEATED: "commands that a broker did not answer, or could not take, and got again",
    COMMANDS_DROPPED: "how often more waited for a broker than it can need, and was told anew",
    PARTITIONS_UNLED: "partitions whose published leader has not said yet that it leads",
    FAILOVERS: "failovers by this controller, by phase; in `detect` those of which it was seen",
    FAILOVER_MS: "what the phases of these failovers took together, by phase",
    TAKEOVERS: "leaderships of this broker, a sample of many, in which a phase ended, by phase",
    TAKEOVER_MS: "from roles taken to the phases' ends, of these leaderships together, by phase",
    EVENTS_DROPPED: "events that __cluster_events lacks, as too many waited or none could be sent",
}

#: A metric, and the value of its label.
Key = tuple[str, str]


class Metrics:
    """The numbers of one broker, by metric and value of the label (empty: none)."""

    def __init__(self) -> None:
        self._values: dict[Key, int] = {}

    def add(self, name: str, count: int = 1, label: object = "") -> None:
        """Add to a counter; KeyError for a metric that is not declared."""
        METRICS[name]
        key = (name, str(label))
        self._values[key] = self._values.get(key, 0) + count

    def put(self, name: str, value: int, label: object = "") -> None:
        """Set the value of a metric; KeyError for a metric that is not declared."""
        METRICS[name]
        self._values[name, str(label)] = value

    def drop(self, name: str, label: object = "") -> None:
        """Remove a metric's value; harmless where it has none."""
        self._values.pop((name, str(label)), None)

    def value(self, name: str, label: object = "") -> int:
        """Return the number, 0 where nothing was counted."""
        return self._values.get((name, str(label)), 0)

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        """Return (metric, value of the label, number), sorted."""
        return iter(
            [(name, label, self._values[name, label]) for name, label in sorted(self._values)]
        )
