"""The clients of a run: a process each, followed by what they write to their event files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.chaos.brokers import PARTITIONS, TOPIC
from tests.support.chaos.events import Event, EventReader

ROOT = Path(__file__).resolve().parents[3]
#: Kind and group of each client. Two members of one library rebalance among themselves.
PRODUCERS = (
    "confluent-idempotent",
    "confluent-plain",
    "kafka-python-idempotent",
    "aiokafka-idempotent",
)
CONSUMERS = (
    ("confluent-consumer", "confluent", 2),
    ("kafka-python-consumer", "kafka-python", 2),
    ("aiokafka-consumer", "aiokafka", 1),
)
_POLL_S = 0.1


@dataclass
class Member:
    """One client process, and what it has done so far."""

    process: str
    kind: str
    group: str
    child: subprocess.Popen[bytes]
    reader: EventReader
    log_path: Path
    events: list[Event] = field(default_factory=list)
    acknowledged: int = 0
    #: Acknowledged by partition: a producer is hung as soon as one partition is.
    by_partition: dict[int, int] = field(default_factory=dict)
    partition_of: dict[int, int] = field(default_factory=dict)
    sent: int = 0
    polled: int = 0
    has_ended: bool = False

    @property
    def is_producer(self) -> bool:
        return not self.group

    def follow(self) -> bool:
        """Take in new events; returns whether there were any that are progress."""
        new = self.reader.read()
        before = (self.acknowledged, self.polled, self.has_ended)
        for event in new:
            kind = event[1]
            if kind == "send":
                self.partition_of[event[3]] = event[2]
                self.sent += 1
            elif kind == "ack":
                partition = self.partition_of[event[2]]
                self.by_partition[partition] = self.by_partition.get(partition, 0) + 1
                self.acknowledged += 1
            elif kind == "poll":
                self.polled += len(event[2])
            elif kind == "ended":
                self.has_ended = True
        self.events += new
        return before != (self.acknowledged, self.polled, self.has_ended)


class Crew:
    """All clients. What goes wrong with one is a line of `troubles`."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        directory.mkdir()
        self._directory = directory
        self._bootstrap = bootstrap
        self.troubles: list[str] = []
        self.members: list[Member] = []
        for kind in PRODUCERS:
            self._start(kind, kind, "")
        for kind, group, count in CONSUMERS:
            for number in range(1, count + 1):
                self._start(kind, f"{kind}-{number}", group)

    @property
    def producers(self) -> list[Member]:
        return [each for each in self.members if each.is_producer]

    @property
    def consumers(self) -> list[Member]:
        return [each for each in self.members if not each.is_producer]

    def _start(self, kind: str, process: str, group: str) -> None:
        events = self._directory / f"{process}.jsonl"
        words = [sys.executable, "-m", "tests.support.chaos.clients", kind]
        words += ["--bootstrap", self._bootstrap, "--topic", TOPIC, "--process", process]
        words += ["--events", str(events), "--group", group, "--partitions", str(PARTITIONS)]
        log_path = self._directory / f"{process}.log"
        with log_path.open("wb") as log:
            child = subprocess.Popen(
                words, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )
        self.members.append(Member(process, kind, group, child, EventReader(events), log_path))

    # progress

    def follow(self) -> None:
        """Take in what all clients wrote; a client that has ended early is a trouble."""
        for member in self.members:
            member.follow()

    def await_all(
        self,
        members: Iterable[Member],
        reached: Callable[[Member], bool],
        what: str,
        patience_s: float,
    ) -> list[Member]:
        """Wait until all have reached it; returns those that made no progress for `patience_s`.

        The patience of one client begins again with each of its steps, so that a slow machine is
        not taken for a hung client.
        """
        last_step_s = {member.process: time.monotonic() for member in members}
        waiting = [member for member in self.members if member.process in last_step_s]
        stuck: list[Member] = []
        while waiting:
            for member in list(waiting):
                if member.follow():
                    last_step_s[member.process] = time.monotonic()
                if reached(member):
                    waiting.remove(member)
                    continue
                code = member.child.poll()
                idle_s = time.monotonic() - last_step_s[member.process]
                if code is not None and not member.follow() and not reached(member):
                    self._note(member, f"{member.process} ended with code {code}: no {what}")
                elif idle_s > patience_s:
                    self._note(member, f"{member.process} is hung: for {idle_s:.0f} s no {what}")
                else:
                    continue
                waiting.remove(member)
                stuck.append(member)
            time.sleep(_POLL_S)
        return stuck

    def _note(self, member: Member, text: str) -> None:
        told = f"{text} (sent {member.sent}, acknowledged {member.acknowledged}"
        if member.is_producer:
            told += f", by partition {dict(sorted(member.by_partition.items()))}"
        self.troubles.append(f"{told}, polled {member.polled}); its log: {member.log_path}")

    # the end

    def finish(self, members: Iterable[Member], patience_s: float) -> list[Member]:
        """Let clients finish; returns those that did not."""
        chosen = list(members)
        for member in chosen:
            if member.child.poll() is None and member.child.stdin is not None:
                member.child.stdin.write(b"finish\n")
                member.child.stdin.flush()
        return self.await_all(chosen, lambda each: each.has_ended, "end in order", patience_s)

    def close(self) -> None:
        """End what still runs."""
        for member in self.members:
            if member.child.poll() is None:
                member.child.send_signal(signal.SIGCONT)
                member.child.kill()
            member.child.wait()
            if member.child.stdin is not None:
                try:
                    member.child.stdin.close()
                except OSError:
                    os.write(2, b"")
