"""Reassignments: many small partitions, cancels of pending ones, and a large volume.

Three brokers; replicas of RF 2 move to the broker that has none. Moves are over when the controller
lists none any more. A cancel right after the begin finds some moves done. For one that finds all of
them pending, the broker that gets the replicas is paused; timed is then when other brokers show the
original replicas to clients, and the answer. A tidelog controller delays its answer, by at most a
second, until every broker has acknowledged. It does not wait for the paused one, which has been
silent for a second by then. The large volume moves there
without producers, for its speed and its CPU, and back beside a producer that writes to another
topic, a record at a time.
"""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import kill

from bench.rig import (
    LATENCY_OPTIONS,
    MIB,
    PRODUCER_OPTIONS,
    Driver,
    cpu_seconds,
    spread,
    table,
    warm_pages,
)
from bench.systems import BROKERS, Running, System, started
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

_SMALL = 100
_MANY = 1_000
_LARGE_PARTITIONS = 6
_RECORD_BYTES = 1024
_LATENCY_S = 3
_POLL_S = 0.002
_LIMIT_S = 600.0
Targets = dict[TopicPartition, tuple[int, ...]]


@dataclass
class _Figures:
    """What the rounds measured of one system."""

    moved_s: list[float] = field(default_factory=list)
    over_s: list[float] = field(default_factory=list)
    turned_back: list[float] = field(default_factory=list)
    shown_s: list[float] = field(default_factory=list)
    many_shown_s: list[float] = field(default_factory=list)
    many_answered_s: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    quiet_p99_ms: list[float] = field(default_factory=list)
    moving_p99_ms: list[float] = field(default_factory=list)


def run(systems: Sequence[System], rounds: int, volume_bytes: int) -> list[str]:
    """Return the table."""
    figures = {system.name: _Figures() for system in systems}
    warm_ups = max(system.warm_up_rounds for system in systems) if len(systems) > 1 else 1
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory,
        started(systems) as running,
    ):
        driver = Driver(directory)
        scenes = [_Scene(each, driver) for each in running]
        for number in range(warm_ups + rounds):
            for scene in scenes:
                scene.small(figures[scene.name])
            if number + 1 == warm_ups:
                figures = {system.name: _Figures() for system in systems}
        for scene in scenes:
            scene.fill(volume_bytes)
        for _ in range(rounds):
            for scene in scenes:
                warm_pages(directory, volume_bytes)
                scene.large(figures[scene.name], volume_bytes)
    found = [figures[system.name] for system in systems]
    rows = [
        (name, *(spread(getattr(each, key), digits) for each in found), aim)
        for name, key, digits, aim in (
            (f"{_SMALL} small partitions moved, s", "moved_s", 2, "<= 1"),
            (f"{_SMALL} moves cancelled right after their begin: over, s", "over_s", 3, ""),
            ("moves that this turned back", "turned_back", 0, ""),
            (f"{_SMALL} pending moves cancelled: shown, s", "shown_s", 3, "<= 0.05"),
            (f"{_MANY:,} pending moves cancelled: shown, s", "many_shown_s", 3, "<= 0.5"),
            (f"{_MANY:,} pending moves cancelled: answered, s", "many_answered_s", 3, ""),
            ("large volume moved, MiB/s", "speed", 0, ""),
            ("its brokers' CPU µs per MiB", "cpu_us", 0, ""),
            ("one record at a time before, p99 ms", "quiet_p99_ms", 2, ""),
            ("one record at a time during the move, p99 ms", "moving_p99_ms", 2, ""),
        )
    ]
    title = (
        f"Reassignments, RF 2 ({rounds} runs, {warm_ups} before to warm up, "
        f"{volume_bytes / MIB:,.0f} MiB in {_LARGE_PARTITIONS} partitions)"
    )
    return [table(title, rows, ("of", *(system.name for system in systems), "aim"))]


class _Scene:
    """One running system and its topics: `few` and `many` small partitions, `large`, `slow`."""

    def __init__(self, running: Running, driver: Driver) -> None:
        self.name = running.name
        self._running = running
        self._driver = driver
        self._places: dict[str, dict[int, tuple[int, ...]]] = {}
        controller = running.controller()
        self._spare = next(each for each in range(1, BROKERS + 1) if each != controller)
        stay = tuple(each for each in range(1, BROKERS + 1) if each != self._spare)
        self._make("few", dict.fromkeys(range(_SMALL), stay))
        self._make("many", dict.fromkeys(range(_MANY), stay))
        ring = [(n % BROKERS + 1, (n + 1) % BROKERS + 1) for n in range(_LARGE_PARTITIONS)]
        self._make("large", dict(enumerate(ring)))
        self._make("slow", dict.fromkeys(range(BROKERS), (1, 2, 3)))
        self._produce("few", _SMALL, _SMALL * _RECORD_BYTES)
        self._produce("many", _MANY, _MANY * _RECORD_BYTES)

    def _produce(self, topic: str, partitions: int, size_bytes: int) -> None:
        """Write as many records into each partition."""
        arguments = (topic, partitions, _RECORD_BYTES, size_bytes, -1)
        self._driver.run("produce", self._running.bootstrap, *arguments, options=PRODUCER_OPTIONS)

    def _make(self, topic: str, places: dict[int, tuple[int, ...]]) -> None:
        self._places[topic] = places
        with BlockingClient(self._running.bootstrap, timeout_ms=60_000) as client:
            client.create_topic(topic, assignment=places)
            self._await_isrs(client, topic)

    def _targets(self, topic: str, count: int) -> Targets:
        """Each partition's first replica stays; the other goes where none is."""
        targets: Targets = {}
        for number, (first, second) in list(self._places[topic].items())[:count]:
            [spare] = {1, 2, 3} - {first, second}
            targets[TopicPartition(topic, number)] = (first, spare)
        return targets

    def _back(self, targets: Targets) -> Targets:
        return {each: self._places[each.topic][each.partition] for each in targets}

    # small partitions

    def small(self, figures: _Figures) -> None:
        """Move, and move back; cancel few and many pending moves."""
        targets = self._targets("few", _SMALL)
        figures.moved_s.append(self._move(targets))
        self._move(self._back(targets))
        self._turn_back(targets, figures)
        figures.shown_s.append(self._cancel(targets)[0])
        shown_s, answered_s = self._cancel(self._targets("many", _MANY))
        figures.many_shown_s.append(shown_s)
        figures.many_answered_s.append(answered_s)

    def _move(self, targets: Targets) -> float:
        with BlockingClient(self._running.bootstrap, timeout_ms=60_000) as client:
            begin = time.monotonic()
            _check(client.reassign(targets))
            _await_none(client)
            return time.monotonic() - begin

    def _turn_back(self, targets: Targets, figures: _Figures) -> None:
        """Cancel moves as soon as they have begun."""
        with BlockingClient(self._running.bootstrap, timeout_ms=60_000) as client:
            _check(client.reassign(targets))
            begin = time.monotonic()
            asked = client.reassign(dict.fromkeys(targets))
            _await_none(client)
            figures.over_s.append(time.monotonic() - begin)
        figures.turned_back.append(sum(each.error is ErrorCode.NONE for each in asked.values()))
        self._move(self._back(targets))

    def _cancel(self, targets: Targets) -> tuple[float, float]:
        """Seconds until clients are shown all original replicas again, and until the answer."""
        topic = next(iter(targets)).topic
        others = [self._running.address(n) for n in range(1, BROKERS + 1) if n != self._spare]
        pid = self._running.pid(self._spare)
        with (
            BlockingClient(",".join(others), timeout_ms=60_000) as client,
            BlockingClient(others[0], timeout_ms=60_000) as watcher,
        ):
            answered: list[float] = []

            def ask() -> None:
                _check(client.reassign(dict.fromkeys(targets)))
                answered.append(time.monotonic())

            # Kafka's brokers each pass for the controller, and the client stays with one of them.
            while client.metadata([]).controller_id == self._spare:
                time.sleep(_POLL_S)
            kill(pid, signal.SIGSTOP)
            try:
                _check(client.reassign(targets))
                assert len(client.list_reassignments()) == len(targets), "some are not pending"
                asking = threading.Thread(target=ask)
                begin = time.monotonic()
                asking.start()
                while not self._are_original(watcher, topic):
                    time.sleep(_POLL_S)
                shown = time.monotonic()
                asking.join()
            finally:
                kill(pid, signal.SIGCONT)
            _await_none(client)
            self._await_isrs(client, topic)
        return shown - begin, answered[0] - begin

    def _await_isrs(self, client: BlockingClient, topic: str) -> None:
        """Return when clients are shown every partition with all its replicas in sync."""
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline:
            known = client.metadata([topic]).topics.get(topic)
            found = [] if known is None else list(known.partitions.values())
            if [len(each.isr) for each in found] == [
                len(places) for places in self._places[topic].values()
            ]:
                return
            time.sleep(_POLL_S)
        raise SystemExit(f"bench: replicas of {topic!r} are not in sync in {_LIMIT_S:.0f} s")

    def _are_original(self, client: BlockingClient, topic: str) -> bool:
        partitions = client.metadata([topic]).topics[topic].partitions
        places = self._places[topic]
        return all(tuple(each.replicas) == places[n] for n, each in partitions.items())

    # a large volume

    def fill(self, volume_bytes: int) -> None:
        """Write the volume."""
        self._produce("large", _LARGE_PARTITIONS, volume_bytes)

    def large(self, figures: _Figures, volume_bytes: int) -> None:
        """Move it there, and back beside a producer."""
        targets = self._targets("large", _LARGE_PARTITIONS)
        before_s = cpu_seconds(self._running.pids())
        seconds = self._move(targets)
        cpu_s = cpu_seconds(self._running.pids()) - before_s
        figures.speed.append(volume_bytes / MIB / seconds)
        figures.cpu_us.append(cpu_s / (volume_bytes / MIB) * 1e6)
        figures.quiet_p99_ms.append(self._p99_ms())
        mover = threading.Thread(target=self._move, args=(self._back(targets),))
        mover.start()
        figures.moving_p99_ms.append(self._p99_ms())
        mover.join()

    def _p99_ms(self) -> float:
        arguments = ("slow", BROKERS, _RECORD_BYTES, _LATENCY_S, -1)
        result = self._driver.run(
            "latency", self._running.bootstrap, *arguments, options=LATENCY_OPTIONS
        )
        return result["p99_ms"]


def _check(asked: dict[TopicPartition, object]) -> None:
    refused = [each for each in asked.values() if getattr(each, "error", None) != ErrorCode.NONE]
    if refused:
        raise SystemExit(f"bench: a reassignment was refused: {refused[0]}")


def _await_none(client: BlockingClient) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while left := client.list_reassignments():
        if time.monotonic() > deadline:
            raise SystemExit(f"bench: {len(left)} reassignments are not over in {_LIMIT_S:.0f} s")
        time.sleep(_POLL_S)
