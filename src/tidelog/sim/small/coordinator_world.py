"""The small world of a coordinator: two brokers, the partition they lead in turn, and its tenant.

The world works with any kind of coordinator. A tenant (`CoordinatorTenant`) has the coordinators
under test, the clients and the reference. The kinds of steps here concern the brokers, the
partition and time; a tenant registers its clients' steps in the same table. A step is a plain
value, so that a history can be repeated from its steps alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from tidelog.broker.cluster_view import ClusterView, PartitionView, TopicView
from tidelog.broker.coordinators.runtime import CoordinatorRuntime
from tidelog.core.config import BrokerConfig
from tidelog.core.coordinator_shard import CoordinatorPhase
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.sim.small.coordinated_partition import (
    ListedBatch,
    ListedReplica,
    PartitionRegister,
)
from tidelog.sim.small.coordinator_process import (
    CoordinatorClock,
    CoordinatorServices,
    SteppedLoop,
)

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services

Step = tuple[str | int, ...]
Arguments = tuple[str | int, ...]

_TOPIC_ID: Final = b"O" * 16
_READ_ID: Final = b"R" * 16
#: The topics that clients read, with their numbers of partitions.
READ_TOPICS: Final = {"t": 2, "u": 1}
#: Milliseconds after which the coordinator responds that an append is late.
APPEND_TIMEOUT_MS: Final = 5_000
#: Milliseconds after which expired state is looked for.
EXPIRY_CHECK_MS: Final = 100_000
RETENTION_MINUTES: Final = 10
#: After these rounds, every session and every retention has ended long ago.
_RECOVERY_ROUNDS: Final = 9
_RECOVERY_ROUND_MS: Final = 200_000


class CoordinatorSettings(NamedTuple):
    """The settings of a history, which are drawn before its first step."""

    #: `min.insync.replicas` of the internal topic.
    minimum: int
    #: Maximum number of bytes of the log that a loading coordinator reads at once.
    load_buffer_bytes: int
    initial_delay_ms: int
    #: By client: its settings, as the tenant draws them.
    clients: tuple[tuple[str | int, ...], ...]
    #: The names of the faults that happen.
    faults: tuple[str, ...]
    length: int


class CoordinatorTenant(Protocol):
    """A kind of coordinator with its clients, and the rules that both must keep."""

    #: The internal topic.
    topic: str
    #: Name of the event that a coordinator reports when its load ends.
    loaded_event: str

    def runtime(self, services: Services, broker: CoordinatorBroker) -> CoordinatorRuntime[Any]:
        """Return the coordinators of a broker that starts."""

    def appended(self, broker: CoordinatorBroker, batch: ListedBatch) -> None:
        """Check a batch that a coordinator appends."""

    def committed(self, batch: ListedBatch) -> None:
        """Note that a batch is committed."""

    def loaded(self, broker: CoordinatorBroker) -> None:
        """Check the state of a coordinator whose load has ended."""

    def ended(self, broker: CoordinatorBroker) -> None:
        """Note that a broker's coordinator has ended, or has died if the broker is down."""

    def settled(self, broker: CoordinatorBroker) -> None:
        """Check a coordinator whenever its loop has nothing to do."""

    def status(self) -> dict[str, str]:
        """Return the state of the history as texts, each under the name of a broker or request."""

    def recovered(self) -> None:
        """Check the end of a history: all faults have ended long ago, and no client has acted."""


class CoordinatorBroker:
    """A broker: its replica, and its coordinators while it is up."""

    def __init__(self, broker_id: int, replica: ListedReplica) -> None:
        self.broker_id = broker_id
        self.replica = replica
        self.life = 0
        self.is_up = False
        self.runtime: CoordinatorRuntime[Any] | None = None
        self.services: CoordinatorServices | None = None
        #: Commands of the controller that the broker has not obeyed: leader and leader epoch.
        self.inbox: list[tuple[int, int]] = []
        self.known_epoch = -1
        #: Number of leaderships that the broker's processes have taken.
        self.terms = 0
        #: Number of times at which the ISR fell below the minimum.
        self.shortages = 0
        #: Whether the broker is the coordinator, and whether its load has ended.
        self.coordinates = self.is_loaded = False

    @property
    def troubles(self) -> int:
        """Number of events for which requests may get errors: refused appends, ISR shortages."""
        return self.shortages + self.replica.refusals

    @property
    def partition(self) -> Partition:
        """The replica as the partition that coordinators use."""
        return cast("Partition", self.replica)

    @property
    def shard(self) -> Any:
        """The coordinator's decisions; None if the broker coordinates nothing."""
        led = self.runtime.led() if self.runtime is not None else []
        return led[0].shard if led else None

    @property
    def is_active(self) -> bool:
        """Whether the coordinator takes requests."""
        shard = self.shard
        return shard is not None and shard.phase is CoordinatorPhase.ACTIVE


@lru_cache(maxsize=64)
def _config(broker_id: int, load_buffer_bytes: int, initial_delay_ms: int) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "broker.id": str(broker_id),
            "log.dirs": "/data",
            "group.initial.rebalance.delay.ms": str(initial_delay_ms),
            "offsets.commit.timeout.ms": str(APPEND_TIMEOUT_MS),
            "offsets.load.buffer.size": str(load_buffer_bytes),
            "offsets.retention.minutes": str(RETENTION_MINUTES),
            "offsets.retention.check.interval.ms": str(EXPIRY_CHECK_MS),
        }
    )


def _view(topic: str) -> ClusterView:
    view = ClusterView()
    partition = PartitionView(1, 0, (1, 2), (1, 2), (), 0)
    view.topics = {topic: TopicView(topic, _TOPIC_ID, {0: partition})}
    for name, count in READ_TOPICS.items():
        view.topics[name] = TopicView(name, _READ_ID, dict.fromkeys(range(count), partition))
    return view


class CoordinatorWorld:
    """The whole state of one history between two steps."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        tenant_of: Callable[[CoordinatorWorld], CoordinatorTenant],
    ) -> None:
        self.settings = settings
        self.violation = ""
        self.clock = CoordinatorClock()
        self.loop = SteppedLoop()  # type: ignore[abstract]  # what Tasks use
        #: Whether the loop runs callbacks only in the step `turn`.
        self.is_busy = False
        self.register = PartitionRegister(settings.minimum)
        self.tenant = tenant_of(self)
        self.view = _view(self.tenant.topic)
        self.brokers: dict[int, CoordinatorBroker] = {}
        for broker_id in (1, 2):
            self.brokers[broker_id] = self._broker(broker_id)
        for broker in self.brokers.values():
            self.start(broker)
            self.obey(broker, 0)
        self.turn()

    def _broker(self, broker_id: int) -> CoordinatorBroker:
        replica = ListedReplica(
            broker_id,
            TopicPartition(self.tenant.topic, 0),
            self.register,
            lambda batch: self.tenant.appended(self.brokers[broker_id], batch),
            self.tenant.committed,
        )
        return CoordinatorBroker(broker_id, replica)

    def violate(self, what: str) -> None:
        """Note the first rule that the history breaks."""
        if not self.violation:
            self.violation = what

    def up(self) -> list[CoordinatorBroker]:
        """Return the brokers that run."""
        return [broker for broker in self.brokers.values() if broker.is_up]

    def is_registered_leader(self, broker: CoordinatorBroker) -> bool:
        """Return whether a broker leads under the newest leader epoch."""
        register = self.register
        return (
            broker.is_up
            and broker.coordinates
            and register.leader == broker.broker_id
            and broker.replica.leader_epoch == register.leader_epoch
        )

    # Events of brokers.

    def start(self, broker: CoordinatorBroker) -> None:
        """Start a broker's process; the controller sends it the published state."""
        broker.life += 1
        broker.is_up = True
        broker.known_epoch = -1
        settings = self.settings
        services = CoordinatorServices(
            broker.broker_id,
            broker.life,
            _config(broker.broker_id, settings.load_buffer_bytes, settings.initial_delay_ms),
            self.view,
            self.loop,
            self.clock,
            lambda name, _: self._event(broker, name),
            lambda where, error: self.violate(f"{where}: {type(error).__name__}: {error}"),
        )
        broker.services = services
        broker.runtime = self.tenant.runtime(cast("Services", services), broker)
        broker.inbox = [(self.register.leader, self.register.leader_epoch)]

    def _event(self, broker: CoordinatorBroker, name: str) -> None:
        if name == self.tenant.loaded_event:
            broker.is_loaded = True
            self.tenant.loaded(broker)

    def obey(self, broker: CoordinatorBroker, number: int) -> None:
        """Let a command arrive at a broker, which ignores it unless its leader epoch is new."""
        leader, leader_epoch = broker.inbox.pop(number)
        if leader_epoch <= broker.known_epoch:
            return
        replica = broker.replica
        if replica.is_leader:
            self.end_role(broker)
        broker.known_epoch = replica.leader_epoch = leader_epoch
        if leader != broker.broker_id:
            return
        replica.is_leader = True
        replica.fetched_end = -1
        broker.coordinates, broker.is_loaded = True, False
        broker.terms += 1
        assert broker.runtime is not None, "a broker that runs has coordinators"
        broker.runtime.role_taken(broker.partition, leader_epoch)
        replica.advance()

    def end_role(self, broker: CoordinatorBroker) -> None:
        """End a broker's leadership, in the order of `LeaderRole.end`."""
        replica = broker.replica
        assert broker.runtime is not None, "a broker that runs has coordinators"
        broker.runtime.role_ended(broker.partition)
        replica.is_leader = False
        while replica.unwritten:
            replica.write()
        replica.watchers.leadership_lost(replica.topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker.coordinates = broker.is_loaded = False
        self.tenant.ended(broker)

    def crash(self, broker: CoordinatorBroker) -> None:
        """End a broker's process; its log stays."""
        assert broker.services is not None, "a broker that runs has services"
        broker.services.tasks.spawn("end of the process", broker.services.tasks.close())
        self.loop.turn()
        broker.services.serving_timers.close()
        broker.is_up = broker.coordinates = broker.is_loaded = False
        former = broker.replica
        fresh = self._broker(broker.broker_id).replica
        fresh.batches, fresh.compacted = former.batches, former.compacted
        fresh.high_watermark = min(former.high_watermark, fresh.log_end_offset)
        former.is_leader = False
        broker.replica = fresh
        broker.runtime = None
        broker.inbox.clear()
        self.tenant.ended(broker)

    def elect(self, leader: int) -> None:
        """Let the controller make a broker the leader, under a new leader epoch."""
        self.register.leader = leader
        self.register.leader_epoch += 1
        for broker in self.up():
            broker.inbox.append((leader, self.register.leader_epoch))

    def set_isr(self, isr: tuple[int, ...]) -> None:
        """Publish another ISR, which the leader learns at once."""
        self.register.isr = isr
        leader = self.brokers[self.register.leader]
        if not self.is_registered_leader(leader):
            return
        if len(isr) < self.register.minimum:
            leader.shortages += 1
            leader.replica.watchers.isr_below_minimum("the ISR is below the minimum")
        leader.replica.advance()

    # Time and turns.

    def turn(self) -> None:
        """Run everything that waits for a turn of the loop."""
        self.loop.turn()
        for error in self.loop.errors:
            self.violate(f"{type(error).__name__}: {error}")
        for broker in self.up():
            if broker.coordinates:
                self.tenant.settled(broker)

    def wait(self, delay_ms: int) -> None:
        """Let time pass; timers fire in their order, each with a turn of the loop."""
        self.clock.pass_to(self.clock.now_ms + delay_ms, self.turn)

    def play(self, step: Step) -> bool:
        """Play a step; return False if the step is not possible now."""
        kind = COORDINATOR_STEPS[str(step[0])]
        if step[1:] not in kind.options(self):
            return False
        self.apply(kind, step[1:])
        return True

    def apply(self, kind: CoordinatorStepKind, arguments: Arguments) -> None:
        """Play a possible step; an assertion of the code under test that fails is a violation."""
        try:
            kind.act(self, *arguments)
            if not self.is_busy:
                self.turn()
        except AssertionError as error:
            self.violate(f"an assertion failed: {error}")
        except Exception as error:
            self.violate(f"{type(error).__name__}: {error}")

    def recover(self) -> None:
        """End all faults and let all clients be silent for long; then the tenant checks the end."""
        self.is_busy = False
        self.clock.jump_ms = self.clock.latest_jump_ms
        for broker in self.brokers.values():
            if not broker.is_up:
                self.start(broker)
            broker.replica.hurry()
        for broker in self.brokers.values():
            while broker.inbox:
                self.obey(broker, 0)
        self.turn()
        leader = self.brokers[self.register.leader]
        for _ in range(_RECOVERY_ROUNDS):
            self._catch_up(leader)
            self.wait(_RECOVERY_ROUND_MS)
        self._catch_up(leader)
        self.tenant.recovered()

    def _catch_up(self, leader: CoordinatorBroker) -> None:
        follower = self.brokers[3 - leader.broker_id].replica
        for _ in range(200):
            follower.copy_from(leader.replica)
            self.turn()
            if follower.log_end_offset == leader.replica.log_end_offset:
                break
        self.set_isr((1, 2))
        self.turn()

    def close(self) -> None:
        """End the tasks of all brokers, so that none is destroyed while it waits."""
        for broker in self.up():
            if broker.services is not None:
                broker.services.tasks.spawn("end of the process", broker.services.tasks.close())
        self.loop.turn()


class CoordinatorStepKind(NamedTuple):
    """A kind of steps, such as a join of a client or the election of a leader."""

    name: str
    #: How often a step of this kind is drawn, relative to other kinds.
    weight: int
    #: The fault that a history must have for this kind; "" if every history has the kind.
    fault: str
    options: Callable[[Any], list[Arguments]]
    act: Callable[..., None]
    #: A sentence for a step of this kind; {0}, {1} and {2} stand for the step's arguments.
    words: str


#: All kinds of steps by name.
COORDINATOR_STEPS: Final[dict[str, CoordinatorStepKind]] = {}

Act = Callable[..., None]


def coordinator_step(
    name: str,
    weight: int,
    options: Callable[[Any], Iterable[Arguments]],
    words: str,
    fault: str = "",
) -> Callable[[Act], Act]:
    """Register the decorated function as a kind of steps."""

    def register(act: Act) -> Act:
        COORDINATOR_STEPS[name] = CoordinatorStepKind(
            name, weight, fault, lambda world: list(options(world)), act, words
        )
        return act

    return register


def in_words(step: Step) -> str:
    """Return the sentence that describes a step."""
    return COORDINATOR_STEPS[str(step[0])].words.format(*step[1:])


def ids(brokers: Iterable[CoordinatorBroker]) -> list[Arguments]:
    """Return the possible arguments of a step at one broker: each broker's id, as a tuple."""
    return [(broker.broker_id,) for broker in brokers]


def refusing(code: ErrorCode) -> KafkaError:
    """Return the error of a log that refuses an append."""
    return KafkaError(code)
