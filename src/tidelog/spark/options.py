"""Options of `format("tidelog")`: names and meaning of Spark's Kafka connector, checked.

Parses a user's options into `ReadOptions`, or raises OptionError that names the option, its value
and the right form. An option that is unknown, or that the connector has and this source lacks, is
rejected by name: ignoring it would read other data than requested. Knows no cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.bootstrap import parse_bootstrap
from tidelog.core.errors import ConfigError
from tidelog.core.types import TopicPartition
from tidelog.spark.option_names import KNOWN, nearest

#: Offsets with a meaning, as in the options' JSON and in ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2

_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_CHOICES: Final = ("assign", "subscribe", "subscribepattern")
_DEFAULT_TIMEOUT_MS: Final = 60_000

#: Options of the connector that this source lacks: naming one is an error.
_NOT_SUPPORTED: Final = (
    "subscribepattern",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "endingtimestamp",
    "endingoffsetsbytimestamp",
    "maxrecordsperpartition",
)
#: Consumer settings that the source decides itself, as the connector does.
_FIXED_BY_SOURCE: Final = (
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
)
#: Settings with a single value that this source can serve.
_ONLY_VALUES: Final = {
    "kafka.security.protocol": ("PLAINTEXT",),
    "kafka.isolation.level": ("read_uncommitted",),
}


class OptionError(ConfigError):
    """An option that is missing, contradictory, or has a value that cannot be used."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The start or end of a read: one rule for all partitions, or an offset for each.

    Offsets may be LATEST or EARLIEST where that makes sense.
    """

    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The data to read. Either `topics` or `partitions` is set."""

    bootstrap: str
    topics: tuple[str, ...] | None
    partitions: tuple[TopicPartition, ...] | None
    starting: Bounds
    ending: Bounds
    include_headers: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    client_id: str
    timeout_ms: int


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse options, whose names may be in any case. Raises OptionError."""
    options = {name.lower(): str(value) for name, value in given.items()}
    _refuse_unknown(given)
    _refuse_unsupported(options)
    topics, partitions = _what_to_read(options)
    bootstrap = options.get(_BOOTSTRAP, "")
    if not bootstrap.strip():
        raise OptionError(f"option {_BOOTSTRAP} is required, for example 127.0.0.1:9092")
    parse_bootstrap(bootstrap)
    return ReadOptions(
        bootstrap=bootstrap,
        topics=topics,
        partitions=partitions,
        starting=_bounds(options, "startingOffsets", "earliest", "latest"),
        ending=_bounds(options, "endingOffsets", "latest", "earliest"),
        include_headers=_boolean(options, "includeHeaders", False),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", True),
        min_partitions=_positive(options, "minPartitions", None),
        client_id=options.get("kafka.client.id", "tidelog-spark"),
        timeout_ms=_positive(options, "kafka.request.timeout.ms", None) or _DEFAULT_TIMEOUT_MS,
    )


def offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets in the options' form: {"topic": {"0": 23}}."""
    by_topic: dict[str, dict[str, int]] = {}
    for tp, offset in offsets.items():
        by_topic.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(by_topic)


def _refuse_unknown(given: Iterable[str]) -> None:
    for name in given:
        if name.lower() not in KNOWN:
            near = nearest(name)
            hint = "" if near is None else f"; did you mean {near}?"
            raise OptionError(f"option {name} is not known to format tidelog{hint}")


def _refuse_unsupported(options: Mapping[str, str]) -> None:
    for name in _NOT_SUPPORTED:
        if name in options:
            raise OptionError(f"option {name} is not supported by format tidelog yet")
    for name in _FIXED_BY_SOURCE:
        if name in options:
            raise OptionError(
                f"option {name} is not supported: the source chooses offsets itself, commits"
                " none, and gives keys and values as bytes"
            )
    for name, allowed in _ONLY_VALUES.items():
        value = options.get(name)
        if value is not None and value.lower() not in [each.lower() for each in allowed]:
            raise OptionError(
                f"option {name} is {value!r}; only {' or '.join(allowed)} is supported"
            )


def _what_to_read(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...] | None, tuple[TopicPartition, ...] | None]:
    chosen = [name for name in _CHOICES if name in options]
    if len(chosen) != 1:
        given = f"given are {', '.join(chosen)}" if chosen else "none is given"
        raise OptionError(f"exactly one of the options subscribe and assign must be set; {given}")
    if "assign" in options:
        return None, _assignment(options["assign"])
    topics = [name.strip() for name in options["subscribe"].split(",") if name.strip()]
    if not topics:
        raise OptionError(
            f"option subscribe is {options['subscribe']!r}; expected topic names with commas"
            " between them"
        )
    return tuple(dict.fromkeys(topics)), None


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    expected = 'expected JSON like {"topic": [0, 1]}'
    parsed = _json_object("assign", text, expected)
    partitions: list[TopicPartition] = []
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(_is_count(each) for each in numbers):
            raise OptionError(f"option assign has {numbers!r} for topic {topic!r}; {expected}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise OptionError(f"option assign is {text!r}, which names no partition; {expected}")
    return tuple(dict.fromkeys(partitions))


def _bounds(options: Mapping[str, str], name: str, default: str, impossible: str) -> Bounds:
    text = options.get(name.lower(), default).strip()
    offsets = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() == impossible:
        raise OptionError(f"option {name} cannot be {impossible} in a batch query")
    if text.lower() in offsets:
        return Bounds(everywhere=offsets[text.lower()])
    expected = f'expected {default} or JSON like {{"topic": {{"0": 23, "1": {offsets[default]}}}}}'
    by_partition: dict[TopicPartition, int] = {}
    for topic, entries in _json_object(name, text, expected).items():
        if not isinstance(entries, dict):
            raise OptionError(f"option {name} has {entries!r} for topic {topic!r}; {expected}")
        for number, offset in entries.items():
            if not (number.isascii() and number.isdigit()):
                raise OptionError(f"option {name} has the partition {number!r}; {expected}")
            tp = TopicPartition(topic, int(number))
            by_partition[tp] = _offset(name, tp, offset, offsets[impossible], impossible)
    return Bounds(by_partition=by_partition)


def _offset(name: str, tp: TopicPartition, offset: object, banned: int, impossible: str) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
        raise OptionError(
            f"option {name} has the offset {offset!r} for {tp}; expected a number, -1 for latest"
            " or -2 for earliest"
        )
    if offset == banned:
        raise OptionError(
            f"option {name} has {offset} for {tp}: it cannot be {impossible} in a batch query"
        )
    return offset


def _json_object(name: str, text: str, expected: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name} is {text!r}; {expected}") from error
    if not isinstance(parsed, dict):
        raise OptionError(f"option {name} is {text!r}; {expected}")
    return parsed


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {name} is {text!r}; expected true or false")
    return text.lower() == "true"


def _positive(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise OptionError(f"option {name} is {text!r}; expected a number above 0")
    return int(text)
