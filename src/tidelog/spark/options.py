"""Checked options of `format("tidelog")`, with the names and meanings of Spark's Kafka connector.

This module parses a user's options into `ReadOptions`, for a batch or a stream, or raises
OptionError with the option, its value and the expected form. An unknown option is rejected by name,
because a read that ignored it would return other data than requested. An option without effect
leaves a remark, which the driver logs. The module queries no cluster.

`offset_bounds` parses starts and ends of reads, `topic_pattern` patterns, and `client_options` the
`kafka.*` options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.client.bootstrap import parse_bootstrap
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.client_options import BOOTSTRAP, ClientSettings, client_settings
from tidelog.spark.offset_bounds import (
    EARLIEST,
    LATEST,
    Bounds,
    check_order,
    ending_bounds,
    starting_bounds,
)
from tidelog.spark.option_names import KNOWN, nearest
from tidelog.spark.option_values import (
    OptionError,
    boolean,
    count,
    json_object,
    milliseconds,
    names,
    positive,
)
from tidelog.spark.topic_pattern import compile_topic_pattern

__all__ = [
    "EARLIEST",
    "LATEST",
    "Bounds",
    "OptionError",
    "ReadOptions",
    "offsets_json",
    "parse_options",
]

#: The connector's columns in its order; headers are included only if requested.
COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
HEADERS: Final = "headers"

_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_TRIGGERS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ENDINGS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_STARTINGS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_STRATEGY: Final = "startingOffsetsByTimestampStrategy"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The data to read. At most one of `topics`, `partitions` and `pattern` is set.

    A read from brokers sets exactly one of `topics`, `partitions` and `pattern`. A read from
    `segments` that sets neither topics, partitions nor a pattern reads all topics.
    """

    #: `host:port,...` of the brokers; empty if `segments` are read.
    bootstrap: str
    topics: tuple[str, ...] | None
    partitions: tuple[TopicPartition, ...] | None
    starting: Bounds
    ending: Bounds
    fail_on_data_loss: bool
    min_partitions: int | None
    #: The columns of the rows, in order.
    columns: tuple[str, ...]
    client: ClientSettings
    pattern: re.Pattern[str] | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    #: Log directories, as paths or globs.
    segments: tuple[str, ...] = ()
    #: Whether segments are read beyond the high watermark, to the end of the log.
    segments_to_log_end: bool = False
    #: Whether the reader applies filters itself, if Spark's configuration allows pushdown.
    pushdown: bool = True
    #: A sentence for each option that was given and has no effect.
    remarks: tuple[str, ...] = ()

    @property
    def include_headers(self) -> bool:
        """Whether the rows have headers."""
        return HEADERS in self.columns

    @property
    def client_id(self) -> str:
        """The name of the client in requests."""
        return self.client.client_id

    @property
    def timeout_ms(self) -> int:
        """How long a request is retried, in ms."""
        return self.client.timeout_ms

    @property
    def isolation_level(self) -> int:
        """Isolation level as in requests, READ_UNCOMMITTED or READ_COMMITTED."""
        return self.client.isolation_level


def parse_options(given: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
    """Parse options, whose names may be in any case. Raises OptionError."""
    options = {name.lower(): str(value) for name, value in given.items()}
    _refuse_unknown(given)
    _check_tuning(options)
    segments = _segments(options)
    topics, partitions, pattern = _selection(options, is_required=not segments)
    if is_stream:
        _refuse_in_stream(options)
    starting = starting_bounds(options, is_stream=is_stream)
    ending = Bounds(everywhere=LATEST) if is_stream else ending_bounds(options)
    check_order(starting, ending)
    fewest = positive(options, "minOffsetsPerTrigger", None)
    most = positive(options, "maxOffsetsPerTrigger", None)
    if fewest is not None and most is not None and fewest > most:
        raise OptionError(
            f"option minOffsetsPerTrigger is {fewest}, above maxOffsetsPerTrigger {most}"
        )
    return ReadOptions(
        bootstrap=_bootstrap(options, segments),
        topics=topics,
        partitions=partitions,
        pattern=pattern,
        starting=starting,
        ending=ending,
        fail_on_data_loss=boolean(options, "failOnDataLoss", True),
        min_partitions=positive(options, "minPartitions", None),
        max_records_per_partition=positive(options, "maxRecordsPerPartition", None),
        columns=_columns(options),
        client=client_settings(options),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=fewest,
        max_trigger_delay_ms=milliseconds(options, "maxTriggerDelay", "15m"),
        segments=segments,
        segments_to_log_end=boolean(options, "segmentsToLogEnd", False),
        pushdown=boolean(options, "pushdown", True),
        remarks=tuple(_remarks(options, is_stream)),
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


def _check_tuning(options: Mapping[str, str]) -> None:
    """Check the connector's options that tune its consumers; they have no effect on this client."""
    positive(options, "kafkaConsumer.pollTimeoutMs", None)
    count(options, "fetchOffset.numRetries", None)
    count(options, "fetchOffset.retryIntervalMs", None)


def _refuse_in_stream(options: Mapping[str, str]) -> None:
    for name in _ENDINGS:
        if name.lower() in options:
            raise OptionError(f"option {name} is not valid in a stream, which has no end")
    if "segments" in options:
        raise OptionError("option segments is not valid in a stream; log directories are read once")


def _segments(options: Mapping[str, str]) -> tuple[str, ...]:
    if "segments" not in options:
        if "segmentstologend" in options:
            raise OptionError("option segmentsToLogEnd needs the option segments")
        return ()
    if BOOTSTRAP in options:
        raise OptionError(
            f"options segments and {BOOTSTRAP} exclude each other: a query reads log directories"
            " or brokers"
        )
    return names(options, "segments", "log directories (paths or globs)")


def _bootstrap(options: Mapping[str, str], segments: tuple[str, ...]) -> str:
    if segments:
        return ""
    bootstrap = options.get(BOOTSTRAP, "")
    if not bootstrap.strip():
        raise OptionError(f"option {BOOTSTRAP} is required, for example 127.0.0.1:9092")
    parse_bootstrap(bootstrap)
    return bootstrap


def _selection(
    options: Mapping[str, str], *, is_required: bool
) -> tuple[tuple[str, ...] | None, tuple[TopicPartition, ...] | None, re.Pattern[str] | None]:
    """Return topics, partitions and pattern; at most one of the three is not None."""
    chosen = [name for name in _SELECTIONS if name.lower() in options]
    if len(chosen) > 1 or (is_required and not chosen):
        given = f"given are {', '.join(chosen)}" if chosen else "none is given"
        raise OptionError(
            f"exactly one of the options {', '.join(_SELECTIONS)} must be set; {given}"
        )
    if "assign" in options:
        return None, _assignment(options["assign"]), None
    if "subscribepattern" in options:
        return None, None, compile_topic_pattern(options["subscribepattern"])
    if "subscribe" in options:
        return names(options, "subscribe", "topic names"), None, None
    return None, None, None


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    expected = 'expected JSON like {"topic": [0, 1]}'
    parsed = json_object("assign", text, expected)
    partitions: list[TopicPartition] = []
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(_is_count(each) for each in numbers):
            raise OptionError(f"option assign has {numbers!r} for topic {topic!r}; {expected}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise OptionError(f"option assign is {text!r}, which names no partition; {expected}")
    return tuple(dict.fromkeys(partitions))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the requested columns in the user's order, else all."""
    with_headers = boolean(options, "includeHeaders", False)
    if "columns" not in options:
        return (*COLUMNS, HEADERS) if with_headers else COLUMNS
    known = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    found: list[str] = []
    for name in names(options, "columns", "names of columns"):
        if name.lower() not in known:
            raise OptionError(
                f"option columns names {name!r}; the columns are {', '.join(known.values())}"
            )
        found.append(known[name.lower()])
    if with_headers and HEADERS not in found:
        raise OptionError(
            f"option includeHeaders is true, but columns {options['columns']!r} lacks headers;"
            " name headers there or leave includeHeaders out"
        )
    return tuple(dict.fromkeys(found))


def _remarks(options: Mapping[str, str], is_stream: bool) -> Iterable[str]:
    """Yield a sentence for each option that was given and has no effect."""
    for family in (_STARTINGS, () if is_stream else _ENDINGS):
        given = [name for name in family if name.lower() in options]
        for ignored in given[1:]:
            yield f"option {ignored} has no effect: {given[0]} takes precedence"
    if _STRATEGY.lower() in options and not any(name.lower() in options for name in _STARTINGS[:2]):
        yield f"option {_STRATEGY} has no effect without a starting timestamp"
    if not is_stream:
        for name in _TRIGGERS:
            if name.lower() in options:
                yield f"option {name} has no effect in a batch query"
    if "maxtriggerdelay" in options and "minoffsetspertrigger" not in options and is_stream:
        yield "option maxTriggerDelay has no effect without minOffsetsPerTrigger"
    for name in ("kafka.group.id", "groupIdPrefix"):
        if name.lower() in options:
            yield (
                f"option {name} has no effect: the source joins no group; GroupCommitListener"
                " commits a stream's offsets to one"
            )
