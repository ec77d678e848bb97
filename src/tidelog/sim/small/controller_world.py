"""The state of the small world of controllers: store, controllers, brokers, messages on their way.

Two brokers run a real controller each (`controller_host`). All brokers are scripts otherwise
(`controller_broker`). The modules `controller_*_steps` have the kinds of steps, which `step_kind`
registers here. A history is a list of steps, so the same steps lead to the same state again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    BrokerInfo,
    Endpoint,
    PartitionState,
    TopicId,
    TopicPartition,
)
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import Create, Op
from tidelog.metadata.tree import Change, Tree
from tidelog.sim.seeds import stream
from tidelog.sim.small.controller_broker import ScriptedBroker, SmallRecordId, SmallReplica
from tidelog.sim.small.controller_host import CommandFrame, ControllerHost
from tidelog.sim.small.controller_reference import ControllerReference
from tidelog.sim.small.small_process import SteppedClock
from tidelog.sim.small.stepped_loop import ReadyLoop
from tidelog.sim.small.stepped_store import SteppedStore

Arguments = tuple[str | int, ...]
#: A step: its kind and its arguments.
ControllerStep = tuple[str | int, ...]
#: Brokers that run a controller.
HOSTS: Final = (1, 2)
#: The topic that exists when a history begins.
FIRST_TOPIC: Final = "t0"


@dataclass(frozen=True, slots=True)
class ControllerHistorySettings:
    """Settings of a history."""

    brokers: tuple[int, ...]
    #: Replicas of each partition of the first topic.
    first: tuple[tuple[int, ...], ...]
    minimum: int
    unclean: bool
    linger_ms: int
    #: Whether the store applies writes as soon as a controller makes them.
    eager: bool
    faults: tuple[str, ...]
    length: int


@dataclass(slots=True, eq=False)
class BrokerRequest:
    """A request of a broker to the controller, on its way."""

    sender: int
    #: Number of the sender's process.
    process: int
    what: str
    ask: Callable[[ControllerHost, Callable[[], Any]], Any]
    answered: Callable[[Any], None]


@dataclass(slots=True, eq=False)
class AdminRequest:
    """A request of an administrator."""

    what: str
    host: ControllerHost
    #: The response; None before it arrives.
    response: Any = None
    #: Whether a broker that is not the controller refused the request.
    is_refused: bool = False
    #: Called with the response, which it checks.
    check: Callable[[Any], None] | None = None


class ControllerWorld:
    """The state of a history."""

    def __init__(
        self,
        settings: ControllerHistorySettings,
        seed: int,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings
        self.seed = seed
        self.say = say
        self.loop = ReadyLoop()  # type: ignore[abstract]  # what tasks use
        self.clock = SteppedClock()
        self.clock.on_fired = self.loop.run_ready
        self.store = SteppedStore(_first_tree().copy(), self._committed)
        self.reference = ControllerReference(self)
        self._processes = 0
        self._serials = 0
        #: All broker epochs that a broker ever had.
        self.epochs: dict[int, set[int]] = {each: set() for each in settings.brokers}
        #: Topics for which unclean elections are, or were, allowed.
        self.unclean_topics: set[str] = set()
        #: The least minimum that a topic ever had.
        self.least_minimums: dict[str, int] = {}
        self.brokers = {
            each: ScriptedBroker(each, self._created_empty) for each in settings.brokers
        }
        self.processes = dict.fromkeys(settings.brokers, 0)
        self.hosts: dict[int, ControllerHost] = {}
        self.frames: dict[int, list[CommandFrame]] = {each: [] for each in settings.brokers}
        self.requests: list[BrokerRequest] = []
        self.answers: list[tuple[BrokerRequest, Any]] = []
        self.admin_requests: list[AdminRequest] = []
        #: Kinds of steps that have happened.
        self.done: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        for each in self.settings.brokers:
            if each in HOSTS:
                self.new_host(each)
            self.register(each)
        for host in self.hosts.values():
            host.start(self.brokers[host.broker_id].broker_epoch)
        self.place_topic(FIRST_TOPIC, self.settings.first)
        self.hosts[HOSTS[0]].turn(serves_writes=True)
        self.hosts[HOSTS[1]].turn(serves_writes=True)
        self.deliver_everything()

    def place_topic(self, name: str, assignments: Sequence[tuple[int, ...]]) -> None:
        """Create a topic with published states, as if an earlier controller had created it."""
        topic_id = stream(self.seed, "topic", name).randbytes(16)
        self.topic_made(name)
        partitions = dict(enumerate(assignments))
        ops: list[Op] = [
            Create(
                layout.topic_path(name),
                layout.encode_topic(TopicAssignment(topic_id, partitions)),
            ),
            Create(layout.topic_partitions_path(name), b""),
        ]
        for number, replicas in partitions.items():
            topic_partition = TopicPartition(name, number)
            # Neither leader nor ISR are in the order of the assignment, as after some failovers.
            isr = tuple(sorted(replicas))
            epochs = tuple(self.brokers[each].broker_epoch for each in isr)
            state = PartitionState(isr[0], 0, isr, 0, isr_epochs=epochs)
            data = layout.encode_partition_state(state)
            ops.append(Create(layout.partition_path(topic_partition), b""))
            ops.append(Create(layout.partition_state_path(topic_partition), data))
            for each in replicas:
                self.brokers[each].replicas[topic_partition] = SmallReplica(topic_id)
        self.store.commit(ops, 0)

    def topic_made(self, name: str) -> None:
        """Note the configuration with which a topic begins."""
        known = self.least_minimums.get(name, self.settings.minimum)
        self.least_minimums[name] = min(known, self.settings.minimum)
        if self.settings.unclean:
            self.unclean_topics.add(name)

    # processes and sessions

    def new_host(self, broker_id: int) -> None:
        """Start a broker's process, which runs a controller, without a registration."""
        self._processes += 1
        settings = self.settings
        self.hosts[broker_id] = ControllerHost(
            broker_id,
            self,
            self.loop,
            self.clock,
            self.store,
            stream(self.seed, "host", self._processes),
            minimum=settings.minimum,
            unclean=settings.unclean,
            linger_ms=settings.linger_ms,
            say=self.say,
        )

    def register(self, broker_id: int) -> None:
        """Register a broker under a new session."""
        broker = self.brokers[broker_id]
        host = self.hosts.get(broker_id)
        session_id = self.store.begin_session() if host is None else host.session.renew()
        info = BrokerInfo(
            broker_id,
            NO_BROKER_EPOCH,
            (Endpoint("PLAINTEXT", f"broker{broker_id}", 9092),),
            previous_broker_epoch=broker.clean_epochs.last,
            earlier_broker_epochs=broker.clean_epochs.earlier,
            reports_log_ends=True,
        )
        path = layout.broker_path(broker_id)
        create = Create(path, layout.encode_broker(info, 0), ephemeral=True)
        self.epochs[broker_id].add(self.store.tree.zxid + 1)
        [result] = self.store.commit([create], session_id)
        assert result.stat is not None, "a created node has a stat"
        broker.session_id = session_id
        broker.registered(result.stat.czxid)

    def registered_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's registration in the store; -1 without one."""
        node = self.store.tree.get(layout.broker_path(broker_id))
        return NO_BROKER_EPOCH if node is None else node.stat.czxid

    def registered(self) -> list[ScriptedBroker]:
        """Return the brokers that are up and know their registration in the store."""
        return [
            broker
            for broker in self.brokers.values()
            if broker.is_up
            and broker.broker_epoch == self.registered_epoch(broker.broker_id) != NO_BROKER_EPOCH
        ]

    def up(self) -> list[ScriptedBroker]:
        """Return the brokers whose process runs."""
        return [broker for broker in self.brokers.values() if broker.is_up]

    def live_hosts(self) -> list[ControllerHost]:
        """Return the running processes with a controller."""
        return [host for host in self.hosts.values() if host.is_up]

    # logs

    def log(
        self, broker_id: int, topic_partition: TopicPartition, topic_id: TopicId
    ) -> list[SmallRecordId]:
        """Return a broker's log of a partition; an empty list if the broker has none."""
        broker = self.brokers[broker_id]
        for replicas in (broker.replicas, broker.offline):
            replica = replicas.get(topic_partition)
            if replica is not None and replica.topic_id == topic_id:
                return replica.log
        return []

    def append(self, replica: SmallReplica) -> None:
        """Append a record to a leader's log."""
        self._serials += 1
        replica.log.append(SmallRecordId(replica.leader_epoch, self._serials))

    def advance(self, broker_id: int, topic_partition: TopicPartition) -> None:
        """Let a leader's high watermark rise as far as it may (V60, A8, E1)."""
        broker = self.brokers[broker_id]
        replica = broker.replicas[topic_partition]
        if not replica.leads(broker_id) or broker.broker_epoch == NO_BROKER_EPOCH:
            return
        minimum = self.effective_minimum(topic_partition, replica)
        if len(replica.isr) < minimum or replica.has_eligible:
            return
        ends = [len(replica.log)]
        ends += [
            replica.fetched.get(member, (0, 0))[1]
            for member in replica.maximal_isr()
            if member != broker_id
        ]
        if min(ends) > replica.high_watermark:
            replica.high_watermark = min(ends)
            key = (replica.topic_id, topic_partition.partition)
            records = replica.log[: replica.high_watermark]
            self.reference.commit(key, replica.leader_epoch, records)

    def effective_minimum(self, topic_partition: TopicPartition, replica: SmallReplica) -> int:
        """Return the effective minimum by which a leader commits."""
        assert replica.state is not None, "a leader has a role"
        minimum = self.settings.minimum
        path = layout.config_path("topics", topic_partition.topic)
        node = self.store.tree.get(path)
        if node is not None and node.data:
            own = layout.decode_config(path, node.data).get("min.insync.replicas")
            minimum = minimum if own is None else int(own)
        return min(minimum, len(replica.state.replicas))

    def _created_empty(
        self, broker: ScriptedBroker, topic_partition: TopicPartition, topic_id: TopicId, state: Any
    ) -> None:
        names = {topic.topic_id: name for name, topic in self.reference.topics.items()}
        self.reference.replica_created(broker.broker_id, topic_id, state, names)

    # messages

    def sent(self, frame: CommandFrame) -> None:
        """Take a command that a controller sends."""
        self.reference.check_command(frame)
        self.frames[frame.link.broker_id].append(frame)

    def obey(self, broker_id: int, frame: CommandFrame) -> None:
        """Let a command arrive at a broker, and the response at the controller."""
        self.frames[broker_id].remove(frame)
        broker = self.brokers[broker_id]
        if not broker.is_up:
            frame.link.close("refused")
            return
        response = broker.obey(frame.message, frame.controller_epoch, frame.number)
        if broker.unknown_leader:
            self.reference.violate(f"V17: broker {broker_id} does not know the leader's broker")
        if response is None:
            frame.link.close("overtaken")
        else:
            frame.link.respond(frame, response)

    def deliverable(self, broker_id: int) -> list[int]:
        """Return the places of the commands that may arrive next: the first of each connection."""
        links: dict[int, int] = {}
        for place, frame in enumerate(self.frames[broker_id]):
            links.setdefault(id(frame.link), place)
        return list(links.values())

    def deliver_everything(self) -> bool:
        """Let all commands arrive in order; return whether there were any."""
        found = False
        for broker_id, frames in self.frames.items():
            while frames:
                self.obey(broker_id, frames[0])
                self.loop.run_ready()
                found = True
        return found

    def ask_admin(
        self,
        host: ControllerHost,
        what: str,
        ask: Callable[[Callable[[], Any]], Any],
        check: Callable[[Any], None] | None = None,
    ) -> None:
        """Send an administrator's request to a broker; `check` gets the response."""
        request = AdminRequest(what, host, check=check)
        self.admin_requests.append(request)

        def refusal() -> None:
            request.is_refused = True

        answer = ask(refusal)
        if answer is not None:
            answer.deliver_to(partial(_admin_answered, request))

    def _committed(self, session_id: int, ops: Sequence[Op], changes: Sequence[Change]) -> None:
        host = next(
            (each for each in self.hosts.values() if each.session.session_id == session_id), None
        )
        is_script = session_id == 0 or all(op.path.startswith(layout.BROKER_IDS) for op in ops)
        if is_script:
            host = None
        self.reference.committed_write(host, ops, changes)

    # steps

    def play(self, step: ControllerStep) -> bool:
        """Play a step; return False if it is not possible."""
        kind = CONTROLLER_STEPS[str(step[0])]
        arguments = step[1:]
        if arguments not in kind.options(self):
            return False
        self.apply(kind, arguments)
        return True

    def apply(self, kind: ControllerStepKind, arguments: Arguments) -> None:
        """Play a possible step, and check what must hold after it."""
        self.done.add(kind.name)
        kind.act(self, *arguments)
        self.loop.run_ready()
        if self.settings.eager:
            for host in self.live_hosts():
                host.turn(serves_writes=True)
        for host in self.hosts.values():
            if host.failures:
                self.reference.violate(f"failed: broker {host.broker_id}: {host.failures[0]}")
        if self.loop.errors:
            self.reference.violate(f"failed: {self.loop.errors[0]!r}")


def _admin_answered(request: AdminRequest, response: Any) -> None:
    if not request.is_refused:
        request.response = response
        if request.check is not None:
            request.check(response)


_trees: list[Tree] = []


def _first_tree() -> Tree:
    """Return the tree of a new store, which has only the persistent root nodes."""
    if not _trees:
        tree = Tree()
        for path in layout.PERSISTENT_ROOTS:
            tree.transact([Create(path, b"")], 0)
        _trees.append(tree)
    return _trees[0]


class ControllerStepKind(NamedTuple):
    """A kind of steps."""

    name: str
    weight: float
    #: Histories whose settings lack the fault have no step of this kind; "" for no fault.
    fault: str
    options: Callable[[ControllerWorld], Iterable[Arguments]]
    act: Callable[..., None]
    words: str


#: All kinds of steps by name.
CONTROLLER_STEPS: Final[dict[str, ControllerStepKind]] = {}

_Act = Callable[..., None]


def controller_step(
    name: str,
    weight: float,
    options: Callable[[ControllerWorld], Iterable[Arguments]],
    words: str,
    fault: str = "",
) -> Callable[[_Act], _Act]:
    """Register the decorated function as a kind of steps."""

    def register(act: _Act) -> _Act:
        CONTROLLER_STEPS[name] = ControllerStepKind(name, weight, fault, options, act, words)
        return act

    return register


def step_in_words(step: ControllerStep) -> str:
    """Return the sentence that describes a step."""
    return CONTROLLER_STEPS[str(step[0])].words.format(*step[1:])
