"""Changes of a stream's partitions: new, deleted, recreated, or truncated.

This module compares the offsets that a stream has reached with the cluster, and decides where the
stream can continue. Each loss of records is described in a sentence, which the caller raises or
logs, depending on `failOnDataLoss`. The functions are pure: `stream_reader` passes the state of the
cluster.

While the reader runs, a changed topic id shows that a topic was recreated. The checkpoint has no
place for topic ids. After a restart, the stream thus detects a recreated topic only if the topic's
log ends below the offset that the stream reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class LogView:
    """The partitions of a stream as the cluster has them now."""

    latest: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, TopicId]
    #: Log starts, which the reader requests for some partitions only.
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamStep:
    """The next step of a stream: its start offsets, its end offsets, and losses of records."""

    #: By partition, the offset at which the next batch starts; deleted partitions are left out.
    starts: dict[TopicPartition, int]
    #: By partition, the offset up to which the stream can read. An end below the start means that
    #: the stream continues at this lower offset.
    ends: dict[TopicPartition, int]
    #: One sentence for each loss of records that the stream can no longer read.
    losses: list[str]


def recreated_topics(known: Mapping[str, TopicId], now: Mapping[str, TopicId]) -> set[str]:
    """Return the topics whose id differs from the id that the reader saw before."""
    return {name for name, topic_id in now.items() if known.get(name, topic_id) != topic_id}


def next_step(
    reached: Mapping[TopicPartition, int], view: LogView, recreated: set[str]
) -> StreamStep:
    """Return the next step of a stream from the offsets that it has reached.

    `view.earliest` must have the log starts of recreated topics and of partitions that are new to
    the stream. If a topic was recreated, the returned batch ends at the start of the topic's new
    log, and the next batch starts there. No batch has records from both before and after the
    recreation of a topic, so a restarted query repeats its batches unchanged.
    """
    step = StreamStep({}, {}, [])
    for tp, start in sorted(reached.items()):
        latest = view.latest.get(tp)
        if latest is None:
            what = "the topic was deleted" if tp.topic not in view.topic_ids else "it was removed"
            step.losses.append(f"{tp} is gone: {what} after the stream had read up to {start}")
            continue
        step.starts[tp] = start
        step.ends[tp] = latest
        earliest = view.earliest.get(tp)
        if tp.topic in recreated:
            step.ends[tp] = view.earliest[tp]
            step.losses.append(
                f"topic {tp.topic!r} was deleted and recreated while the stream ran, which had"
                f" read {tp} up to {start}; the new log holds {view.earliest[tp]} to {latest}"
            )
        elif latest < start:
            step.losses.append(
                f"the stream has read {tp} up to {start}, but its log ends at {latest}: the topic"
                " was recreated, or its log was truncated"
            )
        elif earliest is not None and earliest > start:
            step.losses.append(
                f"the stream has read {tp} up to {start}, but its log begins at {earliest}:"
                " records were deleted before they were read"
            )
    for tp in sorted(view.latest.keys() - reached.keys()):
        first = view.earliest[tp]
        step.starts[tp] = first
        step.ends[tp] = view.latest[tp]
        if first > 0 and tp.topic not in recreated:
            step.losses.append(
                f"{tp} is new to the stream, and its log begins at {first}, not at 0: records were"
                " deleted before they were read"
            )
    return step
