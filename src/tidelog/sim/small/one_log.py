"""The world `log`: one partition's log, crashed at every port call of a random history.

A seed draws settings and a short history of operations, crashes and clean shutdowns. The history
runs once; `crash_points` crashes it at each port call on copies of its disks. Between its
operations, the log in memory is compared with the reference, too.

Rules: V23 (topic id), V34 and V38 (checkpoints, truncation), V39 (recovery), V64 (producers outlive
their records), D6 and D11 (directories), E3 (clean shutdown).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from tidelog.core.errors import NodeDead
from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.seeds import stream
from tidelog.sim.small.crash_points import CrashPoints
from tidelog.sim.small.log_history import LogHistory, PromiseBroken, drawn_config
from tidelog.sim.small.log_reading import OpenDirectories, read_start
from tidelog.sim.small.small_process import SmallProcess, SteppedClock
from tidelog.sim.small.small_world import PlayedSeed, SmallViolation

_STEP: Final = "step "
_LOSSES: Final = tuple(Loss)
#: Number of port calls after which a history ends.
_MOST_CALLS: Final = 300
#: Number of histories that a seed plays; the seed crashes only one of them.
_HISTORIES: Final = 16
#: Weight of each kind of event, for the choice of the history that a seed crashes. Each seed
#: multiplies the weights by random factors.
_WORTH: Final = {
    "log_rolled": 1,
    "log_truncated": 2,
    "log_restarted": 2,
    "log_segments_deleted": 6,
    "log_cleaned": 6,
    "producers_rebuilt": 6,
    "replica_renamed": 4,
    "log_recovered": 4,
}
_FACTORS: Final = (0, 1, 1, 5)
#: Only one in this number of seeds also crashes the calls that create the log, because these calls
#: are similar in all seeds.
_CREATION_EVERY: Final = 8
#: About this number of crashes of a history are followed by a second crash, during the next start.
_FOLLOWED_CALLS: Final = 3


class OneLog:
    """The world `log`."""

    name = "log"
    description = "one partition's log, crashed at every port call, with every loss of its disks"

    def play(
        self, seed: int, only: str = "", say: Callable[[str], None] | None = None
    ) -> PlayedSeed:
        """Play a seed, as `SmallWorld` specifies."""
        chosen, calls = _chosen(seed)
        every = 0 if only.startswith(_STEP) else max(1, calls // _FOLLOWED_CALLS)
        played = _Seed(seed, chosen, every, only, say or _nothing).play()
        if only and not played.violations and not (every and played.histories):
            raise ValueError(f"seed {seed} of the world {self.name} has no crash at {only!r}")
        return played


def _chosen(seed: int) -> tuple[int, int]:
    """Return the number of the history that a seed crashes, and the number of its port calls.

    All crashes of a history take a hundred times as long as the history itself. A seed therefore
    plays several histories, gives each kind of event a random weight, and crashes only the history
    whose events have the largest sum of weights.
    """
    draw = stream(seed, "small log", "worth")
    worth = {name: draw.choice(_FACTORS) * base for name, base in _WORTH.items()}
    found = []
    for number in range(_HISTORIES):
        history = _Seed(seed, number, 0, "", _nothing)
        history.play()
        counts = history.counts
        found.append((sum(min(counts[n], 3) * w for n, w in worth.items()), -number, history.calls))
    _, number, calls = max(found)
    return -number, calls


class _Seed:
    """One history of a seed, and the processes that carry it out."""

    def __init__(
        self, seed: int, number: int, every: int, only: str, say: Callable[[str], None]
    ) -> None:
        draw = self._draw = stream(seed, "small log", number)
        #: Number of events of all processes, by name.
        self.counts: Counter[str] = Counter()
        self._seed = seed
        self._say = say
        self._config = drawn_config(draw)
        self._disks = [SimDisk(root) for root in ("/a", "/b")[: 1 + (draw.random() < 0.3)]]
        self._clock = SteppedClock()
        self._history = LogHistory(draw, self._config, self._note_step)
        wanted = "" if only.startswith(_STEP) else only
        self._only = only
        self._points = CrashPoints(
            seed,
            self._disks,
            self._clock,
            self._config,
            self._history.reference,
            every,
            wanted,
            say,
        )
        self._steps = 0

    @property
    def calls(self) -> int:
        """Number of port calls of the history so far."""
        return self._points.calls

    def play(self) -> PlayedSeed:
        """Play the history, and all its crashes."""
        draw = self._draw
        left = draw.randrange(8, 32)
        self._points.is_quiet = self._seed % _CREATION_EVERY != 0
        try:
            while left > 0 and self.calls < _MOST_CALLS:
                left -= 1 + self._life(left)
        except _HistoryEndedError as ended:
            path = f"{_STEP}{self._steps}"
            if not self._only or self._only == path:
                self._points.violations.append(SmallViolation(path, str(ended)))
        return PlayedSeed(self._points.crashes, self._points.violations)

    def _life(self, steps: int) -> int:
        """Start a process and let it act; return how many steps it took until its end."""
        # Timers of the former process must not fire.
        self._clock = SteppedClock(self._clock.now_ms)
        self._points.clock = self._clock
        process = SmallProcess(self._clock, self._points.at_call)
        opened = OpenDirectories(process, self._disks, self._draw, self._say)
        self._points.opened = opened
        done = 0
        try:
            reference = self._history.reference
            # A start removes the marker of a clean shutdown, so a crash of it may leave no marker.
            must_be_clean, reference.must_be_clean = reference.must_be_clean, False
            found = read_start(opened, self._config)
            reference.must_be_clean = must_be_clean
            self._checked(reference.wrong_start(found))
            self._history.begin(opened)
            self._points.is_quiet = False
            while done < steps and self.calls < _MOST_CALLS:
                done += 1
                self._steps += 1
                if self._act() == "shut_down":
                    break
            else:
                process.dies_at = process.calls + 1
                self._history.settle()
        except NodeDead:
            process.alive = False
        process.die()
        self.counts += opened.tracer.counts
        loss = self._draw.choice(_LOSSES)
        if loss is not Loss.NONE:
            self._note_step(f"power loss: {loss.value}")
            for disk in self._disks:
                disk.lose_power(self._draw, loss)
        return done

    def _act(self) -> str:
        try:
            name = self._history.act()
            self._points.promised()
            self._checked(self._history.check())
        except PromiseBroken as broken:
            raise _HistoryEndedError(str(broken)) from broken
        except Exception as error:
            raise _HistoryEndedError(f"V38: {type(error).__name__}: {error}") from error
        return name

    def _checked(self, wrong: str) -> None:
        if wrong:
            raise _HistoryEndedError(wrong)

    def _note_step(self, text: str) -> None:
        self._say(f"{self.calls} {text}")


class _HistoryEndedError(Exception):
    """The end of a history at a violation that needs no crash."""


def _nothing(text: str) -> None:
    """Say nothing."""


WORLD = OneLog()
