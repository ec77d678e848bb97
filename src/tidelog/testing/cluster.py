"""A cluster of real brokers for tests: faults, waits, interception of requests, inspection.

Broker processes run on a directory of the test (`tidelog.local`). The kernel kills the brokers when
the program ends, however it ends. The module `faults` has faults on requests, and `waiting` waits
for a state of the cluster.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from collections.abc import Callable, Mapping

from tidelog.broker.server.interception import KIT_CLIENT_ID, Rule
from tidelog.core.types import NO_LEADER
from tidelog.local import ClusterStatus, LocalCluster, LocalClusterError
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.disk_faults import DEVICE_ERRORS, FAIL, FILL, SLOW, DiskFault
from tidelog.runtime.interception import InterceptionControl
from tidelog.testing.faults import Fault, Requests, Unfinished
from tidelog.testing.spec import EMBEDDED, ClusterSpec, check_keys, config_text, did_you_mean
from tidelog.testing.waiting import describe, lagging, unled, wait_until

#: Text of the error if another program took a port between its choice and the broker's start.
_PORT_TAKEN = "address already in use"
_TRIES = 3
_PORT_HELP = (
    "port={}: {}. Clusters with one port cannot be up at once: is it the cluster of another fixture,"
    " or of another worker of pytest-xdist?"
)
_MOST_REPLICAS = 3
#: Maximum delay in s of a slow log directory, because a slower disk would count as hanging.
_SLOWEST_S = 60
#: The numbers that `wait_for` compares, each as a function of the cluster's status.
_NUMBERS: Mapping[str, Callable[[ClusterStatus], int]] = {
    "under_replicated": lambda now: len(list(lagging(now))),
    "leaderless": lambda now: len(list(unled(now))),
    "running": lambda now: sum(broker.state == "running" for broker in now.brokers),
    "controller": lambda now: now.controller,
}
#: Conditions that `wait_for` takes by name.
_CONDITIONS = ("condition", *_NUMBERS, "what")
#: Maximum number of lines of each broker's log in a report.
_LOG_LINES = 12
_LOG_LINE_CHARACTERS = 240
#: Characters that names of topics lack, and the dot, which metrics do not keep apart from `_`.
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
        Broker 1 listens on `port`, and each further broker one port higher; None chooses free
        ports.
        """
        check_keys("Cluster", config or {})
        self.spec = ClusterSpec(brokers, config_text(config or {}), log_dirs, store, port)
        self._directory = os.path.abspath(directory)
        self._faults: list[Fault] = []
        self._unfinished = Unfinished()
        self._number = 0
        #: Brokers with a log directory that failed in the broker's current incarnation.
        self._failed_disks: set[int] = set()
        #: Sizes of the brokers' log files at the last call of `mark_logs`.
        self._marks: dict[int, int] = {}
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

    def _laid_out(self, directory: str) -> LocalCluster:
        interceptions = f"{directory}/interceptions"
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
    def directory(self) -> str:
        """The directory of configuration, data and logs of the brokers."""
        return self._local.directory

    def address(self, broker: int) -> str:
        """Return `host:port` of one broker."""
        return self._local.place(broker).address

    def status(self) -> ClusterStatus:
        """Return the current brokers, controller and partitions."""
        return self._local.status()

    def describe(self) -> str:
        """Return the status as text."""
        return describe(self.status())

    def log(self, broker: int) -> str:
        """Return the whole text of a broker's log file."""
        with open(self._local.place(broker).log_path, "rb") as file:
            return file.read().decode("utf-8", errors="replace")

    def leader(self, topic: str, partition: int = 0, timeout: float = 30.0) -> int:
        """Return the running leader of a partition; wait until there is one."""
        what = f"a running leader of {topic}-{partition}"
        seen = wait_until(
            self._look, lambda now: _leader(now, topic, partition) != NO_LEADER, what, timeout
        )
        return _leader(seen, topic, partition)

    def controller(self, timeout: float = 30.0) -> int:
        """Return the running broker that is the controller; wait until there is one."""
        what = "a running controller"
        return wait_until(
            self._look, lambda now: _is_running(now, now.controller), what, timeout
        ).controller

    # topics

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
        factor = replication_factor or min(len(self.brokers), _MOST_REPLICAS)
        in_sync = min(map(len, replicas.values())) if replicas else factor
        with BlockingClient(self.bootstrap, KIT_CLIENT_ID) as client:
            client.create_topic(name, partitions, factor, config_text(config or {}), replicas)
            client.await_topic(name, min_isr=in_sync)
        return name

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

        The name begins with `name`, by default with the name of the running test. No other test
        and no other worker has the topic, so tests may share the cluster. Raises KafkaError.
        """
        begin = _NOT_IN_TOPICS.sub("-", name or _running_test())[:_NAME_CHARACTERS]
        unique = f"{begin}-{secrets.token_hex(4)}"
        return self.create_topic(unique, partitions, replication_factor, config, replicas=replicas)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises KafkaError."""
        with BlockingClient(self.bootstrap, KIT_CLIENT_ID) as client:
            client.delete_topic(name)

    # faults on brokers

    def kill(self, broker: int) -> None:
        """Send SIGKILL, without notice to the broker's peers; return when the process is gone.

        Partitions that the broker led may have no leader for a moment; `leader` and `wait_for`
        wait.
        """
        self._local.kill(broker)

    def stop(self, broker: int) -> None:
        """Stop a broker as an operator would: it leaves the cluster first."""
        self._local.stop(broker)

    def start(self, broker: int) -> None:
        """Start a stopped or killed broker; return when it responds."""
        self._local.start(broker)

    def restart(self, broker: int) -> None:
        """Stop a broker if it runs, and start it."""
        if self._state(broker) == "paused":
            self._local.resume(broker)
        self._local.restart(broker)

    def pause(self, broker: int) -> None:
        """Send SIGSTOP: the broker keeps its connections and does nothing.

        The cluster considers the paused broker dead after `metadata.session.timeout.ms`.
        """
        self._local.pause(broker)

    def resume(self, broker: int) -> None:
        """Send SIGCONT after `pause`."""
        self._local.resume(broker)

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

    def unfinished_fault(self) -> str | None:
        """Return a message about an `on_request` without action since the last `reset`, if any."""
        return self._unfinished.problem()

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All faults put in force since the last `reset`."""
        return tuple(self._faults)

    def _put(self, rule: Rule, words: str) -> Fault:
        self._number += 1
        numbered = dataclasses.replace(rule, number=self._number)
        for broker in numbered.brokers:
            self._local.place(broker)
        fault = Fault(self._control, numbered, words)
        self._faults.append(fault)
        return fault

    # waiting

    def wait_for(
        self,
        condition: Callable[[ClusterStatus], bool] | None = None,
        *,
        under_replicated: int | None = None,
        leaderless: int | None = None,
        running: int | None = None,
        controller: int | None = None,
        what: str | None = None,
        timeout: float = 30.0,
        **unknown: object,
    ) -> ClusterStatus:
        """Wait until all given conditions hold, and return the status.

        The conditions are: the number of under-replicated partitions, of partitions without leader
        or of running brokers; the id of the controller; any function of the status, which `what`
        describes. A partition counts as under-replicated as soon as one of its brokers does not
        run, and as without leader as soon as its leader does not run. Raises WaitTimeout if the
        conditions do not hold in time; TypeError and ValueError for a condition that can never
        hold.
        """
        for name in unknown:
            raise TypeError(
                f"wait_for: there is no condition {name!r}: {', '.join(_CONDITIONS)} expected"
                + did_you_mean(name, _CONDITIONS)
            )
        numbers = (under_replicated, leaderless, running, controller)
        given = zip(_NUMBERS, numbers, strict=True)
        wanted = {name: number for name, number in given if number is not None}
        self._check_possible(wanted)
        words = [f"{name}={number}" for name, number in wanted.items()]
        if condition is not None:
            words.append(what or str(getattr(condition, "__name__", "the condition")))
        if not words:
            raise ValueError("wait_for: say what for, as in wait_for(under_replicated=0)")

        def counts(now: ClusterStatus) -> bool:
            return all(_NUMBERS[name](now) == number for name, number in wanted.items())

        def look() -> ClusterStatus:
            # High watermarks cost a request to each leader, so they are read last, when the other
            # conditions hold.
            now = self._look()
            return self.status() if counts(now) else now

        def holds(now: ClusterStatus) -> bool:
            return counts(now) and (condition is None or condition(now))

        return wait_until(look, holds, " and ".join(words), timeout)

    def _check_possible(self, wanted: Mapping[str, int]) -> None:
        """Raise an error if a condition names a number that this cluster can never reach."""
        for name in ("under_replicated", "leaderless"):
            if wanted.get(name, 0) < 0:
                raise ValueError(
                    f"wait_for({name}={wanted[name]}) can never hold: 0 or more expected"
                )
        running, most = wanted.get("running", 0), len(self.brokers)
        if not 0 <= running <= most:
            raise ValueError(
                f"wait_for(running={running}) can never hold: this cluster has {most} brokers"
            )
        controller = wanted.get("controller", NO_LEADER)
        if controller != NO_LEADER:
            self._local.place(controller)

    def reset(self) -> None:
        """Restore the cluster except for its topics: no faults, all brokers run and are in sync."""
        self._unfinished.clear()
        for fault in self._faults:
            fault.remove()
        self._faults.clear()
        for broker in self.brokers:
            for path in self._local.log_dir_faults(broker):
                self._local.break_log_dir(broker, path, None)
        broken = [broker.id for broker in self._look().brokers if broker.state != "running"]
        for broker in broken:
            if self._state(broker) == "paused":
                self._local.resume(broker)
            self._local.start(broker)
        # A failed log directory stays offline until its broker restarts.
        for broker in self._failed_disks.difference(broken):
            self._local.restart(broker)
        if broken or self._failed_disks:
            self._failed_disks.clear()
            self.wait_for(under_replicated=0, leaderless=0, timeout=60.0)

    # for reports

    def mark_logs(self) -> None:
        """Mark the ends of the brokers' log files, because later lines belong to a test."""
        for broker, place in self._local.places().items():
            self._marks[broker] = os.stat(place.log_path).st_size

    def report(self) -> str:
        """Return state, faults and the end of the brokers' logs since `mark_logs`, in a few KiB."""
        parts = [f"directory: {self.directory}", self.describe()]
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

    def _look(self) -> ClusterStatus:
        return self._local.status(high_watermarks=False)

    def _state(self, broker: int) -> str:
        process = self._local.process(broker)
        return "stopped" if process is None else "paused" if process.is_paused else "running"


def _running_test() -> str:
    """Return the name of the test that pytest runs, without its file; `topic` outside of tests."""
    node, _, parameters = os.environ.get("PYTEST_CURRENT_TEST", "topic").partition("[")
    name = node.rpartition("::")[2].partition(" (")[0]
    return f"{name}-{parameters.rpartition(']')[0]}" if parameters else name


def _is_running(status: ClusterStatus, broker_id: int) -> bool:
    return any(each.id == broker_id and each.state == "running" for each in status.brokers)


def _leader(status: ClusterStatus, topic: str, partition: int) -> int:
    """Return the running leader of a partition; NO_LEADER if there is none."""
    for each in status.partitions:
        if (each.topic, each.partition) == (topic, partition) and _is_running(status, each.leader):
            return each.leader
    return NO_LEADER
