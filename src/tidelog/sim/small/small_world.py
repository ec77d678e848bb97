"""The interface of a small world, and the list of the worlds.

A seed of a world stands for many histories: the one that the seed draws, and its variants with each
crash, delay or order of steps that the world enumerates. A violation names its history by a path,
so that the seed and the path alone repeat the history.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple, Protocol

#: By the name of a small world: the module that has the world in its attribute `WORLD`.
WORLDS = {
    "controller": "tidelog.sim.small.controller_search",
    "coordinator": "tidelog.sim.small.coordinator",
    "log": "tidelog.sim.small.one_log",
    "replicas": "tidelog.sim.small.replica_set",
}


class SmallViolation(NamedTuple):
    """A rule of replication that one played history of a seed broke."""

    #: Which of the seed's histories broke the rule: the path that `SmallWorld.play` takes.
    path: str
    #: The rule and how the history broke it.
    what: str


class PlayedSeed(NamedTuple):
    """The result of playing one seed of a small world."""

    #: Number of histories that were played and checked.
    histories: int
    violations: list[SmallViolation]


class SmallWorld(Protocol):
    """A small world: a model of a part of the cluster, of which histories are played.

    A world keeps no state between two seeds.
    """

    @property
    def name(self) -> str:
        """The name of the small world on the command line."""

    @property
    def description(self) -> str:
        """A description of the small world in one line."""

    def play(
        self, seed: int, only: str = "", say: Callable[[str], None] | None = None
    ) -> PlayedSeed:
        """Play all histories of a seed, or only the history with the path `only`.

        `say` gets lines that describe the history to people. Raises ValueError for a path that the
        seed does not have.
        """


def small_world(name: str) -> SmallWorld:
    """Return the small world `name`, which is a key of `WORLDS`."""
    world: SmallWorld = importlib.import_module(WORLDS[name]).WORLD
    return world
