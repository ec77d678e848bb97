"""The scheduler of one run's faults: it draws their times and kinds, and finally ends all faults.

Each seed draws which of its profile's kinds of faults happen, and how often. To find the faults
that a violation needs, a run can be repeated without some kinds of faults, or with its first faults
only. In profiles with a separate random stream for each fault, leaving out a fault does not change
the remaining faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

# Each module registers its kinds.
from tidelog.sim.faults import (  # noqa: F401
    clocks,
    disks,
    elections,
    leaderships,
    log_dirs,
    network,
    processes,
    restarts,
    rogues,
    scenarios,
    stale_members,
    store,
)
from tidelog.sim.faults.context import FaultContext, RunFaults
from tidelog.sim.faults.kinds import KINDS, LOG_DIRS, SCENARIOS
from tidelog.sim.loop import NS_PER_MS, TimedCall
from tidelog.sim.profiles import Profile
from tidelog.sim.reductions import Played
from tidelog.sim.seeds import stream
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_cluster import SimCluster


def _weights(profile: Profile, draw: random.Random, seed: int) -> dict[str, float]:
    """Return the relative frequency of each kind of fault that a seed uses."""
    weights = {}
    if profile.has_all_kinds:
        for name, kind in KINDS.items():
            if kind.family == LOG_DIRS and profile.log_dirs == (1,):
                continue
            own = stream(seed, "kind", name)
            if own.random() >= profile.pace.left_out:
                weights[name] = own.uniform(0.1, 1.9)
        return weights
    for name, weight in profile.weights.items():
        if draw.random() >= profile.pace.left_out:
            weights[name] = weight * draw.uniform(0.3, 1.7)
    return weights


class Faults(RunFaults):
    """The scheduler that injects one run's faults.

    `leave_out` names kinds of faults and scenarios that are drawn but not injected. Raises
    ValueError for an unknown kind of fault or scenario.
    """

    def __init__(
        self,
        cluster: SimCluster,
        client_hosts: list[str],
        draw: random.Random,
        profile: Profile,
        *,
        leave_out: Collection[str] = (),
    ) -> None:
        unknown = [name for name in leave_out if name not in KINDS and name not in SCENARIOS]
        if unknown:
            raise ValueError(
                f"no kinds of faults to leave out: {', '.join(unknown)}; there are"
                f" {', '.join([*KINDS, *SCENARIOS])}"
            )
        super().__init__()
        self.cluster = cluster
        self.profile = profile
        #: Number of faults drawn so far.
        self.drawn = 0
        #: The faults drawn so far, with the data that is needed to inject them again.
        self.played: list[Played] = []
        #: In a reduced run (`sim/reductions`), the faults to inject instead of drawn faults.
        self.script: list[Played] | None = None
        self._leave_out = frozenset(leave_out)
        self._draw = draw
        self._hosts = [broker.node.host for broker in cluster.brokers.values()] + client_hosts
        #: The event that draws the next fault; cancelled when the faults end.
        self._pending: TimedCall | None = None
        self._mean_interval_ms = draw.randrange(*profile.pace.interval_ms)
        self._restart_ms = draw.choice(profile.pace.down_ms)
        self._weights = _weights(profile, draw, cluster.simulator.seed) or {"strike": 1.0}
        cluster.budget.is_kept = profile.keeps_budget
        cluster.history.keeps_promises = profile.keeps_promises
        cluster.on_broker_death = self._restart_later

    # Beginning and end

    def begin(self) -> None:
        """Let faults happen from now on."""
        self.is_active = True
        delay_ms = self._draw.uniform(0, self._mean_interval_ms)
        if self.script is None:
            self._pending = self._later(delay_ms, self._next)
        else:
            self._begin_script(self.script)
        name = self.profile.scenario
        if name and name not in self._leave_out:
            context = self._stage("scenario")
            context.play(SCENARIOS[name](context))

    def end(self) -> None:
        """End the faults: heal everything and start every broker."""
        self.is_active = False
        if self._pending is not None:
            self._pending.cancel()
        cluster = self.cluster
        cluster.simulator.network.heal_everything()
        for broker in cluster.brokers.values():
            if broker.life is not None:
                broker.life.plan_strike(None)
                if broker.store is not None:
                    broker.store.write_strike = None
                broker.life.resume()
        for undo in self._undo:
            undo()
        cluster.start()
        cluster.simulator.note(-1, "faults", "ended")

    # Draws

    def _next(self) -> None:
        if not self.is_active:
            return
        kinds = list(self._weights)
        kind = self._draw.choices(kinds, [self._weights[name] for name in kinds])[0]
        self._inject(kind, self.drawn)
        delay_ms = self._draw.expovariate(1.0) * self._mean_interval_ms
        self._pending = self._later(delay_ms, self._next)

    def _inject(self, kind: str, index: int) -> None:
        now_ns = self.cluster.simulator.now_ns
        self.played.append(Played(now_ns, kind, index, self._draw.getstate()))
        self.drawn += 1
        if kind not in self._leave_out and KINDS[kind].inject(self._stage(index)):
            self.count(kind)

    def _begin_script(self, script: list[Played]) -> None:
        """Schedule the faults of a reduced run at the times that they had in the unreduced run.

        Before each fault, the random stream is set to the state that was recorded with the fault,
        so that the fault draws the same details again.
        """
        scheduler = self.cluster.simulator.scheduler

        def play(fault: Played) -> None:
            if self.is_active:
                self._draw.setstate(fault.draw_state)
                self._inject(fault.kind, fault.drawn_before)
                self._draw.expovariate(1.0)

        for fault in script:
            scheduler.at(fault.time_ns, None, play, fault)

    def _stage(self, index: int | str) -> FaultContext:
        draw = self._draw
        if not self.profile.shares_stream:
            draw = stream(self.cluster.simulator.seed, "fault", index)
        return FaultContext(self, self.cluster, self._hosts, draw)

    def _restart_later(self, broker: SimBroker) -> None:
        draw = self._draw
        if not self.profile.shares_stream:
            seed = self.cluster.simulator.seed
            draw = stream(seed, "restart", broker.node_id, broker.incarnation)

        def restart() -> None:
            if broker.life is None:
                broker.start()

        self._later(draw.uniform(*self._restart_ms), restart)

    def _later(self, delay_ms: float, callback: Callable[[], None]) -> TimedCall:
        return self.cluster.simulator.scheduler.after(int(delay_ms * NS_PER_MS), None, callback)
