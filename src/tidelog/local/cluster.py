"""A cluster of broker processes on one directory: start, stop, break, inspect.

Brokers are background processes in sessions of their own. By default the brokers outlive the
program that started them, and a later program finds them by the directory. Each broker runs `python
-m tidelog.runtime.main`; process id and start time identify it. The module learns the readiness and
status of brokers only through the Kafka client.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict

from tidelog.client.cluster import ClusterMetadata
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import TidelogError
from tidelog.core.types import Endpoint
from tidelog.local import layout
from tidelog.local.errors import LocalClusterError
from tidelog.local.forking import ForkedProcess
from tidelog.local.layout import BrokerPlace
from tidelog.local.listeners import bound_endpoints, check_first_port, check_free
from tidelog.local.ports import LOOPBACK
from tidelog.local.processes import ProcessIdentity
from tidelog.local.readiness import await_writable
from tidelog.local.starting import start_broker
from tidelog.local.status import (
    BrokerStatus,
    ClusterStatus,
    Holding,
    PartitionStatus,
    describe_partitions,
    holdings_of,
    known_metadata,
)
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.config_files import load_config
from tidelog.runtime.disk_faults import DiskFault, DiskFaultControl

#: Default number of brokers of a new cluster.
_BROKERS = 3
#: Maximum number of replicas of the probe topic that proves a cluster ready.
_PROBE_REPLICAS = 3
_STATUS_TIMEOUT_MS = 3_000
_POLL_S = 0.02
#: The environment variable that names the default metadata store of new clusters.
_STORE_VARIABLE = "TIDELOG_STORE"


class LocalCluster:
    """The brokers of one directory on this machine. Several threads must not share an instance.

    As a context manager, a LocalCluster brings the cluster up and takes it down. All methods raise
    LocalClusterError with a message for people.
    """

    def __init__(
        self,
        directory: str,
        brokers: int | None = None,
        *,
        config: Mapping[str, str] | None = None,
        log_dirs: int = 1,
        store: str | None = None,
        first_port: int | None = None,
        end_with_program: bool = False,
        client_id: str = "tidelog",
    ) -> None:
        """Open an existing cluster, or describe a new cluster, whose files `up` creates.

        `brokers` (default 3), `config` (keys of every broker's server.properties) and `log_dirs`
        describe a new cluster. An existing cluster must match `brokers`, if given, and `config`.
        `store` of a new cluster is `embedded`, `zookeeper` (a server of its own, which starts and
        stops with the brokers) or a value of `metadata.store`. The default store is the
        environment's TIDELOG_STORE, else embedded. `first_port` of a new cluster is the port of
        broker 1; each further broker listens one port higher. By default free ports are chosen. An
        existing cluster must match `first_port`. With `end_with_program` the kernel kills the
        brokers when the program that starts them ends, even by a signal. `client_id` is the client
        id of requests to the brokers.
        """
        self.directory = os.path.abspath(directory)
        layout.check_size(_BROKERS if brokers is None else brokers, log_dirs)
        self._wanted = (brokers, dict(config or {}), log_dirs)
        check_first_port(first_port, brokers or _BROKERS, self._wanted[1])
        self._first_port = first_port
        if store is not None:
            layout.check_store(store, self._wanted[1])
        self._wanted_store = store
        self._end_with_program = end_with_program
        self._client_id = client_id
        self._places = layout.load(self.directory)
        self._zookeeper: LocalZookeeper | None = None
        #: Processes that this program started and must reap.
        self._children: dict[int, subprocess.Popen[bytes] | ForkedProcess] = {}
        #: Brokers whose view of the cluster may be old, for example after a partition of the
        #: network: `status` asks other brokers first.
        self.asked_last: tuple[int, ...] = ()
        self._is_existing = False
        if self._places is not None and not self._is_to_discard():
            self._check_wanted(self._places)

    @classmethod
    def existing(cls, directory: str) -> LocalCluster:
        """Return the cluster in a directory; raise LocalClusterError if there is none."""
        cluster = cls(directory)
        cluster._is_existing = True
        cluster.places()
        return cluster

    def __enter__(self) -> LocalCluster:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    # -- contents -------------------------------------------------------------------------------

    def places(self) -> dict[int, BrokerPlace]:
        """Return the address and the directory of each broker, by id."""
        if self._places is None:
            raise LocalClusterError(
                f"{self.directory} holds no cluster:"
                f" `tidelog up --dir {self.directory}` creates one"
            )
        return self._places

    def place(self, broker_id: int) -> BrokerPlace:
        """Return the address and the directory of one broker."""
        place = self.places().get(broker_id)
        if place is None:
            known = ", ".join(str(number) for number in self.broker_ids)
            raise LocalClusterError(f"there is no broker {broker_id}: this cluster has {known}")
        return place

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The brokers, running or not."""
        return tuple(self.places())

    @property
    def bootstrap(self) -> str:
        """Addresses for clients: `host:port,...` of all brokers."""
        return ",".join(place.address for place in self.places().values())

    @property
    def zookeeper(self) -> LocalZookeeper | None:
        """The cluster's own ZooKeeper server, running or not; None for another metadata store."""
        if self._zookeeper is None:
            port = layout.zookeeper_port(self.directory)
            if port is not None:
                self._zookeeper = LocalZookeeper(
                    f"{self.directory}/zookeeper", port, end_with_program=self._end_with_program
                )
        return self._zookeeper

    def process(self, broker_id: int) -> ProcessIdentity | None:
        """Return the live process of a broker; None if the broker does not run."""
        self._reap(broker_id)
        identity = self.place(broker_id).read_process()
        return identity if identity is not None and identity.is_alive else None

    def status(
        self, timeout_ms: int = _STATUS_TIMEOUT_MS, *, high_watermarks: bool = True
    ) -> ClusterStatus:
        """Return brokers, controller and partitions.

        `reached` is False if no broker responds with metadata of the cluster. Without
        `high_watermarks` the call takes one request.
        """
        metadata: ClusterMetadata | None = None
        partitions: tuple[PartitionStatus, ...] = ()
        processes = {number: self.process(number) for number in self.broker_ids}
        awake = {
            number: self.place(number).address
            for number, process in sorted(processes.items(), key=self._order)
            if process is not None and not process.is_paused
        }
        if awake:
            with BlockingClient(",".join(awake.values()), self._client_id, timeout_ms) as client:
                try:
                    metadata = known_metadata(client, timeout_ms)
                    partitions = describe_partitions(
                        client, metadata, ask=lambda leader: high_watermarks and leader in awake
                    )
                except TidelogError:
                    metadata = None
        reached = metadata is not None and bool(metadata.brokers)
        known = metadata if reached else None
        holdings = {} if known is None else holdings_of(known)
        return ClusterStatus(
            bootstrap=self.bootstrap,
            cluster_id=None if metadata is None else metadata.cluster_id,
            controller=-1 if metadata is None else metadata.controller_id,
            reached=reached,
            brokers=tuple(
                self._broker_status(number, process, known, holdings.get(number, Holding()))
                for number, process in processes.items()
            ),
            partitions=partitions,
        )

    # -- the whole cluster ----------------------------------------------------------------------

    def up(self, timeout_s: float = 60.0) -> None:
        """Start every broker that does not run, and return when the cluster accepts records.

        The cluster accepts records when a topic of replication factor min(brokers, 3) has a record
        on all replicas. After a failure, the call stops the brokers that it started.
        """
        deadline = time.monotonic() + timeout_s
        if layout.load(self.directory) is None or self._is_to_discard():
            self._check_new()
        layout.make_directory(self.directory)
        with layout.locked(self.directory):
            self._lay_out()
            started = [number for number in self.broker_ids if self.process(number) is None]
            zookeeper = self.zookeeper
            server_runs = zookeeper is not None and zookeeper.process is not None
            try:
                check_free({number: self._endpoints(number) for number in started})
                if zookeeper is not None:
                    zookeeper.start(timeout_s)
                for number in started:
                    self._spawn(number)
                self.await_writable(max(0.0, deadline - time.monotonic()))
                layout.has_come_up(self.directory)
            except BaseException:
                self._end(started, timeout_s=0.0)
                if zookeeper is not None and not server_runs:
                    zookeeper.stop()
                raise

    def down(self, timeout_s: float = 15.0) -> None:
        """Stop every broker, then the cluster's own ZooKeeper server.

        Brokers get SIGTERM, and SIGKILL if they still run after `timeout_s`.
        """
        self.places()
        with layout.locked(self.directory):
            self._end(list(self.broker_ids), timeout_s)
            if self.zookeeper is not None:
                self.zookeeper.stop(timeout_s)

    def await_writable(self, timeout_s: float = 60.0) -> None:
        """Wait until a replicated topic can be created and written to."""
        replicas = min(len(self.broker_ids), _PROBE_REPLICAS)
        await_writable(
            self.bootstrap, replicas, timeout_s, self._check_running, client_id=self._client_id
        )

    def await_full_isrs(self, timeout_s: float = 60.0) -> None:
        """Wait until every partition has a leader and all replicas in sync."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = self.status()
            if now.reached and now.under_replicated == 0 and now.leaderless == 0:
                return
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"after {timeout_s:.0f} s {now.under_replicated} partitions are"
                    f" under-replicated and {now.leaderless} without leader"
                )
            time.sleep(_POLL_S)

    # -- one broker -----------------------------------------------------------------------------

    def start(
        self,
        broker_id: int,
        timeout_s: float = 30.0,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a broker unless it runs, and return when it responds.

        `environment` adds variables to the caller's environment for the new process.
        """
        with layout.locked(self.directory):
            if self.process(broker_id) is not None:
                return
            check_free({broker_id: self._endpoints(broker_id)})
            if self.zookeeper is not None:
                self.zookeeper.start(timeout_s)
            self._spawn(broker_id, environment)
        self._await_answer(broker_id, timeout_s)

    def stop(self, broker_id: int, timeout_s: float = 15.0) -> None:
        """Stop a broker as an operator would: SIGTERM, then SIGKILL after `timeout_s`."""
        self._running(broker_id)
        self._end([broker_id], timeout_s)

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL, which flushes nothing and notifies no peer; wait for the end."""
        self._running(broker_id)
        self._end([broker_id], 0.0)

    def pause(self, broker_id: int) -> None:
        """Send SIGSTOP: the process keeps its connections but does not run."""
        self._signal(broker_id, signal.SIGSTOP)

    def resume(self, broker_id: int) -> bool:
        """Send SIGCONT after `pause`; return whether the broker was paused."""
        was_paused = self._running(broker_id).is_paused
        self._signal(broker_id, signal.SIGCONT)
        return was_paused

    def restart(self, broker_id: int, timeout_s: float = 30.0) -> None:
        """Stop a broker if it runs, then start it."""
        if self.process(broker_id) is not None:
            self.stop(broker_id)
        self.start(broker_id, timeout_s)

    # -- log directories ------------------------------------------------------------------------

    def log_dirs(self, broker_id: int) -> tuple[str, ...]:
        """Return the log directories in a broker's configuration."""
        return self._config(broker_id).log_dirs

    def break_log_dir(self, broker_id: int, log_dir: int | str, fault: DiskFault | None) -> str:
        """Inject a fault into a log directory, or with None end the fault; return its path.

        `log_dir` is the path or the position in `log.dirs`, from 0. A stopped broker meets the
        fault at its start. A directory that failed stays offline until its broker restarts.
        """
        known = self.log_dirs(broker_id)
        if isinstance(log_dir, int) and 0 <= log_dir < len(known):
            path = known[log_dir]
        elif log_dir in known:
            path = str(log_dir)
        else:
            raise LocalClusterError(
                f"broker {broker_id} has no log directory {log_dir}: it has {', '.join(known)}"
            )
        self._disk_faults(broker_id).put(path, fault)
        return path

    def log_dir_faults(self, broker_id: int) -> dict[str, DiskFault]:
        """Return the injected faults of a broker's log directories, by path."""
        return self._disk_faults(broker_id).faults()

    def _disk_faults(self, broker_id: int) -> DiskFaultControl:
        return DiskFaultControl(self.place(broker_id).disk_faults_path)

    # -- inside ---------------------------------------------------------------------------------

    def _order(self, item: tuple[int, object]) -> tuple[bool, int]:
        return item[0] in self.asked_last, item[0]

    def _check_new(self) -> None:
        """Raise LocalClusterError, before anything is written, if the cluster cannot be created."""
        layout.check_unused(self.directory)
        brokers, config, log_dirs = self._wanted
        brokers = brokers or _BROKERS
        listeners = layout.check_config(
            self.directory, brokers, config, log_dirs, self._new_store()
        )
        if self._first_port is not None:
            ports = range(self._first_port, self._first_port + brokers)
            check_free(
                {
                    number: (Endpoint("PLAINTEXT", LOOPBACK, port),)
                    for number, port in enumerate(ports, 1)
                }
            )
        elif "listeners" in config:
            check_free(listeners)

    def _is_to_discard(self) -> bool:
        """Return whether a cluster that never came up differs from the wanted cluster.

        A cluster whose first start failed is abandoned. If the abandoned cluster equals the wanted
        cluster, its files are kept, because an operator may have corrected them.
        """
        if self._is_existing or not layout.is_abandoned(self.directory):
            return False
        brokers, config, log_dirs = self._wanted
        wanted = layout.asked_text(
            brokers or _BROKERS, config, log_dirs, self._new_store(), self._first_port
        )
        return layout.asked_of(self.directory) != wanted

    def _lay_out(self) -> None:
        """Create the cluster's files if there are none, or if its first start failed."""
        there = layout.load(self.directory)
        if there is not None and not self._is_to_discard():
            if self._places is None:  # another program created the cluster since `__init__`
                self._check_wanted(there)
            self._places = there
            return
        brokers, config, log_dirs = self._wanted
        self._zookeeper = None
        self._places = layout.create(
            self.directory,
            brokers or _BROKERS,
            config,
            log_dirs,
            self._new_store(),
            self._first_port,
        )

    def _new_store(self) -> str:
        """Return the metadata store of the cluster whose files `up` creates."""
        config = self._wanted[1]
        if self._wanted_store is not None:
            return self._wanted_store
        if "metadata.store" in config:
            return config["metadata.store"]
        store = os.environ.get(_STORE_VARIABLE, layout.EMBEDDED)
        layout.check_store(store, config)
        return store

    def _check_wanted(self, places: Mapping[int, BrokerPlace]) -> None:
        """Raise LocalClusterError if an existing cluster differs from the requested cluster."""
        brokers, config, _ = self._wanted
        if brokers not in (None, len(places)):
            raise LocalClusterError(
                f"{self.directory} holds a cluster of {len(places)} brokers, not {brokers}"
            )
        layout.check_same_config(places, config)
        first = min(places)
        if self._first_port not in (None, places[first].port):
            raise LocalClusterError(
                f"{self.directory} holds a cluster whose broker {first} listens on port"
                f" {places[first].port}, not {self._first_port}: a port is chosen for a new"
                " cluster only; change listeners in the file of each broker"
            )
        store = self._wanted_store
        if store == layout.ZOOKEEPER and layout.zookeeper_port(self.directory) is None:
            raise LocalClusterError(
                f"{self.directory} holds a cluster without a ZooKeeper server of its own:"
                " a store is chosen for a new cluster only"
            )
        if store not in (None, layout.ZOOKEEPER):
            key = layout.store_key(self.directory, store, 0)
            layout.check_same_config(places, {"metadata.store": key})

    def _running(self, broker_id: int) -> ProcessIdentity:
        process = self.process(broker_id)
        if process is None:
            raise LocalClusterError(f"broker {broker_id} does not run")
        return process

    def _signal(self, broker_id: int, number: signal.Signals) -> None:
        if not self._running(broker_id).send(number):
            raise LocalClusterError(f"broker {broker_id} has just ended")

    def config_warnings(self) -> tuple[str, ...]:
        """Return the warnings about the brokers' configurations, without duplicates."""
        found = (each for number in self.broker_ids for each in self._config(number).warnings)
        return tuple(dict.fromkeys(found))

    def log_directories(self) -> tuple[str, ...]:
        """Return the log directories in all brokers' configurations."""
        return tuple(path for number in self.broker_ids for path in self.log_dirs(number))

    def _endpoints(self, broker_id: int) -> tuple[Endpoint, ...]:
        return bound_endpoints(self._config(broker_id))

    def _config(self, broker_id: int) -> BrokerConfig:
        """Return a broker's configuration; raise LocalClusterError for an invalid file."""
        try:
            return load_config(self.place(broker_id).properties_path, [], named="")
        except TidelogError as error:
            raise LocalClusterError(str(error)) from error

    def _spawn(self, broker_id: int, environment: Mapping[str, str] | None = None) -> None:
        self._children[broker_id] = start_broker(
            self.place(broker_id), environment, ends_with_program=self._end_with_program
        )

    def _reap(self, broker_id: int) -> None:
        child = self._children.get(broker_id)
        if child is not None and child.poll() is not None:
            self._children.pop(broker_id, None)  # another thread may already have reaped it

    def _check_running(self) -> None:
        """Raise LocalClusterError, with the end of the broker's log, if a broker has ended."""
        for number, place in self.places().items():
            child = self._children.get(number)
            if self.process(number) is None:
                # The process may be ending just now; reaping it returns its exit code.
                code = None if child is None else child.wait()
                raise LocalClusterError(
                    f"broker {number} ended"
                    + ("" if code is None else f" with code {code}")
                    + f"; the end of {place.log_path}:\n{place.last_lines()}"
                )

    def _await_answer(self, broker_id: int, timeout_s: float) -> None:
        """Wait until a broker's Metadata response lists the broker itself as registered."""
        deadline = time.monotonic() + timeout_s
        place = self.place(broker_id)
        while True:
            if self.process(broker_id) is None:
                raise LocalClusterError(
                    f"broker {broker_id} ended; the end of {place.log_path}:\n{place.last_lines()}"
                )
            try:
                with BlockingClient(place.address, self._client_id, 1_000) as client:
                    if broker_id in client.metadata().brokers:
                        return
            except TidelogError as error:
                reason = str(error)
            else:
                reason = "it is not registered yet"
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"broker {broker_id} does not respond after {timeout_s:.0f} s: {reason}"
                )
            time.sleep(_POLL_S)

    def _end(self, broker_ids: list[int], timeout_s: float) -> None:
        """Send SIGTERM to processes, then SIGKILL if they still run; return when all are gone."""
        processes = {number: self.process(number) for number in broker_ids}
        deadline = time.monotonic() + timeout_s
        if timeout_s > 0:
            for process in processes.values():
                if process is not None and not process.is_paused:
                    process.send(signal.SIGTERM)
        for number, process in processes.items():
            if process is None:
                continue
            patience_s = 0.0 if process.is_paused else deadline - time.monotonic()
            if not process.await_end(patience_s):
                process.send(signal.SIGKILL)
                process.await_end(30.0)
            child = self._children.pop(number, None)
            if child is not None:
                child.wait()
        for number in broker_ids:
            self.place(number).write_process(None)

    def _broker_status(
        self,
        broker_id: int,
        process: ProcessIdentity | None,
        metadata: ClusterMetadata | None,
        holding: Holding,
    ) -> BrokerStatus:
        return BrokerStatus(
            id=broker_id,
            pid=None if process is None else process.pid,
            host=self.place(broker_id).host,
            port=self.place(broker_id).port,
            alive=process is not None,
            state="stopped" if process is None else "paused" if process.is_paused else "running",
            controller=metadata is not None and broker_id == metadata.controller_id,
            registered=None if metadata is None else broker_id in metadata.brokers,
            **asdict(holding),
        )
