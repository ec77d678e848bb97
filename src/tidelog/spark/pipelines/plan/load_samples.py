"""Samples of load: size, offsets and leader of every partition at a time, and rates between them.

Samples come from DescribeLogDirs and ListOffsets. If a log only grew between two samples, the rate
is exact: the difference of its sizes. If retention or compaction removed data between two samples,
the rate is an estimate: the number of new offsets times the mean size of a record.

Each run writes its samples to a file of JSON lines in a directory. Each later run adds a file, and
a stopped run keeps the samples that it wrote.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tidelog.client.cluster import ClusterMetadata
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.client.upkeep import sizes_of
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.job_progress import Progress
from tidelog.spark.pipelines.plan.cluster_model import GoalError, LiveBroker

SAMPLE_DDL: Final = (
    "time_ms long, topic string, partition int, size_bytes long, start_offset long, end_offset long"
)
_SUFFIX: Final = ".jsonl"


@dataclass(frozen=True, slots=True)
class LoadSample:
    """A sample of one partition's log at one time; `size_bytes` is the size of the leader's
    replica.
    """

    time_ms: int
    topic: str
    partition: int
    size_bytes: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Observed:
    """The cluster at one time: brokers with their volumes, and a sample of each partition."""

    metadata: ClusterMetadata
    brokers: tuple[LiveBroker, ...]
    samples: tuple[LoadSample, ...]
    #: By partition: the size in bytes of the largest replica; partitions without a leader are
    #: included.
    sizes: Mapping[TopicPartition, int]


def observe(client: BlockingClient) -> Observed:
    """Return brokers, sizes and offsets; raise KafkaError, or GoalError for a failed directory."""
    metadata = client.metadata()
    by_broker: dict[int, dict[TopicPartition, int]] = {}
    brokers = []
    for node in metadata.brokers.values():
        directories = client.describe_log_dirs(node.broker_id)
        failed = [each for each in directories if each.error is not ErrorCode.NONE]
        if failed:
            raise GoalError(
                f"log directory {failed[0].path} of broker {node.broker_id} answers"
                f" {failed[0].error.name}: repair or remove it first, its sizes are not known"
            )
        by_broker[node.broker_id] = sizes_of(directories)
        total = [each.total_bytes for each in directories]
        usable = [each.usable_bytes for each in directories]
        brokers.append(
            LiveBroker(
                node.broker_id,
                node.rack,
                sum(total) if total and min(total) >= 0 else None,
                sum(usable) if usable and min(usable) >= 0 else None,
            )
        )
    largest = _largest(by_broker)
    led = [tp for tp, _ in metadata.all_partitions() if metadata.leader_of(tp) is not None]
    starts = client.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(led, LATEST))
    now_ms = time.time_ns() // 1_000_000
    samples = []
    for tp in led:
        leader = metadata.leader_of(tp)
        assert leader is not None
        size = by_broker.get(leader.broker_id, {}).get(tp, largest.get(tp, 0))
        samples.append(LoadSample(now_ms, *tp, size, starts[tp].offset, ends[tp].offset))
    return Observed(metadata, tuple(brokers), tuple(samples), largest)


def _largest(by_broker: Mapping[int, Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    largest: Counter[TopicPartition] = Counter()
    for sizes in by_broker.values():
        for tp, size in sizes.items():
            largest[tp] = max(largest[tp], size)
    return dict(largest)


def rates(samples: Sequence[LoadSample]) -> list[float]:
    """Return the bytes per second between consecutive samples of one partition.

    Two samples give no rate if the partition was recreated (its end went back), or if their times
    are equal.
    """
    found = []
    ordered = sorted(samples, key=lambda each: each.time_ms)
    for before, after in pairwise(ordered):
        seconds = (after.time_ms - before.time_ms) / 1000
        if seconds <= 0 or after.end_offset < before.end_offset:
            continue
        found.append(_bytes_between(before, after) / seconds)
    return found


def _bytes_between(before: LoadSample, after: LoadSample) -> float:
    """Return the appended bytes between samples; exact if no record was removed."""
    records = after.end_offset - before.end_offset
    grown = after.size_bytes - before.size_bytes
    if records == 0:
        return 0.0
    if after.start_offset == before.start_offset and grown > 0:
        return float(grown)
    held = after.end_offset - after.start_offset
    return after.size_bytes / held * records if held > 0 else float(max(0, grown))


def readers_of(client: BlockingClient, metadata: ClusterMetadata) -> dict[TopicPartition, int]:
    """Return the number of groups with committed offsets for each partition. Raises KafkaError."""
    readers: Counter[TopicPartition] = Counter()
    for listing in client.list_groups():
        committed = client.committed(listing.group)
        readers.update(tp for tp in committed if metadata.partition(tp) is not None)
    return dict(readers)


def take_samples(
    client: BlockingClient,
    directory: str,
    span_s: float,
    every_s: float,
    progress: Progress | None = None,
) -> None:
    """Add a sample to a directory every `every_s` until its samples span `span_s`.

    The span of the samples includes samples that earlier runs wrote. `progress` is called with the
    seconds sampled so far and the total seconds to sample. Raises KafkaError, GoalError for an
    unusable directory.
    """
    times = [each.time_ms for each in kept_samples(directory)]
    first_ms = min(times, default=None)
    with _open(directory) as file:
        while True:
            begun = time.monotonic()
            observed = observe(client)
            for each in observed.samples:
                file.write(json.dumps(asdict(each), separators=(",", ":")) + "\n")
            file.flush()
            now_ms = observed.samples[0].time_ms if observed.samples else 0
            first_ms = now_ms if first_ms is None else first_ms
            done_s = (now_ms - first_ms) / 1000
            if progress is not None:
                progress(min(int(done_s), int(span_s)), int(span_s))
            if done_s >= span_s or not observed.samples:
                return
            wait_s = min(every_s, span_s - done_s)
            time.sleep(max(0.0, wait_s - (time.monotonic() - begun)))


def _open(directory: str) -> Any:
    path = Path(directory) / f"samples-{time.time_ns() // 1_000_000}{_SUFFIX}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("x", encoding="utf-8")
    except OSError as error:
        raise GoalError(f"samples cannot be written to {directory}: {error}") from error


def kept_samples(directory: str) -> Iterator[LoadSample]:
    """Yield the samples in a directory's files. Raises GoalError naming file and line.

    The last line of a stopped run's file may be incomplete, and is ignored.
    """
    for path in sorted(Path(directory).glob(f"*{_SUFFIX}")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            try:
                yield sample_of(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                if number == len(lines) and not text.endswith("\n"):
                    break
                raise GoalError(
                    f"{path}, line {number} is no sample: {error}; expected"
                    f" an object with {SAMPLE_DDL}"
                ) from error


def sample_of(document: Mapping[str, Any]) -> LoadSample:
    """Return the sample in a JSON document; raise KeyError or ValueError if it is invalid."""
    return LoadSample(
        int(document["time_ms"]),
        str(document["topic"]),
        int(document["partition"]),
        int(document["size_bytes"]),
        int(document["start_offset"]),
        int(document["end_offset"]),
    )
