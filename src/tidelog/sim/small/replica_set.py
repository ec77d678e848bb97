"""The small world A LEADER AND ITS FOLLOWERS: histories of one partition's replicas.

The code under test is that of `tidelog.replication`. `replica_set_world` has the state of a history
and the modules `replica_set_*_steps` the kinds of its steps. `replica_set_reference` states what
must hold, and `replica_set_register` stands for the controller.

A history is drawn from a seed: first its settings, then one step after the other. Where it first
reaches a rare state (`replica_set_rarities`), it branches: several short histories continue from
there, with draws of their own.

After the last drawn step all faults end. Every replica must then come to the same log, in the ISR,
with one high watermark (`recover`). `explore` does not draw: it plays every order of steps up to a
depth, from a state that a drawn history has reached. `shrunk` leaves steps out of a history as long
as the same rule breaks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from tidelog.sim.seeds import stream
from tidelog.sim.small import (  # noqa: F401 - they register the kinds of steps
    replica_set_broker_steps,
    replica_set_controller_steps,
    replica_set_fetch_steps,
)
from tidelog.sim.small.replica_set_brokers import SmallBroker
from tidelog.sim.small.replica_set_rarities import RARITIES, Rarity
from tidelog.sim.small.replica_set_values import MAX_LAG_MS, ReplicaSetSettings, Step
from tidelog.sim.small.replica_set_world import STEP_KINDS, ReplicaSetWorld, SmallStepKind, in_words
from tidelog.sim.small.small_world import PlayedSeed, SmallViolation

NAME: Final = "replicas"
#: The names of the faults that a history may have.
FAULTS: Final = tuple(dict.fromkeys(kind.fault for kind in STEP_KINDS.values() if kind.fault))
#: The text of the violation if replicas are not equal after all rounds of the recovery.
NOT_RECOVERED: Final = "not recovered"
#: For each kind of steps, a history draws one of these factors, and multiplies the weight of the
#: kind by it.
_BENT: Final = (0.1, 0.4, 1.0, 1.0, 3.0)
#: Number of steps that a branch of a history adds.
_BRANCH_LENGTH: Final = 12
#: Number of rounds after which a recovery that is not complete has failed.
_RECOVERY_ROUNDS: Final = 60


class ReplicaSetHistory(NamedTuple):
    """A played history: its settings, its steps, and the rule that it broke, if any."""

    seed: int
    #: Name of the branch of the seed's drawn history; "" for the drawn history itself.
    path: str
    settings: ReplicaSetSettings
    steps: tuple[Step, ...]
    violation: str
    #: Number of played histories that this one represents, if every order of some steps was played.
    orders: int = 1

    def story(self) -> list[str]:
        """Return this history as text: a line for each step, and for each broker state that the
        step changes.
        """
        lines = [
            f"seed {self.seed} {self.path} of {NAME}, {len(self.steps)} steps: {self.settings}"
        ]
        world = ReplicaSetWorld(self.settings)
        before = world.status()
        for number, step in enumerate(self.steps, 1):
            world.play(step)
            lines.append(f"{number:3} {in_words(step)}")
            after = world.status()
            lines += [f"      {who} {what}" for who, what in after.items() if before[who] != what]
            before = after
        return [*lines, f"  -> {self.violation or 'all holds'}"]


def settings_of(draw: random.Random) -> ReplicaSetSettings:
    """Draw the settings of a history."""
    count = draw.choice((2, 3, 3, 3, 3, 4))
    replicas = tuple(range(1, count + 1))
    minimum = draw.choice((1, 1, 2, 2, 3))
    share = draw.choice((0.15, 0.4, 0.7))
    faults = tuple(fault for fault in FAULTS if draw.random() < share)
    return ReplicaSetSettings(
        replicas=replicas,
        first_isr=tuple(each for each in replicas if each == 1 or draw.random() < 0.6),
        minimum=minimum,
        leader_minimum=draw.choice((minimum, minimum, minimum, max(1, minimum - 1))),
        flush_before_ack=draw.random() < 0.25,
        counts_pending_reads=draw.random() < 0.4,
        max_lag_bytes=draw.choice((-1, -1, -1, 1, 2)),
        without_epochs=tuple(each for each in replicas if draw.random() < 0.3)
        if draw.random() < 0.2
        else (),
        faults=faults,
        length=draw.choice((40, 80, 80, 150, 250)),
    )


def kinds_of(settings: ReplicaSetSettings) -> list[SmallStepKind]:
    """Return the kinds of steps that are possible in a history with these settings."""
    return [kind for kind in STEP_KINDS.values() if kind.fault in ("", *settings.faults)]


class ReplicaSetWalk:
    """A history while it is drawn: the state of its world, and the steps so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._draw = stream(seed, NAME)
        self.settings = settings_of(self._draw)
        self.world = ReplicaSetWorld(self.settings)
        self.played: list[Step] = []
        self._kinds = kinds_of(self.settings)
        weights = [kind.weight * self._draw.choice(_BENT) for kind in self._kinds]
        self._bounds = list(accumulate(weights))

    def go(self, length: int) -> None:
        """Draw and play `length` steps, or fewer up to the first violation."""
        draw, world, played = self._draw, self.world, self.played
        while length and not world.reference.violation:
            kind = draw.choices(self._kinds, cum_weights=self._bounds)[0]
            options = list(kind.options(world))
            if not options:
                continue
            arguments = options[int(draw.random() * len(options))]
            played.append((kind.name, *arguments))
            world.apply(kind, arguments)
            length -= 1

    def branch(self, name: str) -> ReplicaSetWalk:
        """Return a copy of this walk that continues with other draws, in which all kinds of steps
        are equally likely.
        """
        other = ReplicaSetWalk.__new__(ReplicaSetWalk)
        other.seed, other.settings = self.seed, self.settings
        other._draw = stream(self.seed, NAME, name)
        other.world, other.played = self.world.copy(), self.played.copy()
        other._kinds = list(STEP_KINDS.values())
        other._bounds = list(range(1, len(other._kinds) + 1))
        return other

    def history(self, path: str) -> ReplicaSetHistory:
        """Return the steps played so far as the history with this path."""
        violation = self.world.reference.violation
        return ReplicaSetHistory(self.seed, path, self.settings, tuple(self.played), violation)


def histories(seed: int) -> Iterator[ReplicaSetHistory]:
    """Play the histories of a seed: the drawn one, and branches where it reaches a rare state."""
    walk = ReplicaSetWalk(seed)
    left = dict(RARITIES)
    for _ in range(walk.settings.length):
        walk.go(1)
        if walk.world.reference.violation:
            break
        for name in [each for each, rarity in left.items() if rarity.is_reached(walk.world)]:
            yield from _branches(walk, name, left.pop(name))
    recover(walk.world, walk.played)
    yield walk.history("")


def _branches(walk: ReplicaSetWalk, name: str, rarity: Rarity) -> Iterator[ReplicaSetHistory]:
    for number in range(rarity.branches):
        path = f"{name} {number}"
        branch = walk.branch(path)
        branch.go(_BRANCH_LENGTH)
        if number == 0:
            recover(branch.world, branch.played)
        yield branch.history(path)
    if rarity.depth:
        yield _all_orders(walk, f"{name} orders", list(STEP_KINDS.values()), rarity.depth)


def play(seed: int) -> ReplicaSetHistory:
    """Play a seed's histories; return the first one that breaks a rule.

    If no history breaks a rule, return the seed's drawn history, of which the others are branches.
    """
    history = None
    for history in histories(seed):
        if history.violation:
            break
    assert history is not None, "each seed has a history"
    return history


def replayed(
    seed: int, settings: ReplicaSetSettings, given: Sequence[Step], recovers: bool = True
) -> ReplicaSetHistory:
    """Play the steps `given`, leave out steps that are not possible, and play the recovery at the
    end if `recovers`.
    """
    world = ReplicaSetWorld(settings)
    played = [step for step in given if not world.reference.violation and world.play(step)]
    if recovers:
        recover(world, played)
    return ReplicaSetHistory(seed, "", settings, tuple(played), world.reference.violation)


def shrunk(history: ReplicaSetHistory) -> ReplicaSetHistory:
    """Return the shortest history found that breaks the same rule."""
    rule = history.violation.partition(":")[0]
    # Steps of a recovery are part of the history if one of them breaks the rule.
    recovers = rule == NOT_RECOVERED
    best, size = history, max(1, len(history.steps) // 2)
    while size:
        start = 0
        while start < len(best.steps):
            shorter = (*best.steps[:start], *best.steps[start + size :])
            found = replayed(history.seed, history.settings, shorter, recovers)
            if found.violation.partition(":")[0] == rule and len(found.steps) < len(best.steps):
                best = found._replace(path=history.path)
            else:
                start += size
        size //= 2
    return best


def explore(seed: int, length: int, depth: int) -> ReplicaSetHistory:
    """Play every order of `depth` steps after the first `length` steps of a seed's drawn history.

    Return the first history that breaks a rule; if none does, one history that stands for all.
    """
    walk = ReplicaSetWalk(seed)
    walk.go(length)
    path = f"{length} steps, then all orders"
    if walk.world.reference.violation:
        return walk.history(path)
    return _all_orders(walk, path, kinds_of(walk.settings), depth)


def _all_orders(
    walk: ReplicaSetWalk, path: str, kinds: Sequence[SmallStepKind], depth: int
) -> ReplicaSetHistory:
    """Play every order of some steps from a state; the walk stays as it is.

    A state that several orders reach is continued once.
    """
    frontier: list[tuple[ReplicaSetWorld, tuple[Step, ...]]] = [(walk.world, tuple(walk.played))]
    seen = {walk.world.key()}
    orders = 0
    for left in reversed(range(depth)):
        reached: list[tuple[ReplicaSetWorld, tuple[Step, ...]]] = []
        for before, taken in frontier:
            for kind, arguments in _choices(before, kinds):
                after = before.copy()
                after.apply(kind, arguments)
                orders += 1
                steps = (*taken, (kind.name, *arguments))
                if after.reference.violation:
                    violation = after.reference.violation
                    return ReplicaSetHistory(
                        walk.seed, path, walk.settings, steps, violation, orders
                    )
                if not left:
                    continue
                key = after.key()
                if key not in seen:
                    seen.add(key)
                    reached.append((after, steps))
        frontier = reached
    return ReplicaSetHistory(walk.seed, path, walk.settings, tuple(walk.played), "", orders)


def _choices(
    world: ReplicaSetWorld, kinds: Sequence[SmallStepKind]
) -> Iterator[tuple[SmallStepKind, tuple[str | int, ...]]]:
    for kind in kinds:
        for arguments in list(kind.options(world)):
            yield kind, arguments


# The recovery.


def recover(world: ReplicaSetWorld, played: list[Step]) -> None:
    """End all faults; every replica must come to the same log, in sync, within some rounds.

    The steps of the recovery follow from the last state of the history. They become part of it only
    if one of them breaks a rule.
    """
    if world.reference.violation:
        return
    recovery = ReplicaSetRecovery(world)
    for number in range(_RECOVERY_ROUNDS):
        if number and not _what_is_missing(world):
            return
        recovery.round(number)
        if world.reference.violation:
            played += recovery.steps
            return
    world.reference.violate(f"{NOT_RECOVERED}: {_what_is_missing(world)}")


class ReplicaSetRecovery:
    """The end of a history without faults, in which all replicas must become equal; it goes round
    by round.
    """

    def __init__(self, world: ReplicaSetWorld) -> None:
        self._world = world
        self.steps: list[Step] = []

    def round(self, number: int) -> None:
        """Let everything that is due happen once, without faults."""
        self._bring_up()
        self._lead()
        self._decide()
        self._work()
        leaders = self._world.leaders()
        if number == 2 and leaders:
            self._do("write", leaders[0].broker_id)
        if number % 8 == 7:
            self._do("wait")
        else:
            self._do("time", MAX_LAG_MS // 2)

    def _do(self, name: str, *arguments: str | int) -> None:
        if not self._world.reference.violation:
            self.steps.append((name, *arguments))
            self._world.apply(STEP_KINDS[name], arguments)

    def _each(
        self, name: str, choose: Callable[[tuple[str | int, ...]], bool] = lambda _: True
    ) -> None:
        """Play the steps of kind `name` that are possible now and that `choose` accepts.

        A step that an earlier one of them makes impossible is left out.
        """
        options = STEP_KINDS[name].options
        for arguments in list(options(self._world)):
            if choose(arguments) and arguments in options(self._world):
                self._do(name, *arguments)

    def _bring_up(self) -> None:
        for name in ("start", "view", "notice"):
            self._each(name)
        flushes = self._world.settings.flush_before_ack
        for broker in self._world.up():
            if broker.flushes != flushes:
                self._do("policy", broker.broker_id)

    def _lead(self) -> None:
        """Let the controller handle restarts, elect a leader, and send the roles."""
        world, register = self._world, self._world.register
        state = register.state
        if not register.is_proven(state.leader):
            for arguments in list(STEP_KINDS["elect"].options(world))[:1]:
                self._do("elect", *arguments)
        else:
            for member in state.isr:
                if not register.is_proven(member) or world.brokers[member].damaged_from is not None:
                    self._do("remove", member)
            for broker_id in world.settings.replicas:
                if broker_id not in register.state.replicas:
                    self._do("assign", broker_id)
        self._each("command")
        for _ in range(max(len(broker.inbox) for broker in world.brokers.values())):
            self._each("obey", lambda arguments: arguments[1] == 0)

    def _decide(self) -> None:
        """Let the controller respond to all AlterPartition requests."""
        world = self._world
        self._each("send")
        self._each("judge", lambda arguments: arguments[1] == 0)
        while world.verdicts and not world.reference.violation:
            self._do("answer", 0)
        self._each("unanswered")
        # The controller sends the leader its role again, because it has read the topic again (A3).
        leaders = [leader.broker_id for leader in world.leaders()]
        self._each("repeat", lambda arguments: arguments[0] in leaders)

    def _work(self) -> None:
        """Let followers fetch."""
        for name in ("sync", "resume", "fetch"):
            self._each(name)
        self._each("arrive", lambda arguments: arguments[2] == 0)
        for name in ("read", "deliver", "complete", "sync"):
            self._each(name)


def _what_is_missing(world: ReplicaSetWorld) -> str:
    leader = world.brokers.get(world.register.state.leader)
    if leader is None or leader.leading is None:
        return "no leader"
    state = world.register.state
    if leader.known != (state.leader_epoch, state.partition_epoch):
        return f"leader {leader.broker_id} does not know the published state"
    if sorted(state.isr) != sorted(world.settings.replicas):
        return f"the ISR is {list(state.isr)}"
    if leader.leading.low_watermark(leader.log_start) != leader.log_start:
        return "the low watermark is behind"
    for broker in world.brokers.values():
        missing = _lacks(broker, leader)
        if missing:
            return f"broker {broker.broker_id} {missing}"
    return ""


def _lacks(broker: SmallBroker, leader: SmallBroker) -> str:
    if broker.damaged_from is not None:
        return "has a damaged log"
    if len(broker.log) != len(leader.log):
        return f"has {len(broker.log)} records, the leader {len(leader.log)}"
    start = max(broker.log_start, leader.log_start)
    if broker.log[start:] != leader.log[start:]:
        return "has other records than the leader"
    if broker.log_start < leader.log_start:
        return f"keeps deleted records from {broker.log_start}"
    if broker.high_watermark != len(leader.log):
        return f"has the high watermark {broker.high_watermark}, not {len(leader.log)}"
    return ""


class ReplicaSetSearch:
    """The `SmallWorld` of a partition's replicas, which the command line and the soak test play."""

    name = NAME
    description = "a leader and its followers, whose messages are late, lost or doubled"

    def play(
        self, seed: int, only: str = "", say: Callable[[str], None] | None = None
    ) -> PlayedSeed:
        """Play the histories of a seed, as `SmallWorld.play` specifies."""
        played, violations, is_found = 0, [], not only
        for history in histories(seed):
            played += history.orders
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


WORLD = ReplicaSetSearch()
