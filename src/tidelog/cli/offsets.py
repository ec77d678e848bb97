"""Start positions of a read: `beginning`, `end`, `stored`, an offset, a number of last records, a
time.

The start positions have the words of kcat's option `-o`; times have the forms of `cli/times`. Usage
errors list the accepted forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import typer

from tidelog.cli.times import record_time, timestamp_ms
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

_WORDS = {
    "beginning": EARLIEST,
    "earliest": EARLIEST,
    "start": EARLIEST,
    "end": LATEST,
    "latest": LATEST,
}


@dataclass(frozen=True, slots=True)
class Where:
    """A start position, of which one field is set.

    The position is a timestamp of ListOffsets, an offset, a number of last records (`tail`), or the
    stored offset of the group.
    """

    timestamp: int | None = None
    offset: int | None = None
    tail: int | None = None
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """Where `tidelog consume` begins to read, and an optional time at which it ends."""

    start: Where
    end_timestamp: int | None = None


def parse_span(words: list[str], default: Where) -> ReadSpan:
    """Parse `-o` with a start, and perhaps an end time; raise a usage error for any other text."""
    start: Where | None = None
    end: int | None = None
    for word in words:
        if word.startswith("e@") and end is None:
            end = record_time(timestamp_ms(word[2:]))
        elif start is None and not word.startswith("e@"):
            start = _where(word)
        else:
            raise typer.BadParameter(f"{word!r}: one start and one e@ end expected")
    return ReadSpan(start or default, end)


def _where(word: str) -> Where:
    if word == "stored":
        return Where(is_stored=True)
    if word in _WORDS:
        return Where(timestamp=_WORDS[word])
    if word.startswith("s@"):
        return Where(timestamp=record_time(timestamp_ms(word[2:])))
    if re.fullmatch(r"\d+", word):
        return Where(offset=int(word))
    if re.fullmatch(r"-\d+", word):
        return Where(tail=int(word[1:]))
    raise typer.BadParameter(
        f"{word!r} is no place to begin: beginning, end, stored, an offset as 42, the last ones as"
        " -10, a time as s@2026-01-31T12:00 or s@1700000000000"
    )


def resolve(
    client: BlockingClient, where: Where, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the offset in each partition, limited to its log; stored offsets are not supported."""
    chosen = list(partitions)
    if where.timestamp is not None:
        return client.positions(dict.fromkeys(chosen, where.timestamp))
    starts = client.positions(dict.fromkeys(chosen, EARLIEST))
    ends = client.positions(dict.fromkeys(chosen, LATEST))
    if where.tail is not None:
        return {tp: max(starts[tp], ends[tp] - where.tail) for tp in chosen}
    wanted = where.offset or 0
    return {tp: min(max(starts[tp], wanted), ends[tp]) for tp in chosen}
