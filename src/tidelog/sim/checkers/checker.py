"""Base class of all checkers: brokers, published state, the clock, and reports of violations.

A checker sees only the parts of the cluster that this base class or its own constructor gives
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from tidelog.core.dataclass import dataclass
from tidelog.sim.loop import NS_PER_MS

if TYPE_CHECKING:
    from tidelog.sim.observed.published_state import Published
    from tidelog.sim.sim_broker import SimBroker


@dataclass(slots=True)
class CheckedRun:
    """The cluster of one run, as its checkers see it."""

    published: Published
    #: A callback that ends the run with a violation.
    violate: Callable[[str], None]
    #: Returns the virtual time.
    now_ns: Callable[[], int] = lambda: 0
    brokers: Mapping[int, SimBroker] = field(default_factory=dict)
    #: Called when a checker finds that an acknowledged operation was lost; None means that
    #: `violate` is called.
    promise: Callable[[str], None] | None = None


class Checker:
    """A checker of one run."""

    def __init__(self, run: CheckedRun) -> None:
        self._brokers, self._published = run.brokers, run.published
        self._violate, self._promise = run.violate, run.promise or run.violate
        self._now_ns = run.now_ns

    def _clock_ms(self, broker_id: int) -> int:
        """Return the time of a broker's own clock."""
        return self._brokers[broker_id].node.monotonic_ns(self._now_ns()) // NS_PER_MS
