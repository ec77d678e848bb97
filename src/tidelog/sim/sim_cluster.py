"""Simulated brokers, their metadata store and the checkers of a run.

The cluster starts its brokers, and calls the checkers after every event, every write of the store
and every traced state change. `health` returns the first reason why the cluster is not healthy.
`fault_budget.py` decides which losses the cluster can survive.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog.broker.broker import Broker
from tidelog.broker.membership.store_history import OlderStoreError
from tidelog.broker.server.idle_connections import TICKS
from tidelog.client.steps import Address
from tidelog.core.errors import ConfigError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition
from tidelog.log.recovery_walk import DamagedLog
from tidelog.metadata.store import Delete, Op, OpResult
from tidelog.metadata.tree import Tree
from tidelog.sim.broker_settings import OFFSETS_PARTITIONS, PORT, BrokerSettings, host_of
from tidelog.sim.checkers.answer_checker import AnswerChecker, LeaderWaitChecker
from tidelog.sim.checkers.checker import CheckedRun
from tidelog.sim.checkers.client_checker import ClientChecker
from tidelog.sim.checkers.command_checker import CommandChecker, ControlledShutdownChecker
from tidelog.sim.checkers.connection_checker import ConnectionChecker
from tidelog.sim.checkers.directory_move_checker import DirectoryMoveChecker, PlannedMoveChecker
from tidelog.sim.checkers.event_checker import EventChecker
from tidelog.sim.checkers.fetch_wait_checker import FetchWaitChecker
from tidelog.sim.checkers.group_checker import GroupChecker
from tidelog.sim.checkers.in_sync_checker import InSyncChecker, IsrViewChecker
from tidelog.sim.checkers.log_dir_checker import DamageChecker, LogDirChecker
from tidelog.sim.checkers.reassignment_checker import RedirectedMoveChecker, ThrottleChecker
from tidelog.sim.checkers.replication_checker import ReplicationChecker
from tidelog.sim.checkers.synced_checker import SyncedChecker
from tidelog.sim.client_history import ClientHistory
from tidelog.sim.disk import Loss
from tidelog.sim.fault_budget import FaultBudget
from tidelog.sim.loop import NS_PER_MS, EventOwner
from tidelog.sim.node import Incarnation
from tidelog.sim.observed.published_state import Published
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.sim_broker import SimBroker
from tidelog.sim.sim_store import SimStoreServer
from tidelog.sim.simulator import Simulator
from tidelog.sim.trace import canonical

#: Host name of the metadata store.
STORE_HOST: Final = "store"
#: Beginnings of the reasons with which a broker may halt after damage, or after a call that a fault
#: made fail.
_EXPECTED_HALTS: Final = ("log directory failed",)
#: Interval in ns at which an operator checks a broker that gave up a log directory.
_OPERATOR_NS: Final = 1_500 * NS_PER_MS
_ROLE_EVENTS: Final = ("became_leader", "became_follower")
#: Events that a broker traces only if its code has a defect.
_DEFECT_EVENTS: Final = ("unexpected_error", "task_failed")


class SimCluster:
    """The simulated cluster of one run, with its store, its clients' history and its checkers."""

    def __init__(self, simulator: Simulator, broker_count: int, settings: BrokerSettings) -> None:
        self.simulator = simulator
        self.settings = settings
        self.history = ClientHistory()
        self.store = SimStoreServer(
            lambda delay_ms, callback: simulator.scheduler.after(
                int(delay_ms * NS_PER_MS), None, callback
            )
        )
        self.published = Published(
            simulator.violate, lambda: simulator.now_ns, settings.of(0).min_insync_replicas
        )
        self.store.on_commit(self._trace_commit)
        self.store.on_commit(self._check_session)
        self.store.on_commit(self.published.committed)
        self.brokers: dict[int, SimBroker] = {}
        run = CheckedRun(
            self.published, simulator.violate, lambda: simulator.now_ns, self.brokers, self._promise
        )
        self.replication = ReplicationChecker(run, self.history.may_be_gone_before)
        self.clients = ClientChecker(run, self.history, self.replication)
        self.groups = GroupChecker(run, OFFSETS_PARTITIONS)
        self.shutdowns = ControlledShutdownChecker(run)
        #: Checker of the topic `__cluster_events`, if brokers write it.
        self.events = EventChecker(run) if settings.of(1).cluster_events_enable else None
        #: Number of crashes in which a broker lost data.
        self.lossy_crashes = 0
        self.budget = FaultBudget(simulator, self.brokers, self.published, self.replication)
        #: Called when a broker's process has ended.
        self.on_broker_death: Callable[[SimBroker], None] | None = None
        self._last_start_error: dict[int, str] = {}
        simulator.network.add_host(STORE_HOST)
        simulator.disk_bytes = settings.profile.disk_bytes
        for broker_id in range(1, broker_count + 1):
            node = simulator.add_node(broker_id, host_of(broker_id))
            broker = SimBroker(self, node, settings.of(broker_id))
            self.brokers[broker_id] = broker
            self.replication.add(broker)
        self._check_more(run)
        self._attach()

    def _check_more(self, run: CheckedRun) -> None:
        """Add the checkers that follow the brokers; some of them are used only in certain
        profiles.
        """
        simulator, settings = self.simulator, self.settings
        profile, config = settings.profile, settings.of(1)
        #: Checker of commits with `flush.before.ack` (V69).
        self.synced = SyncedChecker(run)
        self.replication.on_committed.append(self.synced.committed)
        self.answers = AnswerChecker(run, settings.session_timeout_ms)
        simulator.on_note.append(self.answers.noted)
        #: Checker of responses that wait for the next leader (V83), if the profile uses it.
        #: It replaces AnswerChecker, the checker of pauses, because these profiles have no pauses.
        self.leader_waits = LeaderWaitChecker(run, config) if profile.watches_leader_waits else None
        #: Checker of ISR membership, if the configuration keeps followers in sync that wait for a
        #: leader's slow read.
        self.in_sync: InSyncChecker | None = None
        if config.follower_fetch_pending_reads_insync_enable:
            self.in_sync = InSyncChecker(run, settings, self._is_connected)
        self.damage = DamageChecker(run)
        self.directory_moves = DirectoryMoveChecker(run)
        self.redirected_moves = RedirectedMoveChecker(run)
        self.planned_moves = PlannedMoveChecker(run)
        #: Checker of the replication throttle, if the profile uses it (R15).
        self.throttling = ThrottleChecker(run) if profile.throttles else None
        self.log_dirs = LogDirChecker(run)
        self.replication.on_committed.append(self.log_dirs.committed)
        self.commands = CommandChecker(run)
        #: Checker of waiting fetches, if the profile has fetches that wait for many bytes (V61).
        self.fetch_waits = FetchWaitChecker(run) if profile.patient_fetches else None
        if profile.leaders_hear:
            # Checker of the ISRs that leaders know, if the profile does not delay commands (A9).
            IsrViewChecker(run, lambda ns, callback: simulator.scheduler.after(ns, None, callback))
        #: Checker of `max.connections` (L1), if the profile has crowds of clients that reach the
        #: limit. It replaces AnswerChecker, the checker of pauses.
        self.connections: ConnectionChecker | None = None
        if "max.connections" in profile.properties:
            precision_ms = config.connections_max_idle_ms // TICKS + 1
            hosts = [host_of(broker_id) for broker_id in self.brokers]
            self.connections = ConnectionChecker(run, hosts, config.max_connections, precision_ms)

    def _attach(self) -> None:
        """Register the callbacks of the cluster and its checkers.

        Some of the callbacks let the fault budget refuse crashes and session expiries.
        """
        simulator = self.simulator
        simulator.scheduler.after_event = self._after_event
        simulator.network.frame_watch = self.leader_waits or self.connections or self.answers
        simulator.network.connection_watch = self.connections
        self.budget.commits_synced = self.settings.flushes_before_ack
        simulator.judge_crash = self.budget.judge_crash
        self.store.may_expire = self.budget.may_expire
        simulator.on_death.append(self._died)
        simulator.on_halt = self._halted
        simulator.on_traced.append(self._traced)

    def _is_connected(self, node_id: int, other_id: int) -> bool:
        """Return whether a broker has an open connection from another broker's host."""
        life = self.brokers[node_id].life
        host = host_of(other_id)
        return life is not None and any(
            endpoint.is_accepted and endpoint.peer_name.startswith(f"{host}:")
            for endpoint in self.simulator.network.connections_of(life)
        )

    @property
    def bootstrap(self) -> list[Address]:
        """Addresses of all brokers, for clients to bootstrap from."""
        return [Address(host_of(broker_id), PORT) for broker_id in self.brokers]

    def start(self) -> None:
        """Start every broker that is down."""
        for broker in self.brokers.values():
            if broker.life is None:
                broker.start()

    def reaches_store(self, host: str) -> bool:
        """Return whether a node and the store can communicate."""
        network = self.simulator.network
        if not self.store.is_available:
            return False
        return not (network.link(host, STORE_HOST).cut or network.link(STORE_HOST, host).cut)

    def refuses_stop(self, node_id: int) -> bool:
        """Return whether the fault budget forbids that a broker stops now."""
        return self.budget.refuses_stop(node_id)

    def put_store_back(self, copy: Tree) -> None:
        """Replace the store by an older copy with the same topics, while no broker runs."""
        self.store.put_back(copy)
        self.published.put_back(self.store.tree.dump(), self.store.tree.zxid)
        self.replication.store_put_back()

    # Callbacks

    def is_ending(self, broker: SimBroker) -> None:
        """Check the changes that a broker made in the event in which it dies, because other nodes
        may have learned of these changes.

        """
        self.replication.after_event(broker)

    def has_composed(self, broker: Broker) -> None:
        """Let checkers observe a broker's requests; called just before the broker starts."""
        if self.throttling is not None:
            broker.put_around_handlers(self.throttling.watching(broker))

    def _promise(self, what: str) -> None:
        """Handle a broken promise: an acknowledged operation is lost, or responses contradict each
        other.

        A broken promise is a violation only if the run keeps within the fault budget.
        """
        if self.history.keeps_promises:
            self.simulator.violate(what)

    def _trace_commit(
        self, zxid: int, session_id: int, ops: Sequence[Op], results: Sequence[OpResult]
    ) -> None:
        changes = [
            f"{type(op).__name__} {result.path}{canonical(getattr(op, 'data', b''))}"
            for op, result in zip(ops, results, strict=True)
        ]
        self.simulator.note(-1, "store", f"{zxid} session {session_id}: {'; '.join(changes)}")

    def _check_session(
        self, zxid: int, session_id: int, ops: Sequence[Op], _: Sequence[OpResult]
    ) -> None:
        """Check that a session writes nothing after its end (S1).

        Only deletions are allowed, because the store deletes the session's ephemeral nodes in its
        name.
        """
        if not self.store.is_live(session_id) and not all(isinstance(op, Delete) for op in ops):
            self.simulator.violate(f"transaction {zxid} is of session {session_id}, which is over")

    def _after_event(self, owner: EventOwner | None) -> None:
        if owner is not None and owner.alive:
            broker = self.brokers.get(owner.node_id)
            if broker is not None:
                self.replication.after_event(broker)
                self.log_dirs.after_event(owner.node_id)
                if self.fetch_waits is not None:
                    self.fetch_waits.after_event()
                if self.in_sync is not None:
                    self.in_sync.after_event()
                if self.throttling is not None:
                    self.throttling.after_event(owner.node_id)

    def _died(self, incarnation: Incarnation, _: Loss) -> None:
        broker = self.brokers.get(incarnation.node_id)
        if broker is None:
            return
        if self.leader_waits is not None:
            self.leader_waits.died(incarnation.node_id)
        # After a clean shutdown, a disk can lose only pages that a failed fsync dropped.
        struck = [
            disk
            for disk, had_dropped in incarnation.struck_disks.items()
            if had_dropped or not broker.stopped_cleanly
        ]
        if struck:
            self.lossy_crashes += 1
        # A damaged disk counts as lossy, too: the next start may truncate damaged records, even
        # after a clean shutdown (V68).
        damaged = [disk for disk in broker.logs.disks if disk.is_damaged]
        self.replication.crashed(
            broker,
            lossy=bool(struck or damaged),
            keeps_committed=self.settings.flushes_before_ack and not damaged,
            struck=[*struck, *damaged],
        )
        self.groups.died(broker.node_id)
        if self.on_broker_death is not None:
            self.on_broker_death(broker)

    def _halted(self, incarnation: Incarnation, reason: str) -> None:
        broker = self.brokers.get(incarnation.node_id)
        is_explained = broker is not None and (
            broker.has_met_failed_call
            or broker.was_damaged
            or incarnation.node_id in self.log_dirs.hung
        )
        if not (is_explained and reason.startswith(_EXPECTED_HALTS)):
            self.simulator.violate(f"node {incarnation.node_id} halted: {reason}")
        elif broker is not None and not broker.was_damaged:
            # If the broker was damaged, the halt is explained: damage that cannot be repaired makes
            # a directory fail.
            self.log_dirs.halted(incarnation)

    def _traced(self, incarnation: Incarnation, name: str, fields: dict[str, Any]) -> None:
        if name == "groups_loaded":
            self.groups.loaded(incarnation.node_id, fields["partition"])
        elif name == "groups_unloaded":
            self.groups.unloaded(incarnation.node_id, fields["partition"])
        elif name in _ROLE_EVENTS:
            self.commands.role_taken(incarnation.node_id, fields["partition"], fields["leader"])
        elif name == "brokers_told":
            self.commands.metadata_applied(incarnation.node_id, fields["brokers"])
        elif name == "unread_topic_deleted":
            self.commands.unread_deleted(fields["topic"])
        elif name == "broker_handed_over":
            self.shutdowns.answered(fields["broker"], fields["epoch"], fields["remaining"])
        elif name == "handed_over":
            self.shutdowns.may_stop(incarnation.node_id)
        elif name == "log_corrupt":
            self.damage.found(incarnation, fields["path"])
        elif name == "directory_move_swapped":
            self.directory_moves.swapped(
                incarnation.node_id, fields["partition"], fields["source"], fields["target"]
            )
        elif name == "directory_move_planned":
            running = self.brokers[incarnation.node_id].broker
            assert running is not None, "a broker traces while it runs"
            self.planned_moves.begun(incarnation.node_id, running.config, **fields)
        elif name == "log_directory_failed":
            self.log_dirs.failed(incarnation, fields["directory"])
        elif name in ("replicas_offline", "log_directory_unusable"):
            if name == "log_directory_unusable":
                self.log_dirs.unusable(incarnation, fields["directory"])
            self._operate_later(self.brokers[incarnation.node_id])
        elif name in _DEFECT_EVENTS:
            text = " ".join(f"{key}={value}" for key, value in fields.items())
            self.simulator.violate(f"node {incarnation.node_id}: {name} {text}")

    def _operate_later(self, broker: SimBroker) -> None:
        """Let an operator restart a broker that gave up a directory, once its disks work again."""
        life = broker.life

        def operate() -> None:
            if broker.life is not life or life is None:
                return
            disks = broker.logs.disks
            is_failing = any(disk.fault is not None or disk.hangs for disk in disks)
            if is_failing or not broker.crash(Loss.NONE, "an operator has looked at its disks"):
                self.simulator.scheduler.after(_OPERATOR_NS, None, operate)

        self.simulator.scheduler.after(_OPERATOR_NS, None, operate)

    def start_failed(self, broker: SimBroker, error: BaseException) -> None:
        """Record that a broker could not start; an operator will start the broker again."""
        self._last_start_error[broker.node_id] = "".join(traceback.format_exception(error))
        self.simulator.note(broker.node_id, "start failed", repr(error))
        # If a fault has damaged the leader epoch in the last batch of a log, the broker may take
        # the store for an older copy, and refuse to start.
        is_doubtful = broker.was_damaged and isinstance(error, OlderStoreError)
        if is_doubtful or isinstance(error, (DamagedLog, ConfigError)):
            if broker.was_damaged:
                broker.was_refused = True
            else:
                self.simulator.violate(f"node {broker.node_id} refuses an undamaged disk: {error}")

    # Health

    def future_replica(self) -> str:
        """Describe a future replica of a running broker (D11); empty if there is none."""
        for broker_id, node in self.brokers.items():
            for directory in () if node.broker is None else node.broker.replicas.directories:
                for tp in directory.future_logs.found:
                    return f"broker {broker_id} has a future replica of {tp} in {directory.path}"
        return ""

    def group_waits_for_operator(self, group: str) -> bool:
        """Return whether only an operator can make the partition of a group's coordinator available
        again.
        """
        partition = TopicPartition(CONSUMER_OFFSETS, self.groups.partition_of(group))
        key = self.published.find(partition)
        return key is not None and self.waits_for_operator(key)

    def waits_for_operator(self, key: LogKey) -> bool:
        """Return whether only an operator can make a partition available again (D3): its ISR
        members are up, but have no log.

        A crash may interrupt the creation of the replicas; published state does not distinguish
        this from a loss of their logs, so only an operator can decide. This is allowed only if no
        record of the partition was ever committed. A partition with committed records but without a
        log has lost data, so `health` reports it.
        """
        state = self.published.partitions.get(key)
        if state is None or state.leader >= 0:
            return False
        if self.replication.truth(key).committed and self.history.keeps_promises:
            return False
        return all(
            self.brokers[member].life is not None and key not in self.brokers[member].logs.logs
            for member in state.isr
        )

    def health(self) -> str:
        """Return the first reason why the cluster is not fully in sync; empty if there is none."""
        for broker in self.brokers.values():
            if broker.life is None:
                error = self._last_start_error.get(broker.node_id, "")
                return f"broker {broker.node_id} is down {error}"
            if broker.node_id not in self.published.brokers:
                return f"broker {broker.node_id} is not registered"
            for disk in broker.logs.disks:
                if disk.is_failed:
                    return f"{disk.root} of broker {broker.node_id} has failed"
        for name, key, state in self.published.states():
            replicas = self.published.topics[name.topic].assignment[name.partition]
            if state is None:
                return f"{name} has no state"
            if not state.isr:
                return f"{name} is being removed"
            if self.waits_for_operator(key):
                continue
            if state.leader < 0:
                return f"{name} has no leader; ISR {state.isr}"
            if state.is_recovering:
                return f"{name}: leader {state.leader} has not recovered"
            if sorted(state.isr) != sorted(replicas):
                return (
                    f"{name}: ISR {state.isr} of {replicas}, leader {state.leader} epoch"
                    f" {state.leader_epoch}"
                )
        return self._unannounced()

    def _unannounced(self) -> str:
        """Describe the first ISR that a broker's metadata shows wrongly; empty if there is none.

        A leader that writes a state node itself must notify the controller, which informs the
        brokers (A12). If leaders do not write state nodes, nothing is checked, because the
        controller writes all states.
        """
        if not self.settings.levels:
            return ""
        for name, _, state in self.published.states():
            for broker in self.brokers.values():
                if broker.broker is None:
                    return f"broker {broker.node_id} has not begun"
                shown = broker.broker.view.partition(name)
                if shown is None or state is None or sorted(shown.isr) != sorted(state.isr):
                    isrs = [None if each is None else each.isr for each in (shown, state)]
                    return (
                        f"{name}: broker {broker.node_id} shows ISR {isrs[0]}, the state node has"
                        f" {isrs[1]}"
                    )
        return ""
