"""Which faults met which churn: a table over many runs, for what no run has brought together.

Two kinds have met in a run in which a fault of the one found somebody to strike while an operation
of the other was acknowledged, at whatever distance. Only profiles with churn fill it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


class Coverage:
    """Sums over runs."""

    def __init__(self) -> None:
        self.runs = 0
        #: Runs by fault and churn.
        self.met: Counter[tuple[str, str]] = Counter()

    def add(self, faults: Mapping[str, int], churn: Mapping[str, int]) -> None:
        """Count a run: how often each kind of fault was played, and how many operations of each
        kind of churn were acknowledged."""
        self.runs += 1
        for fault, played in faults.items():
            for kind, acknowledged in churn.items():
                if played and acknowledged:
                    self.met[(fault, kind)] += 1

    def missing(self, faults: Sequence[str], churn: Sequence[str]) -> list[tuple[str, str]]:
        """The pairs that never met."""
        return [(one, other) for one in faults for other in churn if not self.met[(one, other)]]

    def table(self, faults: Sequence[str], churn: Sequence[str]) -> list[str]:
        """Lines of text: a row for each fault, a column for each churn, the number of runs."""
        wide = max(map(len, faults), default=0)
        legend = [f"{number:>4}  {kind}" for number, kind in enumerate(churn, 1)]
        head = " " * wide + "".join(f"{number:>6}" for number in range(1, len(churn) + 1))
        rows = [
            f"{fault:<{wide}}" + "".join(f"{self.met[(fault, kind)] or '.':>6}" for kind in churn)
            for fault in faults
        ]
        return [*legend, head, *rows]
