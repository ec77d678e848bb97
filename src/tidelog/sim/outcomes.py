"""Measured outcomes of a run: what the cluster's users and operators would have noticed.

The measurement follows published state and acknowledgements without changing the run, so traces are
the same with and without it. The measurement begins when the clients begin to work, and ends when
every replica is in sync again after the faults. It ignores topics that are deleted and recreated
during the run, because their times are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.core.types import TopicPartition
from tidelog.sim.client_history import Outcome, Produce
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_cluster import SimCluster

#: Topics of the workload that no client deletes.
LASTING_TOPICS: Final = ("steady", "shared")
_ACKS_ALL: Final = -1
#: A record is safe if at least this many running brokers have it: the loss of one disk then cannot
#: lose it.
_SAFE_COPIES: Final = 2

#: By name: unit and meaning of each measured outcome; a lower value is always better.
OUTCOMES: Final[Mapping[str, tuple[str, str]]] = {
    "isr_changes": ("changes", "ISR shrinks and expansions"),
    "leader_elections": ("elections", "elections of another leader"),
    "leaderless_ms": ("partition ms", "time in which a partition had no leader"),
    "under_min_isr_ms": ("partition ms", "time with a leader and an ISR below the minimum"),
    "one_copy_ms": ("partition ms", "time in which the ISR was the leader alone"),
    "recovery_ms": ("ms", "time from the last fault until every replica was in sync"),
    "produce_median_ms": ("ms", "median time of a batch with acks=all, retries included"),
    "produce_p99_ms": ("ms", "99th percentile of that time"),
    "produce_retries": ("attempts", "attempts of batches with acks=all beyond the first"),
    "produce_failures": ("batches", "batches with acks=all that never got an acknowledgement"),
    "records_at_risk": ("records", "records acknowledged while on fewer than two running brokers"),
    "losses_refused": ("power losses", "power losses that would have taken committed records"),
}


class OutcomeWatch:
    """Measurement of one run's outcomes, from `begin` to `end`."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._begin_ns = self._faults_end_ns = self._end_ns = -1
        self._changes = self._elections = self._at_risk = 0
        self._leaderless_ns = self._under_ns = self._alone_ns = 0
        #: For each partition of a lasting topic: its state, and the time since which this state is
        #: measured.
        self._states: dict[LogKey, tuple[PublishedPartition, int]] = {}
        cluster.published.on_state.append(self._changed)
        cluster.history.on_acknowledged.append(self._acknowledged)

    @property
    def _is_measuring(self) -> bool:
        return self._begin_ns >= 0 and self._end_ns < 0

    def begin(self) -> None:
        """Begin to measure the outcomes, at the moment at which the clients begin to work."""
        now_ns = self._cluster.simulator.now_ns
        self._begin_ns = now_ns
        for state in self._cluster.published.partitions.values():
            if self._is_lasting(state.key):
                self._states[state.key] = (state, now_ns)

    def faults_ended(self) -> None:
        """Begin to measure the time until every replica is in sync."""
        self._faults_end_ns = self._cluster.simulator.now_ns

    def end(self) -> None:
        """End the measurement when every replica is in sync again."""
        now_ns = self._cluster.simulator.now_ns
        for state, since_ns in self._states.values():
            self._add(state, now_ns - since_ns)
        self._end_ns = now_ns

    def outcomes(self) -> dict[str, float]:
        """Return each outcome; empty if the run ended before every replica was in sync again."""
        if self._end_ns < 0:
            return {}
        batches = [
            batch
            for batch in self._cluster.history.produces
            if batch.acks == _ACKS_ALL
            and batch.topic in LASTING_TOPICS
            and self._begin_ns <= batch.begin_ns < self._end_ns
        ]
        times = sorted(
            batch.end_ns - batch.begin_ns for batch in batches if batch.outcome is Outcome.DONE
        )
        values = (
            self._changes,
            self._elections,
            self._leaderless_ns / NS_PER_MS,
            self._under_ns / NS_PER_MS,
            self._alone_ns / NS_PER_MS,
            (self._end_ns - self._faults_end_ns) / NS_PER_MS,
            _quantile(times, 0.5) / NS_PER_MS,
            _quantile(times, 0.99) / NS_PER_MS,
            sum(max(0, len(batch.sent_ns) - 1) for batch in batches),
            sum(batch.outcome is not Outcome.DONE for batch in batches),
            self._at_risk,
            self._cluster.budget.refused_losses,
        )
        return dict(zip(OUTCOMES, map(float, values), strict=True))

    def _is_lasting(self, key: LogKey) -> bool:
        return self._cluster.published.all_topics[key.topic_id].name in LASTING_TOPICS

    def _changed(self, before: PublishedPartition | None, now: PublishedPartition) -> None:
        if not self._is_measuring or not self._is_lasting(now.key):
            return
        now_ns = self._cluster.simulator.now_ns
        known = self._states.get(now.key)
        if known is not None:
            self._add(known[0], now_ns - known[1])
        self._states[now.key] = (now, now_ns)
        if before is None:
            return
        self._elections += now.leader not in (before.leader, -1)
        self._changes += any(member not in now.isr for member in before.isr)
        self._changes += any(member not in before.isr for member in now.isr)

    def _add(self, state: PublishedPartition, time_ns: int) -> None:
        if state.leader < 0:
            self._leaderless_ns += time_ns
            return
        if len(state.isr) < self._cluster.published.effective_minimum(state.key):
            self._under_ns += time_ns
        if len(state.isr) == 1:
            self._alone_ns += time_ns

    def _acknowledged(self, batch: Produce) -> None:
        if not self._is_measuring or batch.acks != _ACKS_ALL or batch.base_offset < 0:
            return
        key = self._cluster.published.find(TopicPartition(batch.topic, batch.partition))
        if key is None or batch.topic not in LASTING_TOPICS:
            return
        last = batch.base_offset + len(batch.numbers) - 1
        copies = 0
        for broker in self._cluster.brokers.values():
            log = broker.logs.logs.get(key)
            copies += (
                broker.life is not None
                and log is not None
                and not log.disk.is_failed
                and log.start <= last < log.end
                and log.numbers[last - log.start] == batch.numbers[-1]
            )
        if copies < _SAFE_COPIES:
            self._at_risk += len(batch.numbers)


def _quantile(ascending: list[int], share: float) -> float:
    """Return the quantile `share` of the ascending values; 0 without values."""
    if not ascending:
        return 0.0
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]
