"""One process of a broker that coordinates one partition of an internal topic.

The code under test is the shell `broker.coordinators` with its decisions. The process has a loop
that runs its callbacks only when the world says so, a clock that stands still, and a partition
whose log is a list (`coordinated_partition`).
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events as _events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVarTuple

from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.server.timers import TimerWheel
from tidelog.core.authorization import Principal
from tidelog.core.config import BrokerConfig
from tidelog.core.tasks import Tasks
from tidelog.sim.small.small_process import SteppedClock

Ts = TypeVarTuple("Ts")

_set_running_loop = _events._set_running_loop
_MOST_CALLBACKS: Final = 100_000


class SteppedHandle(asyncio.Handle):
    """A callback that waits for the next turn of a `SteppedLoop`."""

    __slots__ = ("args", "callback", "context")

    # The fields of the base class are not used, so its constructor is not called.
    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context

    def cancel(self) -> None:
        """Cancel the callback."""
        self.callback = None

    def cancelled(self) -> bool:
        """Return whether the callback is cancelled."""
        return self.callback is None


class SteppedLoop(asyncio.AbstractEventLoop):
    """An event loop that runs callbacks only in `turn`; it has no timers."""

    def __init__(self) -> None:
        self._ready: deque[SteppedHandle] = deque()
        #: Errors that no caller handled.
        self.errors: list[BaseException] = []

    @property
    def is_idle(self) -> bool:
        """Whether no callback waits."""
        return not self._ready

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = SteppedHandle(callback, args, context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(error or RuntimeError(str(context.get("message"))))

    def turn(self) -> None:
        """Run all callbacks, and those that they lead to."""
        left = _MOST_CALLBACKS
        _set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                callback = handle.callback
                if callback is not None:
                    handle.callback = None
                    if handle.context is None:
                        callback(*handle.args)
                    else:
                        handle.context.run(callback, *handle.args)
                left -= 1
                assert left, "callbacks without end"
        finally:
            _set_running_loop(None)


class CoordinatorClock(SteppedClock):
    """A clock whose wall time may jump."""

    def __init__(self) -> None:
        super().__init__()
        self.jump_ms = 0
        #: The largest value that `jump_ms` has had, the farthest jump into the future.
        self.latest_jump_ms = 0

    def jump(self, jump_ms: int) -> None:
        """Move the wall clock."""
        self.jump_ms += jump_ms
        self.latest_jump_ms = max(self.latest_jump_ms, self.jump_ms)

    def wall_ms(self) -> int:
        """Return the time of the wall clock."""
        return self.now_ms + self.jump_ms

    def pass_to(self, end_ms: int, after_timer: Callable[[], None]) -> None:
        """Let time pass; call `after_timer` whenever a timer has fired."""
        timers = self._timers
        while timers and timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.now_ms = max(self.now_ms, due_ms)
                callback()
                after_timer()
        self.now_ms = max(self.now_ms, end_ms)


class CountedRandom:
    """A source of different bytes: a counter, so that equal histories have equal member ids."""

    def __init__(self, first: int) -> None:
        self._next = first

    def randbytes(self, n: int) -> bytes:
        """Return bytes that were not returned before."""
        self._next += 1
        return self._next.to_bytes(n, "big")


class CoordinatorPorts(NamedTuple):
    """The ports that coordinators use."""

    loop: SteppedLoop
    random: CountedRandom


class ScriptedConnection:
    """The connection of a scripted client."""

    peer = "10.0.0.1:5000"
    listener = "PLAINTEXT"
    serves_own = False
    unread_bytes = 0
    principal = Principal("User", "ANONYMOUS")
    is_broker = False

    def prove_broker(self, broker_id: int = -1) -> None:
        """Do nothing, because only a broker's connection counts."""

    def close(self, reason: str) -> None:
        """Do nothing, because the client decides when its connection is lost."""

    def keep_frames(self) -> None:
        """Do nothing, because messages are no frames here."""


CONNECTION: Final = ScriptedConnection()


class InForce(NamedTuple):
    """The settings of a broker."""

    in_force: BrokerConfig


class EmptyStore:
    """A metadata store without nodes."""

    async def get_many(self, paths: list[str]) -> list[None]:
        """Return None for each node."""
        return [None for _ in paths]


class CoordinatorTracer:
    """A tracer that passes events on, and ignores marks and log lines."""

    def __init__(self, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_event = on_event

    def event(self, name: str, /, **fields: Any) -> None:
        """Pass the event on."""
        self._on_event(name, fields)

    def mark(self, name: str, /) -> None:
        """Ignore the mark."""

    def log(self, logger: str, level: int, message: str, /) -> None:
        """Ignore the line."""


class CoordinatorServices:
    """The services of a broker that coordinators and their API handlers use."""

    def __init__(
        self,
        broker_id: int,
        life: int,
        config: BrokerConfig,
        view: ClusterView,
        loop: SteppedLoop,
        clock: CoordinatorClock,
        on_event: Callable[[str, dict[str, Any]], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self.broker_id = broker_id
        self.settings = InForce(config)
        self.ports = CoordinatorPorts(loop, CountedRandom(broker_id * 1_000_000 + life * 10_000))
        self.clock = clock
        self.tracer = CoordinatorTracer(on_event)
        self.tasks = Tasks(loop, clock, on_failure)
        self.timers = self.serving_timers = TimerWheel(clock)
        self.view = view
        self.store = EmptyStore()
        self._on_failure = on_failure

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration."""
        return self.settings.in_force

    def unexpected(self, where: str, error: BaseException) -> None:
        """Report a defect of the code under test."""
        self._on_failure(where, error)
