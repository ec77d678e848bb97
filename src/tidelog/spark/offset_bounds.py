"""The start and the end of a read: offsets or timestamps, for all partitions or for single ones.

This module parses the two families of options, `starting...` and `ending...`, with the connector's
precedence: a timestamp for all partitions, then timestamps by partition, then offsets. Options of
lower precedence are ignored. The module queries no cluster: planning resolves the bounds to
offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.option_values import MAX_LONG, OptionError, choice, json_object, signed_number

#: The offset that means the log end, in the options' JSON and in ListOffsets; EARLIEST is the log
#: start.
LATEST: Final = -1
EARLIEST: Final = -2

_NAMES: Final = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The start or end of a read: exactly one of the first four fields is set.

    Offsets may be LATEST or EARLIEST if the option allows it. Timestamps are milliseconds since
    1970 and mean the first record that is not older. As in ListOffsets, the timestamp -1 means the
    end of the log and -2 its start.
    """

    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] | None = None
    #: Whether a timestamp after that of all records means the end of the log; if False, such a
    #: timestamp is an error.
    latest_if_none: bool = True
    #: The option that set the bound, for messages; empty for a default.
    option: str = ""

    @property
    def named(self) -> Mapping[TopicPartition, int] | None:
        """The partitions that the option names; None if the bound holds for all partitions."""
        return self.timestamps if self.by_partition is None else self.by_partition


def starting_bounds(options: Mapping[str, str], *, is_stream: bool) -> Bounds:
    """Return the start of a read; by default earliest for a batch, latest for a stream.

    Raises OptionError for an invalid option.
    """
    strategy = choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    by_time = _timestamp_bounds(
        options, "startingTimestamp", "startingOffsetsByTimestamp", strategy == "latest"
    )
    if by_time is not None:
        return by_time
    default = "latest" if is_stream else "earliest"
    return _offset_bounds(options, "startingOffsets", default, None if is_stream else "latest")


def ending_bounds(options: Mapping[str, str]) -> Bounds:
    """Return where a batch query ends, by default at "latest". Raises OptionError."""
    by_time = _timestamp_bounds(options, "endingTimestamp", "endingOffsetsByTimestamp", True)
    if by_time is not None:
        return by_time
    return _offset_bounds(options, "endingOffsets", "latest", "earliest")


def check_order(starting: Bounds, ending: Bounds) -> None:
    """Raise OptionError if a query ends before its start.

    Also raises OptionError if the start and the end name different partitions. Bounds of different
    forms, such as offsets and timestamps, are not compared.
    """
    if starting.timestamp is not None and ending.timestamp is not None:
        if starting.timestamp > ending.timestamp >= 0:
            raise OptionError(
                f"option startingTimestamp is {starting.timestamp}, which is after endingTimestamp"
                f" {ending.timestamp}"
            )
        return
    pairs = (
        (starting.by_partition, ending.by_partition),
        (starting.timestamps, ending.timestamps),
    )
    for first, last in pairs:
        if first is None or last is None:
            continue
        if first.keys() != last.keys():
            unmatched = ", ".join(str(tp) for tp in sorted(first.keys() ^ last.keys()))
            raise OptionError(
                f"options {starting.option} and {ending.option} must name the same partitions;"
                f" only one of them names {unmatched}"
            )
        for tp, start in first.items():
            if 0 <= last[tp] < start:
                raise OptionError(
                    f"option {starting.option} has {start} for {tp}, which is after"
                    f" {last[tp]} of {ending.option}"
                )


def _timestamp_bounds(
    options: Mapping[str, str], everywhere: str, by_partition: str, latest_if_none: bool
) -> Bounds | None:
    text = options.get(everywhere.lower())
    if text is not None:
        timestamp = signed_number(text)
        if timestamp is None:
            raise OptionError(
                f"option {everywhere} is {text!r}; expected milliseconds since 1970, for example"
                " 1700000000000"
            )
        return Bounds(timestamp=timestamp, latest_if_none=latest_if_none, option=everywhere)
    text = options.get(by_partition.lower())
    if text is None:
        return None
    expected = 'expected JSON like {"topic": {"0": 1700000000000}}, in milliseconds since 1970'

    def timestamp_of(tp: TopicPartition, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_LONG:
            raise OptionError(
                f"option {by_partition} has the timestamp {value!r} for {tp}; {expected}"
            )
        return value

    return Bounds(
        timestamps=_by_partition(by_partition, text, expected, timestamp_of),
        latest_if_none=latest_if_none,
        option=by_partition,
    )


def _offset_bounds(
    options: Mapping[str, str], name: str, default: str, impossible: str | None
) -> Bounds:
    given = options.get(name.lower())
    text = (default if given is None else given).strip()
    words = [word for word in _NAMES if word != impossible]
    example = f'{{"topic": {{"0": 23, "1": {_NAMES[words[0]]}}}}}'
    expected = f"expected {' or '.join(words)} or JSON like {example}"
    if text.lower() == impossible:
        raise OptionError(f"option {name} cannot be {impossible} in a batch query; {expected}")
    if text.lower() in _NAMES:
        return Bounds(everywhere=_NAMES[text.lower()], option="" if given is None else name)

    def offset_of(tp: TopicPartition, value: object) -> int:
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not EARLIEST <= value <= MAX_LONG
        ):
            raise OptionError(
                f"option {name} has the offset {value!r} for {tp}; expected a number, -1 for latest"
                " or -2 for earliest"
            )
        if impossible is not None and value == _NAMES[impossible]:
            raise OptionError(
                f"option {name} has {value} for {tp}: it cannot be {impossible} in a batch query;"
                f" expected an offset, or {_NAMES[words[0]]} for {words[0]}"
            )
        return value

    return Bounds(by_partition=_by_partition(name, text, expected, offset_of), option=name)


def _by_partition(
    name: str, text: str, expected: str, value_of: Callable[[TopicPartition, object], int]
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, entries in json_object(name, text, expected).items():
        if not isinstance(entries, dict):
            raise OptionError(f"option {name} has {entries!r} for topic {topic!r}; {expected}")
        for number, value in entries.items():
            if not (number.isascii() and number.isdigit()):
                raise OptionError(f"option {name} has the partition {number!r}; {expected}")
            tp = TopicPartition(topic, int(number))
            found[tp] = value_of(tp, value)
    return found
