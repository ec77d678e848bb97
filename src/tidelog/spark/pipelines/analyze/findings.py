"""The findings of an analysis as plain data; `analysis` makes them, `presentation` shows them.

Times are milliseconds since 1970. The module does not use Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.analyze.failover_phases import Failover
from tidelog.spark.pipelines.analyze.group_lag import LagPoint, PartitionLag
from tidelog.spark.pipelines.analyze.partition_history import KNOWN, LEADERLESS, State
from tidelog.spark.pipelines.analyze.suspects import Incidents, Suspicion


@dataclass(frozen=True, slots=True)
class StateTimes:
    """The milliseconds that one partition, or all partitions together, spent in each state."""

    ms: Mapping[State, int]

    @classmethod
    def sum_of(cls, parts: Iterable[StateTimes]) -> StateTimes:
        """Return the total time in each state over several partitions."""
        ms = dict.fromkeys(State, 0)
        for each in parts:
            for state, value in each.ms.items():
                ms[state] += value
        return cls(ms)

    @property
    def known_ms(self) -> int:
        """The time in which the partition existed and its state is known."""
        return sum(self.ms.get(state, 0) for state in KNOWN)

    @property
    def availability(self) -> float | None:
        """The share of the known time in which acks=all was served; None without known time."""
        known = self.known_ms
        return self.ms.get(State.ACKNOWLEDGING, 0) / known if known else None

    @property
    def leaderless_ms(self) -> int:
        """The time in which the partition had no responding leader."""
        return sum(self.ms.get(state, 0) for state in LEADERLESS)

    @property
    def under_min_isr_ms(self) -> int:
        """The time with a leader that refuses acks=all."""
        return self.ms.get(State.UNDER_MIN_ISR, 0)


@dataclass(frozen=True, slots=True)
class PartitionTimes:
    """One partition's time in each state."""

    topic: str
    partition: int
    times: StateTimes

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A span of time in which a partition is in one state, for a timeline."""

    topic: str
    partition: int
    start_ms: int
    end_ms: int
    state: State


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """The distribution of one phase of failovers; `quantiles` are its 0th to 100th percentiles."""

    phase: str
    count: int
    quantiles: tuple[float, ...]

    def at(self, percent: int) -> float:
        """Return a percentile."""
        return self.quantiles[percent]


@dataclass(frozen=True, slots=True)
class ControllerTerm:
    """The election of a controller; the `missed` controller epochs before it have no events."""

    time_ms: int
    controller: int
    epoch: int
    missed: int
    resignation: str


@dataclass(frozen=True, slots=True)
class BrokerLife:
    """Registrations of a broker, and the reasons for which they ended."""

    broker: int
    registrations: int
    shutdowns: int
    session_losses: int
    #: Number of times at which the broker did not acknowledge the controller's commands.
    behind: int


@dataclass(frozen=True, slots=True)
class UncleanLoss:
    """An unclean election; `certain` is the number of committed records that were surely lost."""

    time_ms: int
    topic: str
    partition: int
    leader: int
    log_end_offset: int
    certain: int | None


@dataclass(frozen=True, slots=True)
class EventQuality:
    """Counts of the analysed events, and signs that events are missing or wrong.

    `repeated` and `illegible` count events; `clock_step_ms` is the largest step back of event
    times.
    """

    events: int
    repeated: int
    illegible: int
    #: Number of events that brokers report as dropped.
    dropped: int
    #: Number of leader and ISR changes whose event is missing.
    missed: int
    clock_step_ms: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of an analysis."""

    source: str
    start_ms: int
    end_ms: int
    window_ms: int
    quality: EventQuality
    partitions: tuple[PartitionTimes, ...]
    windows: Mapping[int, StateTimes]
    timeline: tuple[StateSpan, ...] = ()
    churn: tuple[Incidents, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()
    failovers: tuple[Failover, ...] = ()
    phases: tuple[PhaseTimes, ...] = ()
    controllers: tuple[ControllerTerm, ...] = ()
    brokers: tuple[BrokerLife, ...] = ()
    losses: tuple[UncleanLoss, ...] = ()
    lags: tuple[PartitionLag, ...] = ()
    lag_history: tuple[LagPoint, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def total(self) -> StateTimes:
        """Time in each state, summed over all partitions."""
        return StateTimes.sum_of(each.times for each in self.partitions)
