"""The cluster under chaos: faults begin and end, dead brokers come back, endings are noted."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from tests.support.chaos import beside, schedule
from tests.support.chaos.disks import SmallDisk
from tests.support.chaos.schedule import Fault
from tests.support.chaos.sessions import close_session_of
from tests.support.cluster import hanging_writes
from tests.support.cluster.hanging_writes import HangingWrites
from tests.support.cluster.zookeepers import start_server

from tidelog.core.errors import TidelogError
from tidelog.local import LocalCluster, layout
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.main import EXIT_HALTED
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers

BROKERS = 3
LOG_DIRS = 2
#: The broker of which a log directory hangs, and the one that is in sync in an older store.
SICK, STALE = 3, 2
TOPIC = "chaos"
PARTITIONS = 6
SESSION_S = 3.0
CHROOT = "/chaos"
#: A start on a loaded machine; reached only where a broker hangs.
START_S = 180.0
CONFIG = {
    "metadata.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": "10000",
    "offsets.topic.num.partitions": "6",
    **beside.CONFIG,
}


_COPY = (
    "import sqlite3, sys; source, target = map(sqlite3.connect, sys.argv[1:]);"
    " source.backup(target); target.close(); source.close()"
)


class _Cluster(LocalCluster):
    """Keeps the exit codes of its brokers."""

    def __init__(self, directory: str, store: str) -> None:
        # An unfinished layout is started as it is only by a cluster that wants the same.
        super().__init__(
            directory, BROKERS, config=CONFIG, log_dirs=LOG_DIRS, store=store, end_with_program=True
        )
        self.codes: dict[int, int] = {}

    def _reap(self, broker_id: int) -> None:
        child = self._children.get(broker_id)
        if child is not None and (code := child.poll()) is not None:
            self.codes[broker_id] = code
        super()._reap(broker_id)


class Brokers:
    """Three brokers and their store. Not for several threads at once."""

    def __init__(self, directory: Path, store: str, *, small_disks: bool) -> None:
        self.began_s = time.monotonic()
        #: What went wrong beside clients: a broker that ended by itself.
        self.troubles: list[str] = []
        self.struck: dict[Fault, int] = {}
        self._server: LocalZookeeper | None = None
        if store == layout.ZOOKEEPER:
            self._server = start_server(directory / "zookeeper")
            store = f"zookeeper://{self._server.address}{CHROOT}"
            asyncio.run(create_chroot(parse_servers(store)))
        self._directory = directory
        where = str(directory / "cluster")
        layout.make_directory(where)
        # Laid out first: the small disks must be there when the brokers start.
        places = self._places = layout.create(where, BROKERS, CONFIG, LOG_DIRS, store)
        self._cluster = _Cluster(where, store)
        self.disks: dict[int, list[SmallDisk]] = {number: [] for number in places}
        for number, place in places.items() if small_disks else ():
            for index in range(LOG_DIRS):
                self.disks[number].append(SmallDisk(Path(place.directory, f"data-{index}")))
        #: Brokers that a fault has taken away until its end.
        self._down: dict[int, None] = {}
        self._paused: dict[int, None] = {}
        #: Paused beyond their session since they were started.
        self._expired: dict[int, None] = {}

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began_s:8.2f} s  {text}", flush=True)  # noqa: T201

    def up(self) -> None:
        self._cluster.up(START_S)
        assert self._cluster.places() == self._places, "the layout was made again"
        with BlockingClient(self.bootstrap, timeout_ms=int(START_S * 1000)) as client:
            client.create_topic(TOPIC, PARTITIONS, BROKERS, {"min.insync.replicas": "2"})
            client.await_topic(TOPIC, min_isr=BROKERS)

    def close(self) -> None:
        self._cluster.down(timeout_s=0.0)
        if self._server is not None:
            self._server.kill()

    # faults

    def begin(self, fault: Fault, other_than: int) -> int:
        """Strike; returns the broker that was chosen."""
        broker = self._chosen(fault.target, other_than)
        self.struck[fault] = broker
        self.say(f"{fault.kind}: broker {broker} ({fault.target})")
        if fault.kind == schedule.FULL:
            for disk in self.disks[broker]:
                disk.fill()
        elif fault.kind == schedule.CLOSE:
            self._close_session(broker)
        elif self._cluster.process(broker) is None:
            self.say(f"broker {broker} does not run: left out")
        elif fault.kind == schedule.KILL:
            self._cluster.kill(broker)
            self._down[broker] = None
        else:
            self._cluster.pause(broker)
            self._paused[broker] = None
            if fault.kind == schedule.EXPIRE:
                self._expired[broker] = None
        return broker

    def end(self, fault: Fault) -> None:
        """Let go of what the fault holds, and see to it that every broker runs."""
        broker = self.struck[fault]
        if fault.kind == schedule.FULL:
            for disk in self.disks[broker]:
                disk.empty()
            self.say(f"broker {broker} has room on its disk")
        elif broker in self._paused:
            del self._paused[broker]
            if self._cluster.process(broker) is not None:
                self._cluster.resume(broker)
                self.say(f"broker {broker} goes on")
        elif broker in self._down:
            del self._down[broker]
            self._start(broker)
        self.revive()

    def revive(self) -> None:
        """Start brokers that ended by themselves: the watchdog halts one that stood still."""
        for broker in self._cluster.broker_ids:
            if broker in self._down or self._cluster.process(broker) is not None:
                continue
            code = self._cluster.codes.get(broker)
            self.say(f"broker {broker} has ended with code {code}")
            # A peer may kill a broker that was stopped inside a transaction of the shared store.
            was_killed = code == -signal.SIGKILL and broker in self._expired
            if code != EXIT_HALTED and not was_killed:
                self.troubles.append(f"broker {broker} ended by itself with code {code}")
            self._start(broker)

    def heal(self) -> None:
        """No fault any more: every broker runs and every partition has its replicas in sync."""
        for disk in itertools.chain(*self.disks.values()):
            disk.empty()
        for broker in list(self._paused):
            self._cluster.resume(broker)
        self._paused.clear()
        self._down.clear()
        self.revive()
        deadline = time.monotonic() + START_S
        while True:
            self.revive()
            try:
                self._cluster.await_full_isrs(5.0)
                return
            except TidelogError as error:
                if time.monotonic() > deadline:
                    self.troubles.append(f"the cluster is not whole after the faults: {error}")
                    return

    # what lasts, when all other faults are over

    def put_older_store_back(self, meanwhile: Callable[[], None]) -> None:
        """Kill all brokers, and start them on a copy of the store from before `meanwhile` (E8).

        The copy names a broker in sync that has nothing of what was acknowledged meanwhile.
        """
        store, copy = Path(self._cluster.directory, "metadata"), self._directory / "older"
        copy.mkdir()
        # Another process: closing a descriptor of the database drops SQLite's locks of this one.
        files = [str(each / "metadata.db") for each in (store, copy)]
        subprocess.run([sys.executable, "-c", _COPY, *files], check=True)
        self._cluster.stop(STALE)
        self.say(f"the store was copied; broker {STALE} is down")
        meanwhile()
        self._cluster.down(timeout_s=0.0)
        shutil.rmtree(store)
        copy.rename(store)
        self.say("all brokers are killed, the copy is the store: they start")
        self._cluster.up(START_S)

    def hang_directory(self, meanwhile: Callable[[], None]) -> bool:
        """Let one log directory of a broker hang until `meanwhile` is over (D13).

        The broker gives it up or ends; then it starts with its disk as it was. Returns whether
        there is a compiler, without which no directory can hang.
        """
        library = hanging_writes.compiled(self._directory)
        if library is None:
            return False
        directory = f"{self._cluster.places()[SICK].directory}/data-{LOG_DIRS - 1}"
        disk = HangingWrites(library, directory, self._directory / "hang")
        self._cluster.stop(SICK)
        self._cluster.start(SICK, START_S, environment=disk.environment)
        self._cluster.await_full_isrs(START_S)
        self.say(f"{directory} hangs")
        disk.begin()
        try:
            meanwhile()
        finally:
            disk.end()
        if self._cluster.process(SICK) is not None:
            self._cluster.kill(SICK)
            self._start(SICK)
        self.revive()
        return True

    def _start(self, broker: int) -> None:
        self._cluster.start(broker, START_S)
        self._expired.pop(broker, None)
        self.say(f"broker {broker} was started and answers")

    def _close_session(self, broker: int) -> None:
        assert self._server is not None
        try:
            told = close_session_of(self._server.address, f"{CHROOT}/brokers/ids/{broker}")
        except (KazooException, KazooTimeoutError) as error:
            told = f"not closed: {error!r}"
        self.say(f"session {told}")

    def _chosen(self, target: str, other_than: int) -> int:
        word, _, number = target.partition(" ")
        if word == "broker":
            return int(number)
        now = self._cluster.status(high_watermarks=False)
        if word == "controller" and now.controller in self._cluster.broker_ids:
            return now.controller
        leaders = [each.leader for each in now.partitions if each.topic == TOPIC]
        if word == "another":
            return next(
                (each for each in leaders if each not in (-1, other_than)), other_than % BROKERS + 1
            )
        wanted = int(number) if word == "leader" else 0
        known = leaders[wanted : wanted + 1]
        return known[0] if known and known[0] in self._cluster.broker_ids else 1

    # afterwards

    def log_of(self, broker: int) -> str:
        path = Path(self._cluster.places()[broker].log_path)
        return path.read_text(encoding="utf-8", errors="replace")

    def keep_data(self, where: Path) -> None:
        for number, disks in self.disks.items():
            for disk in disks:
                disk.keep(where / f"broker-{number}" / disk.directory.name)
