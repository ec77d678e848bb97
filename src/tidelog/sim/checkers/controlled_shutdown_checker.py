"""Invariants of a controlled shutdown, checked against published state (V43).

The controller responds to a broker that shuts down with the remaining partitions. The broker then
leads only these partitions, and partitions without another live member in the ISR. It is in the ISR
of no partition with another leader. If no partition remains, the broker is elected leader of no
partition and joins no ISR until its registration ends. A new controller knows of no shutdown: it
may elect the broker where that is an eligible replica (E2).
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.core.types import NO_LEADER
from tidelog.sim.checkers.checker import Checked, Checker
from tidelog.sim.observed.published_state import PublishedPartition


class ControlledShutdownChecker(Checker):
    """Checker of every controlled shutdown of a cluster."""

    def __init__(self, run: Checked) -> None:
        super().__init__(run)
        #: Broker epoch of each broker whose controlled shutdown left no partition, and the epoch of
        #: the controller at that time.
        self._gone: dict[int, tuple[int, int]] = {}
        self.shutdowns = 0
        run.published.on_state.append(self._changed)

    def answered(self, broker_id: int, controller_epoch: int, remaining: Collection[str]) -> None:
        """Check a controller's response to a controlled shutdown, with the remaining partitions."""
        published = self._published
        if controller_epoch != published.controller_epoch:
            return  # a deposed controller does not know the present state
        self.shutdowns += 1
        for key, state in published.partitions.items():
            topic = published.all_topics[key.topic_id]
            if published.promises_nothing(key.topic_id):
                continue
            name = f"{topic.name}-{key.partition}"
            if state.leader == broker_id:
                heirs = [
                    each for each in state.isr if each != broker_id and self._stays(state, each)
                ]
                if heirs and name not in remaining:
                    self._violate(
                        f"{name}: broker {broker_id} was allowed to shut down, and leads although"
                        f" {heirs} are in sync (V43)"
                    )
            elif state.leader != NO_LEADER and broker_id in state.isr:
                self._violate(
                    f"{name}: broker {broker_id} was allowed to shut down, and is in the ISR"
                    f" {state.isr} of leader {state.leader} (V43)"
                )

    def may_stop(self, broker_id: int) -> None:
        """Record that a broker learned that no partition remains, and is about to stop."""
        published = self._published
        if broker_id in published.brokers:
            self._gone[broker_id] = published.brokers[broker_id], published.controller_epoch

    def _stays(self, state: PublishedPartition, member: int) -> bool:
        """Return whether a member of an ISR is still in its recorded registration and stays up."""
        epoch, broker = self._published.brokers.get(member), self._brokers[member]
        is_leaving = broker.is_stopping or broker.life is None
        return epoch is not None and epoch == state.epoch_of(member) and not is_leaving

    def _changed(self, before: PublishedPartition | None, now: PublishedPartition) -> None:
        if before is None:
            return
        for broker_id, (epoch, controller_epoch) in self._gone.items():
            if self._published.brokers.get(broker_id) != epoch:
                continue
            if controller_epoch != self._published.controller_epoch and broker_id in before.elr:
                continue
            is_elected = now.leader == broker_id != before.leader != NO_LEADER
            joins = broker_id in now.isr and broker_id not in before.isr
            if is_elected or joins:
                self._violate(
                    f"{now.key}: broker {broker_id} shut down in a controlled way and"
                    f" {'leads again' if is_elected else f'joins the ISR {now.isr}'} (V43)"
                )
