"""Model 2 once more, where the leader writes the state node itself (A12), or does both (mixed).

Real besides what `isr_model` has: the leader's decision on what it reads (`direct_isr.judge`).
A reading and the write that follows are steps of their own: the controller writes in between, and
commands arrive. A write is applied where the node has the version that was read, or never; its
answer arrives or is lost, and the leader reads again. With `is_mixed` the same leader also sends
every change to the controller, whose answers come late or never.

Bounds: those of `isr_model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tests.support.models.explorer import Renamed, State, Step, Table
from tests.support.models.isr_model import (
    _SWAP,
    BROKERS,
    DEFAULT,
    LEADER,
    Bounds,
    IsrModel,
)
from tests.support.models.replicas import Replica, in_order, renamed_change, renamed_state

from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState
from tidelog.replication import direct_isr
from tidelog.replication import isr as isr_rules
from tidelog.replication.isr import IsrChange

REGISTERED = {number: broker.broker_epoch for number, broker in BROKERS.items()}


class Stage(NamedTuple):
    """How far the leader is with a change: it has read the node, or is about to write it."""

    change: IsrChange
    read: PartitionState
    #: None after the reading alone.
    write: PartitionState | None = None


class DirectIsrModel(IsrModel):
    """State: as in `IsrModel`, and the stage of the leader's own change, if it has one."""

    def __init__(self, bounds: Bounds = DEFAULT, *, is_mixed: bool = False) -> None:
        super().__init__(bounds)
        self.name = f"{'mixed' if is_mixed else 'direct'} {self.name}"
        self.is_mixed = is_mixed
        self.stages: Table[Stage | None] = Table()
        self._renamed_stages = Renamed(
            lambda part, names: self._keep(_renamed(self.stages.values[part], names))
        )

    def _keep(self, stage: Stage | None) -> int:
        if stage is not None:
            written = None if stage.write is None else _plain(stage.write)
            stage = Stage(stage.change, _plain(stage.read), written)
        return self.stages.number(stage, stage)

    def first(self) -> State:
        """As `IsrModel` begins."""
        return (*super().first(), self._keep(None))

    def canonical(self, state: State) -> State:
        """The lesser of the two ways to number the followers."""
        *base, stage = state
        published, messages, leader, one, other, committed = base
        if one < other:
            return state
        swapped = (
            self._renamed_published.under(_SWAP, published),
            self._renamed_messages.under(_SWAP, messages),
            self._renamed_leaders.under(_SWAP, leader),
            other,
            one,
            committed,
            self._renamed_stages.under(_SWAP, stage),
        )
        return min(state, swapped) if one == other else swapped

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """What the leader, its followers, the controller and the store may do."""
        base, stage = state[:6], state[6]
        for step, after in super().successors(base):
            if step[0] != "send" or self.is_mixed:
                yield step, (*after, stage)
        known = self.stages.values[stage]
        if known is None:
            yield from self._read(state)
        elif known.write is None:
            yield from self._judged(state, known)
        else:
            yield from self._written(state, known, known.write)

    def _read(self, state: State) -> Iterator[tuple[Step, State]]:
        """The leader reads the node for its newest change; from then on it waits (A8)."""
        published, messages, part, one, other, committed, _ = state
        role = self.leaders.values[part].leading
        assert role is not None
        pending = isr_rules.changes(role.isr)
        if pending:
            change = pending[-1]
            after = self.leaders.apply(part, _sent, change)
            stage = self._keep(Stage(change, self.published.values[published]))
            yield (
                ("read", change.isr),
                (published, messages, after, one, other, committed, stage),
            )

    def _judged(self, state: State, stage: Stage) -> Iterator[tuple[Step, State]]:
        """The leader decides on what it read, by now perhaps no longer true."""
        published, messages, part, one, other, committed, _ = state
        change, read, _ = stage
        leader = self.leaders.values[part]
        role = leader.leading
        assert role is not None
        if not role.is_wanted(change):
            after, next_stage, what = part, None, "unwanted"
        else:
            verdict = direct_isr.judge(
                change, read, LEADER, role.replicas, role.minimum, REGISTERED
            )
            if verdict.is_new:
                if read.partition_epoch >= self.bounds.max_version:
                    return
                after, next_stage, what = part, Stage(change, read, verdict.state), "to write"
            elif verdict.state is not None:
                after = self.leaders.apply(part, take_over, change, _plain(verdict.state))
                next_stage, what = None, "found"
            else:
                after = self.leaders.apply(part, refuse, change, verdict.error)
                next_stage, what = None, verdict.error.name
        led = self._led((published, messages, part, one, other, committed), after)
        led = (led[0], self._left(published, messages, after), *led[2:])
        yield ("judge own", change.isr, what), (*led, self._keep(next_stage))

    def _written(
        self, state: State, stage: Stage, write: PartitionState
    ) -> Iterator[tuple[Step, State]]:
        """The transaction is applied, is in conflict, or is lost; its answer comes or does not."""
        published, messages, part, one, other, committed, _ = state
        now = self.published.values[published]
        base = (published, messages, part, one, other, committed)
        nothing = self._keep(None)
        if is_applied(stage.read, now):
            number = self._publish(replace(write, partition_epoch=now.partition_epoch + 1))
            told = self._left(number, messages, part)
            lost = self.leaders.apply(part, answer_lost, stage.change)
            yield (
                ("transact", stage.change.isr, "answer lost"),
                (*self._led((number, told, part, one, other, committed), lost), nothing),
            )
            heard = self.leaders.apply(part, take_over, stage.change, _plain(write))
            told = self._left(number, messages, heard)
            yield (
                ("transact", stage.change.isr, "written"),
                (*self._led((number, told, part, one, other, committed), heard), nothing),
            )
        else:
            yield ("transact", stage.change.isr, "conflict"), (*base, nothing)
        lost = self.leaders.apply(part, answer_lost, stage.change)
        yield ("transact", stage.change.isr, "lost"), (*self._led(base, lost), nothing)

    def broken(self, state: State) -> tuple[str, ...]:
        """Invariants that do not hold."""
        return super().broken(state[:6])

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        match step:
            case ("read", members):
                return f"1: reads the state node for ISR {list(members)}"
            case ("judge own", members, what):
                return f"1: decides on ISR {list(members)}: {what}"
            case ("transact", members, what):
                return f"1 -> store: ISR {list(members)}: {what}"
        return super().tell(step)

    def describe(self, state: State) -> str:
        """As in `IsrModel`, and the stage."""
        stage = self.stages.values[state[6]]
        told = "" if stage is None else f"; own change of ISR {list(stage.change.isr)} under way"
        return f"{super().describe(state[:6])}{told}"


def is_applied(read: PartitionState, now: PartitionState) -> bool:
    """The store's condition: the node has the version that the leader read (V6)."""
    return read.partition_epoch == now.partition_epoch


def answer_lost(leader: Replica, change: IsrChange) -> None:
    """The leader keeps the change in its maximal ISR and reads again (S2)."""


def _sent(leader: Replica, change: IsrChange) -> None:
    role = leader.leading
    assert role is not None
    if change == role.isr.queued:
        role.change_sent(change)


def take_over(leader: Replica, change: IsrChange, state: PartitionState) -> None:
    """The leader takes over what the node holds."""
    role = leader.leading
    assert role is not None
    role.change_accepted(
        change, state.isr, state.leader_epoch, state.partition_epoch, 0, bool(state.elr)
    )
    leader.known = max(leader.known, (role.leader_epoch, role.isr.partition_epoch))


def refuse(leader: Replica, change: IsrChange, error: ErrorCode) -> None:
    """The leader cannot write the change."""
    role = leader.leading
    assert role is not None
    role.change_refused(change, error, 0)


def _plain(state: PartitionState) -> PartitionState:
    return replace(in_order(state), mzxid=0)


def _renamed(stage: Stage | None, names: dict[int, int]) -> Stage | None:
    if stage is None:
        return None
    return Stage(
        renamed_change(stage.change, names),
        renamed_state(stage.read, names),
        None if stage.write is None else renamed_state(stage.write, names),
    )
