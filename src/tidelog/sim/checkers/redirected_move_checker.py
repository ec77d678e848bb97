"""Invariants of moves that get another target (R10), on the published state.

A replica that an earlier target added, and that neither the present target nor the original
replicas name, is dropped at once. The first state that the controller writes for the new target is
without it, unless it leads or fewer others than the effective minimum would stay in sync. So
acks=all does not wait for it. Afterwards it never joins the ISR of that move, except as a leader
whose eligible replica it was. Where the controller has changed, or members have restarted, other
decisions may come first, so that only the second half is judged.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.sim.checkers.checker import Checked, Checker
from tidelog.sim.observed.moves import PublishedMove
from tidelog.sim.observed.published_state import PublishedPartition, PublishedTopic
from tidelog.sim.observed.replica_logs import LogKey


class _Redirected(NamedTuple):
    """A move whose node was written with another target."""

    #: Replicas that no target wants.
    dropped: frozenset[int]
    #: Number of replicas that the move began with.
    originals: int
    #: Those of the partition when the node was written.
    leader_epoch: int
    controller_epoch: int


class RedirectedMoveChecker(Checker):
    """Checker of the moves of one run."""

    def __init__(self, run: Checked) -> None:
        super().__init__(run)
        self._redirected: dict[LogKey, _Redirected] = {}
        #: Number of replicas that were in sync when no target wanted them any more.
        self.dropped = 0
        run.published.on_moves.append(self._moved)
        run.published.on_state.append(self._changed)

    def _moved(self, topic: PublishedTopic, _: int, before: dict[int, PublishedMove]) -> None:
        for number, former in before.items():
            key = self._published.key(topic.topic_id, number)
            move = topic.moving.get(number)
            state = self._published.partitions.get(key)
            if move is None or state is None or not move.original:
                self._redirected.pop(key, None)
            elif move != former:
                self._redirected[key] = _Redirected(
                    frozenset(move.removing) - frozenset(move.original),
                    len(move.original),
                    state.leader_epoch,
                    self._published.controller_epoch,
                )

    def _changed(self, before: PublishedPartition | None, state: PublishedPartition) -> None:
        move = self._redirected.get(state.key)
        if move is None or before is None or not move.dropped:
            return
        if before.leader_epoch == move.leader_epoch < state.leader_epoch:
            self._check_dropped(move, before, state)
        elif before.leader_epoch > move.leader_epoch:
            self._check_joined(move, before, state)

    def _check_dropped(
        self, move: _Redirected, before: PublishedPartition, state: PublishedPartition
    ) -> None:
        """Check the first state under the new target."""
        registered = self._published.brokers
        if (
            state.controller_epoch != move.controller_epoch
            or state.leader != before.leader
            or any(registered.get(each) != before.epoch_of(each) for each in before.isr)
        ):
            return
        unwanted = [each for each in before.isr if each in move.dropped and each != state.leader]
        self.dropped += len(unwanted)
        kept = [each for each in unwanted if each in state.isr]
        minimum = min(self._published.effective_minimum(state.key), move.originals)
        if kept and len(state.isr) > minimum:
            self._violate(
                f"{self._name(state)}: {kept} of the ISR {state.isr} stay in sync, although no"
                f" target wants them any more and {minimum} are enough (R10)"
            )

    def _check_joined(
        self, move: _Redirected, before: PublishedPartition, state: PublishedPartition
    ) -> None:
        joined = [
            each
            for each in state.isr
            if each in move.dropped and each not in before.members and each != state.leader
        ]
        if joined:
            self._violate(
                f"{self._name(state)}: {joined} join the ISR {state.isr}, although no target wants"
                " them any more (R10)"
            )

    def _name(self, state: PublishedPartition) -> str:
        topic = self._published.all_topics[state.key.topic_id]
        return f"{topic.name}-{state.key.partition}"
