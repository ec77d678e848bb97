"""One process of a node, as what it holds open sees it: its disks, lanes, listeners, connections.

A handle of a port belongs to a process and asks it whether it is alive. `sim/node.py` has the
processes themselves.
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
        """Whether what it wrote outlived it in the page cache (a killed process, no power loss)."""

    def check_alive(self) -> None:
        """Raise NodeDead after death."""

    def port_call(self, name: str) -> None:
        """Count a call through a port; raise NodeDead if the node is dead or dies at this call."""
