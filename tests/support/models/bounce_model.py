"""Model 4, lives of brokers: replicas that stop or die, come back with less, and want to join.

Beside what `log_model` has: a broker stops cleanly, or dies, and registers anew under a higher
broker epoch; what it had may be shorter then, down to nothing. The controller's view of the
registrations is as old as its last look, at which it elects; where no member is proven, it knows
the ends of the logs of those that are there, and the wait for the others may be over. Changes of
the ISR wait until they are asked for, and are judged by that view. Commands are for one
registration. Real, in addition: recorded and compared broker epochs (V10, V63), proofs of a clean
shutdown or of a process that lives on (E3, E7), eligible replicas (E1, E2), recovery by proof (E6).

Bounds: records, leader epochs, deaths, clean stops, and losses: deaths after which the log may be
shorter, down to nothing. min.insync.replicas is 2, so that what is committed must survive one loss,
at any time, in any history (rules.md, A15 and E6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple, TypeVar

from tests.support.models import log_model
from tests.support.models.explorer import (
    REPLICAS,
    Renamed,
    State,
    Step,
    Table,
)
from tests.support.models.log_model import VERSION, LogModel
from tests.support.models.replicas import (
    Command,
    Replica,
    command_of,
    everybody,
    in_order,
    renamed_members,
)

from tidelog.controller import incarnations, lifecycle
from tidelog.controller.elections import election as elections
from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.partitions import isr as judging
from tidelog.controller.records import LogEnd, Recovery
from tidelog.core import eligible_replicas
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, NO_LEADER, BrokerInfo, CleanEpochs, PartitionState
from tidelog.replication import commands
from tidelog.replication.isr import Awaits

MINIMUM = 2
_ORDERS = tuple(permutations(REPLICAS))
UP, STOPPED, DEAD, LOST = "up", "stopped", "dead", "dead, its log in doubt"


class Bounds(NamedTuple):
    """How much happens."""

    records: int = 1
    max_epoch: int = 3
    losses: int = 1
    deaths: int = 0
    stops: int = 1

    def __str__(self) -> str:
        return (
            f"{self.records} records, epochs to {self.max_epoch}, {self.losses} losses, "
            f"{self.deaths} deaths, {self.stops} clean stops"
        )


DEFAULT = Bounds()


class Life(NamedTuple):
    """A broker: which life, in which condition, and the lives whose clean ends it has proven."""

    number: int
    condition: str
    proven: CleanEpochs


class Told(NamedTuple):
    """A command, and the registrations that it is for (0: none)."""

    command: Command
    lives: tuple[int, int, int]


Lives = tuple[Life, Life, Life]
#: Ends of the logs of the brokers that are there, by number; empty where they do not matter.
Logs = tuple[tuple[int, LogEnd], ...]
T = TypeVar("T")


class BounceModel(LogModel):
    """State: published, told, the controller's view, lives, budget, committed, and the replicas."""

    def __init__(self, bounds: Bounds = DEFAULT, *, tells_lives: bool = True) -> None:
        """Where `tells_lives` is False leaders say of no member in which life they counted it: the
        node's modification decides (V63), whose number compares with one restart's at most."""
        assert tells_lives or bounds.losses + bounds.deaths + bounds.stops <= 1
        super().__init__(
            log_model.Bounds(bounds.records, bounds.records, bounds.max_epoch),
            one_life=False,
        )
        self.budget = bounds
        self.tells_lives = tells_lives
        self.name = f"lives of brokers{'' if tells_lives else ' that are not told'}, {bounds}"
        self.told: Table[tuple[Told, ...]] = Table()
        self.lives: Table[Lives] = Table()
        renamed_lives = Renamed(self._rename_lives)
        self._first_replica = 6
        self._renamed_parts = (
            (0, self._renamed_published),
            (1, Renamed(self._rename_told)),
            (2, renamed_lives),
            (3, renamed_lives),
        )
        self._looked: dict[tuple[int, int, int, Logs], list[tuple[Step, int, int]]] = {}
        self._judged: dict[tuple[int, int, int, int], tuple[int, int]] = {}

    # parts

    def _publish(self, state: PartitionState) -> int:
        if self.tells_lives:
            return super()._publish(state)
        state = replace(in_order(state), partition_epoch=state.leader_epoch)
        return self.published.number(state, state)

    def _write(self, state: PartitionState, lives: Lives) -> int:
        """Publish a state: it is modified after all registrations that there are."""
        return self._publish(replace(state, mzxid=_newest_life(lives)))

    def _live(self, lives: Lives) -> int:
        return self.lives.number(lives, lives)

    def _tell(self, told: tuple[Told, ...]) -> int:
        unique = tuple(sorted(dict.fromkeys(told)))
        return self.told.number(unique, unique)

    def _rename_told(self, part: int, names: dict[int, int]) -> int:
        return self._tell(
            tuple(
                Told(
                    one.command._replace(
                        leader=names.get(one.command.leader, one.command.leader),
                        isr=renamed_members(one.command.isr, names),
                    ),
                    _moved(one.lives, names),
                )
                for one in self.told.values[part]
            )
        )

    def _rename_lives(self, part: int, names: dict[int, int]) -> int:
        return self._live(_moved(self.lives.values[part], names))

    # the exploration

    def first(self) -> State:
        """Replica 1 leads in epoch 0, all are in sync in their first lives, everybody knows."""
        life = Life(1, UP, CleanEpochs())
        born: Lives = (life, life, life)
        state = lifecycle.first_state(REPLICAS, registered(born), 1)
        assert state is not None
        replicas = [Replica(number) for number in REPLICAS]
        for replica in replicas:
            replica.obey(command_of(state), minimum=MINIMUM)
        return (
            self._publish(state),
            self._tell(()),
            self._live(born),
            self._live(born),
            0,
            self.logs.number((), ()),
            *(self.replicas.keep(replica) for replica in replicas),
        )

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """What the controller, brokers and clients may do."""
        published, told, seen, lives, used, committed, *replicas = state
        for step, after, view in self._looks(published, seen, lives, replicas):
            more = self._tell((*self.told.values[told], self._sent(after, view)))
            yield step, self._next(after, more, view, lives, used, committed, replicas)
        for index, part in enumerate(replicas):
            life = self.lives.values[lives][index]
            if life.condition != UP:
                yield from self._begun(state, index, life)
                continue
            yield from self._ended(state, index, life)
            for one in self.told.values[told]:
                if self._refuses(one, index, life):
                    continue
                after = self.replicas.apply(part, Replica.obey, one.command, everybody, MINIMUM)
                if after != part:
                    now = self._with(replicas, index, after)
                    yield (
                        ("obey", index + 1, one.command),
                        self._next(published, told, seen, lives, used, committed, now),
                    )
            if self.replicas.values[part].leading is not None:
                yield from self._leads(state, index)
            yield from self._follows(state, index)

    def _sent(self, published: int, view: int) -> Told:
        """What is commanded, to the registrations that the controller knows."""
        one, two, three = (
            life.number if life.condition == UP else 0 for life in self.lives.values[view]
        )
        return Told(command_of(self.published.values[published]), (one, two, three))

    def _next(
        self,
        published: int,
        told: int,
        seen: int,
        lives: int,
        used: int,
        committed: int,
        replicas: list[int],
    ) -> State:
        sent = self.told.values[told]
        kept = tuple(one for one in sent if self._matters(one, lives, replicas))
        if len(kept) < len(sent):
            told = self._tell(kept)
        for part in replicas:
            leader = self.replicas.values[part]
            if leader.leading and leader.high_watermark > len(self.logs.values[committed]):
                committed = self.logs.number(leader.committed(), leader.committed())
        return published, told, seen, lives, used, committed, *replicas

    def _matters(self, one: Told, lives: int, replicas: list[int]) -> bool:
        """Return whether a broker may obey it yet."""
        epochs = (one.command.leader_epoch, one.command.partition_epoch)
        known, born = self.replicas.values, self.lives.values[lives]
        for index, told in enumerate(one.lives):
            if born[index].number <= told and epochs > known[replicas[index]].known:
                return True
        return False

    @staticmethod
    def _refuses(one: Told, index: int, life: Life) -> bool:
        if one.lives[index] == 0:
            return True
        error = commands.request_error(
            known_controller_epoch=1,
            controller_epoch=1,
            own_broker_epoch=life.number,
            is_registered=True,
            broker_epoch=one.lives[index],
        )
        return error is not ErrorCode.NONE

    # lives

    def _ended(self, state: State, index: int, life: Life) -> Iterator[tuple[Step, State]]:
        """A broker dies or stops; its registration goes."""
        _, _, _, _, used, _, *_ = state
        losses, rest = divmod(used, 100)
        deaths, stops = divmod(rest, 10)
        if losses < self.budget.losses:
            yield ("lose", index + 1), self._lived(state, index, life, LOST, used + 100)
        if deaths < self.budget.deaths:
            yield ("die", index + 1), self._lived(state, index, life, DEAD, used + 10)
        if stops < self.budget.stops:
            yield ("stop", index + 1), self._lived(state, index, life, STOPPED, used + 1)

    def _lived(self, state: State, index: int, life: Life, condition: str, used: int) -> State:
        published, told, seen, lives, _, committed, *replicas = state
        after = _set(self.lives.values[lives], index, life._replace(condition=condition))
        part = self.replicas.apply(replicas[index], Replica.rest)
        now = self._with(replicas, index, part)
        return self._next(published, told, seen, self._live(after), used, committed, now)

    def _begun(self, state: State, index: int, life: Life) -> Iterator[tuple[Step, State]]:
        """Register a broker again, with the rest of its log."""
        published, told, seen, lives, used, committed, *replicas = state
        size = len(self.replicas.values[replicas[index]].log)
        number = life.number + 1
        is_clean = life.condition == STOPPED
        proven = life.proven.followed_by(life.number) if is_clean else CleanEpochs()
        after = self._live(_set(self.lives.values[lives], index, Life(number, UP, proven)))
        for left in range(size + 1) if life.condition == LOST else (size,):
            part = self.replicas.apply(replicas[index], _begin, number, left)
            now = self._with(replicas, index, part)
            yield (
                ("begin", index + 1, left),
                self._next(published, told, seen, after, used, committed, now),
            )

    # the controller

    def _looks(
        self, published: int, seen: int, lives: int, replicas: list[int]
    ) -> list[tuple[Step, int, int]]:
        """What the controller does when it looks at the registrations, or balances leaders: steps
        with the state published and the view then held."""
        logs = self._log_ends(published, lives, replicas)
        known = self._looked.get((published, seen, lives, logs))
        if known is None:
            found: dict[tuple[int, int], Step] = {}
            state = self.published.values[published]
            brokers = registered(self.lives.values[lives])
            may_elect = state.leader_epoch < self.bounds.max_epoch
            for order in _ORDERS:
                # Nothing is known of a recovery, the members are awaited, or no longer.
                for recovery in (
                    None,
                    Recovery(0, False, {}, dict(logs)),
                    Recovery(0, True, {}, dict(logs)),
                ):
                    due = elections.elect(state, _around(order, brokers, recovery))
                    if due is None:
                        if lives != seen:
                            found[published, lives] = ("look",)
                    elif may_elect:
                        found[self._write(due.state, self.lives.values[lives]), lives] = ("look",)
                    if not logs:
                        break
                view = _around(order, registered(self.lives.values[seen]))
                if (
                    may_elect
                    and elections.elect(state, view) is None
                    and elections.prefers_another(state, order)
                ):
                    preferred = elections.elect_preferred(state, view)
                    if preferred is not None:
                        written = self._write(preferred.state, self.lives.values[lives])
                        found[written, seen] = ("prefer", order[0])
            known = [(step, after, view) for (after, view), step in found.items()]
            self._looked[published, seen, lives, logs] = known
        return known

    def _log_ends(self, published: int, lives: int, replicas: list[int]) -> Logs:
        """The ends of the logs that the controller may compare; none where somebody is proven."""
        state, now = self.published.values[published], self.lives.values[lives]
        if state.leader != NO_LEADER or incarnations.proven_members(state, registered(now)):
            return ()
        ends = []
        for index, life in enumerate(now):
            log = self.replicas.values[replicas[index]].log
            if life.condition == UP:
                epoch = log[-1].leader_epoch if log else -1
                ends.append((index + 1, LogEnd(epoch, len(log), 0)))
        return tuple(ends)

    def _change(self, part: int, published: int, seen: int, lives: int) -> tuple[int, int]:
        """The queued change is judged by the controller's view, and the leader hears of it."""
        newest = 0 if self.tells_lives else _newest_life(self.lives.values[lives])
        known = self._judged.get((part, published, seen, newest))
        if known is None:
            brokers = registered(self.lives.values[seen])
            replica = self.replicas.values[part].copy()
            state = self.published.values[published]
            after = settle_change(replica, state, brokers, tells_lives=self.tells_lives)
            written = published
            if after is not state:
                written = self._write(after, self.lives.values[lives])
            known = self._judged[part, published, seen, newest] = (
                self.replicas.keep(replica),
                written,
            )
        return known

    # leaders and followers

    def _leads(self, state: State, index: int) -> Iterator[tuple[Step, State]]:
        published, told, seen, lives, used, committed, *replicas = state
        part = replicas[index]
        replica = self.replicas.values[part]
        role = replica.leading
        assert role is not None
        # Values distinguish records where a leader returns with a shorter log in its own epoch.
        written = max(self._newest(one) for one in replicas)
        if written < self.bounds.records:
            after = self.replicas.apply(part, Replica.write, written + 1)
            now = self._with(replicas, index, after)
            yield (
                ("write", index + 1, written + 1),
                self._next(published, told, seen, lives, used, committed, now),
            )
        if not role.isr.in_flight and len(role.isr.committed) > MINIMUM:
            for follower in role.followers.values():
                member = follower.replica_id
                if follower.in_target_isr and follower.log_end_offset != role.log_end_offset:
                    after = self.replicas.apply(part, Replica.drop, member)
                    now = self._with(replicas, index, after)
                    yield (
                        ("drop", index + 1, member),
                        self._next(published, told, seen, lives, used, committed, now),
                    )
        if role.isr.queued is not None:
            after, changed = self._change(part, published, seen, lives)
            epoch = self.published.values[changed].leader_epoch
            if epoch > self.bounds.max_epoch:
                return
            if epoch > self.published.values[published].leader_epoch:
                told = self._tell((*self.told.values[told], self._sent(changed, seen)))
            now = self._with(replicas, index, after)
            yield (
                ("alter", index + 1, role.isr.queued.isr),
                self._next(changed, told, seen, lives, used, committed, now),
            )

    def _newest(self, part: int) -> int:
        return max((record.value for record in self.replicas.values[part].log), default=0)

    def _follows(self, state: State, index: int) -> Iterator[tuple[Step, State]]:
        published, told, seen, lives, used, committed, *replicas = state
        fetch = self.replicas.values[replicas[index]].fetch()
        if fetch is None or self.lives.values[lives][fetch.leader - 1].condition != UP:
            return
        there = fetch.leader - 1
        served, followed = self._fetch(replicas[there], replicas[index])
        if (served, followed) != (replicas[there], replicas[index]):
            now = self._with(self._with(replicas, there, served), index, followed)
            yield (
                ("fetch", index + 1, fetch.leader),
                self._next(published, told, seen, lives, used, committed, now),
            )

    # invariants

    def broken(self, state: State) -> tuple[str, ...]:
        """Invariants of rule A15 that do not hold, over members that have not restarted since their
        recorded broker epoch."""
        published, _, _, lives, _, committed, *replicas = state
        known = (published, lives, committed, *replicas)
        names = self._wrong.get(known)
        if names is None:
            now = self.published.values[published]
            hosts = [self.replicas.values[part] for part in replicas]
            sure = self.logs.values[committed]
            members = unchanged(now, self.lives.values[lives])
            checks = {
                "StrongIsr": all(hosts[one - 1].log[: len(sure)] == sure for one in members),
                "WeakIsr": _weak_isr(hosts, members),
                "LeaderInIsr": self._leader_in_isr(now, hosts, sure),
                "OneLeader": self._one_leader(now, hosts, sure),
                "TypeOk": self._type_ok(now, hosts, sure),
            }
            names = self._wrong[known] = tuple(name for name, holds in checks.items() if not holds)
        return names

    # stories

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        match step:
            case ("look",):
                return "controller: looks at the registrations, elects where that is due"
            case ("lose", number):
                return f"{number} dies, and may lose what it had"
            case ("die", number):
                return f"{number} dies"
            case ("stop", number):
                return f"{number} stops cleanly"
            case ("begin", number, left):
                return f"{number} registers anew; {left} records are left"
            case ("alter", number, members):
                return f"{number} -> controller: ISR {list(members)}? and the answer"
        return super().tell(step)

    def describe(self, state: State) -> str:
        """Published state, the controller's view, the replicas."""
        published, _, seen, lives, _, committed, *replicas = state
        now = self.published.values[published]
        parts = "; ".join(
            f"{self.replicas.values[part]} ({life.condition})"
            for part, life in zip(replicas, self.lives.values[lives], strict=True)
        )
        view = {number: info.broker_epoch for number, info in self._registered(seen).items()}
        sure = "".join(chr(96 + record.value) for record in self.logs.values[committed])
        return (
            f"published {now.leader} in {now.leader_epoch} ISR {list(now.isr)} of lives "
            f"{list(now.isr_epochs or ())} ELR {list(now.elr)} of {list(now.elr_epochs)}; "
            f"seen {view}; committed [{sure}]; {parts}"
        )

    def _registered(self, seen: int) -> dict[int, BrokerInfo]:
        return registered(self.lives.values[seen])


def _around(
    order: tuple[int, ...], brokers: dict[int, BrokerInfo], recovery: Recovery | None = None
) -> Circumstances:
    return Circumstances(order, brokers, 1, MINIMUM, recovery=recovery)


def registered(lives: Lives) -> dict[int, BrokerInfo]:
    """The registrations that there are."""
    return {
        number: BrokerInfo(
            number,
            life.number,
            (),
            previous_broker_epoch=life.proven.last,
            earlier_broker_epochs=life.proven.earlier,
            reports_log_ends=True,
        )
        for number, life in zip(REPLICAS, lives, strict=True)
        if life.condition == UP
    }


def unchanged(state: PartitionState, lives: Lives) -> list[int]:
    """Members that live, or ended, in the life in which they were in sync, or have proven that they
    ended it cleanly."""
    recorded = eligible_replicas.members(state)
    return [
        member
        for member in recorded
        if lives[member - 1].number == recorded[member]
        or recorded[member] in _proven(lives[member - 1])
    ]


def _proven(life: Life) -> tuple[int, ...]:
    last, earlier = life.proven
    return () if last == NO_BROKER_EPOCH else (last, *earlier)


def _newest_life(lives: Lives) -> int:
    return max((life.number for life in lives if life.condition == UP), default=0)


def settle_change(
    replica: Replica,
    state: PartitionState,
    brokers: dict[int, BrokerInfo],
    *,
    tells_lives: bool = True,
) -> PartitionState:
    """A leader's queued change goes to the controller, is judged, and the leader hears of it;
    returns published state."""
    role = replica.leading
    assert role is not None and role.isr.queued is not None
    change = role.isr.queued
    role.change_sent(change)
    sender = brokers.get(replica.number)
    if sender is None or sender.broker_epoch != replica.broker_epoch:
        # STALE_BROKER_EPOCH: the request is repeated until the leader hears otherwise.
        role.isr = replace(
            role.isr, in_flight=role.isr.in_flight[:-1], queued=change, awaits=Awaits.NOTHING
        )
        return state
    wanted = judging.Proposal(
        replica.number,
        change.leader_epoch,
        change.partition_epoch,
        change.isr,
        change.isr_epochs if tells_lives else (NO_BROKER_EPOCH,) * len(change.isr),
        change.leader_recovery_state,
    )
    verdict = judging.judge(wanted, state, REPLICAS, brokers, 1, VERSION, MINIMUM)
    if verdict.state is None:
        role.change_refused(change, verdict.error, 0)
        return state
    after = in_order(verdict.state)
    if after.leader_epoch != state.leader_epoch:
        role.change_refused(change, verdict.error, 0)
        return after
    role.change_accepted(change, after.isr, after.leader_epoch, after.partition_epoch, 0)
    # Epochs of the partition stay what they were, as in `log_model`.
    role.isr = replace(role.isr, partition_epoch=change.partition_epoch)
    if role.isr.queued is not None:
        queued = replace(role.isr.queued, partition_epoch=change.partition_epoch)
        role.isr = replace(role.isr, queued=queued)
    return after


def _begin(replica: Replica, life: int, left: int) -> None:
    """A new life: the high watermark was not written down lately, epochs come from the records."""
    replica.broker_epoch = life
    replica.known, replica.resting = (-1, -1), 0
    replica.cut(left)
    replica.epochs.clear()
    for offset, record in enumerate(replica.log):
        replica.epochs.assign(record.leader_epoch, offset)


def _weak_isr(replicas: list[Replica], members: list[int]) -> bool:
    for replica in replicas:
        if replica.leading is not None:
            own = replica.committed()
            theirs = [one for one in replica.leading.isr.committed if one in members]
            if any(replicas[one - 1].log[: len(own)] != own for one in theirs):
                return False
    return True


def _moved(parts: tuple[T, T, T], names: dict[int, int]) -> tuple[T, T, T]:
    moved = list(parts)
    for number, part in zip(REPLICAS, parts, strict=True):
        moved[names[number] - 1] = part
    one, two, three = moved
    return one, two, three


def _set(lives: Lives, index: int, life: Life) -> Lives:
    changed = list(lives)
    changed[index] = life
    one, two, three = changed
    return one, two, three
