"""The generator of docs/configuration.md, the reference of every configuration key.

The reference lists supported keys with type, default and meaning, keys accepted without effect, and
refused keys with the reason. `tidelog configs reference` prints the reference; a test compares
docs/configuration.md with the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidelog.core.config import BrokerConfig, folded_keys
from tidelog.core.config_keys import Key, keys_of, to_text
from tidelog.core.dynamic_config import dynamic_keys
from tidelog.core.kafka_differences import (
    NARROWER,
    READ_ONLY_HERE,
    READ_OTHERWISE,
    REFUSED,
    TAKEN,
)
from tidelog.core.kafka_keys import LISTENER_KEY_PREFIX, REFUSED_KEYS, UNSUPPORTED_KEYS
from tidelog.core.topic_config import TopicConfig, broker_keys
from tidelog.core.unsupported import why

#: By key: the meaning of keys that only set the value of another key, and so have no declaration of
#: their own.
_FOLDED = {
    "node.id": "Another name of `broker.id`.",
    "log.dir": "Where `log.dirs` is not given.",
    "log.dirs": "The log directories; default `/tmp/kafka-logs`.",
    "log.roll.hours": "Where `log.roll.ms` is not given.",
    "log.roll.jitter.hours": "Where `log.roll.jitter.ms` is not given.",
    "log.retention.minutes": "Where `log.retention.ms` is not given.",
    "log.retention.hours": "Where neither `log.retention.ms` nor `.minutes` is given.",
    "listeners": "Where this broker listens; default `PLAINTEXT://:9092`.",
    "advertised.listeners": (
        "Where others reach this broker; default: its listeners. Clients are answered with the "
        "addresses of the listener that they connected to."
    ),
    "listener.security.protocol.map": "Names of listeners; their protocol must be PLAINTEXT.",
    "inter.broker.listener.name": "The listener by which brokers reach each other.",
    "security.inter.broker.protocol": "Where `inter.broker.listener.name` is not given.",
    "zookeeper.session.timeout.ms": "Another name of `metadata.session.timeout.ms`.",
}

_HEAD = """\
# Configuration

Every key of Kafka 3.9 that brokers and topics know, and the few of ours. This file is made by
`tidelog configs reference`, from the declarations that brokers read; do not change it by hand.

A broker reads its configuration from a `server.properties` as Kafka has it, a TOML file with the
same keys, environment variables (`TIDELOG_` and the key in capitals, underscores for dots) and
`--override key=value`; the later ones count. While it runs, the keys marked *yes* under "live"
change by AlterConfigs and IncrementalAlterConfigs, for one broker or for all of them, and topics
change all of their keys. A key that is not in this file is warned about at start, and refused when
it is set while brokers run.
"""


def reference() -> str:
    """Return the text of docs/configuration.md."""
    lines = [_HEAD, "## Brokers", ""]
    lines += _table(("key", "default", "takes", "live", "meaning"), _broker_rows())
    lines += ["", "Read together with others:", ""]
    lines += _table(("key", "meaning"), ((f"`{key}`", _FOLDED[key]) for key in folded_keys()))
    lines += ["", "## Topics", ""]
    lines += [
        "A topic has its broker's value of every key that it does not set itself. Brokers accept a",
        "key without effect, log it for each topic that sets it, and say so in DescribeConfigs.",
        "",
    ]
    lines += _table(("key", "broker's key or default", "takes", "meaning"), _topic_rows())
    lines += ["", *_files()]
    lines += ["", "## Refused", ""]
    lines += [
        "A broker with one of these does not start: leaving the key out would be dangerous, or it",
        "asks for another kind of cluster.",
        "",
    ]
    lines += _table(("key", "unless it is", "why"), _refused_rows())
    lines += ["", "## Accepted without effect", ""]
    lines += [
        "Brokers start with these and warn about each. DescribeConfigs lists them with Kafka's",
        "types and defaults. Those that Kafka changes while it runs may be set, and are stored and",
        f"named in the log; the others are refused. Keys below `{LISTENER_KEY_PREFIX}` are set for",
        "single brokers. Secrets are refused, because they would be stored in the clear.",
        "",
    ]
    lines += _table(("why", "keys"), _unsupported_rows())
    return "\n".join(lines) + "\n"


def _files() -> list[str]:
    """Return the lines of the section about differences from Kafka's configuration files."""
    return [
        "## A server.properties of Kafka 3.9",
        "",
        "It is read as Kafka reads it: comments, separators, escapes, continued lines, repeated",
        "keys, blanks around values, numbers in Java's forms. Numbers have no units, as in Kafka.",
        "Two listeners may share a port if one has an IPv4 address and the other an IPv6 address.",
        "These are the differences.",
        "",
        *_table(("read otherwise",), ((sentence,) for sentence in READ_OTHERWISE.values())),
        "",
        *_table(("Kafka starts, tidelog refuses",), ((each,) for each in REFUSED.values())),
        "",
        "The numbers are those of " + ", ".join(f"`{key}`" for key in NARROWER) + ".",
        "",
        *_table(("tidelog starts, Kafka refuses",), ((each,) for each in TAKEN.values())),
        "",
        "Kafka changes "
        + ", ".join(f"`{key}`" for key in READ_ONLY_HERE)
        + " while it runs; here they are read-only.",
    ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [
        _row(head),
        _row(tuple("---" for _ in head)),
        *(_row(row) for row in rows),
    ]


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _broker_rows() -> Iterator[tuple[str, ...]]:
    live = dynamic_keys()
    for name, (_, key, default) in _sorted(keys_of(BrokerConfig)):
        names = ", ".join(f"`{synonym}`" for synonym in key.synonyms)
        meaning = key.meaning + (f" Also {names}." if names else "")
        meaning += " *Ours.*" if key.ours else ""
        meaning += _inert(key)
        yield f"`{name}`", _shown(default), key.expected, "yes" if name in live else "", meaning


def _topic_rows() -> Iterator[tuple[str, ...]]:
    below = broker_keys()
    for name, (_, key, default) in _sorted(keys_of(TopicConfig)):
        inherited = f"`{below[name]}`" if name in below else _shown(default)
        yield f"`{name}`", inherited, key.expected, key.meaning + _inert(key)


def _inert(key: Key) -> str:
    return f" *No effect here*: {key.without_effect}." if key.without_effect else ""


def _refused_rows() -> Iterator[tuple[str, ...]]:
    for name, (harmless, reason) in sorted(REFUSED_KEYS.items()):
        allowed = " or ".join(f"`{value}`" if value else "empty" for value in harmless)
        yield f"`{name}`", allowed, reason


def _unsupported_rows() -> Iterator[tuple[str, ...]]:
    by_reason: dict[str, list[str]] = {}
    for key in sorted(UNSUPPORTED_KEYS - REFUSED_KEYS.keys()):
        by_reason.setdefault(why(key) or "", []).append(f"`{key}`")
    for reason, keys in sorted(by_reason.items()):
        yield reason, " ".join(keys)


def _sorted(
    declared: Mapping[str, tuple[str, Key, object]],
) -> list[tuple[str, tuple[str, Key, object]]]:
    return sorted(declared.items())


def _shown(default: object) -> str:
    text = to_text(default)
    return f"`{text}`" if text else "empty"
