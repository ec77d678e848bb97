"""The interface of a node's process, used by its open disks, lanes, listeners and connections.

Each handle (open file, listener, connection) belongs to a process and asks the process whether it
is alive. `sim/node.py` implements the processes.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.core.ports import Clock
from tidelog.sim.loop import EventOwner


class Process(EventOwner, Protocol):
    """One incarnation of a node."""

    @property
    def host(self) -> str:
        """The name of the node's host."""

    @property
    def clock(self) -> Clock:
        """The node's clock."""

    @property
    def died_with_page_cache(self) -> bool:
        """Whether unsynced writes survived the death, because no power was lost."""

    def check_alive(self) -> None:
        """Raise NodeDead after death."""

    def port_call(self, name: str) -> None:
        """Count a call of a port (`core.ports`); raise NodeDead if the node is dead or dies now."""
