"""Invariants of the moves that a broker plans itself, of drains and of balancing (D12, D15).

No such move begins into a cordoned or drained directory, or out of a drained one by balancing. When
nothing changes any more, they come to rest: a balancing that overshoots would go on forever.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.config import BrokerConfig
from tidelog.core.log_dir_keys import takes_no_new
from tidelog.sim.checkers.checker import Checked, Checker
from tidelog.sim.loop import NS_PER_S

#: No planned move for this long is rest: brokers look for balance each second.
_REST_NS: Final = 4 * NS_PER_S
#: So often a replica may move for balance when nothing grows: others may come and go once more.
_MOST_MOVES: Final = 4


class PlannedMoveChecker(Checker):
    """Checker of the planned moves of one run."""

    def __init__(self, run: Checked) -> None:
        super().__init__(run)
        self._latest_ns: int | None = None
        #: The latest move that began.
        self.latest = ""
        #: Number of moves that began, by the kind of their plan.
        self.counts: dict[str, int] = {}
        #: Moves of each replica for balance since all sizes are the last ones; None before.
        self._since_last: dict[tuple[int, str], int] | None = None

    def begun(
        self,
        node_id: int,
        config: BrokerConfig,
        *,
        kind: str,
        partition: str,
        source: str,
        target: str,
        size_bytes: int,
    ) -> None:
        """Check a move that a broker, with its configuration in force, begins."""
        self._latest_ns = self._now_ns()
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.latest = (
            f"{kind} of broker {node_id}: {partition} of {size_bytes} bytes, {source} to {target}"
        )
        if takes_no_new(target, config.cordoned_log_dirs, config.draining_log_dirs):
            self._violate(f"{self.latest}, which takes no new replicas (D12)")
        elif kind == "balance" and source in config.draining_log_dirs:
            self._violate(f"{self.latest}: its directory is drained (D15)")
        elif kind == "balance" and self._since_last is not None:
            count = self._since_last[node_id, partition] = 1 + self._since_last.get(
                (node_id, partition), 0
            )
            if count > _MOST_MOVES:
                self._violate(f"{self.latest}, {count} times since nothing grows (D15)")

    def nothing_grows(self) -> None:
        """Note that all sizes are the last ones: from now on few moves are left."""
        self._since_last = {}

    def restless(self) -> str:
        """Return the latest planned move if it began lately; empty if not."""
        is_late = self._latest_ns is not None and self._now_ns() - self._latest_ns < _REST_NS
        return self.latest if is_late else ""
