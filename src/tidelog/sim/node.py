"""A simulated node: its lasting state, and the incarnations of its process.

Every open file, listener and connection belongs to one incarnation. The node counts the calls of
its ports (files, network and store; `core.ports`), and a planned crash happens at such a call.
After the process has died, each call raises NodeDead and has no effect. The coroutines of dead
processes are kept until the end of the run, so that none of their `finally` blocks runs (DESIGN.md,
rule 5).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import NodeDead
from tidelog.core.ports import Lane, Ports, TimerHandle
from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.listeners import CallbackList
from tidelog.sim.loop import NS_PER_MS, NodeLoop, Scheduler, TimedCall
from tidelog.sim.network import SimNetwork
from tidelog.sim.seeds import stream
from tidelog.sim.trace import Trace, canonical_fields

#: Wall clock when virtual time is 0: 2024-01-01T00:00:00Z.
WALL_EPOCH_MS = 1_704_067_200_000
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Strike:
    """A planned crash at a later call of a port (`core.ports`).

    Only calls whose name begins with `prefix` count; the crash happens at the `countdown`-th of
    them.
    """

    countdown: int
    loss: Loss
    prefix: str = ""


class NodeServices(ABC):
    """The services of the simulator that its nodes use: time, network, disks and trace."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace = Trace()
        #: The scheduler of all nodes' events, which has the virtual time.
        self.scheduler = Scheduler(self.trace)
        #: The simulated network, with all hosts and links.
        self.network = SimNetwork(
            self.scheduler, self.note, self.violate, stream(seed, "network"), stream(seed, "cuts")
        )
        #: Called with (incarnation, event name, fields) for each traced state change.
        self.on_traced: CallbackList[[Incarnation, str, dict[str, Any]]] = CallbackList()
        #: Called with (node id, kind, detail) for each line of the trace; node id -1 means no node.
        self.on_note: CallbackList[[int, str, str]] = CallbackList()
        #: Returns the loss that a crash may cause within the fault budget; None forbids the crash.
        self.judge_crash: Callable[[Incarnation, Loss], Loss | None] | None = None

    def note(self, node_id: int, kind: str, detail: str) -> None:
        """Add a line to the trace."""
        self.trace.line(self.scheduler.now_ns, node_id, kind, detail)
        self.on_note(node_id, kind, detail)

    def traced(self, incarnation: Incarnation, name: str, fields: dict[str, Any]) -> None:
        """Record a state change that a node traced."""
        detail = f"{name} {canonical_fields(fields)}" if fields else name
        self.note(incarnation.node_id, "event", detail)
        self.on_traced(incarnation, name, fields)

    @abstractmethod
    def violate(self, what: str) -> None:
        """Record a violation."""

    @abstractmethod
    def open_lane(self, incarnation: Incarnation, directory: str) -> Lane:
        """Return the `core.ports.Lane` of a log directory for one incarnation."""

    @abstractmethod
    def loss_of(self, node_id: int, wanted: Loss) -> Loss:
        """Return which loss of unsynced data a node's disks suffer when its process ends, at least
        `wanted`.
        """

    @abstractmethod
    def node_started(self, incarnation: Incarnation) -> None:
        """Record that an incarnation begins."""

    @abstractmethod
    def node_died(self, incarnation: Incarnation, loss: Loss) -> None:
        """Record that an incarnation has ended."""

    @abstractmethod
    def node_halted(self, incarnation: Incarnation, reason: str) -> None:
        """End a node that halts itself."""


class Incarnation:
    """One incarnation of a node's process; the open handles see it as `process.Process`."""

    def __init__(self, simulator: NodeServices, node: SimNode, number: int) -> None:
        self.simulator = simulator
        self.node = node
        self.node_id = node.node_id
        self.host = node.host
        self.number = number
        self.alive = True
        self.paused = False
        #: Whether the scheduler executes the incarnation's events, because the incarnation is alive
        #: and not paused.
        self.runs = True
        self.port_calls = 0
        #: Reason of the incarnation's end; empty while it is alive.
        self.end_reason = ""
        self.loop = NodeLoop(simulator.scheduler, self)  # type: ignore[abstract]  # what Tasks use
        self.clock = NodeClock(self)
        self.random = NodeRandom(self)
        self.tracer = NodeTracer(self)
        #: Whether the process died without a power loss, so that unsynced writes survived.
        self.died_with_page_cache = False
        #: Whether the process died by a power loss, which affects every disk.
        self.died_with_power = False
        #: The disks that lost data when the process died; True if the disk had pages that a failed
        #: fsync dropped.
        self.struck_disks: dict[SimDisk, bool] = {}
        #: Called at the beginning of each event of the incarnation.
        self.on_turn: list[Callable[[], None]] = []
        #: Functions that are called, in this order, when the process dies, each with the loss
        #: (`Loss`) that the process's disks suffer.
        self.on_death: list[Callable[[Loss], None]] = []
        self._strike: Strike | None = None
        self._waiting: list[TimedCall] = []
        self._held: list[object] = []

    def check_alive(self) -> None:
        """Raise NodeDead after death."""
        if not self.alive:
            raise NodeDead(f"node {self.node_id}.{self.number}: {self.end_reason}")

    def port_call(self, name: str) -> None:
        """Count a call of a port (`core.ports`); raise NodeDead if the node is dead or dies now."""
        if not self.alive:
            raise NodeDead(f"node {self.node_id}.{self.number}: {self.end_reason}")
        self.port_calls += 1
        strike = self._strike
        if strike is None or not name.startswith(strike.prefix):
            return
        if strike.countdown > 1:
            self._strike = Strike(strike.countdown - 1, strike.loss, strike.prefix)
            return
        self._strike = None
        if self.die(strike.loss, f"crash at port call {self.port_calls} ({name})"):
            raise NodeDead(f"node {self.node_id}.{self.number}: {self.end_reason}")

    def plan_strike(self, strike: Strike | None) -> None:
        """Plan a crash in place of an earlier planned crash; None plans no crash."""
        self._strike = strike

    def die(self, loss: Loss, reason: str, *, judged: bool = True) -> bool:
        """End the process at once; return False if the process survives.

        `judge_crash` may change or refuse the `loss` of unsynced data. If `judged` is False,
        because the process ends itself, `judge_crash` is not called.
        """
        if not self.alive:
            return True
        if judged and self.simulator.judge_crash is not None:
            verdict = self.simulator.judge_crash(self, loss)
            if verdict is None:
                return False
            loss = verdict
        self.died_with_power = loss is not Loss.NONE
        loss = self.simulator.loss_of(self.node_id, loss)
        self.alive = False
        self.runs = False
        self.end_reason = reason
        self.died_with_page_cache = loss is Loss.NONE
        self.simulator.note(self.node_id, "death", f"{loss.name} {reason}")
        self._held.extend(self._waiting)
        self._waiting.clear()
        # The order of the tasks does not matter, because `_held` only protects them from garbage
        # collection.
        self._held.extend(asyncio.all_tasks(self.loop))
        for callback in self.on_death:
            callback(loss)
        self.simulator.node_died(self, loss)
        return True

    def pause(self) -> None:
        """Stop the execution of the incarnation's events, like SIGSTOP."""
        if self.alive and not self.paused:
            self.paused = True
            self.runs = False
            self.simulator.note(self.node_id, "pause", "")

    def resume(self) -> None:
        """Continue a paused incarnation, beginning with its waiting events in order."""
        if self.alive and self.paused:
            self.paused = False
            self.runs = True
            self.simulator.note(self.node_id, "resume", f"{len(self._waiting)} waiting")
            for event in self._waiting:
                self.simulator.scheduler.put_back(event)
            self._waiting.clear()

    def defer(self, event: TimedCall) -> None:
        """Keep an event that is due until `resume`; if the process is dead, until the end of the
        run.
        """
        if self.alive:
            self._waiting.append(event)
        else:
            self._held.append(event)

    def bury(self) -> None:
        """Close the incarnation's coroutines at the end of the run, so that they have no effect."""
        if self.alive:
            self.alive = False
            self.runs = False
            self.end_reason = "the run has ended"
        # Include tasks that code of the process started after the death, before its next call of a
        # port (`core.ports`) raised NodeDead.
        self._held.extend(asyncio.all_tasks(self.loop))
        for held in self._held:
            if isinstance(held, asyncio.Task):
                held._log_destroy_pending = False  # type: ignore[attr-defined]
                _end_coroutine(held.get_coro())
        self._held.clear()
        self._waiting.clear()
        self.on_death.clear()


def _end_coroutine(ended: object) -> None:
    """Close a coroutine that will not run any more.

    If the coroutine never began, coroutines among its arguments are closed, too, because Python
    would warn that they were never awaited.
    """
    if not inspect.iscoroutine(ended):
        return
    if inspect.getcoroutinestate(ended) == inspect.CORO_CREATED and ended.cr_frame is not None:
        for value in ended.cr_frame.f_locals.values():
            for given in value if isinstance(value, tuple) else (value,):
                _end_coroutine(given)
    # A `finally` block may call a port, which raises NodeDead.
    with contextlib.suppress(BaseException):
        ended.close()


class SimNode:
    """The lasting part of a node: its name, its clock, its current incarnation."""

    def __init__(self, simulator: NodeServices, node_id: int, host: str) -> None:
        self.simulator = simulator
        self.node_id = node_id
        self.host = host
        self.wall_offset_ms = 0
        #: Drift of the node's monotonic clock in millionths; above 0 the clock is fast, below 0
        #: slow.
        self.drift_ppm = 0
        #: (time on the node's monotonic clock, virtual time) when the drift last changed.
        self._clock_base = (0, 0)
        self.incarnation: Incarnation | None = None
        self._started = 0

    @property
    def is_up(self) -> bool:
        """Whether the node's process is alive (it may be paused)."""
        return self.incarnation is not None and self.incarnation.alive

    def drift(self, ppm: int) -> None:
        """Change the drift of the monotonic clock from now on; the clock never goes back."""
        now_ns = self.simulator.scheduler.now_ns
        self._clock_base = (self.monotonic_ns(now_ns), now_ns)
        self.drift_ppm = ppm

    def monotonic_ns(self, now_ns: int) -> int:
        """Return the time on the monotonic clock at a virtual time."""
        shown_ns, since_ns = self._clock_base
        return shown_ns + (now_ns - since_ns) * (_MILLION + self.drift_ppm) // _MILLION

    def start(self) -> Ports:
        """Begin a new incarnation; return its ports (`core.ports.Ports`)."""
        if self.is_up:
            raise RuntimeError(f"node {self.node_id} is running")
        self._started += 1
        incarnation = Incarnation(self.simulator, self, self._started)
        self.incarnation = incarnation
        self.simulator.node_started(incarnation)

        def halt(reason: str) -> None:
            incarnation.check_alive()
            self.simulator.node_halted(incarnation, reason)
            raise NodeDead(reason)

        return Ports(
            loop=incarnation.loop,
            clock=incarnation.clock,
            random=incarnation.random,
            network=self.simulator.network.handle(incarnation),
            tracer=incarnation.tracer,
            on_turn=incarnation.on_turn.append,
            open_lane=lambda directory: self.simulator.open_lane(incarnation, directory),
            halt=halt,
        )


class NodeClock:
    """`core.ports.Clock` of one incarnation."""

    __slots__ = ("_incarnation", "_node", "_scheduler")

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._node = incarnation.node
        self._scheduler = incarnation.simulator.scheduler

    def monotonic_ns(self) -> int:
        """Return the time of the node's monotonic clock, which follows virtual time with a
        drift.
        """
        self._incarnation.check_alive()
        return self._node.monotonic_ns(self._scheduler.now_ns)

    def monotonic_ms(self) -> int:
        """Return `monotonic_ns` in whole milliseconds."""
        self._incarnation.check_alive()
        return self._node.monotonic_ns(self._scheduler.now_ns) // NS_PER_MS

    def wall_ms(self) -> int:
        """Return the time of the node's wall clock in ms: virtual time plus an offset."""
        self._incarnation.check_alive()
        return (
            WALL_EPOCH_MS
            + self._scheduler.now_ns // NS_PER_MS
            + self._incarnation.node.wall_offset_ms
        )

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back after a delay, in an event of the node."""
        self._incarnation.check_alive()
        delay_ns = max(0, round(delay_ms * NS_PER_MS))
        drift_ppm = self._node.drift_ppm
        if drift_ppm:
            # Round up, so that on the node's clock the whole delay has passed when the callback
            # runs.
            delay_ns = -(-delay_ns * _MILLION // (_MILLION + drift_ppm))
        due_ns = self._scheduler.now_ns + delay_ns
        return self._scheduler.at(due_ns, self._incarnation, callback)


class NodeRandom:
    """`core.ports.Random` of one incarnation, with its own random stream."""

    __slots__ = ("_incarnation", "_random")

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._random = stream(
            incarnation.simulator.seed, "node", incarnation.node_id, incarnation.number
        )

    def random(self) -> float:
        """Return a random number from 0 (inclusive) to 1 (exclusive)."""
        self._incarnation.check_alive()
        return self._random.random()

    def randrange(self, start: int, stop: int) -> int:
        """Return a random whole number from `start` (inclusive) to `stop` (exclusive)."""
        self._incarnation.check_alive()
        return self._random.randrange(start, stop)

    def randbytes(self, n: int) -> bytes:
        """Return `n` bytes."""
        self._incarnation.check_alive()
        return self._random.randbytes(n)


class NodeTracer:
    """`core.ports.Tracer` of one incarnation; it passes events to the run's trace and the
    checkers.
    """

    __slots__ = ("_incarnation", "_simulator")

    def __init__(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._simulator = incarnation.simulator

    def event(self, name: str, /, **fields: Any) -> None:
        """Trace a state change."""
        self._incarnation.check_alive()
        self._simulator.traced(self._incarnation, name, fields)

    def mark(self, name: str, /) -> None:
        """Count a rare state that runs must reach (`core.ports.Tracer.mark`)."""
        self._incarnation.check_alive()
        self._simulator.trace.mark(name)

    def log(self, logger: str, level: int, message: str, /) -> None:
        """Trace a log line of level WARNING or above; drop others."""
        self._incarnation.check_alive()
        if level >= logging.WARNING:
            self._simulator.note(self._incarnation.node_id, logger, message)
