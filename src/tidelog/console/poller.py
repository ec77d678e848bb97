"""The only reader of the cluster in a console's process, which all viewers share.

The poller runs in a thread of its own, because the client blocks. Each part of a reading has an
interval. After a slow read of a part, the poller waits longer until the next read of the part. All
parts together use at most a fifth of one core on average, however large the cluster is; the parts
of a large cluster are then read in turns. Without viewers, the poller reads rarely, only to
continue the samples of charts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tidelog.console import reader
from tidelog.console.histories import HistoryReader, TopicDayReader
from tidelog.console.processor_budget import ProcessorBudget
from tidelog.console.readings import (
    HIGH_WATERMARK_KEY,
    ClusterReading,
    ReadingPart,
    Samples,
    replica_key,
)
from tidelog.console.views.groups import lag_by_group
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

#: Intervals in ms between two reads of a part while the console has viewers.
INTERVALS_MS: Final = {
    ReadingPart.CLUSTER: 1_000,
    ReadingPart.OFFSETS: 1_000,
    ReadingPart.REPLICAS: 1_000,
    ReadingPart.EVENTS: 1_000,
    ReadingPart.MOVES: 2_000,
    ReadingPart.GROUPS: 3_000,
    ReadingPart.SETTINGS: 5_000,
    ReadingPart.DISKS: 5_000,
    ReadingPart.HISTORY: 10_000,
    ReadingPart.TOPIC_DAYS: 2_000,
}
#: The parts that are read again at once for a new viewer.
_OF_VIEWED: Final = {ReadingPart.REPLICAS, ReadingPart.SETTINGS, ReadingPart.TOPIC_DAYS}
#: Without viewers, intervals are this many times longer.
_IDLE: Final = 10
#: Minimum pause before a part is read again, as a multiple of the duration of its last read.
_REST: Final = 4
#: A round of reads that takes longer than this time in s publishes the finished parts before its
#: end.
_ROUND_S: Final = 0.25
#: The interval in ms between attempts to read a part whose requests the brokers do not serve.
_NOT_SERVED_MS: Final = 15_000
#: Maximum number of partitions whose replicas are described for viewers.
_VIEWED: Final = 2_000

Publish = Callable[[ClusterReading], None]
_LOG: Final = logging.getLogger("tidelog.console")


class PartResult(NamedTuple):
    """The result of one attempt to read a part (`ReadingPart`) of the cluster."""

    fields: reader.Fields
    #: Why the part is missing or out of date; None after a successful read.
    problem: str | None
    #: The interval in ms until the part is due again.
    interval_ms: int


class Poller:
    """A thread that reads one cluster again and again, and publishes each reading."""

    def __init__(
        self,
        client: BlockingClient,
        publish: Publish,
        parts: Sequence[ReadingPart] = tuple(INTERVALS_MS),
    ) -> None:
        """Create a poller whose thread calls `publish` with a reading after each round.

        A round reads those of `parts` that are due, in their order.
        """
        self.samples = Samples.empty()
        self._client = client
        self._publish = publish
        self._reading = ClusterReading()
        self._parts = tuple(parts)
        self._due_s: dict[ReadingPart, float] = dict.fromkeys(parts, 0.0)
        self._moves = reader.MoveReader()
        self._events = reader.EventReader()
        self._histories = HistoryReader()
        self._topic_days = TopicDayReader()
        self._viewers: Counter[TopicPartition | None] = Counter()
        self._budget = ProcessorBudget()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after the request that it waits for, and close the client."""
        self._ends = True
        self._woken.set()
        self._thread.join()
        self._client.close()

    # -- viewers --------------------------------------------------------------------------------

    def add_viewer(self, partitions: Iterable[TopicPartition]) -> None:
        """Add a viewer; from now on, also read the replicas of `partitions`."""
        with self._lock:
            is_first = not self._viewers[None]
            self._viewers.update([None, *partitions])
            self._due_s |= dict.fromkeys(_OF_VIEWED & self._due_s.keys(), 0.0)
            if is_first:
                self._due_s = dict.fromkeys(self._parts, 0.0)
        self._woken.set()

    def remove_viewer(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove a viewer that was added with the same partitions."""
        with self._lock:
            self._viewers.subtract([None, *partitions])
            self._viewers = +self._viewers

    def _viewed(self) -> list[TopicPartition]:
        with self._lock:
            return [tp for tp in self._viewers if tp is not None][:_VIEWED]

    # -- rounds ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ends:
            self._woken.clear()
            self.run_due()
            wait_s = min(self._due_s.values()) - time.monotonic()
            self._woken.wait(max(0.01, wait_s, self._budget.wait_s()))

    def run_due(self) -> bool:
        """Read the parts that are due, and publish them; return whether any part was read.

        A broker that hangs may delay the read of a part by seconds. Finished parts are therefore
        published before the end of a slow round. Where the processor time does not suffice for all
        parts, the parts take turns.
        """
        is_any, published_s = False, time.monotonic()
        self._budget.begin()
        for part in sorted(self._parts, key=self._due_s.__getitem__):
            if self._ends or time.monotonic() < self._due_s[part]:
                continue
            self._budget.count()
            if self._budget.wait_s() > 0:
                break
            is_any = True
            started_s = time.monotonic()
            self._take(part, self._result(part, self._client, self._reading), started_s)
            ended_s = time.monotonic()
            if ended_s - published_s > _ROUND_S:
                published_s = ended_s
                self._publish(self._reading)
        if is_any:
            self._take_samples()
            self._publish(self._reading)
        self._budget.count()
        return is_any

    def _result(
        self, part: ReadingPart, client: BlockingClient, known: ClusterReading
    ) -> PartResult:
        """Read one part with `client`; `known` is the last reading."""
        interval_ms = INTERVALS_MS[part]
        try:
            return PartResult(self._fields(part, client, known), None, interval_ms)
        except reader.PartNotServed as reason:
            return PartResult({}, str(reason), _NOT_SERVED_MS)
        except TidelogError as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
                interval_ms = _NOT_SERVED_MS
            return PartResult({}, _sentence(part, error), interval_ms)
        except Exception as error:
            # The thread must go on: without it, the console would show the last reading for ever as
            # if it were current.
            _LOG.exception("reading %s failed", part)
            problem = f"Reading {part} failed by a defect of the console: {error!r}"
            return PartResult({}, problem, interval_ms)

    def _take(self, part: ReadingPart, result: PartResult, started_s: float) -> None:
        """Put a part that was read since `started_s` into the reading, and note its next time."""
        now, now_ms = self._reading, time.time_ns() // 1_000_000
        problems = {key: text for key, text in now.problems.items() if key is not part}
        read_ms = dict(now.read_ms)
        if result.problem is None:
            read_ms[part] = now_ms
        else:
            problems[part] = result.problem
            if result.interval_ms == _NOT_SERVED_MS:  # the part has no value that could be old
                read_ms.pop(part, None)
        self._reading = replace(
            now,
            number=now.number + 1,
            time_ms=now_ms,
            problems=problems,
            read_ms=read_ms,
            **result.fields,
        )
        ended_s = time.monotonic()
        with self._lock:
            interval_ms = result.interval_ms if self._viewers[None] else _IDLE * result.interval_ms
            rest_s = max(interval_ms / 1000, _REST * (ended_s - started_s))
            self._due_s[part] = ended_s + rest_s

    def _fields(
        self, part: ReadingPart, client: BlockingClient, known: ClusterReading
    ) -> reader.Fields:
        match part:
            case ReadingPart.CLUSTER:
                return reader.read_cluster(client)
            case ReadingPart.OFFSETS:
                return reader.read_offsets(client, known)
            case ReadingPart.REPLICAS:
                return reader.read_replicas(client, known, self._viewed())
            case ReadingPart.SETTINGS:
                return reader.read_settings(client, known, {tp.topic for tp in self._viewed()})
            case ReadingPart.GROUPS:
                return reader.read_groups(client, known)
            case ReadingPart.DISKS:
                return reader.read_disks(client, known)
            case ReadingPart.MOVES:
                return self._moves(client, time.monotonic_ns() // 1_000_000)
            case ReadingPart.EVENTS:
                return self._events(client, known)
            case ReadingPart.HISTORY:
                return self._histories(client, known, time.time_ns() // 1_000_000_000)
            case ReadingPart.TOPIC_DAYS:
                topics = {tp.topic for tp in self._viewed()}
                return self._topic_days(client, known, topics, time.time_ns() // 1_000_000)

    def _take_samples(self) -> None:
        now = self._reading
        if ReadingPart.OFFSETS in now.problems:
            return
        self.samples.topics.add(now.time_ms, _written(now))
        self.samples.groups.add(now.time_ms, lag_by_group(now))
        replicas: dict[str, int] = {}
        for tp, described in now.described.items():
            if described.high_watermark is not None:
                replicas[replica_key(tp, HIGH_WATERMARK_KEY)] = described.high_watermark
            for each in described.replicas:
                if each.log_end_offset is not None:
                    replicas[replica_key(tp, each.broker)] = each.log_end_offset
        self.samples.replicas.add(now.time_ms, replicas)


def _written(now: ClusterReading) -> dict[str, int]:
    """Return, for each topic, how many records were ever written to it.

    Topics with a partition of unknown end offset are left out.

    If a partition had no leader since the console's start, its high watermark is unknown. If the
    unknown high watermark counted as 0, the first known one would look like a burst of records.
    """
    if now.metadata is None:
        return {}
    ends = {
        name: [now.ends.get(TopicPartition(name, number)) for number in topic.partitions]
        for name, topic in now.metadata.topics.items()
    }
    return {
        name: sum(end for end in found if end is not None)
        for name, found in ends.items()
        if None not in found
    }


def _sentence(part: ReadingPart, error: TidelogError) -> str:
    """Return a sentence that says why a part of a reading is missing or out of date."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
        return f"These brokers do not serve the requests for {part}: {error.message}"
    return f"Reading {part} failed: {error}"
