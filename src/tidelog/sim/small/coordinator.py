"""The small world A COORDINATOR AND ITS PARTITION: histories of group coordinators.

The code under test is that of `broker.coordinators` and its decisions (`tidelog.group`), on two
brokers that lead one partition in turn. `coordinator_world` has the state of a history,
`coordinator_steps` and `group_steps` the kinds of its steps, and `group_tenant` the clients' side.

A history is drawn from a seed: first its settings, then one step after the other. Where it first
reaches a rare state (`RARE_STATES`), other histories repeat its steps and go on with draws of their
own. From the rarest states every order of the next two steps is played. A history cannot be
copied, because its coordinators have coroutines; its steps are played again instead, and histories
are short.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from tidelog.sim.seeds import stream
from tidelog.sim.small import coordinator_steps  # noqa: F401 - it registers the kinds of steps
from tidelog.sim.small.coordinator_rarities import RARE_STATES, RareState
from tidelog.sim.small.coordinator_world import (
    COORDINATOR_STEPS,
    CoordinatorSettings,
    CoordinatorStepKind,
    CoordinatorWorld,
    Step,
    in_words,
)
from tidelog.sim.small.group_tenant import GroupTenant
from tidelog.sim.small.small_world import PlayedSeed, SmallViolation

NAME: Final = "coordinator"
#: The names of the faults that a history may have.
COORDINATOR_FAULTS: Final = tuple(
    dict.fromkeys(kind.fault for kind in COORDINATOR_STEPS.values() if kind.fault)
)
#: For each kind of steps, a history draws one of these factors for the weight of the kind.
_BENT: Final = (0.2, 0.6, 1.0, 1.0, 2.5)
#: Number of steps that a branch of a history adds.
_BRANCH_LENGTH: Final = 10


class CoordinatorHistory(NamedTuple):
    """A played history: its settings, its steps, and the rule that it broke, if any."""

    seed: int
    #: Name of the branch of the seed's drawn history; "" for the drawn history itself.
    path: str
    settings: CoordinatorSettings
    steps: tuple[Step, ...]
    violation: str
    #: Whether the end of all faults is part of the history.
    recovers: bool = False

    def story(self) -> list[str]:
        """Return this history as text: a line for each step, and for each change that it makes."""
        lines = [
            f"seed {self.seed} {self.path} of {NAME}, {len(self.steps)} steps: {self.settings}"
        ]
        world = CoordinatorWorld(self.settings, GroupTenant)
        before = world.tenant.status()
        for number, step in enumerate(self.steps, 1):
            world.play(step)
            lines.append(f"{number:3} {in_words(step)}")
            after = world.tenant.status()
            lines += [
                f"      {name}: {what}" for name, what in after.items() if before.get(name) != what
            ]
            before = after
        world.close()
        return [*lines, f"  -> {self.violation or 'all holds'}"]


def settings_of(draw: random.Random) -> CoordinatorSettings:
    """Draw the settings of a history."""
    clients: list[tuple[str | int, ...]] = []
    for number in range(draw.choice((1, 2, 2, 3))):
        # Two clients with one instance id are two processes of a static member.
        instance = draw.choice(("", "", "i", "i", f"j{number}"))
        clients.append(
            (
                instance,
                9 if instance else draw.choice((3, 9, 9)),
                draw.choice((6_000, 10_000)),
                draw.choice((10_000, 20_000)),
                draw.choice((0, 0, 1, 2)),
                draw.choice((0, 0, 1)),
            )
        )
    share = draw.choice((0.15, 0.4, 0.7))
    return CoordinatorSettings(
        minimum=draw.choice((1, 1, 2)),
        load_buffer_bytes=draw.choice((100, 100_000)),
        initial_delay_ms=draw.choice((0, 0, 3_000)),
        clients=tuple(clients),
        faults=tuple(fault for fault in COORDINATOR_FAULTS if draw.random() < share),
        length=draw.choice((25, 40, 40, 60, 90)),
    )


def kinds_of(settings: CoordinatorSettings) -> list[CoordinatorStepKind]:
    """Return the kinds of steps that are possible in a history with these settings."""
    return [kind for kind in COORDINATOR_STEPS.values() if kind.fault in ("", *settings.faults)]


class CoordinatorWalk:
    """A history while it is drawn: its world, and the steps so far."""

    def __init__(
        self,
        seed: int,
        settings: CoordinatorSettings,
        draw: random.Random,
        kinds: Sequence[CoordinatorStepKind],
        weights: Sequence[float],
        given: Sequence[Step] = (),
    ) -> None:
        """`given` are steps that are played first."""
        self.seed = seed
        self.settings = settings
        self.world = CoordinatorWorld(settings, GroupTenant)
        self.played: list[Step] = []
        self.recovers = False
        self._draw = draw
        self._kinds = kinds
        self._bounds = list(accumulate(weights))
        for step in given:
            self.play(step)

    def play(self, step: Step) -> None:
        """Play one step that is possible."""
        self.played.append(step)
        self.world.apply(COORDINATOR_STEPS[str(step[0])], step[1:])

    def go(self, length: int) -> None:
        """Draw and play `length` steps, or fewer up to the first violation."""
        draw = self._draw
        while length and not self.world.violation:
            kind = draw.choices(self._kinds, cum_weights=self._bounds)[0]
            options = kind.options(self.world)
            if not options:
                continue
            self.play((kind.name, *options[int(draw.random() * len(options))]))
            length -= 1

    def recover(self) -> None:
        """Play the end of all faults."""
        if not self.world.violation:
            self.recovers = True
            _recover(self.world)

    def end(self, path: str) -> CoordinatorHistory:
        """Close the world, and return the history."""
        self.world.close()
        return CoordinatorHistory(
            self.seed,
            path,
            self.settings,
            tuple(self.played),
            self.world.violation,
            self.recovers,
        )


def _recover(world: CoordinatorWorld) -> None:
    try:
        world.recover()
    except AssertionError as error:
        world.violate(f"an assertion failed: {error}")
    except Exception as error:
        world.violate(f"{type(error).__name__}: {error}")


def histories(seed: int) -> Iterator[CoordinatorHistory]:
    """Play the histories of a seed: the drawn one, and others from its rare states."""
    draw = stream(seed, NAME)
    settings = settings_of(draw)
    kinds = kinds_of(settings)
    walk = CoordinatorWalk(
        seed, settings, draw, kinds, [kind.weight * draw.choice(_BENT) for kind in kinds]
    )
    left, reached = dict(RARE_STATES), dict[str, int]()
    for _ in range(settings.length):
        walk.go(1)
        if walk.world.violation:
            break
        for name in [each for each, rare in left.items() if rare.is_reached(walk.world)]:
            reached[name] = len(walk.played)
            del left[name]
    walk.recover()
    drawn = walk.end("")
    yield drawn
    if not drawn.violation:
        for name, length in reached.items():
            yield from _branches(drawn, name, RARE_STATES[name], length)


def _branches(
    drawn: CoordinatorHistory, name: str, rare: RareState, length: int
) -> Iterator[CoordinatorHistory]:
    kinds, given = list(COORDINATOR_STEPS.values()), drawn.steps[:length]
    weights = [kind.weight**0.5 for kind in kinds]
    for number in range(rare.branches):
        path = f"{name} {number}"
        draw = stream(drawn.seed, NAME, path)
        walk = CoordinatorWalk(drawn.seed, drawn.settings, draw, kinds, weights, given)
        walk.go(_BRANCH_LENGTH)
        if number == 0:
            walk.recover()
        yield walk.end(path)
    if rare.next_steps:
        yield from _all_orders(drawn, name, rare, given)


def _all_orders(
    drawn: CoordinatorHistory, name: str, rare: RareState, given: Sequence[Step]
) -> Iterator[CoordinatorHistory]:
    """Play each ordered pair of next steps after a rare state, of the kinds that matter there."""
    kinds = [COORDINATOR_STEPS[each] for each in rare.next_steps]
    first = _next_steps(drawn, kinds, given)
    for number, before in enumerate(first):
        for other, after in enumerate(_next_steps(drawn, kinds, (*given, before))):
            draw = stream(drawn.seed, NAME, name, number, other)
            walk = CoordinatorWalk(drawn.seed, drawn.settings, draw, kinds, [1] * len(kinds), given)
            walk.play(before)
            if not walk.world.violation:
                walk.play(after)
            yield walk.end(f"{name} orders {number} {other}")


def _next_steps(
    drawn: CoordinatorHistory, kinds: Sequence[CoordinatorStepKind], given: Sequence[Step]
) -> list[Step]:
    """Return the different steps of these kinds that are possible after the steps `given`."""
    draw = stream(drawn.seed, NAME)
    walk = CoordinatorWalk(drawn.seed, drawn.settings, draw, kinds, [1] * len(kinds), given)
    found = [
        (kind.name, *arguments)
        for kind in kinds
        for arguments in dict.fromkeys(kind.options(walk.world))
    ]
    walk.world.close()
    return found


def play(seed: int) -> CoordinatorHistory:
    """Play a seed's histories; return the first one that breaks a rule.

    If no history breaks a rule, return the seed's drawn history, of which the others are branches.
    """
    drawn = None
    for history in histories(seed):
        drawn = drawn or history
        if history.violation:
            return history
    assert drawn is not None, "each seed has a history"
    return drawn


def replayed(
    seed: int, settings: CoordinatorSettings, given: Sequence[Step], recovers: bool
) -> CoordinatorHistory:
    """Play the possible ones of the steps `given`, and the end of all faults if `recovers`."""
    world = CoordinatorWorld(settings, GroupTenant)
    played = [step for step in given if not world.violation and world.play(step)]
    if recovers and not world.violation:
        _recover(world)
    world.close()
    return CoordinatorHistory(seed, "", settings, tuple(played), world.violation, recovers)


def shrunk(history: CoordinatorHistory) -> CoordinatorHistory:
    """Return the shortest history found whose violation has the same words apart from numbers."""
    rule = _rule(history.violation)
    best, size = history, max(1, len(history.steps) // 2)
    while size:
        start = 0
        while start < len(best.steps):
            shorter = (*best.steps[:start], *best.steps[start + size :])
            found = replayed(history.seed, history.settings, shorter, history.recovers)
            if _rule(found.violation) == rule and len(found.steps) < len(best.steps):
                best = found._replace(path=history.path)
            else:
                start += size
        size //= 2
    return best


def _rule(violation: str) -> str:
    """Return the first words of a violation without digits, to identify the broken rule."""
    return "".join(each for each in violation[:60] if not each.isdigit())


class CoordinatorSearch:
    """The `SmallWorld` of a coordinator, which the command line and the soak test play."""

    name = NAME
    description = "group coordinators on two brokers that lead one partition in turn"

    def play(
        self, seed: int, only: str = "", say: Callable[[str], None] | None = None
    ) -> PlayedSeed:
        """Play the histories of a seed, as `SmallWorld.play` specifies."""
        played, violations, is_found = 0, [], not only
        for history in histories(seed):
            played += 1
            path = f"{history.path} step {len(history.steps)}".strip()
            if only not in ("", path):
                continue
            is_found = True
            if history.violation:
                violations.append(SmallViolation(path, history.violation))
                history = shrunk(history)
            if say is not None and (only or history.violation):
                for line in history.story():
                    say(line)
        if not is_found:
            raise ValueError(f"seed {seed} has no history {only!r}")
        return PlayedSeed(played, violations)


WORLD = CoordinatorSearch()
