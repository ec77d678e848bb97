"""Exhaustive breadth-first exploration of a model, with the shortest story of what it breaks.

A state is a tuple of small integers: each names a part (a replica, published state, a set of
messages) in a table of the model, so that equal parts are one, and what the real functions make of
a part is worked out once. States that differ only in which replica is which are one state: of all
renamings the least tuple stands for them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Generic, Protocol, TypeVar

State = tuple[int, ...]
Step = tuple[Any, ...]
T = TypeVar("T")

#: The replicas of the one partition that models are about.
REPLICAS = (1, 2, 3)
#: Renamings of the replicas, the identity first; by the old number.
RENAMINGS = tuple(dict(zip(REPLICAS, one, strict=True)) for one in permutations(REPLICAS))


class TooManyStatesError(Exception):
    """A model is larger than its limit: nothing is proven."""


class Model(Protocol):
    """What is explored."""

    name: str

    def first(self) -> State:
        """The state in which everything begins."""

    def successors(self, state: State) -> Iterable[tuple[Step, State]]:
        """Every step that may come next, and where it leads."""

    def canonical(self, state: State) -> State:
        """The state that stands for all that differ in the replicas' names alone."""

    def broken(self, state: State) -> Collection[str]:
        """Names of the invariants that do not hold."""

    def tell(self, step: Step) -> str:
        """Return a step in words."""

    def describe(self, state: State) -> str:
        """Who believes what, and what each log holds."""


class Table(Generic[T]):
    """Parts of states, each with a number."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def number(self, key: Hashable, value: T) -> int:
        """The number of a part; `value` must not be changed from now on."""
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.values)
            self.values.append(value)
        return known


class Renamed:
    """The numbers of a table's parts under a renaming, worked out once for each."""

    def __init__(self, work_out: Callable[[int, dict[int, int]], int]) -> None:
        self._work_out = work_out
        self._known: list[dict[int, int]] = [{} for _ in RENAMINGS]

    def under(self, index: int, part: int) -> int:
        """The part that `part` is when replicas are renamed by `RENAMINGS[index]`."""
        known = self._known[index]
        found = known.get(part)
        if found is None:
            found = known[part] = self._work_out(part, RENAMINGS[index])
        return found


@dataclass(slots=True)
class Violation:
    """An invariant that does not hold, at the end of the shortest way there."""

    invariant: str
    depth: int
    state: State


@dataclass(slots=True)
class Explored:
    """What was found."""

    model: str
    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    #: Everything that can be reached was looked at.
    exhaustive: bool = False
    #: The first violation of each invariant, by its name.
    violations: dict[str, Violation] = field(default_factory=dict)
    story: str = ""

    def __str__(self) -> str:
        found = ", ".join(f"{v.invariant} broken at depth {v.depth}" for v in self.by_depth())
        return (
            f"{self.model}: {self.states:,} states, {self.steps:,} steps, depth {self.depth}, "
            f"{self.seconds:.1f} s ({self.states / max(self.seconds, 0.001):,.0f} states/s), "
            f"{found or ('holds' if self.exhaustive else 'nothing found')}"
        )

    def by_depth(self) -> list[Violation]:
        """The violations, the nearest first."""
        return sorted(self.violations.values(), key=lambda found: found.depth)


def explore(model: Model, limit: int, until: Collection[str] = ()) -> Explored:
    """Look at every state of `model`, up to the first violation.

    With `until`, up to the first violation of each of these invariants; others do not end it.
    Raises TooManyStatesError beyond `limit` states.
    """
    explored = Explored(model.name)
    started = time.monotonic()
    was_enabled = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and there is much of it
    try:
        ways = _explore(model, limit, until, explored)
    finally:
        if was_enabled:
            gc.enable()
    explored.states = len(ways)
    explored.seconds = time.monotonic() - started
    if explored.violations:
        explored.story = "\n".join(_stories(model, ways, explored))
    return explored


def _explore(
    model: Model, limit: int, until: Collection[str], explored: Explored
) -> dict[State, State | None]:
    """Every state found, with the one before it."""
    canonical, successors, broken = model.canonical, model.successors, model.broken
    first = canonical(model.first())
    ways: dict[State, State | None] = {first: None}
    level = [first]
    _note(explored, broken(first), first)
    while level and not _is_done(explored, until):
        found: list[State] = []
        for state in level:
            for _, raw in successors(state):
                explored.steps += 1
                after = canonical(raw)
                if after in ways:
                    continue
                ways[after] = state
                found.append(after)
        if len(ways) > limit:
            raise TooManyStatesError(
                f"{model.name}: more than {limit:,} states, depth {explored.depth}"
            )
        if found:
            explored.depth += 1
        for state in found:
            _note(explored, broken(state), state)
        level = found
    explored.exhaustive = not level
    return ways


def _note(explored: Explored, broken: Collection[str], state: State) -> None:
    for invariant in broken:
        if invariant not in explored.violations:
            explored.violations[invariant] = Violation(invariant, explored.depth, state)


def _is_done(explored: Explored, until: Collection[str]) -> bool:
    if until:
        return all(invariant in explored.violations for invariant in until)
    return bool(explored.violations)


def _stories(model: Model, ways: dict[State, State | None], explored: Explored) -> Iterable[str]:
    for violation in explored.by_depth():
        yield f"{violation.invariant} is broken after {violation.depth} steps of {model.name}:"
        yield from _story(model, ways, violation.state)


def _story(model: Model, ways: dict[State, State | None], last: State) -> Iterable[str]:
    """Return the way to a state, with the same names from beginning to end."""
    path = [last]
    while (before := ways[path[-1]]) is not None:
        path.append(before)
    path.reverse()
    state = model.first()
    yield f"  {model.describe(state)}"
    for number, wanted in enumerate(path[1:], 1):
        step, state = next(
            (step, after)
            for step, after in model.successors(state)
            if model.canonical(after) == wanted
        )
        yield f"{number:3} {model.tell(step)}"
        yield f"      {model.describe(state)}"
