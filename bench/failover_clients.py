"""A failover, a controlled stop and a move of leaders, as clients with their defaults see them.

A client is a process of its own (`bench.clients`). It writes a record to every partition each 10 ms
and reports each acknowledgement; or it reads what librdkafka writes, as the only member of a group.
Measured is its longest silence: the longest time without a record of a partition, from before the
event to three seconds after it. A client that is silent for a minute is started again, and the
minute is its figure. The partitions whose leader ended or moved are told apart from the
others. Clients take turns, so that none measures the load of another. The silence of the same time
without an event is the noise of the machine.

With `--kills` all producers, each with a topic of its own, see the same kills: a twentieth of the
time. They write each 30 ms, or five of them would fill two cores and measure each other. The
systems take turns after some kills.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench.rig import table
from bench.systems import BROKERS, Running, System, started
from tidelog.client.upkeep import ElectionType
from tidelog.runtime.blocking import BlockingClient

_PARTITIONS = 6
_LIMIT_S = 60.0
_WINDOW_S = 3.0
#: Between two events. franz-go waits 5 s between two requests for metadata, unless a broker refuses
#: it, and asks twice after each event.
_SETTLE_S = 11.0
#: Kills of one system before it is the other's turn.
_TURN = 5
#: A client writes a record to each partition this often: alone, and beside the others.
_PACE_MS, _SHARED_PACE_MS = 10, 30
_POLL_S = 0.02
_BEFORE_US = 50_000
_HERE = Path(__file__).resolve().parent / "clients"
_KAFKA = "4.3.1"
_GROUPS = itertools.count()

#: The command of a client's program, without its mode.
Command = Callable[[], list[str]]


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"bench.clients.{module}"]


def _java() -> list[str]:
    from tests.support.clients.jars import compiled, jars_of_kafka

    jars = jars_of_kafka(_KAFKA)
    return ["java", "-cp", f"{compiled(_HERE / 'Default.java', jars)}:{jars}/*", "Default"]


def _franz() -> list[str]:
    from tests.support.clients.franz_program import program

    return [str(program(_HERE / "franz"))]


CLIENTS: dict[str, Command] = {
    "librdkafka": partial(_python, "on_librdkafka"),
    "kafka-python": partial(_python, "on_kafka_python"),
    "aiokafka": partial(_python, "on_aiokafka"),
    f"Java client {_KAFKA}": _java,
    "franz-go": _franz,
}
#: What the best of them can do: librdkafka's back-off of a batch in flight is 100 ms.
_AIMS_MS = {"librdkafka": 150}
_AIM_MS = 100


class _Client:
    """A client's process, and the times of its records by partition, in microseconds."""

    def __init__(self, name: str, words: Sequence[str], pace_ms: int, log: Path) -> None:
        self.name = name
        self._words = words
        self._environment = {**os.environ, "TIDELOG_BENCH_PACE_MS": str(pace_ms)}
        self._log = log
        self._start()

    def _start(self) -> None:
        self.times: dict[int, list[int]] = defaultdict(list)
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._words, env=self._environment, stdout=subprocess.PIPE, stderr=errors
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            partition, time_us = line.split()
            self.times[int(partition)].append(int(time_us))

    def silent(self, partitions: int, since_us: int) -> list[int]:
        """Wait until every partition has a record later than that; return those without, if any."""
        deadline = time.monotonic() + _LIMIT_S
        while silent := [
            number
            for number in range(partitions)
            if not self.times[number] or self.times[number][-1] <= since_us
        ]:
            if self._process.poll() is not None:
                raise SystemExit(f"bench: {self.name} ended with {self._process.returncode}")
            if time.monotonic() > deadline:
                text = f"{self.name} got no record of partitions {silent} for {_LIMIT_S:.0f} s"
                print(f"bench: {text}", file=sys.stderr)
                break
            time.sleep(_POLL_S)
        return silent

    def start_again(self) -> None:
        """End a process that gets no records any more, and start another one."""
        self.close()
        self._start()
        if self.silent(_PARTITIONS, 0):
            raise SystemExit(f"bench: {self.name} gets no records though it was started again")

    def silence_ms(self, partition: int, since_us: int) -> float:
        """Return the longest time between two records of a partition around that moment.

        A partition without a record since has been silent until now.
        """
        times = list(self.times[partition])
        if times[-1] <= since_us:
            times.append(time.time_ns() // 1000)
        until_us = since_us + int(_WINDOW_S * 1e6)
        pairs = itertools.pairwise(times)
        gaps = [b - a for a, b in pairs if b >= since_us - _BEFORE_US and a <= until_us]
        return max(gaps) / 1e3

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


@contextmanager
def _client(name: str, pace_ms: int, *words: str) -> Iterator[_Client]:
    """Run a client; it logs into a file in the directory TIDELOG_BENCH_LOGS, if that is set."""
    logs = os.environ.get("TIDELOG_BENCH_LOGS")
    log = Path(logs, "-".join([*name.split(), words[0]])) if logs else Path(os.devnull)
    client = _Client(name, [*CLIENTS[name](), *words], pace_ms, log)
    try:
        yield client
    finally:
        client.close()


def run(systems: Sequence[System], rounds: int, names: str = "", kills: bool = False) -> list[str]:
    """Return the table of producers and consumers; `names`: clients whose name has that text.

    With `kills`, of producers at a SIGKILL, all of them at the same time.
    """
    chosen = [name for name in CLIENTS if names in name]
    rows = []
    with started(systems) as running:
        for one in running:
            with BlockingClient(one.bootstrap) as client:
                for topic in chosen:
                    client.create_topic(_topic(topic), _PARTITIONS, 3, _CONFIGS)
                    client.await_topic(_topic(topic), 3)
        if kills:
            at_once = _kills(running, chosen, rounds)
            for name in chosen:
                rows += _rows(name, [found[name] for found in at_once], reads=False)
        else:
            for name in chosen:
                for reads in (False, True):
                    measured = [
                        _silences(one, [name], range(rounds), reads)[name] for one in running
                    ]
                    rows += _rows(name, measured, reads)
    how = "producers at the same time" if kills else "clients in turns"
    title = f"Longest silence of a client with its defaults ({rounds} times each, {how}), ms"
    return [
        table(title, rows, ("median (worst) of", *(each.name for each in systems), "aim: worst"))
    ]


def _kills(
    running: Sequence[Running], names: Sequence[str], rounds: int
) -> list[dict[str, Silences]]:
    """Return the silences of all producers in each system; systems take turns after some kills."""
    found: list[dict[str, Silences]] = [
        {name: defaultdict(list) for name in names} for _ in running
    ]
    for first in range(0, rounds, _TURN):
        turn = range(first, min(first + _TURN, rounds))
        for one, told in zip(running, found, strict=True):
            for name, silences in _silences(one, names, turn, reads=False, kinds=_KILLS).items():
                for kind, times in silences.items():
                    told[name][kind] += times
                worst = {kind: round(max(times)) for kind, times in silences.items()}
                print(f"kill {turn.stop} of {one.name}: {name} {worst} ms", file=sys.stderr)
    return found


def _topic(client: str) -> str:
    return "for-" + "-".join(client.split())


_CONFIGS = {"min.insync.replicas": "2"}
_KINDS = ("SIGKILL", "controlled stop", "preferred leaders return", "no event")
_KILLS = ("SIGKILL", "no event")


def _rows(
    name: str, measured: Sequence[dict[str, list[float]]], reads: bool
) -> list[tuple[str, ...]]:
    who = f"{name}, {'consumer' if reads else 'producer'}"
    found = []
    for what in (f"{kind}, {which}" for kind in _KINDS for which in ("moved", "others")):
        if not all(figures[what] for figures in measured):
            continue  # no partition was moved without an event
        told = []
        for figures in measured:
            times = sorted(figures[what])
            told.append(f"{times[len(times) // 2]:,.0f} ({times[-1]:,.0f})")
        is_killed = what.startswith("SIGKILL, moved") and not reads
        aim = f"<= {_AIMS_MS.get(name, _AIM_MS)}" if is_killed else ""
        found.append((f"{who}: {what}", *told, aim))
    return found


#: The silences of one client, by kind of event.
Silences = dict[str, list[float]]


def _silences(
    running: Running,
    names: Iterable[str],
    rounds: range,
    reads: bool,
    kinds: Sequence[str] = _KINDS,
) -> dict[str, Silences]:
    """Return each client's silences, of the partitions that an event moves and of the others."""
    found: dict[str, Silences] = {name: defaultdict(list) for name in names}
    pace_ms = _PACE_MS if len(found) == 1 else _SHARED_PACE_MS
    with ExitStack() as stack:
        clients = {}
        for name in names:
            words = ("produce", running.bootstrap, _topic(name), str(_PARTITIONS))
            if reads:
                stack.enter_context(_client("librdkafka", pace_ms, *words))
                words = ("consume", running.bootstrap, _topic(name), f"bench-{next(_GROUPS)}")
            clients[name] = stack.enter_context(_client(name, pace_ms, *words))
        for client in clients.values():
            if client.silent(_PARTITIONS, 0):
                raise SystemExit(f"bench: {client.name} gets no records")
        for number in rounds:
            for kind in kinds:
                _event(running, clients, kind, number % BROKERS + 1, found)
    return found


def _event(
    running: Running,
    clients: Mapping[str, _Client],
    kind: str,
    victim: int,
    found: Mapping[str, Silences],
) -> None:
    time.sleep(_SETTLE_S)
    before = _leaders(running, clients)
    since_us = time.time_ns() // 1000
    if kind == "SIGKILL":
        running.kill(victim)
    elif kind == "controlled stop":
        running.stop(victim)
        running.await_end(victim)
    elif kind == "preferred leaders return":
        with BlockingClient(running.bootstrap) as admin:
            since_us = time.time_ns() // 1000
            admin.elect_leaders(ElectionType.PREFERRED, None)
    time.sleep(_WINDOW_S)
    silent = [client for client in clients.values() if client.silent(_PARTITIONS, since_us)]
    after = _leaders(running, clients)
    for (name, number), leader in after.items():
        which = "others" if before[name, number] == leader else "moved"
        found[name][f"{kind}, {which}"].append(clients[name].silence_ms(number, since_us))
    if kind in ("SIGKILL", "controlled stop"):
        running.start(victim)
        with BlockingClient(running.bootstrap) as admin:
            for name in clients:
                admin.await_topic(_topic(name), 3)
            if kind == "SIGKILL":
                admin.elect_leaders(ElectionType.PREFERRED, None)
    for client in silent:
        client.start_again()


def _leaders(running: Running, clients: Iterable[str]) -> dict[tuple[str, int], int]:
    topics = {_topic(name): name for name in clients}
    with BlockingClient(running.bootstrap) as admin:
        described = admin.metadata(list(topics)).topics
    return {
        (name, number): described[topic].partitions[number].leader
        for topic, name in topics.items()
        for number in range(_PARTITIONS)
    }
