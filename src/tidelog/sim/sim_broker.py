"""One simulated broker: the parts of a real broker process on a simulated node.

A `SimBroker` outlives its process: it starts and stops incarnations, each with a
`tidelog.broker.broker.Broker`. A `SimBroker` does what a real process does around its broker. It
also gives the checkers the broker's claims about its replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import Protocol

from tidelog.broker.broker import Broker
from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import NodeDead, StorageError, TidelogError
from tidelog.core.ports import Ports
from tidelog.core.types import NO_BROKER_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition
from tidelog.replication.leader import LeaderReplica
from tidelog.sim.broker_settings import BrokerSettings
from tidelog.sim.disk import Loss, SimDisk
from tidelog.sim.node import Incarnation, SimNode
from tidelog.sim.observed.claims import ReplicaClaim, claim_of
from tidelog.sim.observed.published_state import Published
from tidelog.sim.observed.replica_logs import LogKey, NodeLogs
from tidelog.sim.seeds import stream
from tidelog.sim.sim_store import SimStoreClient, SimStoreServer
from tidelog.sim.simulator import Simulator


class BrokerCluster(Protocol):
    """The part of a run's cluster that its brokers use."""

    @property
    def simulator(self) -> Simulator:
        """The simulator that runs the brokers."""

    @property
    def settings(self) -> BrokerSettings:
        """The configuration with which the brokers start."""

    @property
    def store(self) -> SimStoreServer:
        """The metadata store of the simulated cluster."""

    @property
    def published(self) -> Published:
        """The published state: what the metadata store says about brokers and partitions."""

    def reaches_store(self, host: str) -> bool:
        """Return whether a node and the store can communicate."""

    def refuses_stop(self, node_id: int) -> bool:
        """Return whether the fault budget forbids that a broker stops now."""

    def is_ending(self, broker: SimBroker) -> None:
        """Check the changes that a broker made in the event in which it dies."""

    def has_composed(self, broker: Broker) -> None:
        """Let checkers observe a broker's requests; called just before the broker starts."""

    def start_failed(self, broker: SimBroker, error: BaseException) -> None:
        """Record that a broker could not start."""


class SimBroker:
    """One broker with all its incarnations."""

    def __init__(self, cluster: BrokerCluster, node: SimNode, config: BrokerConfig) -> None:
        self._cluster = cluster
        self.node = node
        self.config = config
        self.broker: Broker | None = None
        self.store: SimStoreClient | None = None
        #: Whether the broker shut down cleanly, so that not even a power loss may lose data.
        self.stopped_cleanly = False
        #: Whether the broker is shutting down.
        self.is_stopping = False
        #: Disks that a fault damaged and that no operator has emptied since. `was_refused` says
        #: whether the broker refused to start because of them.
        self.damaged_disks: dict[SimDisk, None] = {}
        self.was_refused = False
        self._has_started = False
        self._is_ending = False
        #: Number of calls of earlier incarnations that failed because of faults.
        self._failed_calls_before = 0
        self._looked_at: dict[Partition, object] = {}
        #: The logs in the broker's files.
        self.logs = NodeLogs(
            node.node_id,
            [
                cluster.simulator.disk(node.node_id, directory)
                for directory in cluster.settings.log_directories
            ],
            gaps=cluster.settings.profile.compacted,
            compacted=cluster.settings.compacted_topics,
        )

    @property
    def node_id(self) -> int:
        """The broker id."""
        return self.node.node_id

    @property
    def life(self) -> Incarnation | None:
        """The current incarnation; None while the broker is down."""
        incarnation = self.node.incarnation
        return incarnation if incarnation is not None and incarnation.alive else None

    @property
    def incarnation(self) -> int:
        """Number of the current or last incarnation."""
        return 0 if self.node.incarnation is None else self.node.incarnation.number

    @property
    def shown(self) -> ClusterView | None:
        """The broker's view of the cluster; None while the broker lets client requests wait."""
        running = self.broker
        return running.view if running is not None and running.admission.is_open else None

    @property
    def is_up(self) -> bool:
        """Whether the broker is up, so that it hosts its replicas."""
        return self.broker is not None and (self.life is not None or self._is_ending)

    @property
    def broker_epoch(self) -> int:
        """Broker epoch of the current registration, as far as the broker knows."""
        return NO_BROKER_EPOCH if self.broker is None else self.broker.broker_epoch

    @property
    def reads_slowly(self) -> bool:
        """Whether a fault slows down reads of one of the broker's disks now."""
        return any(disk.read_ns is not None for disk in self.logs.disks)

    def hosted(self) -> Iterator[tuple[TopicPartition, TopicId]]:
        """Yield the replicas that the broker has open."""
        if self.broker is not None:
            for partition in self.broker.replicas.all():
                yield partition.topic_partition, partition.topic_id

    def leaderships(self) -> Iterator[tuple[TopicPartition, LeaderReplica]]:
        """Yield the partitions that the broker leads; none while it is fenced after a pause
        (V47).
        """
        if self.broker is None or self.broker.services.fence.is_fenced:
            return
        for partition in self.broker.replicas.all():
            leadership = partition.leadership
            if leadership is not None:
                yield partition.topic_partition, leadership

    def leading(self) -> Iterator[tuple[TopicPartition, LogKey]]:
        """Yield the partitions that the broker leads."""
        published = self._cluster.published
        for partition in () if self.broker is None else self.broker.replicas.all():
            if partition.leadership is not None:
                name = partition.topic_partition
                key = published.key(partition.topic_id, name.partition, partition.leader_epoch)
                yield name, key

    @property
    def has_met_failed_call(self) -> bool:
        """Whether a disk call of the current or last incarnation has failed because of a fault."""
        return self._failed_calls > self._failed_calls_before

    @property
    def _failed_calls(self) -> int:
        return sum(disk.failed_calls for disk in self.logs.disks)

    @property
    def was_damaged(self) -> bool:
        """Whether a fault damaged a disk that no operator has emptied since."""
        return bool(self.damaged_disks)

    def empty_disk(self, disk: SimDisk) -> None:
        """Replace a disk of a stopped broker by an empty disk."""
        disk.replace()
        self.damaged_disks.pop(disk, None)
        if not self.damaged_disks:
            self.was_refused = False

    def claims(self, changed: Collection[LogKey]) -> Iterator[ReplicaClaim]:
        """Yield the claims about replicas whose log or role has changed since the last call."""
        if self.broker is None or not self.is_up:
            return
        looked_at = self._looked_at
        # This loop runs after every event, so it reads the partition's role directly instead of by
        # slower properties.
        for partition in self.broker.replicas.all():
            role = partition.role
            core, leadership = role.core, role.leadership
            look = (
                core,
                core.high_watermark,
                partition.leader_epoch,
                None if leadership is None else leadership.isr,
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
                # If the topic id is zero, a power loss removed the replica's partition.metadata, so
                # its topic is unknown.
                yield claim_of(partition, self._cluster.published)

    # Start and stop

    def take_level(self, level: str) -> None:
        """Use another protocol level between brokers from the next start on (A12)."""
        settings = self._cluster.settings
        settings.levels[self.node_id] = level
        self.config = settings.of(self.node_id)

    def start(self) -> None:
        """Begin a new incarnation."""
        ports = self.node.start()
        incarnation = self.node.incarnation
        assert incarnation is not None
        cluster = self._cluster
        draw = stream(cluster.simulator.seed, "store", self.node_id, incarnation.number)
        self.broker = None
        self.stopped_cleanly = self.is_stopping = self._has_started = False
        self._looked_at = {}
        self._failed_calls_before = self._failed_calls
        store = self.store = SimStoreClient(
            cluster.store,
            loop=ports.loop,
            clock=ports.clock,
            latency=lambda: draw.uniform(*cluster.settings.profile.store_latency_ms),
            alive=lambda: incarnation.port_call("store"),
            reachable=lambda: cluster.reaches_store(self.node.host),
            session_timeout_ms=cluster.settings.session_timeout_ms,
            detect_ms=cluster.settings.detect_ms,
        )
        incarnation.on_death.append(self._ends)
        incarnation.on_death.append(lambda _: store.crashed())
        cluster.simulator.scheduler.after(0, incarnation, self._begin, ports, store)

    def _ends(self, _: Loss) -> None:
        """Check the broker when it dies in the middle of an event.

        Other nodes may have learned of changes that the event made before the death, so these
        changes are checked, too.
        """
        self._is_ending = True
        self._cluster.is_ending(self)
        self._is_ending = False

    def _begin(self, ports: Ports, store: SimStoreClient) -> None:
        broker = self.broker = Broker(self.config, ports, store)
        broker.dispatcher.withhold(self._cluster.settings.profile.withheld_apis)
        self._cluster.has_composed(broker)
        asyncio.Task(self._main(broker), loop=ports.loop, name=f"broker {self.node_id}")

    async def _main(self, broker: Broker) -> None:
        """Run the broker as a real process does."""
        incarnation = self.life
        assert incarnation is not None
        try:
            await broker.start()
        except (TidelogError, OSError) as error:
            self._cluster.start_failed(self, error)
            incarnation.die(Loss.NONE, f"start failed: {error!r}", judged=False)
            raise NodeDead(f"start failed: {error!r}") from error
        self._has_started = True
        self._cluster.simulator.note(self.node_id, "started", "")

    def stop(self, loss: Loss) -> None:
        """Shut the broker down as an operator does.

        `loss` is a power loss right after the shutdown, which the log must survive (E3).
        """
        if self.life is not None:
            self._cluster.simulator.scheduler.after(0, self.life, self._begin_stop, self.life, loss)

    def _begin_stop(self, life: Incarnation, loss: Loss) -> None:
        broker = self.broker
        if broker is None or not self._has_started or self.is_stopping:
            return
        if self._cluster.refuses_stop(self.node_id):
            return
        self.is_stopping = True
        stopping = self._stop(broker, life, loss)
        asyncio.Task(stopping, loop=life.loop, name=f"stop broker {self.node_id}")

    async def _stop(self, broker: Broker, life: Incarnation, loss: Loss) -> None:
        try:
            await broker.stop()
        except StorageError as error:
            # The disk failed during the last flush: the process ends without a clean shutdown.
            life.die(Loss.NONE, f"stop failed: {error!r}", judged=False)
            raise NodeDead(f"stop failed: {error!r}") from error
        self.stopped_cleanly = True
        if self._has_left_unsynced(broker):
            loss = Loss.NONE
        life.die(loss, "stopped as requested", judged=False)
        raise NodeDead("stopped as requested")

    def _has_left_unsynced(self, broker: Broker) -> bool:
        """Return whether the shutdown left a directory unsynced because the broker had given it up.

        Logs in such a directory may lose data, even after a clean shutdown (E3). The fault budget
        counts failed disks, but not slow or hanging disks that the broker gave up.
        """
        given_up = broker.replicas.failed
        return any(disk.root in given_up and not disk.is_failed for disk in self.logs.disks)

    def crash(self, loss: Loss, reason: str) -> bool:
        """End the process at once; return False if it is down or the fault budget forbids the
        crash.
        """
        return self.life is not None and self.life.die(loss, reason)
