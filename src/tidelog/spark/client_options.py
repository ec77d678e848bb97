"""Options with the prefix `kafka.`: the settings of Kafka's consumer that the source supports.

Settings with an effect on the client are checked and returned. Settings that the source decides
itself are rejected, as in the connector. TLS and SASL are rejected, too: the client does not
support them, and ignoring them would send data in the clear. Settings that only tune the threads
and buffers of Kafka's consumer are accepted and ignored, because they change no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MIB
from tidelog.core.types import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.spark.option_values import OptionError, choice, count, positive

BOOTSTRAP: Final = "kafka.bootstrap.servers"
_DEFAULT_TIMEOUT_MS: Final = 60_000

#: Bytes of one fetch response: enough to make the round trip worthwhile, and few compared with a
#: worker's memory.
FETCH_BYTES: Final = 8 * MIB
MAX_WAIT_MS: Final = 500

_ISOLATION_LEVELS: Final = {
    "read_uncommitted": READ_UNCOMMITTED,
    "read_committed": READ_COMMITTED,
}
#: Consumer settings that the source decides itself, as the connector does.
_FIXED_BY_SOURCE: Final = {
    "kafka.auto.offset.reset": "startingOffsets says where to start",
    "kafka.enable.auto.commit": "the source commits no offsets while it reads",
    "kafka.interceptor.classes": "an interceptor could change records",
    "kafka.key.deserializer": "keys come as bytes; deserialize them with columns",
    "kafka.value.deserializer": "values come as bytes; deserialize them with columns",
}
_SECURE: Final = ("kafka.ssl.", "kafka.sasl.")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of the source's client, taken from the options `kafka.*`."""

    client_id: str = "tidelog-spark"
    #: Time limit in ms for a request and its retries, on the driver and in tasks.
    timeout_ms: int = _DEFAULT_TIMEOUT_MS
    isolation_level: int = READ_UNCOMMITTED
    #: Maximum bytes of one response, which has records of one partition.
    fetch_bytes: int = FETCH_BYTES
    min_bytes: int = 1
    max_wait_ms: int = MAX_WAIT_MS


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Return the settings from options with names in lower case. Raises OptionError."""
    for name, why in _FIXED_BY_SOURCE.items():
        if name in options:
            raise OptionError(f"option {name} is not supported: {why}")
    _refuse_security(options)
    level = choice(options, "kafka.isolation.level", tuple(_ISOLATION_LEVELS), "read_uncommitted")
    limits = [
        positive(options, "kafka.fetch.max.bytes", None),
        positive(options, "kafka.max.partition.fetch.bytes", None),
    ]
    return ClientSettings(
        client_id=options.get("kafka.client.id", "tidelog-spark"),
        timeout_ms=_timeout_ms(options),
        isolation_level=_ISOLATION_LEVELS[level],
        fetch_bytes=min((each for each in limits if each is not None), default=FETCH_BYTES),
        min_bytes=positive(options, "kafka.fetch.min.bytes", 1),
        max_wait_ms=count(options, "kafka.fetch.max.wait.ms", MAX_WAIT_MS),
    )


def _timeout_ms(options: Mapping[str, str]) -> int:
    """Return the time limit in ms for a request and its retries.

    The limit is the option kafka.default.api.timeout.ms, or kafka.request.timeout.ms if the first
    option is not given.
    """
    one = positive(options, "kafka.request.timeout.ms", _DEFAULT_TIMEOUT_MS)
    return positive(options, "kafka.default.api.timeout.ms", one)


def _refuse_security(options: Mapping[str, str]) -> None:
    protocol = options.get("kafka.security.protocol", "PLAINTEXT")
    if protocol.strip().upper() != "PLAINTEXT":
        raise OptionError(
            f"option kafka.security.protocol is {protocol!r}; only PLAINTEXT is supported: the"
            " client speaks neither TLS nor SASL yet"
        )
    for name in options:
        if name.startswith(_SECURE):
            raise OptionError(
                f"option {name} is not supported: the client speaks neither TLS nor SASL yet"
            )
