"""Invariant of unread responses (L2): what clients do not read has a bound on every broker.

The checker adds up the bytes that the simulated kernels have not taken, over all connections that
a broker accepted. It does not know how a broker counts or bounds them. A broker may exceed twice
its budget within a moment, by one response for each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tidelog.core.limits import MIB

if TYPE_CHECKING:
    from tidelog.sim.network import SimNetwork
    from tidelog.sim.process import Process

#: Allowance for responses that a broker builds between two checks of its unread bytes.
_SLACK_BYTES: Final = MIB


class UnreadChecker:
    """The sums of unread bytes, by broker."""

    def __init__(self, network: SimNetwork, max_bytes: int, violate: Callable[[str], None]) -> None:
        """`max_bytes`: the budget of each broker."""
        self._network = network
        self._max_bytes = max_bytes
        self._violate = violate
        #: The most that was unread at any look.
        self.most_bytes = 0

    def look(self, brokers: Iterable[tuple[int, Process]]) -> None:
        """Add up what is unread now."""
        for broker_id, process in brokers:
            unread = sum(
                endpoint.queued_bytes
                for endpoint in self._network.connections_of(process)
                if endpoint.is_accepted
            )
            self.most_bytes = max(self.most_bytes, unread)
            if unread > 2 * self._max_bytes + _SLACK_BYTES:
                self._violate(
                    f"broker {broker_id} holds {unread:,} bytes of responses that no client reads;"
                    f" its budget is {self._max_bytes:,} (L2)"
                )
