"""A broker's process with a real controller: its clock, its store session, its connections.

The process runs `ControllerRuntime` with everything below it. The parts of a broker that have no
share in a controller's decisions do nothing here: cluster events and the progress of groups.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.controller.drains import Drains
from tidelog.broker.controller.runtime import ControllerRuntime
from tidelog.broker.events.cluster_events import ClusterEvents
from tidelog.broker.peers import Peers
from tidelog.broker.server.fence import Fence
from tidelog.broker.server.timers import TimerWheel
from tidelog.broker.services import Identity, Services, Settings
from tidelog.core import limits
from tidelog.core.config import BrokerConfig
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConnectionLost
from tidelog.core.metrics import Metrics
from tidelog.core.ports import Clock, Ports, Random, TimerHandle, Tracer
from tidelog.core.response_budget import ResponseBudget
from tidelog.core.tasks import Tasks
from tidelog.core.types import NO_BROKER_EPOCH, TopicPartition
from tidelog.metadata.store import SessionEvent
from tidelog.sim.small.small_process import SmallTracer, SteppedClock
from tidelog.sim.small.stepped_loop import ReadyLoop
from tidelog.sim.small.stepped_store import SteppedSession, SteppedStore
from tidelog.wire.peer import CorrelationIds

#: Maximum number of messages in one turn of a process; more messages count as an endless turn.
_MOST_CALLS: Final = 2_000
#: `leader.recovery.wait.ms`: how long a recovery waits for brokers that are not registered (E6).
RECOVERY_WAIT_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class CommandFrame:
    """A controller's request to a broker, on its way."""

    link: CommandLink
    number: int
    message: Any
    on_answer: Callable[[Any, Exception | None], None]
    controller_epoch: int


class CommandNetwork(Protocol):
    """The part of the world that takes a controller's requests to brokers."""

    def sent(self, frame: CommandFrame) -> None:
        """Take a request that a controller sends to a broker."""


class CommandLink:
    """A connection from a controller to a broker."""

    def __init__(
        self, host: ControllerHost, broker_id: int, correlation_ids: CorrelationIds
    ) -> None:
        self.host = host
        self.broker_id = broker_id
        self.is_open = True
        self._correlation_ids = correlation_ids
        #: Requests without a response.
        self.waiting: deque[CommandFrame] = deque()

    def send(
        self,
        api_key: int,
        version: int,
        message: Any,
        timeout_ms: int,
        on_answer: Callable[[Any, Exception | None], None],
    ) -> None:
        """Send a request; the world decides when it arrives."""
        if not self.is_open:
            on_answer(None, ConnectionLost("the connection is closed"))
            return
        epoch = self.host.controller.controller_epoch
        frame = CommandFrame(self, self._correlation_ids.take(), message, on_answer, epoch)
        self.waiting.append(frame)
        self.host.network.sent(frame)

    def respond(self, frame: CommandFrame, response: Any) -> None:
        """Deliver a response, unless the connection is closed."""
        if self.is_open and frame in self.waiting:
            self.waiting.remove(frame)
            frame.on_answer(response, None)

    def close(self, reason: str) -> None:
        """Close the connection; requests on their way may still arrive."""
        if not self.is_open:
            return
        self.is_open = False
        waiting, self.waiting = self.waiting, deque()
        if self.host.is_up:
            for frame in waiting:
                frame.on_answer(None, ConnectionLost(reason))


class _HostPeers:
    """The connections of a controller's process."""

    def __init__(self, host: ControllerHost) -> None:
        self._host = host

    def open(
        self, host: str, port: int, purpose: str, correlation_ids: CorrelationIds
    ) -> CommandLink:
        link = CommandLink(self._host, int(host.removeprefix("broker")), correlation_ids)
        self._host.links.append(link)
        return link

    def silent_since_ms(self, broker_id: int) -> int | None:
        return None


class _UnrecordedEvents:
    """Cluster events that nothing records, as with `cluster.events.enable=false`."""

    is_on = False

    def record(self, events: Iterable[object]) -> None:
        """Drop the events."""


class _NoGroups:
    """The progress of consumer groups, of which there are none."""

    async def read_to_the_end(
        self, leaders: Mapping[TopicPartition, int], coordinators: Iterable[int]
    ) -> list[TopicPartition]:
        """Return all partitions, because no group reads any."""
        del coordinators
        return list(leaders)


class _HostClock:
    """The world's clock, as one process uses it; a dead process's timers do nothing."""

    def __init__(self, clock: SteppedClock, host: ControllerHost) -> None:
        self._clock = clock
        self._host = host

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def monotonic_ms(self) -> int:
        return self._clock.now_ms

    def wall_ms(self) -> int:
        return self._clock.now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        def fire() -> None:
            if self._host.is_up:
                callback()

        return self._clock.call_later(delay_ms, fire)


@dataclass(frozen=True, slots=True)
class _HostPorts:
    loop: asyncio.AbstractEventLoop
    random: Random


@lru_cache(maxsize=64)
def _config(broker_id: int, minimum: int, unclean: bool, linger_ms: int) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://broker{broker_id}:9092",
            "leader.recovery.wait.ms": str(RECOVERY_WAIT_MS),
            "min.insync.replicas": str(minimum),
            "unclean.leader.election.enable": str(unclean).lower(),
            "isr.expand.linger.ms": str(linger_ms),
            "auto.leader.rebalance.enable": "false",
        }
    )


_METRICS = Metrics()


class ControllerHost:
    """One incarnation of a broker's process, as far as it takes part in controller elections."""

    def __init__(
        self,
        broker_id: int,
        network: CommandNetwork,
        loop: ReadyLoop,
        clock: SteppedClock,
        store: SteppedStore,
        random: Random,
        *,
        minimum: int,
        unclean: bool,
        linger_ms: int,
        say: Callable[[str], None] | None,
    ) -> None:
        self.broker_id = broker_id
        self.network = network
        self.is_up = True
        #: Whether messages of the store wait, because the process is slow.
        self.is_paused = False
        self.links: list[CommandLink] = []
        self.failures: list[str] = []
        self._loop = loop
        self.session = SteppedSession(store, loop)
        self.session.on_session(self._session_event)
        self.identity = Identity(broker_id)
        own_clock: Clock = _HostClock(clock, self)
        timers = TimerWheel(own_clock)
        tracer: Tracer = SmallTracer(say)
        self.services = Services(
            ports=cast(Ports, _HostPorts(loop, random)),
            store=self.session,
            settings=Settings(_config(broker_id, minimum, unclean, linger_ms)),
            identity=self.identity,
            clock=own_clock,
            tracer=tracer,
            metrics=_METRICS,
            tasks=Tasks(loop, own_clock, self._failed),
            timers=timers,
            serving_timers=timers,
            fence=Fence(),
            view=ClusterView(),
            peers=cast(Peers, _HostPeers(self)),
            responses=ResponseBudget(limits.QUEUED_RESPONSE_BYTES, own_clock, lambda line: None),
        )
        self.controller = ControllerRuntime(
            self.services,
            cast(ClusterEvents, _UnrecordedEvents()),
            cast(Drains, _NoGroups()),
        )

    def _failed(self, name: str, error: BaseException) -> None:
        self.failures.append(f"{name}: {type(error).__name__}: {error}")

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self.identity.session_expired()
            self.controller.resign("the session has expired")

    def start(self, broker_epoch: int) -> None:
        """Begin to take part in elections, after the first registration."""
        self.identity.registered(broker_epoch)
        start = self.controller.start()
        try:
            start.send(None)
        except StopIteration:
            return
        raise AssertionError("the start of the controller waits")

    def registered(self, broker_epoch: int) -> None:
        """Note a later registration."""
        self.identity.registered(broker_epoch)
        self.controller.session_renewed()

    def die(self) -> None:
        """End the process without clean-up."""
        self.is_up = False
        self.identity.broker_epoch = NO_BROKER_EPOCH

    def turn(self, *, serves_writes: bool) -> None:
        """Let messages of the store arrive until the process writes or has nothing to do.

        With `serves_writes`, the store applies the writes, too.
        """
        session, loop = self.session, self._loop
        if self.is_paused:
            return
        for _ in range(_MOST_CALLS):
            loop.run_ready()
            if session.notices:
                session.deliver()
            elif session.next_call is None or (session.writes and not serves_writes):
                return
            else:
                session.serve()
        raise RuntimeError(f"broker {self.broker_id} asks the store without end")

    @property
    def has_turn(self) -> bool:
        """Whether a message of the store is on its way, in either direction."""
        session = self.session
        return (
            self.is_up
            and not self.is_paused
            and bool(session.notices or (session.next_call is not None and not session.writes))
        )
