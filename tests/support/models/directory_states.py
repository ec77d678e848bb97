"""States of `DirectoryModel`, their parts, and what must hold of each.

A state is made of the partition's published state, the controller between two decisions, and the
brokers with their directories; of every broker's replica, and the commands that are under way to
it. Invariants hold always, or where the cluster does nothing more by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.support.controller.values import TP
from tests.support.models.cluster_states import NOTHING, ClusterStates
from tests.support.models.explorer import State, Step, Table
from tests.support.models.moving_replicas import MovingReplica
from tests.support.models.replicas import Log

from tidelog.broker.controller import channels
from tidelog.controller.commands import Commands
from tidelog.controller.controller import Controller
from tidelog.controller.records import LogEnd
from tidelog.core import eligible_replicas
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, NO_LEADER, BrokerInfo, CleanEpochs, PartitionState
from tidelog.replication import commands
from tidelog.replication.commands import OfflineReplica
from tidelog.wire.messages.alter_partition import AlterPartitionResponse
from tidelog.wire.messages.get_replica_log_info import PartitionLogInfo

#: No controller is in office.
GONE = NOTHING


class Bounds(NamedTuple):
    """How much happens; from `controller_deaths` on, as in `Left`."""

    replicas: tuple[int, ...] = (1, 2)
    #: Brokers that register after the partition was created.
    late: tuple[int, ...] = ()
    minimum: int = 1
    #: The partition is there, and has its first record on all replicas.
    is_begun: bool = False
    controller_deaths: int = 1
    failures: int = 1
    replacements: int = 1
    restarts: int = 1
    #: Responses that the controller does not get: it sends the commands again.
    lost_answers: int = 0
    writes: int = 1
    drops: int = 0
    #: Restarts after which a log is shorter; together with replacements at most minimum - 1 (E6).
    cuts: int = 0
    #: Requests of a leader for a member that is not there as it counted it.
    mistakes: int = 1

    def __str__(self) -> str:
        what = [f"{len(self.replicas)} replicas"]
        what += [f"{list(self.late)} late"] if self.late else []
        what += [f"min ISR {self.minimum}"] if self.minimum > 1 else []
        what += ["in sync"] if self.is_begun else []
        counts = self._asdict()
        for name in Left._fields[:-1]:
            what += [f"{counts[name]} {name.replace('_', ' ')}"] if counts[name] else []
        return ", ".join(what)


class Left(NamedTuple):
    """What may still happen."""

    controller_deaths: int
    failures: int
    replacements: int
    restarts: int
    lost_answers: int
    writes: int
    drops: int
    cuts: int
    mistakes: int


class Host(NamedTuple):
    """A broker, without its replica."""

    life: int = 1
    is_up: bool = True
    #: A log directory has failed since the start, or was bad then.
    has_failed: bool = False
    #: The replica that was in it when it failed, in this life.
    offline: OfflineReplica | None = None
    #: The controller has not read of the failure.
    is_unreported: bool = False
    #: Epoch of the last controller that it obeyed in this life.
    obeyed: int = NOTHING
    #: What its registration proves, and what its good directories say while it is down (E3).
    proof: CleanEpochs = CleanEpochs()
    marked: CleanEpochs = CleanEpochs()
    #: The replica in the failed directory, or on a disk that was taken out.
    shelf: int = NOTHING


class Late(NamedTuple):
    """Commands that may arrive after others, or after their controller has died."""

    host: int
    sent: int
    epoch: int
    life: int
    #: Their place among those of the same controller and the same life of the broker.
    order: int = 0
    #: Later ones of these have arrived.
    is_overtaken: bool = False


class Term(NamedTuple):
    """The controller, between two decisions."""

    epoch: int
    controller: Controller


class Effect(NamedTuple):
    """The end of a decision; or of the controller, after it has written."""

    has_died: bool
    published: int
    term: int
    #: Broker, its registration, the number of the commands.
    commands: tuple[tuple[int, int, int], ...] = ()
    altered: AlterPartitionResponse | None = None
    #: It found a creation that was cut short.
    recreates: bool = False


class World(NamedTuple):
    """A state, taken apart."""

    published: int
    term: int
    epoch: int
    hosts: int
    left: int
    committed: int
    faults: int
    late: int
    parts: tuple[int, ...]
    pending: tuple[int, ...]

    def packed(self) -> State:
        return (*self[:8], *self.parts, *self.pending)


def unpacked(state: State) -> World:
    """Take a state apart."""
    published, term, epoch, hosts, left, committed, faults, late = state[:8]
    middle = 8 + (len(state) - 8) // 2
    return World(
        published, term, epoch, hosts, left, committed, faults, late, state[8:middle],
        state[middle:],
    )  # fmt: skip


def delayed(late: Sequence[Late], message: Late) -> tuple[Late, ...]:
    """Late commands with some that come after those of the same controller and life."""
    if message.sent == NOTHING:
        return tuple(late)
    order = max((each.order for each in late if _is_of_same_channel(each, message)), default=-1)
    return (*late, message._replace(order=order + 1))


def overtaken(late: Sequence[Late], message: Late) -> tuple[Late, ...]:
    """Late commands after `message` has arrived."""
    return tuple(
        each._replace(is_overtaken=True)
        if _is_of_same_channel(each, message) and each.order < message.order
        else each
        for each in late
    )


def _is_of_same_channel(each: Late, message: Late) -> bool:
    return each[0] == message[0] and each[2:4] == message[2:4]


class DirectoryStates(ClusterStates):
    """Published state, controller, brokers, what may happen, committed records, faults found on the
    way, late commands; then each broker's replica, and the commands that wait for it."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__()
        assert bounds.writes or not bounds.is_begun
        assert not bounds.cuts or bounds.cuts + bounds.replacements < bounds.minimum
        self.bounds = bounds
        self.brokers = bounds.replicas
        self.name = f"log directories, {bounds}"
        self.published: Table[PartitionState] = Table()
        self.terms: Table[Term] = Table()
        self.hosts: Table[tuple[Host, ...]] = Table()
        self.lefts: Table[Left] = Table()
        self.lates: Table[tuple[Late, ...]] = Table()

    def progress(self, world: World) -> Iterator[tuple[Step, World]]:
        """Every step that the cluster takes by itself."""
        raise NotImplementedError

    # parts

    def office(self, epoch: int, controller: Controller) -> int:
        return self.terms.number((epoch, controller.key()), Term(epoch, controller))

    def command(self, pending: Commands) -> int:
        """The number of commands: role and question are all that matters here."""
        role = pending.roles.get(TP)
        of_role: tuple[object, ...] | None = None
        if role is not None:
            state = role.state
            of_role = (
                state.leader,
                state.leader_epoch,
                tuple(state.isr),
                state.partition_epoch,
                state.is_new,
                tuple(state.eligible),
            )
        return self.commands.number((of_role, bool(pending.log_ends)), pending)

    def infos(self, hosts: int) -> dict[int, BrokerInfo]:
        """The registrations."""
        known = self._infos.get(hosts)
        if known is None:
            known = self._infos[hosts] = {
                number: BrokerInfo(
                    number,
                    host.life,
                    (),
                    previous_broker_epoch=host.proof.last,
                    earlier_broker_epochs=host.proof.earlier,
                    reports_log_ends=True,
                )
                for number, host in zip(self.brokers, self.hosts.values[hosts], strict=True)
                if host.is_up
            }
        return known

    def log_end(self, replica: MovingReplica | None, host: Host) -> LogEnd:
        """What the controller learns from a broker of the end of its log (E6)."""
        log: Log = () if replica is None else replica.log
        error = ErrorCode.NONE
        if replica is None:
            error = commands.missing_log_error(has_failed_directory=host.has_failed)
        info = PartitionLogInfo(0, log[-1].leader_epoch if log else -1, -1, len(log), error)
        info.log_start_offset = 0
        end = channels._log_end(info)
        assert end is not None
        return end

    def greater(self, part: int, other: int) -> int:
        """Which of two copies stays at a start: the one with more records (D6)."""
        if NOTHING in (part, other):
            return max(part, other)

        def rank(each: int) -> tuple[int, int]:
            log = self.replicas.values[each].log
            return (log[-1].leader_epoch if log else -1), len(log)

        return max(part, other, key=rank)

    # other parts of the same world

    def with_host(self, world: World, index: int, host: Host) -> World:
        hosts = list(self.hosts.values[world.hosts])
        hosts[index] = host
        world = world._replace(hosts=self.hosts.number(tuple(hosts), tuple(hosts)))
        return self.with_late(world, self.lates.values[world.late])

    def with_left(self, world: World, left: Left) -> World:
        return world._replace(left=self.lefts.number(left, left))

    def with_fault(self, world: World, name: str) -> World:
        return world._replace(faults=self.faults_with(world.faults, name))

    def with_late(self, world: World, late: Sequence[Late]) -> World:
        """Other late commands, without those that their broker refuses for ever."""
        if not late:
            return world._replace(late=self.lates.number((), ()))
        hosts = self.hosts.values[world.hosts]
        kept = tuple(
            sorted(
                dict.fromkeys(
                    each
                    for each in late
                    if not self.refuses(each, hosts[each.host])
                    and self.commands.values[each.sent].roles
                )
            )
        )
        return world._replace(late=self.lates.number(kept, kept))

    def with_part(self, world: World, index: int, part: int) -> World:
        """Another replica of a broker's; what its leader commits is committed."""
        parts = (*world.parts[:index], part, *world.parts[index + 1 :])
        world = world._replace(parts=parts)
        committed = self.committed_with(world.committed, part)
        if committed is None:
            return self.with_fault(world, "LeaderHasAll")
        return world._replace(committed=committed)

    def refuses(self, message: Late, host: Host) -> bool:
        """Whether a broker rejects a whole command (V30). While it is down, its next life does."""
        error = commands.request_error(
            known_controller_epoch=host.obeyed,
            controller_epoch=message.epoch,
            own_broker_epoch=host.life if host.is_up else host.life + 1,
            is_registered=True,
            broker_epoch=message.life,
        )
        # Ids of requests of one controller: what was overtaken has the lower one.
        is_overtaken = commands.is_overtaken(1 if message.is_overtaken else 0, 0)
        return error is not ErrorCode.NONE or is_overtaken

    def has_copy(self, world: World) -> bool:
        """Whether a copy of the partition is anywhere, also on a disk that was taken out."""
        shelves = [host.shelf for host in self.hosts.values[world.hosts]]
        return any(part != NOTHING for part in (*world.parts, *shelves))

    # invariants

    def broken(self, state: State) -> tuple[str, ...]:
        """Invariants that do not hold."""
        world = unpacked(state)
        found = list(self.faults.values[world.faults])
        if world.published != NOTHING:
            found += self._unsafe(world, self.published.values[world.published])
            if not found and next(self.progress(world), None) is None:
                found += self._unfinished(world, self.published.values[world.published])
        return tuple(dict.fromkeys(found))

    def _unsafe(self, world: World, now: PartitionState) -> Iterator[str]:
        if now.leader != NO_LEADER and now.leader not in now.isr:
            yield "LeaderInIsr"
        committed = self.logs.values[world.committed]
        for part in world.parts:
            replica = self.replica(part)
            role = None if replica is None else replica.leading
            if role is None or role.leader_epoch < now.leader_epoch:
                continue
            assert replica is not None
            if replica.log[: len(committed)] != committed:
                yield "LeaderHasAll"

    def _unfinished(self, world: World, now: PartitionState) -> Iterator[str]:
        """What is wrong where the cluster does nothing more by itself."""
        hosts = self.hosts.values[world.hosts]
        if now.leader != NO_LEADER and hosts[self.brokers.index(now.leader)].is_up:
            replica = self.replica(world.parts[self.brokers.index(now.leader)])
            role = None if replica is None else replica.leading
            if role is None or role.leader_epoch != now.leader_epoch:
                yield "LeaderServes"
        if not all(host.is_up and not host.has_failed for host in hosts):
            return
        members = eligible_replicas.members(now)
        has_one = any(
            number in members and part != NOTHING
            for number, part in zip(self.brokers, world.parts, strict=True)
        )
        was_never_restarted = all(host.life == 1 for host in hosts)
        if now.leader == NO_LEADER and (has_one or was_never_restarted):
            yield "NothingStuck"

    # stories

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        return " ".join(str(part) for part in step)

    def describe(self, state: State) -> str:
        """Published state, the brokers with their directories, and every replica."""
        world = unpacked(state)
        text = "nothing is published"
        if world.published != NOTHING:
            now = self.published.values[world.published]
            text = (
                f"published {now.leader}@{now.leader_epoch}.{now.partition_epoch} ISR "
                f"{list(now.isr)} of {list(now.isr_epochs or ())} ELR {list(now.elr)}"
            )
        parts = []
        for number, host, part, sent in zip(
            self.brokers, self.hosts.values[world.hosts], world.parts, world.pending, strict=True
        ):
            replica = self.replica(part)
            what = f"{number} has none" if replica is None else str(replica)
            what += f" (life {host.life}{'' if host.is_up else ', down'}"
            what += ", bad directory" if host.has_failed else ""
            what += f", proves {host.proof.last}" if host.proof.last != NO_BROKER_EPOCH else ""
            what += ", another copy away" if host.shelf != NOTHING else ""
            parts.append(f"{what}{', commands wait' if sent != NOTHING else ''})")
        presence = {}
        if world.term != GONE:
            known = self.terms.values[world.term].controller.image.presence(TP)
            presence = {number: found.value for number, found in known.items()}
        return (
            f"{text}; controller {world.epoch} {'gone' if world.term == GONE else ''} knows "
            f"{presence}; {'; '.join(parts)}; {len(self.logs.values[world.committed])} committed; "
            f"{len(self.lates.values[world.late])} late commands"
        )
