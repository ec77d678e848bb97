"""Names of topics and partitions on command lines, and suggestions for mistyped ones.

An error about an unknown name lists similar known names. `t:0,2-4` names partitions of a topic.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import typer

from tidelog.client.cluster import ClusterMetadata, TopicMetadata
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition, partitions_text
from tidelog.runtime.blocking import BlockingClient

_MOST_SUGGESTIONS = 3


class NotFoundError(TidelogError):
    """The error for a missing topic, partition, group or broker; it lists existing names."""


class PartitionWord(NamedTuple):
    """A topic and some of its partitions; None in place of partitions means all partitions."""

    topic: str
    partitions: tuple[int, ...] | None


def partition_word(word: str) -> PartitionWord:
    """Parse `topic` or `topic:0,2-4`; raise a usage error for any other text."""
    topic, colon, numbers = word.partition(":")
    if not topic:
        raise typer.BadParameter(f"{word!r} names no topic: t or t:0,2-4 expected")
    return PartitionWord(topic, partition_numbers(numbers) if colon else None)


def partition_numbers(text: str) -> tuple[int, ...]:
    """Parse `0,2-4`; raise a usage error for any other text."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise typer.BadParameter(f"{text!r} are no partitions: 0 or 0,2-4 expected")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(numbers))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: existing names that are similar to `name`."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, _MOST_SUGGESTIONS, cutoff=0.6)
    close += [each for each in names if each not in close and _folded(name) in _folded(each)]
    if close:
        return f"; did you mean {' or '.join(close[:_MOST_SUGGESTIONS])}?"
    if len(names) <= _MOST_SUGGESTIONS:
        return f"; there is {', '.join(names)}" if names else "; there are none"
    return ""


def _folded(name: str) -> str:
    return name.casefold().replace("_", "-").replace(".", "-")


def topics_named(client: BlockingClient, names: Sequence[str]) -> dict[str, TopicMetadata]:
    """Return these topics; NotFoundError names the first missing topic, and similar names."""
    metadata = client.metadata(list(dict.fromkeys(names)))
    return {name: _existing(client, metadata, name) for name in names}


def _existing(client: BlockingClient, metadata: ClusterMetadata, name: str) -> TopicMetadata:
    topic = metadata.topics.get(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
    if topic is not None and code is ErrorCode.NONE:
        return topic
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        known = [each for each in client.metadata().topics if not each.startswith("__")]
        raise NotFoundError(f"there is no topic {name!r}{nearest(name, known)}")
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise NotFoundError(
            f"{name!r} is no topic name: 1 to 249 of a-z A-Z 0-9 . _ - are, but not . and .."
        )
    raise KafkaError(code, f"topic {name!r}")


def partitions_named(
    client: BlockingClient, words: Sequence[PartitionWord]
) -> list[TopicPartition]:
    """Return the named partitions, in order; raise NotFoundError for a missing partition."""
    topics = topics_named(client, [word.topic for word in words])
    found: dict[TopicPartition, None] = {}
    for word in words:
        known = topics[word.topic].partitions
        for number in known if word.partitions is None else word.partitions:
            check_partition(topics[word.topic], number)
            found[TopicPartition(word.topic, number)] = None
    return list(found)


def check_partition(topic: TopicMetadata, number: int) -> None:
    """Raise NotFoundError if a topic has no partition with this number."""
    if number not in topic.partitions:
        has = partitions_text(len(topic.partitions))
        raise NotFoundError(f"topic {topic.name!r} has {has}, not {number}")


def broker_named(client: BlockingClient, broker_id: int) -> None:
    """Raise NotFoundError if the broker is not live."""
    live = client.metadata([]).brokers
    if broker_id not in live:
        ids = ", ".join(str(each) for each in live)
        raise NotFoundError(f"there is no live broker {broker_id}; live are {ids}")
