"""The interface of a node's process, as its disks, lanes, listeners and connections use it.

Each open file, listener and connection belongs to a process, and asks the process whether it is
alive. `sim/node.py` implements the processes.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.core.ports import Clock
from tidelog.sim.loop import EventOwner


class PortOwner(Protocol):
    """A process whose port calls are counted, and which may die at each of them."""

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""

    @property
    def died_with_page_cache(self) -> bool:
        """Whether the process died without a power loss, so that unsynced writes survived."""

    def check_alive(self) -> None:
        """Raise NodeDead after death."""

    def port_call(self, name: str) -> None:
        """Count a call of a port (`core.ports`); raise NodeDead if the node is dead or dies now."""


class Process(PortOwner, EventOwner, Protocol):
    """One incarnation of a node."""

    @property
    def host(self) -> str:
        """The name of the node's host."""
