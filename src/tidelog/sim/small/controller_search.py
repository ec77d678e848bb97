"""The small world CONTROLLERS AND THEIR STORE: histories of real controllers and scripted brokers.

The code under test is that of `tidelog.controller` and `tidelog.broker.controller`, from the event
loop up. `controller_world` has the state of a history and the modules `controller_*_steps` the
kinds of its steps. `controller_reference` states what must hold at each write and each command,
and `controller_recovery` what must hold when all faults have ended.

A history is drawn from a seed: first its settings, then one step after the other. Where it first
reaches a rare state (`_RARITIES`), other histories with the same beginning continue with each step
that is possible there, and with drawn steps after it. `shrunk` leaves steps out of a history as
long as the same rule breaks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from tidelog.core.errors import InvariantError
from tidelog.sim.seeds import stream
from tidelog.sim.small import (  # noqa: F401 - they register the kinds of steps
    controller_admin_steps,
    controller_broker_steps,
    controller_store_steps,
)
from tidelog.sim.small.controller_recovery import recover
from tidelog.sim.small.controller_world import (
    CONTROLLER_STEPS,
    ControllerHistorySettings,
    ControllerStep,
    ControllerStepKind,
    ControllerWorld,
    step_in_words,
)
from tidelog.sim.small.small_world import PlayedSeed, SmallViolation

NAME: Final = "controller"
#: The names of the faults and requests that a history may have.
FAULTS: Final = tuple(dict.fromkeys(kind.fault for kind in CONTROLLER_STEPS.values() if kind.fault))
_BENT: Final = (0.2, 0.5, 1.0, 1.0, 2.5)
#: Number of drawn steps of a branch, after its first step.
_BRANCH_LENGTH: Final = 5
#: The most branches from one rare state.
_MOST_BRANCHES: Final = 12

#: Rare states by name, from which histories branch.
_RARITIES: Final[dict[str, Callable[[ControllerWorld], bool]]] = {
    "two active controllers": lambda world: (
        sum(host.controller.is_active for host in world.live_hosts()) > 1
    ),
    "zombie": lambda world: any(
        host.controller.is_active
        and not world.store.is_live(world.brokers[host.broker_id].session_id)
        for host in world.live_hosts()
    ),
    "writer and leader": lambda world: (
        any(host.session.writes for host in world.live_hosts())
        and bool(list(CONTROLLER_STEPS["write_isr"].options(world)))
    ),
    "two writers": lambda world: sum(host.session.writes for host in world.live_hosts()) > 1,
    "no leader": lambda world: any(state.leader < 0 for state in world.reference.states.values()),
    "eligible replicas": lambda world: any(state.elr for state in world.reference.states.values()),
    "moving without a leader": lambda world: any(
        (topic.adding or topic.removing)
        and any(
            state.leader < 0 or len(state.isr) == 1
            for each, state in world.reference.states.items()
            if each.topic == name
        )
        for name, topic in world.reference.topics.items()
    ),
    "moving topic is deleted": lambda world: any(
        topic.adding and name in world.reference.queued
        for name, topic in world.reference.topics.items()
    ),
}


class ControllerHistory(NamedTuple):
    """A played history: its settings, its steps, and the rule that it broke, if any."""

    seed: int
    path: str
    settings: ControllerHistorySettings
    steps: tuple[ControllerStep, ...]
    violation: str

    def story(self) -> list[str]:
        """Return this history as text: a line for each step, and the states that it publishes."""
        lines = [f"seed {self.seed} {self.path} of {NAME}: {self.settings}"]
        told: list[str] = []
        world = ControllerWorld(self.settings, self.seed, told.append)
        before = dict(world.reference.states)
        for number, step in enumerate(self.steps, 1):
            told.clear()
            world.play(step)
            lines.append(f"{number:3} {step_in_words(step)}")
            after = dict(world.reference.states)
            for topic_partition, state in after.items():
                if before.get(topic_partition) != state:
                    lines.append(
                        f"      {topic_partition}: leader {state.leader}, ISR {list(state.isr)},"
                        f" epochs {state.leader_epoch} and {state.partition_epoch},"
                        f" eligible {list(state.elr)}"
                    )
            lines += [f"      log: {line}" for line in told]
            before = after
        return [*lines, f"  -> {self.violation or 'all holds'}"]


def settings_of(draw: random.Random) -> ControllerHistorySettings:
    """Draw the settings of a history."""
    brokers = tuple(range(1, draw.choice((3, 3, 4)) + 1))
    first = []
    for _ in range(draw.choice((1, 1, 2))):
        count = draw.choice((2, 2, 3))
        first.append(tuple(draw.sample(brokers, count)))
    share = draw.choice((0.2, 0.4, 0.6))
    return ControllerHistorySettings(
        brokers=brokers,
        first=tuple(first),
        minimum=draw.choice((1, 1, 2)),
        unclean=draw.random() < 0.1,
        linger_ms=draw.choice((0, 0, 0, 20)),
        eager=draw.random() < 0.5,
        faults=tuple(fault for fault in FAULTS if draw.random() < share),
        length=draw.choice((15, 30, 30, 60)),
    )


class ControllerWalk:
    """A history while it is drawn."""

    def __init__(
        self,
        seed: int,
        settings: ControllerHistorySettings,
        draw: random.Random,
        kinds: Sequence[ControllerStepKind],
        bent: Sequence[float] = _BENT,
    ) -> None:
        self.seed = seed
        self.settings = settings
        self._draw = draw
        self.played: list[ControllerStep] = []
        self._kinds = kinds
        self._bounds = list(accumulate(kind.weight * draw.choice(bent) for kind in kinds))
        self.world = ControllerWorld(settings, seed)

    def go(self, length: int) -> None:
        """Draw and play `length` steps, or fewer up to the first violation."""
        draw, world = self._draw, self.world
        while length and not world.reference.violation:
            kind = draw.choices(self._kinds, cum_weights=self._bounds)[0]
            options = list(kind.options(world))
            if options:
                self._play(kind, options[int(draw.random() * len(options))])
                length -= 1

    def _play(self, kind: ControllerStepKind, arguments: tuple[str | int, ...]) -> None:
        self.played.append((kind.name, *arguments))
        _guarded(self.world, lambda: self.world.apply(kind, arguments))

    def follow(self, steps: Sequence[ControllerStep]) -> None:
        """Play given steps, and leave out steps that are not possible."""
        for step in steps:
            if self.world.reference.violation:
                return
            kind = CONTROLLER_STEPS[str(step[0])]
            if step[1:] in kind.options(self.world):
                self._play(kind, step[1:])

    def end(self, path: str) -> ControllerHistory:
        """Play the recovery, and return the history with this path."""
        if not self.world.reference.violation:
            _guarded(self.world, lambda: recover(self.world))
        violation = self.world.reference.violation
        return ControllerHistory(self.seed, path, self.settings, tuple(self.played), violation)


def _guarded(world: ControllerWorld, act: Callable[[], None]) -> None:
    """Play something; an error of the code under test is a violation."""
    try:
        act()
    except (InvariantError, AssertionError, LookupError, RuntimeError) as error:
        world.reference.violate(f"failed: {type(error).__name__}: {error}")


def kinds_of(settings: ControllerHistorySettings) -> list[ControllerStepKind]:
    """Return the kinds of steps that are possible in a history with these settings."""
    return [kind for kind in CONTROLLER_STEPS.values() if kind.fault in ("", *settings.faults)]


def histories(seed: int) -> Iterator[ControllerHistory]:
    """Play the histories of a seed: the drawn one, and branches where it reaches a rare state."""
    draw = stream(seed, NAME)
    settings = settings_of(draw)
    walk = ControllerWalk(seed, settings, draw, kinds_of(settings))
    left = dict(_RARITIES)
    branches: list[tuple[str, list[ControllerStep], list[ControllerStep]]] = []
    for _ in range(settings.length):
        walk.go(1)
        if walk.world.reference.violation:
            break
        for name in [each for each, is_reached in left.items() if is_reached(walk.world)]:
            del left[name]
            branches.append((name, list(walk.played), _choices(walk.world)))
    yield walk.end("")
    for name, beginning, choices in branches:
        draw = stream(seed, NAME, name)
        for number, step in enumerate(draw.sample(choices, min(_MOST_BRANCHES, len(choices)))):
            branch = ControllerWalk(seed, settings, draw, list(CONTROLLER_STEPS.values()), (1.0,))
            branch.follow([*beginning, step])
            branch.go(_BRANCH_LENGTH)
            yield branch.end(f"{name} {number}")


def _choices(world: ControllerWorld) -> list[ControllerStep]:
    """Return the possible steps, of each kind no more than a few."""
    found: list[ControllerStep] = []
    for kind in CONTROLLER_STEPS.values():
        options = list(kind.options(world))
        step = max(1, len(options) // 4)
        found += [(kind.name, *arguments) for arguments in options[::step]]
    return found


def play(seed: int) -> ControllerHistory:
    """Play a seed's histories; return the first one that breaks a rule, or else the last one."""
    history = None
    for history in histories(seed):
        if history.violation:
            break
    assert history is not None, "each seed has a history"
    return history


def replayed(
    seed: int, settings: ControllerHistorySettings, given: Sequence[ControllerStep]
) -> ControllerHistory:
    """Play the steps `given` and the recovery; leave out steps that are not possible."""
    walk = ControllerWalk(seed, settings, stream(seed, "replay"), kinds_of(settings))
    walk.follow(given)
    return walk.end("")


def shrunk(history: ControllerHistory) -> ControllerHistory:
    """Return the shortest history found that breaks the same rule."""
    rule = history.violation.partition(":")[0]
    best, size = history, max(1, len(history.steps) // 2)
    while size:
        start = 0
        while start < len(best.steps):
            shorter = (*best.steps[:start], *best.steps[start + size :])
            found = replayed(history.seed, history.settings, shorter)
            if found.violation.partition(":")[0] == rule and len(found.steps) < len(best.steps):
                best = found._replace(path=history.path)
            else:
                start += size
        size //= 2
    return best


class ControllerSearch:
    """The `SmallWorld` of controllers, which the command line and the soak test play."""

    name = NAME
    description = "two controllers over one store, with brokers and administrators as scripts"

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


WORLD = ControllerSearch()
