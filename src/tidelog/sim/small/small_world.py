"""The interface of a small world, and the list of the worlds.

A seed of a world stands for many histories: what the seed draws, with every crash, delay or order
that the world enumerates. A violation names its history by a path, so that the seed and the path
alone repeat it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

#: Modules of the worlds by name; each module has its world in the attribute `WORLD`.
WORLDS = {"replicas": "tidelog.sim.small.replica_set"}


class SmallViolation(NamedTuple):
    """A promise that one history of a seed broke."""

    #: The history within its seed, as `SmallWorld.play` takes it.
    path: str
    #: The rule and how the history broke it.
    what: str


class PlayedSeed(NamedTuple):
    """What one seed of a world showed."""

    #: Number of histories that were played and checked.
    histories: int
    violations: list[SmallViolation]


class SmallWorld(Protocol):
    """A small world; worlds keep no state between two seeds."""

    @property
    def name(self) -> str:
        """The world's name on the command line."""

    @property
    def description(self) -> str:
        """The world in one line."""

    def play(
        self, seed: int, only: str = "", say: Callable[[str], None] | None = None
    ) -> PlayedSeed:
        """Play all histories of a seed, or only the history with the path `only`.

        `say` gets lines that describe the history to people. Raises ValueError for a path that the
        seed does not have.
        """


def small_world(name: str) -> SmallWorld:
    """Return the world with a name of `WORLDS`."""
    world: SmallWorld = importlib.import_module(WORLDS[name]).WORLD
    return world
