"""The parts of a run that a phase uses: the cluster after the faults, its clients, and waits with a
limit.

A wait that reaches its limit is a violation of liveness, which ends the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.sim.client_workload import ClientWorkload
from tidelog.sim.disk import SimDisk
from tidelog.sim.loop import NS_PER_MS, NS_PER_S
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.sim_cluster import SimCluster

#: Maximum time in ns until all replicas must be in sync, all batches acknowledged, all records
#: read.
LIVENESS_LIMIT_NS: Final = 60 * NS_PER_S
_STEP_NS: Final = 20 * NS_PER_MS

#: A function (condition, limit in ns, description) that runs the simulation while the condition
#: holds, at most until the limit. It returns True if the condition ceased to hold in time and
#: without a violation.
Wait = Callable[[Callable[[], bool], int, str], bool]


@dataclass(frozen=True, slots=True)
class Stage:
    """The parts of a run that a phase uses."""

    cluster: SimCluster
    workload: ClientWorkload
    draw: random.Random
    run_while: Wait

    def after_ns(self, time_ns: int) -> int:
        """Return the virtual time `time_ns` nanoseconds from now."""
        return self.cluster.simulator.now_ns + time_ns

    def wait(self, problem: Callable[[], object], limit_ns: int, what: str, kind: str = "") -> bool:
        """Run until `problem` returns nothing; return False at the limit or after a violation.

        If the result is False and `kind` is given, a line of this kind in the trace has the
        problem.
        """
        if self.run_while(lambda: bool(problem()), limit_ns, what):
            return True
        if kind:
            self.cluster.simulator.note(-1, kind, str(problem()))
        return False

    def wait_for_health(self) -> bool:
        """Run until every replica is in sync; return False at the limit or after a violation."""
        return self.wait(self.cluster.health, self.after_ns(LIVENESS_LIMIT_NS), "in sync again")

    def look_for(self, is_there: Callable[[], bool], time_ns: int) -> None:
        """Run until `is_there` returns true; end also after `time_ns`, or after a violation."""
        simulator, until_ns = self.cluster.simulator, self.after_ns(time_ns)
        while not is_there() and simulator.now_ns < until_ns and not simulator.violations:
            simulator.run_until(simulator.now_ns + _STEP_NS)

    def stay(self, from_ms: int, to_ms: int) -> None:
        """Run for a random time between `from_ms` and `to_ms`."""
        time_ns = self.draw.randrange(from_ms, to_ms) * NS_PER_MS
        self.cluster.simulator.run_until(self.after_ns(time_ns))

    @property
    def present(self) -> set[int]:
        """The brokers whose processes run."""
        return {each.node_id for each in self.cluster.brokers.values() if each.life is not None}

    def unregistered(self) -> str:
        """Describe the running brokers that are not registered; empty if all are."""
        present, registered = self.present, self.cluster.published.brokers.keys()
        if present <= registered:
            return ""
        return f"of brokers {sorted(present)} only {sorted(registered)} are registered"

    def led_in_vain(self, struck: Sequence[tuple[int, SimDisk]], how: str) -> str:
        """Describe a partition whose leader is in a bad directory although another ISR member is
        up.

        `struck` has the (broker id, disk) of each bad directory; `how` says what is wrong: "slow"
        or "full". Returns an empty text if there is no such partition.
        """
        present = self.present
        for name, state in self.partitions():
            leader = self.cluster.brokers.get(state.leader)
            log = None if leader is None else leader.logs.logs.get(state.key)
            if log is None or (state.leader, log.disk) not in struck:
                continue
            if any(each in present and each != state.leader for each in state.isr):
                where = f"leader {state.leader} in {log.disk.root}, which is {how}"
                return f"{name}: {where}; ISR {state.isr}"
        return ""

    def partitions(self) -> Iterator[tuple[TopicPartition, PublishedPartition]]:
        """Yield the name and the state of each partition, except those that only an operator can
        make available.
        """
        for name, key, state in self.cluster.published.states():
            if state is not None and state.isr and not self.cluster.waits_for_operator(key):
                yield name, state
