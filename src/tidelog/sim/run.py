"""One run from one seed: a cluster, clients, faults and checks.

The brokers start and topics are created. Clients work while faults happen. Within a minute after
the faults, all replicas must be in sync, all batches acknowledged, all records read. At the end,
the requests and responses of the clients are checked as a history. A run ends at its first
violation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tidelog.history.operations import Operation
from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.client_workload import ClientWorkload
from tidelog.sim.faults import KINDS, SCENARIOS, Faults
from tidelog.sim.final_phase import FinalPhase
from tidelog.sim.loop import NS_PER_MS, NS_PER_S
from tidelog.sim.mutation import applied
from tidelog.sim.outcomes import OutcomeWatch
from tidelog.sim.phases import PHASES, Stage
from tidelog.sim.policies import under_policy
from tidelog.sim.profiles import PROFILES, SWARM, Profile, named
from tidelog.sim.reductions import Only, Played, parse
from tidelog.sim.results import COUNTERS, RunResult, sum_up
from tidelog.sim.sandbox import sandboxed
from tidelog.sim.seeds import stream
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import CollectorPaused, Simulator
from tidelog.sim.swarm import described, world_of
from tidelog.sim.workload.administrator import Churn
from tidelog.sim.workload.record_churn import COMPACTED_TOPICS

BROKERS: Final = 3
START_LIMIT_NS: Final = 30 * NS_PER_S
#: Node ids of the clients whose links faults may disturb: the administrator, a producer, a
#: consumer, a group member.
_CLIENTS_CUT_OFF: Final = (101, 102, 104, 105)

#: Name for a mix of profiles: the swarm for every second seed, the other profiles in turn.
MIXED: Final = "mixed"


def profile_of(seed: int) -> str:
    """Return the name of the profile that a seed has under MIXED."""
    if seed % 2 == 0:
        return SWARM
    others = [name for name in PROFILES if name != SWARM]
    return others[seed // 2 % len(others)]


class SeedRun:
    """One simulated run of a cluster with clients and faults, from one seed."""

    def __init__(
        self,
        seed: int,
        profile: str = "default",
        listener: Callable[[str], None] | None = None,
        limit_events: int | None = None,
        *,
        chosen: Sequence[str] = (),
        only: Only | None = None,
        played: Sequence[Played] = (),
        policy: str = "",
    ) -> None:
        """Prepare the run.

        `chosen` are kinds of faults that replace the profile's kinds. `only` is the reduction of
        the run, and `played` are the faults of the unreduced run. `policy` is the name of a policy
        (`sim/policies`).
        """
        self.seed = seed
        self._limit_events = limit_events
        self.profile = under_policy(_choosing(_profile(profile, seed), chosen), policy)
        self.policy = policy
        self.chosen = tuple(chosen)
        self.only = only or Only()
        self.simulator = Simulator(seed)
        if self.only.links:
            self.simulator.network.draw = stream(seed, "network", self.only.links)
        self.simulator.trace.listener = listener
        self._draw = stream(seed, "run")
        settings = _settings(self._draw, seed, self.profile)
        self.cluster = SimCluster(self.simulator, self.profile.brokers, settings)
        self._outcomes = OutcomeWatch(self.cluster)
        self._crashes = 0
        self.simulator.on_death.append(self._count_crash)
        drawn = self._draw.randrange(1, 4)
        self._fault_ns = _time_of_faults_ns(self._draw, self.only)
        self._workload = ClientWorkload(
            seed,
            self.cluster,
            self.profile,
            self.only,
            self._draw,
            min(drawn, self.only.partitions or drawn),
        )
        self._stage = Stage(self.cluster, self._workload, self._draw, self._wait)
        self._final_phase = FinalPhase(self._stage, self.profile, self._outcomes.end)
        self.faults = Faults(
            self.cluster,
            [f"client{node_id}" for node_id in _CLIENTS_CUT_OFF],
            stream(seed, "faults"),
            self.profile,
            leave_out=[name for name in SCENARIOS if not self.only.keeps_kind(name)],
        )
        if self.only.needs_whole:
            self.faults.script = self.only.of(played)

    @property
    def churn(self) -> Churn | None:
        """The client that changes a topic all the time; None if the profile has no such client."""
        return self._workload.churn

    def run(self) -> RunResult:
        """Run to the end or the first violation."""
        try:
            self._phases()
            return self._result()
        finally:
            self.simulator.close()

    def _phases(self) -> None:
        simulator = self.simulator
        self.cluster.start()
        if not self._wait(lambda: bool(self.cluster.health()), START_LIMIT_NS, "start"):
            return
        are_made = self._workload.create_topics()
        if not self._wait(
            lambda: not are_made() or bool(self.cluster.health()),
            simulator.now_ns + START_LIMIT_NS,
            "topics are made",
        ):
            return
        self._workload.begin()
        self._outcomes.begin()
        self.faults.begin()
        end_ns = simulator.now_ns + self._fault_ns
        if not self._wait(lambda: simulator.now_ns < end_ns, end_ns, "faults end"):
            return
        self.faults.end()
        self._outcomes.faults_ended()
        phase = self.profile.phase
        if not phase or PHASES[phase](replace(self._stage, draw=stream(self.seed, phase))):
            was_damaged = any(kind.startswith("damaged") for kind in self.faults.counts)
            self._final_phase.run(was_damaged=was_damaged)

    def operations(self) -> list[Operation]:
        """Return the requests and responses of clients so far, as a history."""
        return self._final_phase.operations()

    def _wait(self, unfinished: Callable[[], bool], limit_ns: int, what: str) -> bool:
        """Run until `unfinished()` is false; return False after a violation.

        If `unfinished()` is still true at `limit_ns`, the run has violated liveness.
        """
        simulator = self.simulator
        while unfinished():
            if simulator.violations or self._is_cut_short():
                return False
            if simulator.now_ns >= limit_ns:
                simulator.violate(f"not in time: {what} ({self._why_waiting()})")
                return False
            simulator.run_until(min(limit_ns, simulator.now_ns + 20 * NS_PER_MS))
        return not simulator.violations

    def _is_cut_short(self) -> bool:
        return self._limit_events is not None and self.simulator.trace.events >= self._limit_events

    def _why_waiting(self) -> str:
        open_operations = [
            str(operation)
            for operation in self.cluster.history.produces
            if operation.outcome.value == "open"
        ]
        altering, churning = self._workload.churn, self._workload.churning
        health = self.cluster.health() or "healthy"
        parts = [f"{health}; open: {open_operations[:3]}"]
        parts.append("" if altering is None else altering.unsettled(self.cluster))
        parts.append("" if churning is None else churning.unfinished())
        return "; ".join(filter(None, parts))

    # Results

    def _count_crash(self, incarnation: object, _: object) -> None:
        self._crashes += 1

    def _result(self) -> RunResult:
        cluster, simulator = self.cluster, self.simulator
        history = cluster.history
        values = (
            cluster.published.elections,
            cluster.replication.truncations,
            cluster.published.shrinks,
            cluster.published.expansions,
            self._crashes,
            cluster.lossy_crashes,
            cluster.budget.refused_losses,
            cluster.store.expiries,
            history.suppressed_duplicates,
            history.acknowledged_records,
            history.read_records,
            cluster.groups.coordinator_moves,
            cluster.groups.rebalances,
            cluster.groups.acknowledged_commits,
        )
        return RunResult(
            seed=self.seed,
            profile=self.profile.name,
            chosen=self.chosen,
            only=str(self.only),
            policy=self.policy,
            world=described(self.profile) if self.profile.name == SWARM else "",
            partitions=self._workload.partitions,
            trace_hash=simulator.trace.digest(),
            block_hashes=simulator.trace.block_hashes,
            events=simulator.trace.events,
            simulated_ns=simulator.now_ns,
            counters=dict(zip(COUNTERS, values, strict=True)),
            faults=dict(self.faults.counts),
            churn=self._workload.changes(),
            marks=dict(simulator.trace.marks),
            file_errors=self._file_errors(),
            outcomes=self._outcomes.outcomes(),
            violation=simulator.violations[0] if simulator.violations else "",
            recent=list(simulator.trace.recent) if simulator.violations else [],
        )

    def _file_errors(self) -> dict[str, int]:
        """Return how many calls of all disks failed, by errno and call."""
        found: dict[str, int] = {}
        for disk in self.simulator.disks.values():
            sum_up(found, disk.call_errors)
        return found


def _settings(draw: random.Random, seed: int, profile: Profile) -> BrokerSettings:
    """Return the settings of the run's brokers; some of them are drawn from the seed."""
    settings = BrokerSettings(
        session_timeout_ms=draw.choice((900, 1_500, 3_000)),
        lag_time_max_ms=draw.choice((900, 2_000, 4_000)),
        detect_ms=draw.choice((None, 1.0, 20.0)),
        profile=profile,
        properties=dict(profile.properties),
        log_dirs=stream(seed, "log_dirs").choice(profile.log_dirs),
        compacted_topics=COMPACTED_TOPICS,
        levels=_levels(seed, profile),
    )
    for key, values in profile.drawn_properties.items():
        settings.properties[key] = stream(seed, key).choice(values)
    if profile.session_timeout_ms:
        settings.session_timeout_ms = profile.session_timeout_ms
        settings.detect_ms = None
    return settings


def _time_of_faults_ns(draw: random.Random, only: Only) -> int:
    """Return for how many ns faults happen: a random time, unless the reduction has a shorter
    one.
    """
    time_ns = draw.randrange(8, 16) * NS_PER_S
    return time_ns if only.until_ms is None else min(time_ns, only.until_ms * NS_PER_MS)


def _levels(seed: int, profile: Profile) -> dict[int, str]:
    """Return the protocol level that each broker draws; empty if all have the newest level."""
    if not profile.protocol_levels:
        return {}
    draw = stream(seed, "levels")
    return {
        broker_id: draw.choice(profile.protocol_levels)
        for broker_id in range(1, profile.brokers + 1)
    }


def _profile(name: str, seed: int) -> Profile:
    """Return the profile `name`; for the swarm, the profile that the seed draws."""
    return world_of(seed) if name == SWARM else named(name)


def _choosing(profile: Profile, chosen: Sequence[str]) -> Profile:
    """Return the profile with the kinds of faults `chosen`, all of which every seed uses."""
    if not chosen:
        return profile
    weights = {kind: profile.weights.get(kind, 1.0) for kind in chosen}
    pace = replace(profile.pace, left_out=0.0)
    return replace(profile, weights=weights, pace=pace, has_all_kinds=False)


def run_seed(
    seed: int,
    profile: str = "default",
    mutant: str = "",
    listener: Callable[[str], None] | None = None,
    on_history: Callable[[list[Operation]], None] | None = None,
    limit_events: int | None = None,
    *,
    chosen: Sequence[str] = (),
    only: str = "",
    policy: str = "",
    observe: Callable[[SeedRun], None] | None = None,
) -> RunResult:
    """Run one seed, with a mutant in the brokers if one is named (`sim/mutation`).

    `on_history` is called with the history of the clients, `observe` with the run before it begins.
    With `limit_events`, the run ends soon after that number of events, and the remaining phases and
    their checks are left out. `chosen` and `policy` mean the same as in `SeedRun`. `only` is a
    reduction of the run, in the form that `shrink` prints. Raises ReductionError if `only` names no
    reduction.
    """
    if profile == MIXED:
        profile = profile_of(seed)
    left = parse(only, [*KINDS, *SCENARIOS])
    played = whole_run(seed, profile, mutant, chosen, policy)[1] if left.needs_whole else []
    result, run = _run(
        lambda: SeedRun(
            seed,
            profile,
            listener,
            limit_events,
            chosen=chosen,
            only=left,
            played=played,
            policy=policy,
        ),
        mutant,
        observe,
    )
    if on_history is not None:
        on_history(run.operations())
    return result


def whole_run(
    seed: int, profile: str, mutant: str, chosen: Sequence[str], policy: str = ""
) -> tuple[RunResult, list[Played]]:
    """Make an unreduced run, to be reduced later; return its result and its faults."""
    result, run = _run(lambda: SeedRun(seed, profile, chosen=chosen, policy=policy), mutant)
    return result, run.faults.played


def reduced_run(whole: RunResult, played: Sequence[Played], only: Only) -> RunResult:
    """Repeat the run of `whole`, reduced to the parts that `only` keeps."""
    return _run(
        lambda: SeedRun(
            whole.seed,
            whole.profile,
            chosen=whole.chosen,
            only=only,
            played=played,
            policy=whole.policy,
        ),
        whole.mutant,
    )[0]


def _run(
    make: Callable[[], SeedRun], mutant: str, observe: Callable[[SeedRun], None] | None = None
) -> tuple[RunResult, SeedRun]:
    with CollectorPaused(), applied(mutant), sandboxed() as reached:
        run = make()
        if observe is not None:
            observe(run)
        result = run.run()
    result.mutant = mutant
    if reached and not result.violation:
        result.violation = reached[0]
    return result, run
