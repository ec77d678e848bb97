"""A cluster of real brokers for tests: faults, waits, interception of requests, inspection.

Broker processes run in a directory of the test (`tidelog.local`). The kernel kills the brokers when
the program ends, however it ends. The module `faults` has faults on requests, and `waiting` waits
for a state of the cluster.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import re
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from tidelog.broker.server.interception import KIT_CLIENT_ID, Rule
from tidelog.local import ClusterStatus, LocalCluster, LocalClusterError
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.disk_faults import DEVICE_ERRORS, FAIL, FILL, SLOW, DiskFault
from tidelog.runtime.interception import InterceptionControl
from tidelog.testing import states
from tidelog.testing.faults import Fault, Isolation, Requests, Unfinished
from tidelog.testing.loops import takes_time, warn_in_loop
from tidelog.testing.spec import EMBEDDED, ClusterSpec, check_keys, config_text
from tidelog.testing.waiting import describe

P = ParamSpec("P")
T = TypeVar("T")

#: Text of the error if another program took a port between its choice and the broker's start.
_PORT_TAKEN = "address already in use"
_TRIES = 3
_PORT_HELP = (
    "port={}: {}. Clusters with one port cannot be up at once: is it the cluster of another"
    " fixture, or of another worker of pytest-xdist?"
)
_MOST_REPLICAS = 3
#: Maximum delay in s of a slow log directory, because a slower disk would count as hanging.
_SLOWEST_S = 60
#: Maximum number of lines of each broker's log in a report.
_LOG_LINES = 12
_LOG_LINE_CHARACTERS = 240
#: Characters that `topic` replaces: all that topic names must not have, and the dot, which Kafka's
#: metrics do not distinguish from `_`.
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9_-]+")
#: Maximum number of characters that `topic` takes from a name.
_NAME_CHARACTERS = 200


class Cluster:
    """Brokers 1, 2, ... of a cluster that is up. Several threads must not use a cluster at once.

    Methods raise LocalClusterError for an impossible act and WaitTimeout for a state that was not
    reached; both describe the last state seen. The context manager closes the cluster.
    """

    def __init__(
        self,
        directory: str,
        brokers: int = 3,
        *,
        config: Mapping[str, object] | None = None,
        log_dirs: int = 1,
        store: str = EMBEDDED,
        port: int | None = None,
    ) -> None:
        """Start a cluster in a directory of its own, and return when it can be written to.

        `config` has keys of every broker's server.properties; an unknown key raises SpecError.
        Broker 1 listens on `port`, and the next brokers on the following ports; None chooses free
        ports.
        """
        warn_in_loop("Cluster", "`await asyncio.to_thread(...)` calls it, or the factory")
        check_keys("Cluster", config or {})
        self._begin(ClusterSpec(brokers, config_text(config or {}), log_dirs, store, port))
        self._directory = os.path.abspath(directory)
        for attempt in range(1, _TRIES + 1):
            self._local = self._laid_out(f"{self._directory}/{attempt}")
            try:
                self._local.up()
                return
            except LocalClusterError as error:
                if _PORT_TAKEN not in str(error).lower():
                    raise
                if port is not None:
                    raise LocalClusterError(_PORT_HELP.format(port, error)) from None
                if attempt == _TRIES:
                    raise

    def _begin(self, spec: ClusterSpec, first_rule: int = 1) -> None:
        """Prepare faults, whose rules are numbered from `first_rule` on."""
        self.spec = spec
        self._faults: list[Fault] = []
        self._unfinished = Unfinished()
        self._next_rule = first_rule
        #: Brokers with a log directory that failed in the broker's current incarnation.
        self._failed_disks: set[int] = set()
        #: Sizes of the brokers' log files at the last call of `mark_logs`.
        self._marks: dict[int, int] = {}

    def _laid_out(self, directory: str) -> LocalCluster:
        interceptions = interceptions_of(f"{directory}/cluster")
        self._control = InterceptionControl(interceptions)
        keys = {"tidelog.test.interception.directory": interceptions}
        return LocalCluster(
            f"{directory}/cluster",
            self.spec.brokers,
            config={**keys, **self.spec.config},
            log_dirs=self.spec.log_dirs,
            store=None if self.spec.store == EMBEDDED else self.spec.store,
            first_port=self.spec.port,
            end_with_program=True,
            client_id=KIT_CLIENT_ID,
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None and (problem := self.unfinished_fault()) is not None:
            raise ValueError(problem)

    def __repr__(self) -> str:
        return f"<Cluster of {len(self.brokers)} brokers at {self.bootstrap}>"

    def close(self) -> None:
        """Kill the brokers, whose data are no longer needed; repeated calls do nothing."""
        self._local.down(timeout_s=0.0)

    # contents

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers: the clients' `bootstrap.servers`."""
        return self._local.bootstrap

    @property
    def bootstrap_servers(self) -> list[str]:
        """`host:port` of each broker, for clients that take a list."""
        return [place.address for place in self._local.places().values()]

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of all brokers, running or not."""
        return self._local.broker_ids

    @property
    def local(self) -> LocalCluster:
        """The LocalCluster of these brokers, with methods that this class lacks."""
        return self._local

    @property
    def aio(self) -> AsyncCluster:
        """The calls that take time, as asyncio coroutines with the same names and arguments."""
        return AsyncCluster(self)

    @property
    def directory(self) -> str:
        """The directory of configuration, data and logs of the brokers."""
        return self._local.directory

    def address(self, broker: int) -> str:
        """Return `host:port` of one broker."""
        return self._local.place(broker).address

    @takes_time
    def status(self) -> ClusterStatus:
        """Return the current brokers, controller and partitions."""
        return self._local.status()

    @takes_time
    def describe(self) -> str:
        """Return the status as text."""
        return describe(self._local.status())

    def log(self, broker: int) -> str:
        """Return the whole text of a broker's log file."""
        with open(self._local.place(broker).log_path, "rb") as file:
            return file.read().decode("utf-8", errors="replace")

    leader = states.blocking(states.leader)
    controller = states.blocking(states.controller)
    wait_for = states.blocking(states.wait_for)

    # topics

    @takes_time
    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        *,
        replicas: Mapping[int, list[int]] | None = None,
    ) -> str:
        """Create a topic; return its name when every partition has all replicas in sync.

        The default replication factor is three, or the number of brokers if that is lower.
        `replicas`, instead of `partitions` and `replication_factor`, has the brokers of each
        partition, the preferred leader first. Raises KafkaError.
        """
        return self._create(name, partitions, replication_factor, config, replicas)

    def _create(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None,
        config: Mapping[str, object] | None,
        replicas: Mapping[int, list[int]] | None,
    ) -> str:
        factor = replication_factor or min(len(self.brokers), _MOST_REPLICAS)
        in_sync = min(map(len, replicas.values())) if replicas else factor
        with BlockingClient(self.bootstrap, KIT_CLIENT_ID) as client:
            client.create_topic(name, partitions, factor, config_text(config or {}), replicas)
            client.await_topic(name, min_isr=in_sync)
        return name

    @takes_time
    def topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        *,
        replicas: Mapping[int, list[int]] | None = None,
    ) -> str:
        """Create a topic like `create_topic`, and return its unique name.

        The name begins with `name`, by default with the name of the running test. No other test and
        no other worker uses the topic, so tests may share the cluster. Raises KafkaError.
        """
        begin = _NOT_IN_TOPICS.sub("-", name or _running_test())[:_NAME_CHARACTERS]
        unique = f"{begin}-{secrets.token_hex(4)}"
        return self._create(unique, partitions, replication_factor, config, replicas)

    @takes_time
    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises KafkaError."""
        with BlockingClient(self.bootstrap, KIT_CLIENT_ID) as client:
            client.delete_topic(name)

    # faults on brokers

    def _before_fault(self, act: str) -> None:
        """Do nothing: only a cluster that tests share raises LocalClusterError before a fault."""

    def kill(self, broker: int) -> None:
        """Send SIGKILL, without notice to the broker's peers; return when the process is gone.

        Partitions that the broker led may have no leader for a moment; `leader` and `wait_for`
        wait.
        """
        self._before_fault(f"kill({broker})")
        self._local.kill(broker)

    @takes_time
    def stop(self, broker: int) -> None:
        """Stop a broker with a controlled shutdown, as an operator would (SIGTERM)."""
        self._before_fault(f"stop({broker})")
        self._local.stop(broker)

    @takes_time
    def start(self, broker: int) -> None:
        """Start a stopped or killed broker; return when it responds."""
        self._before_fault(f"start({broker})")
        self._local.start(broker)

    @takes_time
    def restart(self, broker: int) -> None:
        """Stop a broker if it runs, and start it."""
        self._before_fault(f"restart({broker})")
        if self._state(broker) == "paused":
            self._local.resume(broker)
        self._local.restart(broker)

    def pause(self, broker: int) -> None:
        """Send SIGSTOP: the broker keeps its connections and does nothing.

        The cluster considers the paused broker dead after `metadata.session.timeout.ms`.
        """
        self._before_fault(f"pause({broker})")
        self._local.pause(broker)

    def resume(self, broker: int) -> None:
        """Send SIGCONT after `pause`."""
        self._before_fault(f"resume({broker})")
        self._local.resume(broker)

    @takes_time
    def expire_session(self, broker: int, timeout: float = 30.0) -> None:
        """Pause a broker until its session in the metadata store has expired, and resume it.

        The broker then finds out that other brokers lead its partitions, and registers again. The
        call takes `metadata.session.timeout.ms`, and another broker must run. Raises WaitTimeout.
        """
        self._before_fault(f"expire_session({broker})")
        self._local.pause(broker)
        try:
            states.unregistered(self._local, broker, timeout).block()
        finally:
            self._local.resume(broker)

    def isolate(self, brokers: Iterable[int], others: Iterable[int] | None = None) -> Isolation:
        """Cut the connections between brokers and others, by default all others, until `heal`.

        Both sides reach their clients and the metadata store, as in a partial network failure: a
        broker whose followers are on the other side keeps its session. `status` and the methods
        that wait read the state of the cluster from `others`. A request that a broker has begun,
        such as a waiting fetch, still gets its response. Raises ValueError for a side without
        brokers, and for a broker on both sides.
        """
        near = tuple(brokers)
        rest = (broker for broker in self.brokers if broker not in near)
        far = tuple(rest if others is None else others)
        if not near or not far or any(broker in near for broker in far):
            raise ValueError(f"isolate({near}, {far}): two sides with other brokers expected")
        for broker in (*near, *far):
            self._local.place(broker)
        cut = tuple(
            self.on_request("*").on(*here).from_brokers(*there).disconnect()
            for here, there in ((near, far), (far, near))
        )
        self._local.asked_last = near  # these brokers may have old metadata
        return Isolation(cut, self._ask_all)

    def _ask_all(self) -> None:
        self._local.asked_last = ()

    # faults on log directories

    def fail_log_dir(self, broker: int, log_dir: int | str = 0, error: str = "EIO") -> str:
        """Let every operation in a log directory fail; return its path.

        `log_dir` is the directory's number in `log.dirs`, from 0, or its path; `error` is one of
        EIO, EROFS, EACCES, ENOENT, ENXIO and ESTALE. The broker takes the directory offline at its
        next operation there, a checkpoint at the latest. A broker ends when its last directory
        fails. Raises ValueError for an unknown `error`.
        """
        if error not in DEVICE_ERRORS:
            raise ValueError(f"fail_log_dir(error={error!r}): one of {', '.join(DEVICE_ERRORS)}")
        return self._break_log_dir(broker, log_dir, DiskFault(FAIL, error))

    def fill_log_dir(self, broker: int, log_dir: int | str = 0) -> str:
        """Let a log directory have no free space (ENOSPC); return its path."""
        return self._break_log_dir(broker, log_dir, DiskFault(FILL))

    def slow_log_dir(self, broker: int, log_dir: int | str = 0, seconds: float = 0.1) -> str:
        """Let each read, write and sync in a log directory take longer; return its path."""
        if not 0 < seconds <= _SLOWEST_S:
            raise ValueError(f"slow_log_dir(seconds={seconds}): more than 0, {_SLOWEST_S} at most")
        return self._break_log_dir(broker, log_dir, DiskFault(SLOW, delay_ms=round(seconds * 1000)))

    def heal_log_dir(self, broker: int, log_dir: int | str = 0) -> str:
        """End the fault of a log directory; return its path.

        A directory that failed comes back with the next start of its broker (`restart`).
        """
        return self._break_log_dir(broker, log_dir, None)

    def _break_log_dir(self, broker: int, log_dir: int | str, fault: DiskFault | None) -> str:
        self._before_fault(f"a fault of log directory {log_dir} of broker {broker}")
        path = self._local.break_log_dir(broker, log_dir, fault)
        if fault is not None and fault.kind == FAIL:
            self._failed_disks.add(broker)
        return path

    # faults on requests

    def on_request(self, *names: str) -> Requests:
        """Return the first step of a fault on requests of the given APIs (`Produce`, `Fetch`, ...).

        Further steps select requests; the last step chooses the fault.
        """
        return Requests.of(self._put, names, self._unfinished)

    def forget_unfinished_faults(self) -> None:
        """Forget faults that have no action, because an error came between their steps."""
        self._unfinished.clear()

    def unfinished_fault(self) -> str | None:
        """Return a message about an `on_request` without action since the last `reset`, if any."""
        return self._unfinished.problem()

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All faults put in force since the last `reset`."""
        return tuple(self._faults)

    def _put(self, rule: Rule, words: str) -> Fault:
        numbered = dataclasses.replace(rule, number=self._next_rule)
        self._next_rule += 1
        for broker in numbered.brokers:
            self._local.place(broker)
        fault = Fault(self._control, numbered, words)
        self._faults.append(fault)
        return fault

    # between tests

    @takes_time
    def reset(self) -> None:
        """Restore the cluster except for its topics: no faults, all brokers run and are in sync."""
        self._unfinished.clear()
        for fault in self._faults:
            fault.remove()
        self._faults.clear()
        self._ask_all()
        for broker in self.brokers:
            for path in self._local.log_dir_faults(broker):
                self._local.break_log_dir(broker, path, None)
        broken = [
            broker.id
            for broker in self._local.status(high_watermarks=False).brokers
            if broker.state != "running"
        ]
        for broker in broken:
            if self._state(broker) == "paused":
                self._local.resume(broker)
            self._local.start(broker)
        # A failed log directory stays offline until its broker restarts.
        for broker in self._failed_disks.difference(broken):
            self._local.restart(broker)
        if broken or self._failed_disks:
            self._failed_disks.clear()
            states.wait_for(self._local, under_replicated=0, leaderless=0, timeout=60.0).block()

    # for reports

    def mark_logs(self) -> None:
        """Remember the ends of the brokers' log files, so that `report` shows only later lines."""
        for broker, place in self._local.places().items():
            self._marks[broker] = os.stat(place.log_path).st_size

    def report(self) -> str:
        """Return state, faults and the end of the brokers' logs since `mark_logs`, in a few KiB."""
        parts = [f"directory: {self.directory}", describe(self._local.status())]
        parts += [f"fault: {fault!r}" for fault in self._faults]
        for broker, place in self._local.places().items():
            with open(place.log_path, "rb") as file:
                file.seek(self._marks.get(broker, 0))
                lines = file.read().decode("utf-8", errors="replace").splitlines()
            shown = [line[:_LOG_LINE_CHARACTERS] for line in lines[-_LOG_LINES:]]
            if shown:
                parts.append(f"broker {broker}, last {len(shown)} of {len(lines)} lines:")
                parts += [f"  {line}" for line in shown]
        return "\n".join(parts)

    # inside

    def _state(self, broker: int) -> str:
        process = self._local.process(broker)
        return "stopped" if process is None else "paused" if process.is_paused else "running"


def interceptions_of(directory: str) -> str:
    """Return the directory with the request faults of the cluster in `directory`."""
    return f"{os.path.dirname(directory)}/interceptions"


def _running_test() -> str:
    """Return the name of the running pytest test without its file; else `topic`."""
    node, _, parameters = os.environ.get("PYTEST_CURRENT_TEST", "topic").partition("[")
    name = node.rpartition("::")[2].partition(" (")[0]
    return f"{name}-{parameters.rpartition(']')[0]}" if parameters else name


def _in_thread(
    method: Callable[Concatenate[Cluster, P], T],
) -> Callable[Concatenate[AsyncCluster, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that calls a method of Cluster in a thread."""

    @functools.wraps(method)
    async def call(cluster: AsyncCluster, /, *args: P.args, **named: P.kwargs) -> T:
        overridden: Callable[P, T] = getattr(cluster._cluster, method.__name__)
        return await asyncio.to_thread(overridden, *args, **named)

    return call


class AsyncCluster:
    """The calls of a Cluster that take time, as asyncio coroutines. Tasks may share a cluster.

    Arguments, results and errors are the same as in Cluster's methods. A cancelled wait ends; any
    other cancelled call continues in its thread.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def local(self) -> LocalCluster:
        """The LocalCluster of the brokers."""
        return self._cluster.local

    leader = states.awaitable(states.leader)
    controller = states.awaitable(states.controller)
    wait_for = states.awaitable(states.wait_for)

    status = _in_thread(Cluster.status)
    describe = _in_thread(Cluster.describe)
    create_topic = _in_thread(Cluster.create_topic)
    topic = _in_thread(Cluster.topic)
    delete_topic = _in_thread(Cluster.delete_topic)
    kill = _in_thread(Cluster.kill)
    stop = _in_thread(Cluster.stop)
    start = _in_thread(Cluster.start)
    restart = _in_thread(Cluster.restart)
    expire_session = _in_thread(Cluster.expire_session)
    reset = _in_thread(Cluster.reset)
