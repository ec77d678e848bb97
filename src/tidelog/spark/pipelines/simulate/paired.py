"""Comparison of policies (broker settings): differences of outcomes at equal seeds.

A pair is one seed of one profile under two policies. The differences of pairs vary far less than
the outcomes of runs, since both runs of a pair have the same faults and clients. The confidence
interval of the mean difference is a bootstrap over pairs (95 %, percentiles), with draws that
depend on the data alone: equal rows give equal intervals. Outcomes are skewed counts and times, for
which a t interval assumes too much.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tidelog.core.dataclass import dataclass

#: Minimum number of pairs for a conclusion; with fewer pairs the confidence intervals are too
#: narrow.
FEWEST_PAIRS: Final = 10
CONFIDENCE: Final = 0.95
_RESAMPLES: Final = 4_000

#: Outcomes of one run by name.
Outcomes = Mapping[str, float]
#: Outcomes of runs, by profile and seed.
OutcomesBySeed = Mapping[tuple[str, int], Outcomes]


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """An outcome under a policy, minus the same outcome under the base policy."""

    outcome: str
    policy: str
    pairs: int
    #: Mean outcome under the base policy; `mean` is the mean outcome under `policy`.
    base_mean: float
    mean: float
    #: Mean difference of the pairs; `low` and `high` are the ends of its confidence interval.
    difference: float
    low: float
    high: float
    #: Number of pairs in which the outcome under `policy` is less than under the base policy;
    #: `more` counts the pairs with a greater outcome.
    less: int
    more: int

    @property
    def verdict(self) -> str:
        """The conclusion that the confidence interval allows."""
        if self.pairs < FEWEST_PAIRS:
            return "too few pairs"
        if self.high < 0:
            return "less"
        return "more" if self.low > 0 else "no difference shown"


def compare(base: OutcomesBySeed, other: OutcomesBySeed, policy: str) -> list[PairedDifference]:
    """Return the difference of each outcome, over seeds with outcomes under both policies."""
    shared = [key for key in sorted(base) if base[key] and other.get(key)]
    if not shared:
        return []
    names = base[shared[0]].keys()
    return [
        _difference(
            name, policy, [base[key][name] for key in shared], [other[key][name] for key in shared]
        )
        for name in names
        if all(name in base[key] and name in other[key] for key in shared)
    ]


def _difference(
    outcome: str, policy: str, before: Sequence[float], after: Sequence[float]
) -> PairedDifference:
    first, second = np.asarray(before), np.asarray(after)
    differences = second - first
    low, high = interval(differences.tolist(), zlib.crc32(f"{policy}/{outcome}".encode()))
    return PairedDifference(
        outcome,
        policy,
        len(before),
        float(first.mean()),
        float(second.mean()),
        float(differences.mean()),
        low,
        high,
        int((differences < 0).sum()),
        int((differences > 0).sum()),
    )


def interval(values: Sequence[float], seed: int) -> tuple[float, float]:
    """Return the bootstrap interval of the mean of values."""
    data = np.asarray(values)
    if len(data) == 1 or np.all(data == data[0]):
        return float(data[0]), float(data[0])
    draw = np.random.default_rng(seed)
    means = np.array(
        [draw.choice(data, len(data)).mean() for _ in range(_RESAMPLES)], dtype=np.float64
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)
