"""The composition of one broker: its parts, its start and its stop.

A start opens the session with the store and the log directories (recovery). Then the broker
listens, registers, and competes with other brokers to become the controller. Once the broker is
registered, the controller's commands decide which partitions the broker leads and follows (V44). A
stop runs a controlled shutdown (V43), leaves the cluster, flushes, and marks the log directories as
cleanly shut down (E3). One event loop owns all parts of the broker (DESIGN.md, rule 3). A part gets
shared objects as `Services`, and objects of other parts as separate parameters. Only modules that
run whole brokers import this module.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker import apis
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.configs.config_store import ConfigStore
from tidelog.broker.configs.live_configs import LiveConfigs
from tidelog.broker.controller.controller_readings import ControllerReadings
from tidelog.broker.controller.drains import Drains
from tidelog.broker.controller.runtime import ControllerRuntime
from tidelog.broker.coordinators.group_coordinators import GroupCoordinators
from tidelog.broker.coordinators.group_readings import GroupReadings
from tidelog.broker.events.cluster_events import ClusterEvents
from tidelog.broker.held_answers import HeldAnswers
from tidelog.broker.membership.auto_creation import AutoCreation
from tidelog.broker.membership.controlled_shutdown import ControlledShutdown
from tidelog.broker.membership.producer_ids import ProducerIds
from tidelog.broker.membership.self_fencing import SelfFencing
from tidelog.broker.membership.session import Session
from tidelog.broker.membership.store_history import StoreHistory
from tidelog.broker.membership.store_trouble import StoreTrouble
from tidelog.broker.peers import Peers
from tidelog.broker.replicas.command_requests import CommandRequests
from tidelog.broker.replicas.commands import ReplicaCommands
from tidelog.broker.replicas.directories.damaged_replicas import DamagedReplicas
from tidelog.broker.replicas.directories.failed_directories import FailedDirectories
from tidelog.broker.replicas.directories.offline_reports import OfflineReports
from tidelog.broker.replicas.directories.slow_directories import SlowDirectories
from tidelog.broker.replicas.fetching.fetch_sessions import FetchSessions
from tidelog.broker.replicas.fetching.fetchers import Fetchers
from tidelog.broker.replicas.hosting.partition import PlannedAppends
from tidelog.broker.replicas.hosting.takeovers import Takeovers
from tidelog.broker.replicas.hosting.throttles import ReplicationThrottles
from tidelog.broker.replicas.isr.foreign_isr_changes import ForeignIsrChanges
from tidelog.broker.replicas.isr.isr_changes import isr_changes
from tidelog.broker.replicas.replica_readings import ReplicaReadings
from tidelog.broker.replicas.replica_set import ReplicaSet
from tidelog.broker.replicas.stray_recovery import StrayRecovery
from tidelog.broker.server.admission import Admission
from tidelog.broker.server.broker_claims import Members
from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.fence import Fence
from tidelog.broker.server.interception import Intercepted
from tidelog.broker.server.request_log import RequestLog
from tidelog.broker.server.server import Server
from tidelog.broker.server.steps import Step, proving_broker
from tidelog.broker.server.timers import TimerWheel
from tidelog.broker.services import Identity, Services, Settings
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import RequestTimeout, StorageError, TidelogError
from tidelog.core.metrics import Metrics
from tidelog.core.ports import Lane, Ports
from tidelog.core.response_budget import ResponseBudget
from tidelog.core.tasks import Tasks
from tidelog.core.types import CleanEpochs, Endpoint
from tidelog.log.directory_stamps import DirectoryStamps
from tidelog.log.log_directory import LogDirectory
from tidelog.log.owners import known_marks, last_stamp, read_owners, refuse_strangers

if TYPE_CHECKING:
    from tidelog.metadata.store import MetadataStore


class Broker:
    """One broker, which owns all of its parts."""

    def __init__(self, config: BrokerConfig, ports: Ports, store: MetadataStore) -> None:
        self.services = services = _services(config, ports, store, self._task_failed)
        self._lanes: list[Lane] = []
        self._is_stopping = False
        self._make_server()
        self.producer_ids = ProducerIds(services)
        self.auto_creation = AutoCreation(services)
        self.cluster_events = ClusterEvents(
            services, self.producer_ids.wait, self.auto_creation.create
        )
        self._make_replicas()
        self.controller = ControllerRuntime(services, self.cluster_events, Drains(services))
        self.controller_readings = ControllerReadings(services, lambda: self.controller.is_active)
        self.config_store = ConfigStore(services)
        self.live_configs = LiveConfigs(
            services,
            self.replicas,
            self.controller.configs_changed,
            self.controller.every_config_changed,
            self.controller.defaults_changed,
        )
        self._make_membership()
        self.dispatcher.serve(apis.handlers(self._api_context()), steps=(proving_broker,))
        if services.ports.loggers is not None:
            RequestLog(self.dispatcher, services.ports.loggers, services.tracer, services.clock)

    def _make_server(self) -> None:
        services = self.services
        self.appends = PlannedAppends()
        self.dispatcher = Dispatcher(services.tasks, apis.error_response, services.unexpected)
        self.admission = Admission(
            services.fence,
            services.timers,
            has_view=lambda: services.view.is_known,
            is_inter_broker=self.dispatcher.is_inter_broker,
        )
        self.server = Server(
            services.config,
            # `max.connections` can change while the broker runs (V25)
            lambda: services.config.max_connections,
            services.ports,
            services.timers,
            services.fence,
            self.admission,
            self.dispatcher,
            self.appends.submit,
            services.responses,
            Members(
                services.view.is_registered,
                services.peers.is_host_of,
                self.dispatcher.is_inter_broker,
            ),
            services.metrics,
        )
        self.held_answers = HeldAnswers(
            services.view,
            services.clock,
            services.serving_timers,
            services.tracer,
            lambda: services.config.metadata_leader_wait_max_ms,
            services.peers.look,
            self.dispatcher.request_failed,
        )
        services.peers.lost = self.held_answers.lost
        services.peers.reached = self.held_answers.reached

    def _make_replicas(self) -> None:
        services = self.services
        self.groups = GroupCoordinators(
            services, self.appends.submit, self.dispatcher.request_failed
        )
        self.takeovers = Takeovers(services, self.cluster_events)
        self.alter_partition_manager = isr_changes(services)
        throttles = ReplicationThrottles(services)
        self.fetchers = Fetchers(services, throttles)
        self.replicas = ReplicaSet(
            services,
            self.appends,
            self.alter_partition_manager,
            self.takeovers,
            throttles,
            self.fetchers,
            {coordinators.topic: coordinators for coordinators in (self.groups,)},
            self.cluster_events,
        )
        self.group_readings = GroupReadings(services, self.groups, self.replicas)
        self.commands = ReplicaCommands(services, self.replicas, self.fetchers)
        requests = CommandRequests(services)
        self.offline_reports = OfflineReports(services, requests)
        self.foreign_isr_changes = ForeignIsrChanges(services, self.replicas, requests)
        self.failed_directories = FailedDirectories(
            services,
            self.replicas,
            self.replicas.moves,
            self.commands.rest,
            self.offline_reports,
            self.cluster_events,
        )
        damaged = DamagedReplicas(services, self.commands.rest, self.offline_reports)
        self.replicas.connect(damaged.give_up, damaged.stopped)
        self.slow_directories = SlowDirectories(
            services, self.replicas, self.replicas.upkeep.relinquishing, self.cluster_events
        )
        self.strays = StrayRecovery(services, self.replicas, self.commands, requests)
        config = services.config
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots)
        self.replica_readings = ReplicaReadings(services, self.replicas, self.fetch_sessions)

    def _make_membership(self) -> None:
        services = self.services
        self.fencing = SelfFencing(services, self.admission)
        self.controlled_shutdown = ControlledShutdown(services, self.replicas)
        self.store_trouble = StoreTrouble(services, apis.error_response)
        self.store_history = StoreHistory(services, self.replicas.log_epochs)
        self.stamps = DirectoryStamps(lambda: self.replicas.directories)
        self.session = Session(
            services,
            self.fencing,
            self.store_history,
            self.server.advertised_endpoints,
            self.session_expired,
            self.registered,
            self.session_renewed,
        )

    def _api_context(self) -> ApiContext:
        return ApiContext(
            services=self.services,
            dispatcher=self.dispatcher,
            admission=self.admission,
            replicas=self.replicas,
            commands=self.commands,
            alter_partition_manager=self.alter_partition_manager,
            foreign_isr_changes=self.foreign_isr_changes,
            fetch_sessions=self.fetch_sessions,
            strays=self.strays,
            groups=self.groups,
            controller=self.controller,
            producer_ids=self.producer_ids,
            auto_creation=self.auto_creation,
            controlled_shutdown=self.controlled_shutdown,
            store_trouble=self.store_trouble,
            config_store=self.config_store,
            live_configs=self.live_configs,
            held_answers=self.held_answers,
            store_marked=self.store_marked,
        )

    @property
    def config(self) -> BrokerConfig:
        """The configuration of this broker, with dynamic changes applied."""
        return self.services.config

    @property
    def broker_id(self) -> int:
        """This broker's id."""
        return self.services.broker_id

    @property
    def broker_epoch(self) -> int:
        """Epoch of the broker's registration; `NO_BROKER_EPOCH` without a registration."""
        return self.services.broker_epoch

    @property
    def view(self) -> ClusterView:
        """This broker's view of the cluster."""
        return self.services.view

    # start and stop

    async def start(self, on_opening: Callable[[], None] = lambda: None) -> None:
        """Start the broker; raises ConfigError, StorageError or BrokerIdInUseError.

        The broker calls `on_opening` just before it opens the log directories. Before `on_opening`
        is called, a caller may cancel the start: only the session and the locks of the directories
        are open.
        """
        owners = await read_owners(self._open_lanes())
        self.store_history.seen = last_stamp(owners)
        self.store_history.marks = known_marks(owners)
        self.services.identity.cluster_id = await self.session.open(
            lambda cluster_id: refuse_strangers(owners, cluster_id, self.config.metadata_store)
        )
        await self.live_configs.open()
        on_opening()
        await self.replicas.open(await self._open_directories())
        self.live_configs.start()
        await self.server.listen()
        await self.session.register()
        await self._wait_for_stamps()
        self.server.begin()
        self.groups.start()
        await self.controller.start()

    async def stop(self) -> None:
        """Give up the leaderships, leave the cluster, finish requests, mark a clean shutdown."""
        if self._is_stopping:
            return
        self._is_stopping = True
        services = self.services
        await self.controlled_shutdown.run()
        self.dispatcher.is_stopping = True
        epochs = services.identity.epochs_so_far()
        await self.controller.close()
        self.live_configs.close()
        if services.identity.is_registered:
            await self.session.stamp()
        await self.session.close()
        self.replicas.stop_leading("the broker is stopping")
        self.fetchers.close()
        await self.replicas.moves.close()
        self.offline_reports.close()
        self.slow_directories.close()
        self.cluster_events.close()
        self._close_connections()
        await services.tasks.close()
        await self.replicas.close()
        self.registered(self.store_history.seen)
        await self.stamps.written()
        await self._close_directories(epochs)
        for lane in self._lanes:
            await lane.close()
        services.timers.close()
        services.serving_timers.close()

    def _close_connections(self) -> None:
        self.server.close_listeners()
        self.fetch_sessions.close()
        self.server.close_connections()
        self.alter_partition_manager.close()
        self.services.peers.close()

    async def _close_directories(self, epochs: CleanEpochs) -> None:
        """Mark the clean shutdown of every writable directory, and raise the first error.

        A start counts as following a clean shutdown only if every directory has the mark (E3).
        """
        errors = []
        for directory in self.replicas.directories:
            try:
                await directory.close(epochs)
            except StorageError as error:
                self.services.tracer.log("server", logging.ERROR, f"not closed cleanly: {error}")
                errors.append(error)
        if errors:
            raise errors[0]

    async def _wait_for_stamps(self) -> None:
        """Wait until the log directories have stored the registration's transaction id (D13)."""
        services = self.services
        limit_ms = services.store.session_timeout_ms
        try:
            await services.tasks.timeout(limit_ms, self.stamps.written(), "stamp of the start")
        except RequestTimeout:
            services.tracer.log(
                "server",
                logging.WARNING,
                f"a log directory has not taken the broker's stamp for {limit_ms:,} ms: the broker"
                " starts without it",
            )

    async def _open_directories(self) -> list[LogDirectory]:
        """Open the log directories; skip directories that cannot be used (D5).

        Raises StorageError if no directory can be used. Raises ConfigError if a directory belongs
        to another broker or cluster. Also raises ConfigError if a directory was lost and its
        replicas, which this broker must copy from leaders again, do not fit into the other
        directories (D6).
        """
        identity, survey = self.services.identity, self.replicas.upkeep.survey
        lanes = self._open_lanes()
        is_one_of_several = len(self.config.log_dirs) > 1
        errors = await survey.look(lanes) if is_one_of_several else {}
        directories = []
        for path, lane in lanes.items():
            try:
                if path in errors:
                    raise errors[path]
                directories.append(await self._open_directory(lane))
            except StorageError as error:
                self._cannot_use(path, error)
        if not is_one_of_several and any(each.is_one_of_several for each in directories):
            await survey.look(lanes)
        survey.check_room(list(self.replicas.failed))
        for directory, failure in await survey.write(directories):
            if failure.is_device_failure:
                directories.remove(directory)
                self.failed_directories.found_at_start(directory.path, failure)
            else:
                directory.failed(failure)  # the disk is full: `upkeep` writes the list later
        proofs = [directory.clean_shutdown for directory in directories]
        if self.replicas.failed:
            # A failed directory proves no clean shutdown for its replicas (E3).
            proofs.append(None)
        if proofs and proofs[0] is not None and all(proof == proofs[0] for proof in proofs):
            identity.clean_epochs = proofs[0]
        return directories

    def _open_lanes(self) -> dict[str, Lane]:
        """Lock the usable log directories, unless an earlier call did.

        Returns each directory's queue of file operations.
        """
        if self._lanes or self.replicas.failed:
            return {lane.directory: lane for lane in self._lanes}
        lanes = {}
        for path in self.config.log_dirs:
            try:
                lanes[path] = self.services.ports.open_lane(path)
            except StorageError as error:
                self._cannot_use(path, error)
            else:
                self._lanes.append(lanes[path])
        return lanes

    def _cannot_use(self, path: str, error: StorageError) -> None:
        """Skip a log directory whose device failed; raise any other error."""
        if not error.is_device_failure:
            raise error
        self.failed_directories.found_at_start(path, error)

    async def _open_directory(self, lane: Lane) -> LogDirectory:
        services = self.services
        path = lane.directory
        directory = await LogDirectory.open(
            lane,
            cluster_id=services.identity.cluster_id,
            broker_id=services.broker_id,
            clock=services.clock,
            tracer=services.tracer,
            default_config=self.replicas.default_log_config(),
            config_of=self.replicas.log_config,
            learn_configs=self.replicas.load_configs,
            reserve_bytes=self.config.log_dir_reserve_bytes,
        )
        directory.on_failure = partial(self.failed_directories.failed, path)
        directory.on_damage = lambda _: self.replicas.upkeep.damage_found()
        self.replicas.upkeep.full.watch(directory)
        self.slow_directories.watch(directory)
        return directory

    # callbacks of the session

    def session_expired(self, reason: str) -> None:
        """Stop acting under the registration, which has expired (V40)."""
        self.controller.resign(reason)
        self.fencing.session_over()
        self.server.session_over()
        self.replicas.stop_leading(reason)

    def registered(self, stamp: int) -> None:
        """Begin to store `stamp`, the registration's transaction id, in the directories (E8)."""
        identity, marks = self.services.identity, self.store_history.marks
        self.stamps.keep(identity.cluster_id, self.broker_id, stamp, marks)

    def store_marked(self, mark: str) -> None:
        """Remember a mark: a node which records that the metadata store lost writes (E8)."""
        if self.store_history.heard_of(mark):
            self.registered(self.store_history.seen)

    def session_renewed(self) -> None:
        """Read the changes that the broker missed before it registered again."""
        self.controller.session_renewed()
        self.live_configs.session_renewed()

    # methods for the code that runs this broker

    def put_around_handlers(self, step: Step) -> None:
        """Wrap every request handler in `step`; callers may do so only before `start`."""
        self.dispatcher.put_around(step)

    def intercepted(self) -> Intercepted:
        """Return the parts that an interceptor of requests may use."""
        return Intercepted(
            broker_id=self.broker_id,
            clock=self.services.clock,
            dispatcher=self.dispatcher,
            submit_appends=self.appends.submit,
            topic_name=self.replicas.published_topic_name,
            partitions_of_session=self.fetch_sessions.partitions,
        )

    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """Return the broker's endpoints; port 0 of a listener is replaced by its actual port."""
        return self.server.advertised_endpoints()

    # failures

    def _task_failed(self, name: str, error: BaseException) -> None:
        """Halt the broker, because a task has failed without which the broker cannot work."""
        if self.dispatcher.is_stopping and isinstance(error, TidelogError):
            return
        text = "".join(traceback.format_exception(error))
        kind = "broken invariant" if isinstance(error, AssertionError) else "failure"
        self.services.tracer.event("task_failed", task=name, error=repr(error))
        self.services.tracer.log("server", logging.CRITICAL, f"{kind} in {name}: {text}")
        self.services.ports.halt(f"{kind} in {name}: {error!r}")


def _services(
    config: BrokerConfig,
    ports: Ports,
    store: MetadataStore,
    on_failure: Callable[[str, BaseException], None],
) -> Services:
    """Return the objects that all parts share; failing background tasks call `on_failure`."""
    tasks = Tasks(ports.loop, ports.clock, on_failure)
    timers = TimerWheel(ports.clock)
    view = ClusterView(ports.clock.wall_ms)
    peers = Peers(config.broker_id, ports, tasks, timers, view, config.inter_broker_listener_name)
    return Services(
        ports=ports,
        store=store,
        settings=Settings(config),
        identity=Identity(config.broker_id),
        clock=ports.clock,
        tracer=ports.tracer,
        metrics=Metrics(),
        tasks=tasks,
        timers=timers,
        serving_timers=TimerWheel(ports.clock),
        fence=Fence(),
        view=view,
        peers=peers,
        responses=ResponseBudget(
            config.queued_max_response_bytes,
            ports.clock,
            partial(ports.tracer.log, "request", logging.WARNING),
            max(len(config.log_dirs), 1),
        ),
    )
