"""The composition of one broker: what there is, how it starts, how it stops.

Start: session with the store, log directories (recovery), listeners, registration, race for the
controller. From then on the controller's commands say what this broker leads and follows (V44).
Stop: hand over what it leads (V43), leave the cluster, then flush and leave the marker of a clean
shutdown (E3). One loop owns all of it (DESIGN.md, rule 3).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker import apis
from tidelog.broker.apis.support.refusals import refusal
from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.configs.config_store import ConfigStore
from tidelog.broker.configs.live_configs import LiveConfigs
from tidelog.broker.controller.drains import Drains
from tidelog.broker.controller.runtime import ControllerShell
from tidelog.broker.coordinators.groups import GroupCoordinators
from tidelog.broker.events.cluster_events import ClusterEvents
from tidelog.broker.membership.auto_creation import AutoCreation
from tidelog.broker.membership.controlled_shutdown import HandingOver
from tidelog.broker.membership.producer_ids import ProducerIds
from tidelog.broker.membership.self_fencing import SelfFencing
from tidelog.broker.membership.session import Session
from tidelog.broker.membership.store_trouble import StoreTrouble
from tidelog.broker.peers import Peers
from tidelog.broker.replicas.alter_partition_manager import IsrChanges
from tidelog.broker.replicas.fetch_sessions import FetchSessions
from tidelog.broker.replicas.fetchers import Fetchers
from tidelog.broker.replicas.planned_appends import PlannedAppends
from tidelog.broker.replicas.replica_set import Replicas
from tidelog.broker.replicas.stray_replicas import Strays
from tidelog.broker.replicas.takeovers import Takeovers
from tidelog.broker.server.admission import Admission
from tidelog.broker.server.connections import Connection
from tidelog.broker.server.idle_connections import IdleConnections
from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.server.timers import TimerWheel
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError, ErrorCode, TidelogError
from tidelog.core.metrics import Metrics
from tidelog.core.ports import FrameHandler, Lane, Listener, Ports, Transport
from tidelog.core.receive_budget import ReceiveBudget, budget_bytes
from tidelog.core.tasks import Tasks
from tidelog.core.types import NO_BROKER_EPOCH, Endpoint, TopicId, TopicPartition
from tidelog.log.directory import LogDirectory
from tidelog.wire.messages.api_versions import ApiVersion
from tidelog.wire.registry import API, FIRST_OWN_KEY

if TYPE_CHECKING:
    from tidelog.metadata.store import MetadataStore

Handler = Callable[["Broker", Request], Any]


class Broker:
    """One broker; everything it owns hangs here."""

    def __init__(self, config: BrokerConfig, ports: Ports, store: MetadataStore) -> None:
        #: In force: what the broker was started with, under what the store says (`live_configs`).
        self.config = config
        self.ports = ports
        self.store = store
        self.clock = ports.clock
        self.tracer = ports.tracer
        self.metrics = Metrics()
        self.broker_id = config.broker_id
        #: Creation transaction id of the own registration; -1 while there is none.
        self.broker_epoch = NO_BROKER_EPOCH
        self.cluster_id = ""
        self.tasks = Tasks(ports.loop, ports.clock, self._task_failed)
        self.timers = TimerWheel(ports.clock)
        #: Timeouts of requests and groups: none fires while this broker is fenced (V47).
        self.serving_timers = TimerWheel(ports.clock)
        self.view = ClusterView()
        self.fencing = SelfFencing(self)
        self.admission = Admission(self)
        self.peers = Peers(self)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots)
        self.directories: list[LogDirectory] = []
        self.planned_appends = PlannedAppends()
        self.replicas = Replicas(self)
        self.strays = Strays(self)
        self.isr_changes = IsrChanges(self)
        self.drains = Drains(self)
        self.fetchers = Fetchers(self)
        self.cluster_events = ClusterEvents(self)
        self.takeovers = Takeovers(self)
        self.controller = ControllerShell(self)
        self.handing_over = HandingOver(self)
        self.groups = GroupCoordinators(self)
        self.producer_ids = ProducerIds(self)
        self.auto_creation = AutoCreation(self)
        self.store_trouble = StoreTrouble(self)
        self.session = Session(self)
        self.config_store = ConfigStore(self)
        self.live_configs = LiveConfigs(self)
        self._handlers = apis.handlers()
        self._lanes: list[Lane] = []
        self._listeners: list[Listener] = []
        self._receive_budget = self._make_receive_budget()
        self._ports_listened: dict[str, int] = {}
        self._connections: dict[Connection, None] = {}
        self.idle = IdleConnections(self.timers, config.connections_max_idle_ms, self._connections)
        #: Broker epoch of the clean shutdown that every log directory proves, until registered.
        self.clean_shutdown_epoch = NO_BROKER_EPOCH
        #: Requests are read only once this broker is registered: a command that is meant for an
        #: earlier process under its id must find nobody who obeys it (V30).
        self.is_serving = False
        self._told_to_stop = self._stopping = False

    # start and stop

    async def start(self) -> None:
        """Come up; raises ConfigError, StorageError or BrokerIdInUseError."""
        self.cluster_id = await self.session.open()
        await self.live_configs.open()
        await self._open_directories()
        await self.replicas.open(self.directories)
        self.live_configs.start()
        for endpoint in self.config.listeners:
            listener = await self._listen(endpoint)
            self._listeners.append(listener)
            self._ports_listened[endpoint.listener] = listener.port
        await self.session.register()
        self.is_serving = True
        for connection in self.connections():
            connection.begin()
        self.idle.start()
        self.groups.start()
        await self.controller.start()

    def _make_receive_budget(self) -> ReceiveBudget | None:
        max_bytes = budget_bytes(self.config)
        if max_bytes is None:
            return None
        return ReceiveBudget(
            max_bytes,
            self.config.socket_request_max_bytes,
            self.clock,
            partial(self.tracer.log, "request", logging.WARNING),
        )

    async def _listen(self, endpoint: Endpoint) -> Listener:
        try:
            return await self.ports.network.listen(
                endpoint.host,
                endpoint.port,
                partial(self._accept, endpoint.listener),
                self.config.socket_request_max_bytes,
                self._receive_budget,
            )
        except OSError as error:
            raise ConfigError(
                f"listeners={endpoint.listener}://{endpoint.host}:{endpoint.port}:"
                f" {error.strerror or error}; an address of this machine with a port that no"
                " process listens on expected"
            ) from error

    async def stop(self) -> None:
        """Hand over, leave the cluster, finish what is asked, flush, mark the shutdown as clean."""
        if self._told_to_stop:
            return
        self._told_to_stop = True
        await self.handing_over.run()
        self._stopping = True
        epoch = self.broker_epoch
        await self.controller.close()
        self.live_configs.close()
        await self.session.close()
        self.replicas.stop_leading("the broker is stopping")
        self.fetchers.close()
        self.cluster_events.close()
        self._close_connections()
        await self.tasks.close()
        await self.replicas.close()
        for directory in self.directories:
            await directory.close(broker_epoch=epoch)
        for lane in self._lanes:
            await lane.close()
        self.timers.close()
        self.serving_timers.close()

    def _close_connections(self) -> None:
        for listener in self._listeners:
            listener.close()
        self.fetch_sessions.close()
        for connection in list(self._connections):
            connection.close("the broker is stopping")
        self.isr_changes.close()
        self.peers.close()

    async def _open_directories(self) -> None:
        for path in self.config.log_dirs:
            lane = self.ports.open_lane(path)
            self._lanes.append(lane)
            directory = await LogDirectory.open(
                lane,
                cluster_id=self.cluster_id,
                broker_id=self.broker_id,
                clock=self.clock,
                tracer=self.tracer,
                default_config=self.replicas.default_log_config(),
                config_of=self.replicas.log_config,
                learn_configs=self.replicas.load_configs,
            )
            directory.on_failure = self._directory_failed
            directory.on_damage = partial(self._log_damaged, directory)
            self.directories.append(directory)
        epochs = [directory.clean_shutdown_epoch for directory in self.directories]
        if epochs and epochs[0] is not None and all(epoch == epochs[0] for epoch in epochs):
            self.clean_shutdown_epoch = epochs[0]

    def registered(self, broker_epoch: int) -> None:
        """The broker is registered under `broker_epoch`. The clean shutdown found at start proves
        nothing for a later registration of this process (E3)."""
        self.broker_epoch = broker_epoch
        self.clean_shutdown_epoch = NO_BROKER_EPOCH
        self.fencing.registered()

    # connections

    def _accept(self, listener: str, transport: Transport) -> FrameHandler:
        serves_own = listener == self.config.inter_broker_listener_name
        connection = Connection(self, transport, serves_own, listener)
        if len(self._connections) >= self.config.max_connections:
            connection.close(f"max.connections={self.config.max_connections} reached")
        self._connections[connection] = None
        return connection

    def connection_closed(self, connection: Connection) -> None:
        """A connection told that it is gone."""
        self._connections.pop(connection, None)
        self.admission.gone(connection)

    def connections(self) -> list[Connection]:
        """The accepted connections that are open."""
        return list(self._connections)

    def handler(self, api_key: int, version: int) -> Handler | None:
        """The handler of an API, None where the version is not served."""
        entry = self._handlers.get(api_key)
        if entry is None or not entry.card.min_version <= version <= entry.card.max_version:
            return None
        return entry.handle

    def is_inter_broker(self, api_key: int) -> bool:
        """Whether an API is one between brokers, by its card."""
        entry = self._handlers.get(api_key)
        return entry is not None and entry.card.inter_broker

    def wrap_handlers(self, wrap: Callable[[apis.Served], apis.Served]) -> None:
        """Put something before every handler; before `start` only."""
        self._handlers = {key: wrap(entry) for key, entry in self._handlers.items()}

    def advertised_versions(self, *, include_own: bool) -> list[ApiVersion]:
        """Return the ranges that ApiVersions answers, derived from the cards. Our own APIs are
        among them for those clients alone that know their keys (G5)."""
        return [
            ApiVersion(key, entry.card.first_advertised_version, entry.card.max_version)
            for key, entry in self._handlers.items()
            if include_own or key < FIRST_OWN_KEY
        ]

    def answer_from(self, coroutine: Coroutine[Any, Any, Any], request: Request) -> Pending:
        """Run an async handler; what it returns is the answer. Its errors are those of any
        handler (`request_failed`); a broken invariant ends the broker."""
        pending = Pending()

        async def run() -> None:
            try:
                answer = await coroutine
            except AssertionError:
                raise
            except Exception as error:
                answer = self.request_failed(request, error)
            pending.complete(answer)

        self.tasks.spawn(API[request.header.api_key].name, run())
        return pending

    def request_failed(self, request: Request, error: Exception) -> Any:
        """A handler of a request has failed in a way that nobody foresaw: the answer to that
        request, UNKNOWN_SERVER_ERROR. Others are none the worse (DESIGN.md, rule 9)."""
        header = request.header
        # A stopping broker takes from its handlers what they stand on.
        if not (self._stopping and isinstance(error, TidelogError)):
            self.unexpected(
                f"{API[header.api_key].name} version {header.api_version} of client "
                f"{header.client_id!r} at {request.connection.peer}",
                error,
            )
        return refusal(request, ErrorCode.UNKNOWN_SERVER_ERROR)

    # what handlers ask

    def topic_name(self, topic_id: TopicId) -> str | None:
        """The name behind a topic id, by published state or by a replica that is here already."""
        return self.view.topic_name(topic_id) or self.replicas.topic_name(topic_id)

    def missing_replica_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Why a partition is not led here: it is elsewhere, or there is none."""
        if not self.view.is_known or self.view.partition(topic_partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """Own endpoints; a listener on port 0 is advertised with the port it got."""
        return tuple(
            endpoint._replace(port=endpoint.port or self._ports_listened[endpoint.listener])
            for endpoint in self.config.advertised_listeners
        )

    # failures

    def unexpected(self, where: str, error: BaseException) -> None:
        """A defect of ours that one request or partition pays for."""
        text = "".join(traceback.format_exception(error))
        self.tracer.event("unexpected_error", where=where, error=repr(error))
        self.tracer.log("server", logging.ERROR, f"unexpected error in {where}: {text}")

    def _task_failed(self, name: str, error: BaseException) -> None:
        """A long flow ended by an error: the broker cannot be what it says it is, so it ends."""
        if self._stopping and isinstance(error, TidelogError):
            return
        text = "".join(traceback.format_exception(error))
        kind = "broken invariant" if isinstance(error, AssertionError) else "failure"
        self.tracer.event("task_failed", task=name, error=repr(error))
        self.tracer.log("server", logging.CRITICAL, f"{kind} in {name}: {text}")
        self.ports.halt(f"{kind} in {name}: {error!r}")

    def _log_damaged(
        self, directory: LogDirectory, topic_partition: TopicPartition, offset: int, why: str
    ) -> None:
        """Damaged batches (V68): where others in the ISR have them, this replica begins anew; a
        leader that is alone in it keeps what it has."""
        partition = self.replicas.get(topic_partition)
        leadership = None if partition is None else partition.leadership
        if leadership is not None and len(leadership.isr.committed) > 1:
            directory.begin_again_at(topic_partition, offset, why)

    def _directory_failed(self, error: BaseException) -> None:
        """A device error or failed fsync; with one broken directory the broker stops (D1, D17)."""
        self.tracer.log("server", logging.CRITICAL, f"log directory failed: {error}")
        self.ports.halt(f"log directory failed: {error}")
