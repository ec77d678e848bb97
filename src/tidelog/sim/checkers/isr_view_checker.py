"""No leader goes on with another ISR than the published one (A3, A9).

A leader hears of each published state of its leader epoch within a bounded time, whoever asked for
it. Only for profiles that neither cut links nor pause brokers: nothing else delays a command for so
long there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.core.types import TopicPartition
from tidelog.sim.checkers.checker import Checked, Checker
from tidelog.sim.observed.published_state import PublishedPartition

#: Longest time in which a leader may not know a published state, in virtual time.
LIMIT_NS: Final = 5_000_000_000


class IsrViewChecker(Checker):
    """The leaders' ISRs compared with the published ones."""

    def __init__(self, run: Checked, after_ns: Callable[[int, Callable[[], None]], object]) -> None:
        """`after_ns` calls back after a virtual time."""
        super().__init__(run)
        self._after_ns = after_ns
        run.published.on_state.append(self._changed)

    def _changed(self, _: PublishedPartition | None, now: PublishedPartition) -> None:
        if now.leader in self._brokers:
            self._after_ns(LIMIT_NS, lambda: self._check(now))

    def _check(self, state: PublishedPartition) -> None:
        """Check that the leader knows a state that has been in force for the whole time."""
        if self._published.partitions.get(state.key) is not state:
            return
        topic = self._published.all_topics[state.key.topic_id]
        name = TopicPartition(topic.name, state.key.partition)
        core = dict(self._brokers[state.leader].leaderships()).get(name)
        if core is None or core.leader_epoch != state.leader_epoch:
            return
        if core.isr.partition_epoch < state.partition_epoch:
            self._violate(
                f"{name}: leader {state.leader} goes on with the ISR {core.isr.committed} of"
                f" partition epoch {core.isr.partition_epoch}, where {state.isr} of"
                f" {state.partition_epoch} is published since {LIMIT_NS // 10**9} s (A9)"
            )
