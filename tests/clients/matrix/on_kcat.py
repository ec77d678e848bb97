"""kcat, the command of the system's package (librdkafka of its own)."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Sequence
from typing import IO

from tests.clients.matrix.background import Seen
from tests.clients.matrix.driver import (
    EARLIEST,
    LATEST,
    PATIENCE_S,
    Member,
    MemberState,
    PartitionInfo,
    Refused,
    Writer,
)
from tests.support.clients import kcat
from tests.support.clients.absent import Absent
from tests.support.clients.samples import Record

#: Eager: `(memberid x): assigned: t [0]`; cooperative: `: incremental assignment of ... ): t [0]`.
_REBALANCED = re.compile(r"% Group \S+ rebalanced.*?: (.*)$")
_PARTITION = re.compile(r"\[(\d+)\]")
_LISTED = re.compile(r"partition (\d+), leader (-?\d+), replicas: ([\d,]*), isrs: ([\d,]*)")


class KcatMember:
    """`kcat -G`: what it reads on standard output, its assignments on standard error."""

    def __init__(self, words: Sequence[str], cooperative: bool) -> None:
        self._words_of_command = words
        self._cooperative = cooperative
        self._seen = Seen()
        self._told: list[str] = []
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._words_of_command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._threads = [
            threading.Thread(target=self._records, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._words, args=(self._process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _records(self, lines: IO[str]) -> None:
        for line in lines:
            partition, offset = line.split()
            self._seen.note(int(partition), int(offset))

    def _words(self, lines: IO[str]) -> None:
        for line in lines:
            self._told.append(line.rstrip())
            if (found := _REBALANCED.match(line)) is None:
                continue
            partitions = [int(number) for number in _PARTITION.findall(found[1])]
            if "assign" in found[1]:
                self._seen.add(partitions, whole=not self._cooperative)
            else:
                self._seen.remove(partitions)

    def state(self) -> MemberState:
        if self._process.poll() is not None:
            # It ends when the first address is dead and refuses before it knows of the next ones:
            # then one starts it again.
            self.close()
            assert "1/1 brokers are down: terminating" in self._told[-1], self._told
            self._seen.end()
            self._start()
        return self._seen.state()

    def commit(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


class KcatWriter:
    """`kcat -P`, fed by a thread with a line a number."""

    def __init__(self, words: Sequence[str]) -> None:
        self._sent = 0
        self._ended = threading.Event()
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            while not self._ended.wait(0.005):
                pipe.write(b"".join(b"%d\n" % (self._sent + each) for each in range(20)))
                pipe.flush()
                self._sent += 20
        finally:
            pipe.close()

    def stop(self) -> int:
        self._ended.set()
        try:
            self._thread.join(PATIENCE_S)
            assert self._process.stderr is not None
            told = self._process.stderr.read()
            if self._process.wait(PATIENCE_S) != 0:
                raise Refused(told.decode(errors="replace"))
        finally:
            self._process.kill()
            self._process.wait()
        return self._sent


class Kcat:
    """The driver; what kcat has no way of doing is left out here and in the table."""

    def __init__(self, bootstrap: str) -> None:
        if kcat.KCAT is None:
            raise Absent("kcat is not installed")
        self._kcat = kcat.KCAT
        told = kcat.run("-V").decode()
        version = re.search(r"Version (\S+)", told)
        library = re.search(r"librdkafka (\d\S+)", told)
        assert version is not None and library is not None, told
        self.version = f"{version[1]} (librdkafka {library[1]})"
        self._bootstrap = bootstrap

    def write(
        self, topic: str, partition: int, codec: str, records: Sequence[Record]
    ) -> list[Record]:
        """One run for each set of headers: kcat gives the same ones to all that it sends."""
        sent: list[Record] = []
        for each in self._runs(records):
            sent += kcat.write(self._bootstrap, topic, partition, codec, each)
        return sent

    @staticmethod
    def _runs(records: Sequence[Record]) -> list[list[Record]]:
        runs: list[list[Record]] = []
        for each in records:
            if not runs or runs[-1][0].headers != each.headers:
                runs.append([])
            runs[-1].append(each)
        return runs

    def read(self, topic: str, partition: int) -> list[Record]:
        return kcat.read(self._bootstrap, topic, partition)

    def read_values(self, topic: str, partition: int, offset: int) -> list[bytes]:
        return self._values(topic, partition, str(offset))

    def read_values_since(self, topic: str, partition: int, timestamp_ms: int) -> list[bytes]:
        return self._values(topic, partition, f"s@{timestamp_ms}")

    def _values(self, topic: str, partition: int, start: str) -> list[bytes]:
        words = ("-C", "-b", self._bootstrap, "-t", topic, "-p", str(partition), "-e", "-q")
        return kcat.run(*words, "-o", start).split()

    def offset(self, topic: str, partition: int, at: str | int) -> int:
        when = {EARLIEST: -2, LATEST: -1}.get(str(at), at)
        told = kcat.run("-Q", "-b", self._bootstrap, "-t", f"{topic}:{partition}:{when}")
        found = re.search(rb"offset (-?\d+)", told)
        assert found is not None, told
        return int(found[1])

    def start_writer(self, topic: str, partition: int) -> Writer:
        words = [self._kcat, "-P", "-b", self._bootstrap, "-t", topic, "-p", str(partition)]
        for option in ("enable.idempotence=true", "linger.ms=2", "batch.num.messages=20"):
            words += ["-X", option]
        return KcatWriter([*words, "-X", "retry.backoff.ms=20"])

    def join(
        self, group: str, topic: str, *, cooperative: bool = False, instance_id: str | None = None
    ) -> Member:
        strategy = "cooperative-sticky" if cooperative else "range"
        options = [
            "auto.offset.reset=earliest",
            "auto.commit.interval.ms=50",
            "heartbeat.interval.ms=200",
            "fetch.wait.max.ms=100",
            f"partition.assignment.strategy={strategy}",
        ]
        if instance_id is not None:
            options.append(f"group.instance.id={instance_id}")
        words = [self._kcat, "-b", self._bootstrap, "-u", "-f", "%p %o\\n"]
        for option in options:
            words += ["-X", option]
        return KcatMember([*words, "-G", group, topic], cooperative)

    def describe_topic(self, topic: str) -> dict[int, PartitionInfo]:
        listed = kcat.run("-L", "-b", self._bootstrap, "-t", topic).decode()
        return {
            int(number): PartitionInfo(int(leader), _ids(replicas), _ids(in_sync))
            for number, leader, replicas, in_sync in _LISTED.findall(listed)
        }

    def list_topics(self) -> list[str]:
        return re.findall(r'topic "([^"]+)"', kcat.run("-L", "-b", self._bootstrap).decode())

    def describe_cluster(self) -> tuple[frozenset[int], int]:
        listed = kcat.run("-L", "-b", self._bootstrap).decode()
        brokers = re.findall(r"broker (\d+) at \S+( \(controller\))?", listed)
        [controller] = [int(number) for number, mark in brokers if mark]
        return frozenset(int(number) for number, _ in brokers), controller

    def close(self) -> None:
        """Nothing runs between calls."""


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)
