"""Virtual time: one scheduler for all nodes, and an asyncio loop for each incarnation of a node.

The scheduler keeps one heap ordered by (time, sequence). Virtual time is in integer nanoseconds,
and does not pass while an event runs. The standard library's Task and Future schedule callbacks on
a `NodeLoop` (`call_soon`, `call_at`, ...), which puts them into the heap with its incarnation as
owner. Events of a dead incarnation are kept, but never run. Events of a paused incarnation wait,
and run in order when it resumes. The module knows nothing of brokers, disks or the network. This
module implements DESIGN.md, rule 5.
"""

from __future__ import annotations

import asyncio
from asyncio import events as _events
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any, Protocol, TypeVar, TypeVarTuple, cast

from tidelog.core.errors import NodeDead
from tidelog.sim.trace import Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
#: More events than this at one instant count as an endless loop, which is an error.
MAX_EVENTS_AT_ONE_INSTANT = 200_000
#: The heap is rebuilt without its cancelled events if more than this number of its events are
#: cancelled, and more than half of them.
_MIN_CANCELLED_TO_REBUILD = 4096
#: Node id of events that belong to no node (faults, the run's own timers).
NO_NODE = -1

_set_running_loop = _events._set_running_loop


class EventOwner(Protocol):
    """The process to which an event belongs, as the scheduler sees it."""

    @property
    def node_id(self) -> int:
        """The id of the node that the process runs."""

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""

    @property
    def runs(self) -> bool:
        """Whether the process is alive and not paused, so that its events are executed."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The asyncio loop that counts as running while an event of the process is executed."""

    @property
    def on_turn(self) -> Sequence[Callable[[], None]]:
        """Callbacks that run at the beginning of each event of the process."""

    def defer(self, event: TimedCall) -> None:
        """Keep an event that is due while the process does not run."""


class TimedCall(asyncio.TimerHandle):
    """A callback at an instant of virtual time, which `cancel` cancels."""

    __slots__ = ("args", "callback", "context", "owner", "scheduler", "time_ns")

    # This method does not call the base class's, because the fields that the latter sets are not
    # used.
    def __init__(
        self,
        scheduler: Scheduler,
        time_ns: int,
        owner: EventOwner | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self.scheduler = scheduler
        self.time_ns = time_ns
        self.owner = owner
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context

    def cancel(self) -> None:
        """Cancel the callback; no effect after it has run."""
        if self.callback is not None:
            self.callback = None
            self.args = ()
            self.scheduler.note_cancelled()

    def cancelled(self) -> bool:
        """Return whether the event was cancelled or has run."""
        return self.callback is None

    def when(self) -> float:
        """Return the event's time in seconds, on the clock of its loop."""
        return self.time_ns / NS_PER_S

    def __repr__(self) -> str:
        return f"<Event {self.time_ns} {self.callback}>"

    # An event is equal only to itself; the heap does not compare events, but (time, sequence).
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Scheduler:
    """Scheduler that runs the events of all nodes in the order (time, sequence)."""

    def __init__(self, trace: Trace) -> None:
        self.now_ns = 0
        self.trace = trace
        #: Called after every event with the owner of the event; None for an event of the simulator
        #: itself.
        self.after_event: Callable[[EventOwner | None], None] | None = None
        #: Called when a callback of a live node raises an error.
        self.on_unhandled: Callable[[EventOwner | None, str, BaseException], None] = _reraise
        self._heap: list[tuple[int, int, TimedCall]] = []
        self._sequence = 0
        self._cancelled = 0
        self._at_this_instant = 0

    def at(
        self,
        time_ns: int,
        owner: EventOwner | None,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimedCall:
        """Call `callback(*args)` at `time_ns` (not before now) as an event of `owner`."""
        time_ns = max(time_ns, self.now_ns)
        event = TimedCall(self, time_ns, owner, callback, args, context)
        self._sequence += 1
        heappush(self._heap, (time_ns, self._sequence, event))
        return event

    def after(
        self, delay_ns: int, owner: EventOwner | None, callback: Callable[..., object], *args: Any
    ) -> TimedCall:
        """Call `callback(*args)` `delay_ns` from now as an event of `owner`."""
        return self.at(self.now_ns + delay_ns, owner, callback, *args)

    def put_back(self, event: TimedCall) -> None:
        """Queue an event that waited while its node was paused; it runs after the events that are
        due now.
        """
        if event.callback is not None:
            self._sequence += 1
            heappush(self._heap, (self.now_ns, self._sequence, event))

    def note_cancelled(self) -> None:
        """Count a cancelled event; if most events in the heap are cancelled, drop the cancelled
        events.
        """
        self._cancelled += 1
        if self._cancelled > _MIN_CANCELLED_TO_REBUILD and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled = 0

    def next_time_ns(self) -> int | None:
        """Return when the next event is due; None if there is none."""
        while self._heap and self._heap[0][2].callback is None:
            heappop(self._heap)
            self._cancelled = max(0, self._cancelled - 1)
        return self._heap[0][0] if self._heap else None

    def run_next(self) -> None:
        """Execute the next event; if its node is paused or dead, defer the event."""
        if self.next_time_ns() is None:
            return
        time_ns, _, event = heappop(self._heap)
        callback, owner = event.callback, event.owner
        self._advance(time_ns)
        if owner is not None and not owner.runs:
            owner.defer(event)
        elif callback is not None:
            self._execute(owner, event, callback)
        del event, callback

    def run_until(self, time_ns: int) -> None:
        """Execute all events due up to `time_ns` and advance to that time."""
        while (next_ns := self.next_time_ns()) is not None and next_ns <= time_ns:
            self.run_next()
        self.now_ns = max(self.now_ns, time_ns)

    def _advance(self, time_ns: int) -> None:
        if time_ns > self.now_ns:
            self.now_ns = time_ns
            self._at_this_instant = 0
        else:
            self._at_this_instant += 1
            if self._at_this_instant > MAX_EVENTS_AT_ONE_INSTANT:
                raise RuntimeError(f"time stands still at {time_ns} ns: callbacks without end")

    def _execute(
        self, owner: EventOwner | None, event: TimedCall, callback: Callable[..., object]
    ) -> None:
        args, context = event.args, event.context
        event.callback = None
        self.trace.tick(self.now_ns, NO_NODE if owner is None else owner.node_id)
        if owner is not None:
            _set_running_loop(owner.loop)
        try:
            if owner is not None:
                for first in owner.on_turn:
                    first()
            if context is None:
                callback(*args)
            else:
                context.run(callback, *args)
        except NodeDead as error:
            if owner is None or owner.alive:
                self.on_unhandled(owner, "NodeDead reached a live node", error)
        except Exception as error:
            self.on_unhandled(owner, "exception in a callback", error)
        finally:
            if owner is not None:
                _set_running_loop(None)
        if self.after_event is not None:
            self.after_event(owner)
        del event, callback, args, context


def _reraise(_owner: EventOwner | None, _what: str, error: BaseException) -> None:
    raise error


class NodeLoop(asyncio.AbstractEventLoop):
    """The event loop of one incarnation of a node."""

    def __init__(self, scheduler: Scheduler, owner: EventOwner) -> None:
        self._scheduler = scheduler
        self._owner = owner

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        scheduler = self._scheduler
        return scheduler.at(scheduler.now_ns, self._owner, callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        due_ns = self._scheduler.now_ns + max(0, round(delay * NS_PER_S))
        return self._scheduler.at(due_ns, self._owner, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._scheduler.at(
            round(when * NS_PER_S), self._owner, callback, *args, context=context
        )

    def time(self) -> float:
        return self._scheduler.now_ns / NS_PER_S

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
        eager_start: bool | None = None,
    ) -> asyncio.Task[T]:
        if eager_start:
            raise RuntimeError("a simulated loop starts each task in an event of its own")
        text = None if name is None else str(name)
        coroutine = cast(Coroutine[Any, Any, T], coro)
        return asyncio.Task(coroutine, loop=self, name=text, context=context)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        raise RuntimeError("a simulated loop has no debug mode")

    def is_running(self) -> bool:
        return self._owner.alive

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self._owner.alive or isinstance(error, NodeDead):
            return
        message = str(context.get("message", "unhandled"))
        self._scheduler.on_unhandled(self._owner, message, error or RuntimeError(message))
