"""The small world of one partition's leader and followers: its state, and the kinds of its steps.

The world has brokers, connections between followers and leaders, AlterPartition requests and their
responses, and published state. Each event is one step, of a kind in the table `STEP_KINDS`. A step
is a plain value, so that a history is a list of steps, and can be repeated, shortened and
enumerated. Messages arrive late, in any order across connections, twice, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tidelog.replication.isr import IsrChange
from tidelog.replication.leader import LeaderReplica
from tidelog.replication.pending_reads import PendingRead, PendingReads
from tidelog.sim.small.replica_set_brokers import SmallBroker
from tidelog.sim.small.replica_set_reference import ReplicaSetReference
from tidelog.sim.small.replica_set_register import PublishedRegister
from tidelog.sim.small.replica_set_values import (
    SOCKET_TIMEOUT_MS,
    ReplicaSetSettings,
    SmallCommand,
    SmallFetch,
    SmallRequest,
    SmallResponse,
    SmallVerdict,
    Step,
)


class UnderwayRead(NamedTuple):
    """A read from the leader's disk that is under way for a fetch, with the response that the
    leader sends after the read.
    """

    number: int
    read: PendingRead
    role: LeaderReplica
    response: SmallResponse
    #: Whether the leader still responds to the fetch; if not, the end of the read has no effect but
    #: to end the pending read.
    is_awaited: bool = True


class SmallConnection:
    """A follower's connection to a leader, with at most one fetch in flight."""

    __slots__ = (
        "is_noticed",
        "is_open",
        "is_waiting",
        "leader",
        "name",
        "reading",
        "reads",
        "requests",
        "responses",
    )

    def __init__(self, name: tuple[int, int], leader: int) -> None:
        #: The id of the follower, and the number of the connection among the follower's
        #: connections.
        self.name = name
        self.leader = leader
        self.requests: list[SmallFetch] = []
        self.responses: list[SmallResponse] = []
        self.reads = PendingReads(SOCKET_TIMEOUT_MS)
        self.reading: UnderwayRead | None = None
        #: Whether the follower's end of the connection is open. `is_noticed` says whether the
        #: leader knows that this end is closed.
        self.is_open = True
        self.is_noticed = False
        #: Whether the follower awaits a response.
        self.is_waiting = False


class ReplicaSetWorld:
    """The whole state of one history between two steps."""

    __slots__ = (
        "brokers",
        "connections",
        "dialled",
        "examined_ms",
        "fetching",
        "now_ms",
        "numbers",
        "reference",
        "register",
        "requests",
        "settings",
        "values",
        "verdicts",
    )

    def __init__(self, settings: ReplicaSetSettings) -> None:
        self.settings = settings
        self.register = PublishedRegister(settings.replicas, settings.minimum, settings.first_isr)
        self.reference = ReplicaSetReference(settings)
        live = self.register.live
        self.brokers: dict[int, SmallBroker] = {
            replica: SmallBroker(replica, live[replica], settings) for replica in settings.replicas
        }
        #: The connections by their names. `dialled` is the number of connections that each broker
        #: has opened.
        self.connections: dict[tuple[int, int], SmallConnection] = {}
        self.dialled: dict[int, int] = dict.fromkeys(settings.replicas, 0)
        self.now_ms = 0
        self.examined_ms = 0
        #: Broker id of the follower whose fetch arrives in this step; 0 in other steps.
        self.fetching = 0
        #: Number of AlterPartition requests that were sent; `values` is the number of records that
        #: were written.
        self.numbers = 0
        self.values = 0
        self.requests: list[SmallRequest] = []
        self.verdicts: list[SmallVerdict] = []
        for broker in self.brokers.values():
            self.obey(broker, self.register.command())

    def copy(self) -> ReplicaSetWorld:
        """Return an independent copy."""
        other = ReplicaSetWorld.__new__(ReplicaSetWorld)
        other.settings, other.now_ms, other.fetching = self.settings, self.now_ms, 0
        other.examined_ms, other.numbers, other.values = (
            self.examined_ms,
            self.numbers,
            self.values,
        )
        other.register, other.reference = self.register.copy(), self.reference.copy()
        reads: dict[int, PendingReads] = {}
        other.brokers = {number: each.copy(reads) for number, each in self.brokers.items()}
        other.connections = {}
        for name, each in self.connections.items():
            copied = SmallConnection(name, each.leader)
            copied.requests, copied.responses = each.requests.copy(), each.responses.copy()
            copied.reads = reads.get(id(each.reads)) or each.reads.copy()
            copied.is_open, copied.is_noticed = each.is_open, each.is_noticed
            copied.is_waiting = each.is_waiting
            if each.reading is not None:
                role = each.reading.role
                leader = self.brokers[each.leader]
                if leader.role is role:
                    copied_role = other.brokers[each.leader].leading
                    assert copied_role is not None, "a copy has the same role"
                    role = copied_role
                copied.reading = each.reading._replace(role=role)
            other.connections[name] = copied
        other.dialled = dict(self.dialled)
        other.requests, other.verdicts = self.requests.copy(), self.verdicts.copy()
        return other

    def key(self) -> tuple[object, ...]:
        """Return the state on which the rest of the history depends, as a hashable value."""
        return (
            tuple(broker.key() for broker in self.brokers.values()),
            self.register.key(),
            self.reference.key(),
            self.now_ms,
            tuple(self.requests),
            tuple(self.verdicts),
            tuple(
                (
                    each.name,
                    tuple(each.requests),
                    tuple(each.responses),
                    None if each.reading is None else each.reading[1::2],
                    (each.is_open, each.is_noticed, each.is_waiting),
                )
                for each in self.connections.values()
            ),
        )

    # steps

    def options(self, kind: str) -> list[Step]:
        """Return the steps of a kind that are possible now."""
        return [(kind, *arguments) for arguments in STEP_KINDS[kind].options(self)]

    def play(self, step: Step) -> bool:
        """Play a step, and check the rules after it; return False if the step is not possible."""
        kind = STEP_KINDS[str(step[0])]
        arguments = step[1:]
        if arguments not in kind.options(self):
            return False
        self.apply(kind, arguments)
        return True

    def apply(self, kind: SmallStepKind, arguments: tuple[str | int, ...]) -> None:
        """Play a step that is possible; an assertion that fails in the code under test is a
        violation, too.
        """
        try:
            kind.act(self, *arguments)
        except AssertionError as error:
            self.reference.violate(f"an assertion failed: {error}")
        except Exception as error:
            # In a broker, any error of a decision that its callers do not expect would stop the
            # broker.
            self.reference.violate(f"{type(error).__name__}: {error}")
        else:
            self.reference.after_step(self.brokers, self.register, self.requests, self.now_ms)

    def status(self) -> dict[str, str]:
        """Return the published state and each broker's state as text."""
        state = self.register.state
        published = (
            f"leader {state.leader}, epochs {state.leader_epoch} and {state.partition_epoch},"
            f" ISR {list(state.isr)}"
        )
        if state.elr:
            published += f", eligible {[member for member, _ in state.elr]}"
        brokers = {f"broker {each.broker_id}": str(each) for each in self.brokers.values()}
        return {"published": published, **brokers}

    # what several kinds of steps share

    def up(self) -> Iterable[SmallBroker]:
        """Return the brokers that run."""
        return [broker for broker in self.brokers.values() if broker.is_up]

    def leaders(self) -> list[SmallBroker]:
        """Return the brokers that lead, or believe that they lead."""
        return [broker for broker in self.brokers.values() if broker.leading is not None]

    def obey(self, broker: SmallBroker, command: SmallCommand) -> None:
        """Let a broker execute a LeaderAndIsr command, and check the role that the broker takes."""
        former, wanted = broker.role, self.wanted(broker)
        broker.obey(command, self.now_ms)
        if broker.role is not former:
            if broker.leading is None:
                self.reference.leadership_ends(broker.broker_id)
            else:
                self.reference.leadership_begins(broker, self.now_ms)
                self.reference.led(broker, self.register)
                broker.examine(self.now_ms)
            self.hang_up_on_others(broker)
        self.settle(broker, wanted)

    def hang_up_on_others(self, broker: SmallBroker) -> None:
        """Close a follower's connections to brokers that it does not follow."""
        role = broker.following
        for connection in self.connections.values():
            is_mine = connection.name[0] == broker.broker_id and connection.is_open
            if is_mine and (role is None or role.leader != connection.leader):
                self.close(connection)

    def close(self, connection: SmallConnection) -> None:
        """Close the follower's end of a connection; fetches that the follower sent may still
        arrive.
        """
        connection.is_open = connection.is_waiting = False
        connection.responses.clear()

    def wanted(self, broker: SmallBroker) -> IsrChange | None:
        """Return the leader's ISR change that waits to be sent, for a later call of `settle`."""
        return None if broker.leading is None else broker.leading.isr.queued

    def settle(self, broker: SmallBroker, wanted: IsrChange | None) -> None:
        """Check the ISR change that a leader proposes now, if it differs from `wanted`."""
        role = broker.leading
        if role is None or role.isr.queued is None or role.isr.queued is wanted:
            return
        change = role.isr.queued
        self.reference.proposed(
            broker, change, self.brokers, self.register, self.fetching, self.now_ms
        )

    def publish(self) -> None:
        """Send LeaderAndIsr commands with the published state to every broker that runs."""
        for broker in self.up():
            broker.inbox.append(self.register.command())

    def connection_of(self, follower: int) -> SmallConnection | None:
        """Return the open connection of a follower."""
        connection = self.connections.get((follower, self.dialled[follower]))
        return connection if connection is not None and connection.is_open else None


Arguments = tuple[str | int, ...]


def broker_ids(brokers: Iterable[SmallBroker]) -> list[Arguments]:
    """Return the possible arguments of a step at one broker: each broker's id, as a tuple."""
    return [(broker.broker_id,) for broker in brokers]


class SmallStepKind(NamedTuple):
    """A kind of steps of the small world, such as a fetch or a crash."""

    name: str
    #: How often a step of this kind is drawn, relative to other kinds.
    weight: int
    #: The fault that a history must have for this kind of steps; "" if every history has the kind.
    fault: str
    options: Callable[[ReplicaSetWorld], Iterable[Arguments]]
    act: Callable[..., None]
    #: A sentence for a step of this kind; {0}, {1} and {2} stand for the step's arguments.
    words: str


#: All kinds of steps by name.
STEP_KINDS: Final[dict[str, SmallStepKind]] = {}

Act = Callable[..., None]


def step_kind(
    name: str,
    weight: int,
    options: Callable[[ReplicaSetWorld], Iterable[Arguments]],
    words: str,
    fault: str = "",
) -> Callable[[Act], Act]:
    """Register the decorated function as a kind of steps."""

    def register(act: Act) -> Act:
        STEP_KINDS[name] = SmallStepKind(name, weight, fault, options, act, words)
        return act

    return register


def in_words(step: Step) -> str:
    """Return the sentence that describes a step."""
    return STEP_KINDS[str(step[0])].words.format(*step[1:])
