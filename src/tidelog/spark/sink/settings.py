"""Checked options of the sink, with the names and meanings of Spark's Kafka connector.

This module parses a user's options into `SinkSettings`, or raises OptionError with the option, its
value and the expected form. An option that is unknown, or that the sink does not support, is
rejected by name. A sink that ignored an unknown option could write to another place, or lose data.
Settings of Kafka's producer have the prefix `kafka.`; settings without effect here are accepted and
listed in the guide. The module queries no cluster.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final, TypeVar

from tidelog.client.bootstrap import parse_bootstrap
from tidelog.core.dataclass import dataclass
from tidelog.core.limits import KIB, MAX_REQUEST_BYTES, MIB
from tidelog.records import compression
from tidelog.runtime.pipelined_producer import ProducerOptions
from tidelog.spark.option_names import KNOWN as KNOWN_TO_SOURCE
from tidelog.spark.options import OptionError

#: Maximum batch size, just below the default limit of topics (`max.message.bytes`, 1,048,588).
BATCH_BYTES: Final = 1000 * KIB

_T = TypeVar("_T")

_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_OWN: Final = (
    "topic",
    "includeHeaders",
    "checkpointLocation",
    "tidelog.batch.headers",
    "tidelog.write.id",
    "tidelog.timestamps",
)
#: Options that Spark adds to the user's options.
_OF_SPARK: Final = ("path", "paths", "checkFilesExist", "serialization.format", "outputMode")
_IN_FORCE: Final = """
acks batch.size bootstrap.servers buffer.memory client.id compression.gzip.level
compression.lz4.level compression.type compression.zstd.level delivery.timeout.ms
enable.idempotence max.in.flight.requests.per.connection max.request.size
partitioner.ignore.keys request.timeout.ms security.protocol
"""
#: Known settings of Kafka 3.9's producer without effect on the sink.
_WITHOUT_EFFECT: Final = """
auto.include.jmx.reporter client.dns.lookup connections.max.idle.ms enable.metrics.push linger.ms
max.block.ms metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms retries
retry.backoff.max.ms retry.backoff.ms send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
"""
_REJECTED: Final = {
    "kafka.key.serializer": "keys are written as the bytes of the column key",
    "kafka.value.serializer": "values are written as the bytes of the column value",
    "kafka.interceptor.classes": "the sink runs no Java classes",
    "kafka.partitioner.class": (
        "the sink runs no Java classes; a column partition decides for each row"
    ),
    "kafka.transactional.id": "the sink writes without transactions; see tidelog.batch.headers",
    "kafka.transaction.timeout.ms": "the sink writes without transactions",
}
_PREFIXES_REJECTED: Final = ("kafka.sasl.", "kafka.ssl.")
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_LEVELS: Final = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
#: Maximum number of requests in flight of an idempotent producer: brokers remember this many
#: batches of a producer (KIP-98).
_IDEMPOTENT_IN_FLIGHT: Final = 5

_KNOWN: Final = {
    name.lower(): name
    for name in (
        *_OWN,
        *_OF_SPARK,
        *(f"kafka.{key}" for key in (_IN_FORCE + _WITHOUT_EFFECT).split()),
    )
}


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Settings of a write: the topic, the cluster and the form of the records."""

    bootstrap: str
    #: Topic for all rows, even with a column `topic`; None takes the topic from the column.
    topic: str | None
    client_id: str
    batch_bytes: int
    ignore_keys: bool
    #: Whether each record names its query, batch, task and row in a header.
    batch_headers: bool
    #: Name of a batch write in the header `tidelog.batch`; None gives each write a new name.
    write_id: str | None
    #: Whether records take their timestamp from the column `timestamp` instead of the clock.
    timestamps_from_column: bool
    producer: ProducerOptions


def parse_sink_options(given: Mapping[str, str]) -> SinkSettings:
    """Parse options, whose names may be in any case. Raises OptionError."""
    options = {name.lower(): str(value) for name, value in given.items()}
    for name in given:
        _refuse(name)
    bootstrap = options.get(_BOOTSTRAP, "")
    if not bootstrap.strip():
        raise OptionError(f"option {_BOOTSTRAP} is required, for example 127.0.0.1:9092")
    parse_bootstrap(bootstrap)
    protocol = options.get("kafka.security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise OptionError(
            f"option kafka.security.protocol is {protocol!r}; only PLAINTEXT is supported"
        )
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("option topic is empty; expected a topic's name, or leave the option out")
    batch_headers = _boolean(options, "tidelog.batch.headers", False)
    producer = _producer(options)
    if batch_headers and not producer.idempotent:
        raise OptionError(
            "option tidelog.batch.headers needs idempotent writes: leave out kafka.acks and"
            " kafka.enable.idempotence, or set them to all and true"
        )
    return SinkSettings(
        bootstrap=bootstrap,
        topic=topic,
        client_id=options.get("kafka.client.id", "tidelog-spark"),
        batch_bytes=_number(options, "kafka.batch.size", BATCH_BYTES, 0, MAX_REQUEST_BYTES),
        ignore_keys=_boolean(options, "kafka.partitioner.ignore.keys", False),
        batch_headers=batch_headers,
        write_id=_write_id(options),
        timestamps_from_column=_timestamps(options),
        producer=producer,
    )


def _refuse(name: str) -> None:
    lower = name.lower()
    if lower in _REJECTED:
        raise OptionError(f"option {name} is not supported by the sink: {_REJECTED[lower]}")
    if lower.startswith(_PREFIXES_REJECTED):
        raise OptionError(f"option {name} is not supported: the sink has no TLS and no SASL yet")
    if lower in _KNOWN:
        return
    if lower in KNOWN_TO_SOURCE:
        raise OptionError(f"option {name} is for reading; the sink of format tidelog has no use")
    near = difflib.get_close_matches(lower, _KNOWN, n=1, cutoff=0.6)
    if f"kafka.{lower}" in _KNOWN:
        near = [f"kafka.{lower}"]
    hint = f"; did you mean {_KNOWN[near[0]]}?" if near else ""
    raise OptionError(f"option {name} is not known to the sink of format tidelog{hint}")


def _producer(options: Mapping[str, str]) -> ProducerOptions:
    acks = _choice(options, "kafka.acks", "all", _ACKS)
    idempotent = _boolean(options, "kafka.enable.idempotence", acks == -1)
    if idempotent and acks != -1:
        raise OptionError(
            f"option kafka.acks is {options['kafka.acks']!r}; kafka.enable.idempotence=true needs"
            " all"
        )
    codec_name = options.get("kafka.compression.type", "none").lower()
    codec = _choice(options, "kafka.compression.type", "none", compression.IDS)
    in_flight_name = "kafka.max.in.flight.requests.per.connection"
    in_flight = _number(options, in_flight_name, _IDEMPOTENT_IN_FLIGHT, 1, 1000)
    if idempotent and in_flight > _IDEMPOTENT_IN_FLIGHT:
        raise OptionError(
            f"option {in_flight_name} is {in_flight}; an idempotent producer may have at most"
            f" {_IDEMPOTENT_IN_FLIGHT}"
        )
    request_ms = _number(options, "kafka.request.timeout.ms", 30_000, 1, 2**31 - 1)
    delivery_name = "kafka.delivery.timeout.ms"
    delivery_ms = _number(options, delivery_name, max(120_000, request_ms), 1, 2**31 - 1)
    if delivery_ms < request_ms:
        raise OptionError(
            f"option {delivery_name} is {delivery_ms}; it must be at least"
            f" kafka.request.timeout.ms ({request_ms})"
        )
    return ProducerOptions(
        acks=acks,
        idempotent=idempotent,
        codec=codec,
        level=_level(options, codec_name),
        max_request_bytes=_number(options, "kafka.max.request.size", 8 * MIB, 1, MAX_REQUEST_BYTES),
        max_in_flight=in_flight,
        buffer_bytes=_number(options, "kafka.buffer.memory", 32 * MIB, 1, 2**40),
        request_timeout_ms=request_ms,
        delivery_timeout_ms=delivery_ms,
    )


def _level(options: Mapping[str, str], codec: str) -> int | None:
    for name, (lowest, highest) in _LEVELS.items():
        key = f"kafka.compression.{name}.level"
        if key in options and not (name == "gzip" and options[key] == "-1"):
            level = _number(options, key, 0, lowest, highest)
            if name == codec:
                return level
    return None


def _write_id(options: Mapping[str, str]) -> str | None:
    write_id = options.get("tidelog.write.id")
    if write_id is not None and (not write_id or "/" in write_id or len(write_id) > 200):
        raise OptionError(
            f"option tidelog.write.id is {write_id!r}; expected 1 to 200 characters without /"
        )
    return write_id


def _timestamps(options: Mapping[str, str]) -> bool:
    choices = {"now": False, "column": True}
    return _choice(options, "tidelog.timestamps", "now", choices)


def _choice(options: Mapping[str, str], name: str, default: str, choices: Mapping[str, _T]) -> _T:
    text = options.get(name, default)
    if text.lower() not in choices:
        raise OptionError(f"option {name} is {text!r}; expected {', '.join(choices)}")
    return choices[text.lower()]


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name} is {options[name]!r}; expected true or false")
    return text == "true"


def _number(options: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit() and lowest <= int(text) <= highest):
        raise OptionError(
            f"option {name} is {text!r}; expected a number from {lowest} to {highest}"
        )
    return int(text)
