"""Whole brokers, their metadata store and checkers in one world.

A `SimBroker` is a node whose incarnations start the very composition of real processes
(`tidelog.broker.broker.Broker`). The cluster starts, crashes, pauses and cuts them, keeps the fault
budget (data is lost only where another member of each published ISR has all that is committed),
and lets the checkers look after every event.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.broker.broker import Broker
from tidelog.broker.partitions import Partition
from tidelog.client.steps import Address
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError, NodeDead, StorageError, TidelogError
from tidelog.core.ports import Ports
from tidelog.core.types import NO_BROKER_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.log.recovery import DamagedLog
from tidelog.metadata.store import Delete, Op, OpResult
from tidelog.replication import isr as isr_rules
from tidelog.replication.leader import LeaderReplica
from tidelog.sim.checkers.answers import AnswerChecker
from tidelog.sim.checkers.clients import ClientChecker
from tidelog.sim.checkers.commands import CommandChecker
from tidelog.sim.checkers.events import EventChecker
from tidelog.sim.checkers.groups import GroupChecker
from tidelog.sim.checkers.hand_overs import HandOverChecker
from tidelog.sim.checkers.logs import LogKey, NodeLogs
from tidelog.sim.checkers.published import Published, PublishedPartition
from tidelog.sim.checkers.replication import Claim, ReplicationChecker
from tidelog.sim.disk import Loss
from tidelog.sim.history import History
from tidelog.sim.loop import NS_PER_MS, EventOwner
from tidelog.sim.node import Incarnation, SimNode
from tidelog.sim.seeds import stream
from tidelog.sim.store import SimStoreClient, SimStoreServer
from tidelog.sim.trace import canonical
from tidelog.sim.world import World

PORT: Final = 9092
LOG_DIRECTORY: Final = "/data"
#: Partitions of `__consumer_offsets`.
OFFSETS_PARTITIONS: Final = 3
#: The store's side of links between it and nodes.
STORE_HOST: Final = "store"
#: Delay of a message between a node and the store, in ms.
STORE_LATENCY_MS: Final = (0.1, 1.5)
#: Reasons of halts that damage explains, or a call which a fault made fail.
_EXPECTED_HALTS: Final = ("log directory failed",)
#: Traced by a broker when one of its parts is wrong.
_ROLE_EVENTS: Final = ("became_leader", "became_follower")
_DEFECT_EVENTS: Final = ("unexpected_error", "task_failed")


@dataclass(slots=True)
class Settings:
    """What a run's brokers are told; times are short, so that much happens in little time."""

    session_timeout_ms: int = 1_500
    lag_time_max_ms: int = 2_000
    #: How soon the store notices a dead process; None: at its session timeout.
    detect_ms: float | None = None
    properties: dict[str, str] = field(default_factory=dict)
    #: Topics are compacted: checkers expect gaps.
    compacted: bool = False
    #: Topics that are compacted where not all are.
    compacted_topics: tuple[str, ...] = ()
    #: Range of the delays of messages between nodes and the store.
    store_latency_ms: tuple[float, float] = STORE_LATENCY_MS

    def of(self, broker_id: int) -> BrokerConfig:
        """The configuration of one broker."""
        return BrokerConfig.from_properties(
            {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://{host_of(broker_id)}:{PORT}",
                "log.dirs": LOG_DIRECTORY,
                "metadata.session.timeout.ms": str(self.session_timeout_ms),
                "replica.lag.time.max.ms": str(self.lag_time_max_ms),
                "replica.fetch.wait.max.ms": "250",
                "replica.fetch.backoff.ms": "100",
                "replica.socket.timeout.ms": "1500",
                "replica.high.watermark.checkpoint.interval.ms": "700",
                "log.flush.offset.checkpoint.interval.ms": "1500",
                "log.segment.bytes": "16384",
                "log.index.interval.bytes": "512",
                "log.segment.delete.delay.ms": "500",
                "controller.socket.timeout.ms": "1500",
                "controller.activity.timeout.ms": "0",
                "request.timeout.ms": "2000",
                "controlled.shutdown.enable": "false",
                "auto.create.topics.enable": "false",
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
                "offsets.topic.segment.bytes": "16384",
                "offsets.commit.timeout.ms": "1500",
                "offsets.load.buffer.size": "4096",
                "group.min.session.timeout.ms": "100",
                "group.initial.rebalance.delay.ms": "200",
                **self.properties,
            }
        )


def _claim(partition: Partition, published: Published) -> Claim:
    role = partition.role
    in_flight: tuple[tuple[int, int], ...] = ()
    if isinstance(role, LeaderReplica) and (role.isr.in_flight or role.isr.queued):
        queued = role.isr.queued
        in_flight = tuple(
            pair
            for change in (*role.isr.in_flight, *(() if queued is None else (queued,)))
            for pair in zip(change.isr, change.isr_epochs, strict=True)
        )
    maximal_isr = isr_rules.maximal_isr(role.isr) if isinstance(role, LeaderReplica) else ()
    name = partition.topic_partition
    return Claim(
        published.key(partition.topic_id, name.partition, partition.leader_epoch),
        name,
        isinstance(role, LeaderReplica),
        partition.leader_epoch,
        partition.high_watermark,
        in_flight,
        maximal_isr,
    )


def host_of(broker_id: int) -> str:
    """The host name of a broker."""
    return f"broker{broker_id}"


class SimBroker:
    """One broker over all its incarnations; `checkers.replication.Observed` and
    `checkers.commands.Commanded`."""

    def __init__(self, cluster: Cluster, node: SimNode, config: BrokerConfig) -> None:
        self._cluster = cluster
        self.node = node
        self.config = config
        self.broker: Broker | None = None
        self.store: SimStoreClient | None = None
        #: Whether it stopped as told: then nothing may be lost, not even with the power.
        self.stopped_cleanly = False
        #: Whether it was told to stop and has not ended yet.
        self.is_stopping = False
        #: Something damaged its disk since that was empty, and it would not start on it.
        self.was_damaged = self.was_refused = False
        self._has_started = False
        self._is_ending = False
        #: Calls of earlier lives that faults made fail.
        self._failed_calls_before = 0
        self._looked_at: dict[Partition, object] = {}
        disk = cluster.world.disk(node.node_id, LOG_DIRECTORY)
        self._logs = NodeLogs(
            node.node_id,
            disk,
            gaps=cluster.settings.compacted,
            compacted=cluster.settings.compacted_topics,
        )

    @property
    def node_id(self) -> int:
        """The broker id."""
        return self.node.node_id

    @property
    def logs(self) -> NodeLogs:
        """What its files hold."""
        return self._logs

    @property
    def life(self) -> Incarnation | None:
        """The present incarnation, None while it is down."""
        incarnation = self.node.incarnation
        return incarnation if incarnation is not None and incarnation.alive else None

    @property
    def incarnation(self) -> int:
        """Number of its present or last life."""
        return 0 if self.node.incarnation is None else self.node.incarnation.number

    @property
    def is_up(self) -> bool:
        """Whether it hosts its replicas now."""
        return self.broker is not None and (self.life is not None or self._is_ending)

    @property
    def broker_epoch(self) -> int:
        """Of its present registration, as far as it knows."""
        return NO_BROKER_EPOCH if self.broker is None else self.broker.broker_epoch

    def hosted(self) -> Iterator[tuple[TopicPartition, TopicId]]:
        """The replicas that it has open."""
        if self.broker is not None:
            for partition in self.broker.replicas.all():
                yield partition.topic_partition, partition.topic_id

    @property
    def has_met_failed_call(self) -> bool:
        """Whether a fault has made a call of its present or last life fail on its disk."""
        return self._logs.disk.failed_calls > self._failed_calls_before

    def claims(self, changed: Collection[LogKey]) -> Iterator[Claim]:
        """Its replicas as it sees them: those with a changed log, and those that changed since
        they were seen."""
        if self.broker is None or not self.is_up:
            return
        looked_at = self._looked_at
        for partition in self.broker.replicas.all():
            role = partition.role
            look = (
                role,
                partition.high_watermark,
                partition.leader_epoch,
                role.isr if isinstance(role, LeaderReplica) else None,
            )
            if looked_at.get(partition) == look and not (
                changed
                and any(
                    key[:2] == (partition.topic_id, partition.topic_partition.partition)
                    for key in changed
                )
            ):
                continue
            looked_at[partition] = look
            if partition.topic_id != ZERO_TOPIC_ID:
                # else a power loss took its partition.metadata: nobody can say what it is
                yield _claim(partition, self._cluster.published)

    # What is done to it

    def start(self) -> None:
        """Begin a new incarnation."""
        ports = self.node.start()
        incarnation = self.node.incarnation
        assert incarnation is not None
        cluster = self._cluster
        draw = stream(cluster.world.seed, "store", self.node_id, incarnation.number)
        self.broker = None
        self.stopped_cleanly = self.is_stopping = self._has_started = False
        self._looked_at = {}
        self._failed_calls_before = self._logs.disk.failed_calls
        store = self.store = SimStoreClient(
            cluster.store,
            loop=ports.loop,
            clock=ports.clock,
            latency=lambda: draw.uniform(*cluster.settings.store_latency_ms),
            alive=lambda: incarnation.port_call("store"),
            reachable=lambda: cluster.reaches_store(self.node.host),
            session_timeout_ms=cluster.settings.session_timeout_ms,
            detect_ms=cluster.settings.detect_ms,
        )
        incarnation.on_death.append(self._ends)
        incarnation.on_death.append(lambda _: store.crashed())
        cluster.world.scheduler.after(0, incarnation, self._begin, ports, store)

    def _ends(self, _: Loss) -> None:
        """Dying in the middle of an event: what it did in it before counts too, for it may have
        told somebody."""
        self._is_ending = True
        self._cluster.replication.after_event(self)
        self._is_ending = False

    def _begin(self, ports: Ports, store: SimStoreClient) -> None:
        broker = self.broker = Broker(self.config, ports, store)
        asyncio.Task(self._main(broker), loop=ports.loop, name=f"broker {self.node_id}")

    async def _main(self, broker: Broker) -> None:
        """What a real process does around its broker."""
        incarnation = self.life
        assert incarnation is not None
        try:
            await broker.start()
        except (TidelogError, OSError) as error:
            self._cluster.start_failed(self, error)
            incarnation.die(Loss.NONE, f"start failed: {error!r}", judged=False)
            raise NodeDead(f"start failed: {error!r}") from error
        self._has_started = True
        self._cluster.world.note(self.node_id, "started", "")

    def stop(self, loss: Loss) -> None:
        """Stop it as an operator does; the power may go right after (E3 promises its log)."""
        if self.life is not None:
            self._cluster.world.scheduler.after(0, self.life, self._begin_stop, self.life, loss)

    def _begin_stop(self, life: Incarnation, loss: Loss) -> None:
        broker = self.broker
        if broker is None or not self._has_started or self.is_stopping:
            return
        if self._cluster.keeps_budget and self._cluster.is_spared(self.node_id):
            self._cluster.refused_crashes += 1
            return
        self.is_stopping = True
        stopping = self._stop(broker, life, loss)
        asyncio.Task(stopping, loop=life.loop, name=f"stop broker {self.node_id}")

    async def _stop(self, broker: Broker, life: Incarnation, loss: Loss) -> None:
        try:
            await broker.stop()
        except StorageError as error:
            # Its disk fails as it writes everything down: no clean end, and a process that is over.
            life.die(Loss.NONE, f"stop failed: {error!r}", judged=False)
            raise NodeDead(f"stop failed: {error!r}") from error
        self.stopped_cleanly = True
        life.die(loss, "stopped as told", judged=False)
        raise NodeDead("stopped as told")

    def crash(self, loss: Loss, reason: str) -> bool:
        """End it at once; False where it is down already, or the budget spares it."""
        return self.life is not None and self.life.die(loss, reason)


class Cluster:
    """Brokers, store, clients' history and checkers."""

    def __init__(self, world: World, broker_count: int, settings: Settings) -> None:
        self.world = world
        self.settings = settings
        self.history = History()
        self.store = SimStoreServer(
            lambda delay_ms, callback: world.scheduler.after(
                int(delay_ms * NS_PER_MS), None, callback
            )
        )
        self.published = Published(
            world.violate, lambda: world.now_ns, settings.of(0).min_insync_replicas
        )
        self.store.on_commit(self._trace_commit)
        self.store.on_commit(self._check_session)
        self.store.on_commit(self.published.committed)
        self.replication = ReplicationChecker(
            self.published,
            world.violate,
            lambda: world.now_ns,
            self._promise,
            self.history.may_be_gone_before,
        )
        self.clients = ClientChecker(self.history, self.replication, world.violate, self._promise)
        self.groups = GroupChecker(
            world.violate, lambda: world.now_ns, OFFSETS_PARTITIONS, self._promise
        )
        self.hand_overs = HandOverChecker(self.published, world.violate, self._is_leaving)
        #: Where brokers tell of what happens.
        self.events: EventChecker | None = None
        if settings.of(1).cluster_events_enable:
            self.events = EventChecker(self.published, world.violate, lambda: world.now_ns)
        #: Power losses are only taken where the budget allows them; off for known failures.
        self.keeps_budget = True
        #: What losses beyond the budget broke, where they are no violations.
        self.broken_promises = 0
        self.lossy_crashes = 0
        self.refused_losses = 0
        self.refused_crashes = 0
        self.brokers: dict[int, SimBroker] = {}
        #: Called when a broker's process has ended.
        self.on_broker_death: Callable[[SimBroker], None] | None = None
        self._last_start_error: dict[int, str] = {}
        world.network.add_host(STORE_HOST)
        for broker_id in range(1, broker_count + 1):
            node = world.add_node(broker_id, host_of(broker_id))
            broker = SimBroker(self, node, settings.of(broker_id))
            self.brokers[broker_id] = broker
            self.replication.add(broker)
        self.answers = AnswerChecker(
            world.violate,
            lambda: world.now_ns,
            self._heard_ms,
            lambda node_id: world.nodes[node_id].monotonic_ns(world.now_ns) // NS_PER_MS,
            settings.session_timeout_ms,
        )
        world.on_note.append(self.answers.noted)
        world.network.frame_watch = self.answers
        self.commands = CommandChecker(self.published, self.brokers, world.violate)
        world.scheduler.after_event = self._after_event
        world.judge_crash = self._judge_crash
        self.store.may_expire = self._may_expire
        world.on_death.append(self._died)
        world.on_halt = self._halted
        world.on_traced.append(self._traced)

    @property
    def bootstrap(self) -> list[Address]:
        """Where clients begin."""
        return [Address(host_of(broker_id), PORT) for broker_id in self.brokers]

    def start(self) -> None:
        """Start every broker that is down."""
        for broker in self.brokers.values():
            if broker.life is None:
                broker.start()

    def reaches_store(self, host: str) -> bool:
        """Whether a node and the store can talk."""
        network = self.world.network
        if not self.store.is_available:
            return False
        return not (network.link(host, STORE_HOST).cut or network.link(STORE_HOST, host).cut)

    # What the world tells

    def _promise(self, what: str) -> None:
        """Something is lost that was acknowledged, or told otherwise than it was before."""
        if self.history.keeps_promises:
            self.world.violate(what)
        else:
            self.broken_promises += 1

    def _trace_commit(
        self, zxid: int, session_id: int, ops: Sequence[Op], results: Sequence[OpResult]
    ) -> None:
        changes = [
            f"{type(op).__name__} {result.path}{canonical(getattr(op, 'data', b''))}"
            for op, result in zip(ops, results, strict=True)
        ]
        self.world.note(-1, "store", f"{zxid} session {session_id}: {'; '.join(changes)}")

    def _check_session(
        self, zxid: int, session_id: int, ops: Sequence[Op], _: Sequence[OpResult]
    ) -> None:
        """A session that is over writes nothing (S1); with its end its own nodes go."""
        if not self.store.is_live(session_id) and not all(isinstance(op, Delete) for op in ops):
            self.world.violate(f"transaction {zxid} is of session {session_id}, which is over")

    def _after_event(self, owner: EventOwner | None) -> None:
        if owner is not None and owner.alive:
            broker = self.brokers.get(owner.node_id)
            if broker is not None:
                self.replication.after_event(broker)

    def _judge_crash(self, incarnation: Incarnation, wanted: Loss) -> Loss | None:
        """The fault budget (V10 as published state can keep it, without eligible leader replicas).

        Data may be lost only where each published ISR with the node in it has another member that
        is up, unchanged since its recorded broker epoch, and has everything committed. From then
        until the node has left those ISRs, the last such member is spared.
        """
        broker = self.brokers.get(incarnation.node_id)
        if broker is None or not self.keeps_budget:
            return wanted
        if self.is_spared(broker.node_id):
            self.refused_crashes += 1
            return None
        if wanted is not Loss.NONE and not self._may_lose_data(broker.node_id):
            self.refused_losses += 1
            return Loss.NONE
        return wanted

    def may_fail(self, node_id: int, *, loses_data: bool) -> bool:
        """Whether the budget lets a broker's disk fail now, and what it has not synced be gone."""
        if not self.keeps_budget:
            return True
        if self.is_spared(node_id):
            return False
        return not loses_data or all(
            any(
                member != node_id and not self.replication.is_leaving(state, member)
                for member in self._steady_members(state)
            )
            for state in self._living_states()
            if node_id in state.isr
        )

    def _may_lose_data(self, node_id: int) -> bool:
        return all(
            any(member != node_id for member in self._steady_members(state))
            for state in self._living_states()
            if node_id in state.isr
        )

    def is_spared(self, node_id: int) -> bool:
        """Whether a broker is the last that stands between a power loss and lost records."""
        return any(
            self._steady_members(state) == [node_id]
            for state in self._living_states()
            if node_id in state.isr
            and (
                self.replication.has_lost_member(state)
                or any(self._is_unsound(member) for member in state.isr)
            )
        )

    def _steady_members(self, state: PublishedPartition) -> list[int]:
        """Members that are up and stay so, as they were when they were recorded, with all that is
        committed."""
        return [
            member
            for member in state.isr
            if self.brokers[member].life is not None
            and not self.brokers[member].is_stopping
            and not self._is_unsound(member)
            and self.replication.is_unchanged(state, member)
            and self.replication.has_all_committed(state.key, member)
        ]

    def _is_unsound(self, node_id: int) -> bool:
        """Whether a broker shows, or seems to have, what its disk has not."""
        return self.world.has_dropped(node_id) or self.world.is_damaged(node_id)

    def _living_states(self) -> list[PublishedPartition]:
        return [
            state
            for key, state in self.published.partitions.items()
            if not self.published.promises_nothing(key.topic_id)
        ]

    def _may_expire(self, session_id: int) -> bool:
        """A spared broker keeps its session too: a registration anew is a restart to V10."""
        for broker in self.brokers.values():
            if broker.store is not None and broker.store.session_id == session_id:
                spared = self.keeps_budget and self.is_spared(broker.node_id)
                return broker.life is None or not spared
        return True

    def _died(self, incarnation: Incarnation, loss: Loss) -> None:
        broker = self.brokers.get(incarnation.node_id)
        if broker is None:
            return
        lossy = loss is not Loss.NONE and not broker.stopped_cleanly
        if lossy:
            self.lossy_crashes += 1
        # What is damaged may be cut off when it starts again, however it has ended (V68).
        is_damaged = self.world.is_damaged(broker.node_id)
        self.replication.crashed(broker, lossy=lossy or is_damaged)
        self.groups.died(broker.node_id)
        if self.on_broker_death is not None:
            self.on_broker_death(broker)

    def _halted(self, incarnation: Incarnation, reason: str) -> None:
        broker = self.brokers.get(incarnation.node_id)
        is_explained = broker is not None and (broker.has_met_failed_call or broker.was_damaged)
        if not (is_explained and reason.startswith(_EXPECTED_HALTS)):
            self.world.violate(f"node {incarnation.node_id} halted: {reason}")

    def _traced(self, incarnation: Incarnation, name: str, fields: dict[str, Any]) -> None:
        if name == "groups_loaded":
            self.groups.loaded(incarnation.node_id, fields["partition"])
        elif name == "groups_unloaded":
            self.groups.unloaded(incarnation.node_id, fields["partition"])
        elif name in _ROLE_EVENTS:
            self.commands.role_taken(incarnation.node_id, fields["partition"], fields["leader"])
        elif name == "brokers_told":
            self.commands.brokers_told(incarnation.node_id, fields["brokers"])
        elif name == "unread_topic_deleted":
            self.commands.unread_deleted(fields["topic"])
        elif name == "broker_handed_over":
            self.hand_overs.answered(fields["broker"], fields["epoch"], fields["remaining"])
        elif name == "handed_over":
            self.hand_overs.handed_over(incarnation.node_id)
        elif name in _DEFECT_EVENTS:
            text = " ".join(f"{key}={value}" for key, value in fields.items())
            self.world.violate(f"node {incarnation.node_id}: {name} {text}")

    def _heard_ms(self, node_id: int) -> int | None:
        broker = self.brokers.get(node_id)
        return None if broker is None or broker.store is None else broker.store.heard_ms

    def _is_leaving(self, broker_id: int) -> bool:
        broker = self.brokers[broker_id]
        return broker.is_stopping or broker.life is None

    def start_failed(self, broker: SimBroker, error: BaseException) -> None:
        """A broker could not start; it will be started again, as an operator would."""
        self._last_start_error[broker.node_id] = "".join(traceback.format_exception(error))
        self.world.note(broker.node_id, "start failed", repr(error))
        if isinstance(error, (DamagedLog, ConfigError)):
            if broker.was_damaged:
                broker.was_refused = True
            else:
                self.world.violate(
                    f"node {broker.node_id} does not believe a disk that nobody damaged: {error}"
                )

    # How it is

    def waits_for_operator(self, key: LogKey) -> bool:
        """Whether a partition is one that D3 leaves to an operator: its ISR is up and has no log.

        Its creation was cut short in a way that published state cannot tell from a loss. Right
        only where nothing was ever committed; else records are lost, and health tells.
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
        """What is missing to a cluster in which everything is in sync; empty when nothing is."""
        for broker in self.brokers.values():
            if broker.life is None:
                error = self._last_start_error.get(broker.node_id, "")
                return f"broker {broker.node_id} is down {error}"
            if broker.node_id not in self.published.brokers:
                return f"broker {broker.node_id} is not registered"
        for topic in self.published.topics.values():
            for partition, replicas in topic.assignment.items():
                key = self.published.key(topic.topic_id, partition)
                state = self.published.partitions.get(key)
                if state is None:
                    return f"{topic.name}-{partition} has no state"
                if not state.isr:
                    return f"{topic.name}-{partition} is being removed"
                if self.waits_for_operator(key):
                    continue
                if state.leader < 0:
                    return f"{topic.name}-{partition} has no leader; ISR {state.isr}"
                if state.is_recovering:
                    return f"{topic.name}-{partition}: leader {state.leader} has not recovered"
                if sorted(state.isr) != sorted(replicas):
                    return (
                        f"{topic.name}-{partition}: ISR {state.isr} of {replicas}, leader"
                        f" {state.leader} epoch {state.leader_epoch}"
                    )
        return ""
