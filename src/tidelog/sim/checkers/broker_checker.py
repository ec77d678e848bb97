"""What the checkers of running brokers share: the brokers, the clock, and how to report.

Each checker states in a protocol which part of a broker it sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


class Running(Protocol):
    """A node, of which a checker sees the broker that runs."""

    @property
    def node_id(self) -> int:
        """The broker id."""

    @property
    def broker(self) -> Broker | None:
        """The present broker, None before the first start."""

    @property
    def is_up(self) -> bool:
        """Whether the broker hosts its replicas now."""


#: The view of one broker that a checker uses.
Viewed = TypeVar("Viewed")


class BrokerChecker(Generic[Viewed]):
    """A checker of the brokers of one run."""

    def __init__(
        self,
        brokers: Mapping[int, Viewed],
        violate: Callable[[str], None],
        now_ns: Callable[[], int],
    ) -> None:
        """`violate` ends the run with a violation; `now_ns` returns the virtual time."""
        self._brokers = brokers
        self._violate = violate
        self._now_ns = now_ns
