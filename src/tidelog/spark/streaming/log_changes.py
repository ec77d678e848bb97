"""What became of the partitions of a stream: new, deleted, recreated, or truncated.

Compares the offsets that a stream has reached with the cluster, and decides where the stream can
go on. Each loss of records is a sentence; the caller raises it or logs it, as `failOnDataLoss`
says. Pure: `stream_reader` supplies what the cluster holds.

A recreated topic is known by its topic id while the reader runs. The checkpoint has no place for
ids, so after a restart a recreated topic is noticed only where its log ends below the offset
reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.core.types import TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class LogView:
    """The partitions of a stream as the cluster holds them now."""

    latest: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, TopicId]
    #: Only of partitions for which the reader asked.
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamStep:
    """How far the stream can go now."""

    #: Where each partition of the next batch starts; those that the stream left are absent.
    starts: dict[TopicPartition, int]
    #: Up to where each of them can be read. Below the start: the stream continues from there.
    ends: dict[TopicPartition, int]
    #: Records that the stream cannot read any more, a sentence each.
    losses: list[str]


def recreated_topics(known: Mapping[str, TopicId], now: Mapping[str, TopicId]) -> set[str]:
    """Return the topics that have another id than the reader saw before."""
    return {name for name, topic_id in now.items() if known.get(name, topic_id) != topic_id}


def next_step(
    reached: Mapping[TopicPartition, int], view: LogView, recreated: set[str]
) -> StreamStep:
    """Return where the stream goes from the offsets that it reached.

    `view.earliest` must have the partitions of recreated topics and those that the stream has not
    seen. A recreated topic is read from its beginning: the batch ends there, and the next one
    starts there, so that a restart repeats both alike.
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
