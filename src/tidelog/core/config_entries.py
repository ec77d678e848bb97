"""Configuration as DescribeConfigs tells it: each value, where it comes from, what lies below it.

Synonyms are the places that a value may come from, most specific first; the first one that is set
holds (KIP-226). The coarser keys of times (`log.retention.hours`) are synonyms of the finer ones,
with values in their own units. What was given for a key that has no effect here is told by name,
without its value, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tidelog.core.config import BrokerConfig, supported_keys
from tidelog.core.config_keys import ConfigType, keys_of, to_text
from tidelog.core.dynamic_config import DynamicConfigs, broker_config, dynamic_keys
from tidelog.core.topic_config import TopicConfig, broker_keys
from tidelog.core.types import Endpoint

#: Keys that count where the finer one is not given, in their order.
_COARSER = {
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.hours",),
    "log.dirs": ("log.dir",),
    "inter.broker.listener.name": ("security.inter.broker.protocol",),
}
_NO_EFFECT = "Not supported here: it has no effect."
_FOLDED = "Read together with the key that it belongs to."


class ConfigSource(IntEnum):
    """Where a value comes from (DescribeConfigsResponse.ConfigSource)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place that a value may come from."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a resource. `value` is None where it is not told (`is_sensitive`)."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    documentation: str
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()


def topic_entries(
    static: BrokerConfig,
    dynamic: DynamicConfigs,
    in_force: BrokerConfig,
    overrides: Mapping[str, str],
) -> list[ConfigEntry]:
    """Every topic key, of a topic with these settings of its own; `in_force` is the broker's
    configuration with the dynamic one over it."""
    config, _ = TopicConfig.lenient(in_force, overrides)
    below = broker_keys()
    entries = []
    for name, (attribute, key, default) in keys_of(TopicConfig).items():
        synonyms = []
        if name in overrides:
            synonyms.append(Synonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC))
        if name in below:
            synonyms.extend(_broker_synonyms(static, dynamic, below[name]))
        else:
            synonyms.append(Synonym(name, to_text(default), ConfigSource.DEFAULT))
        entries.append(
            ConfigEntry(
                name,
                to_text(getattr(config, attribute)),
                synonyms[0].source,
                key.type,
                f"{key.meaning} Takes {key.expected}.",
                synonyms=tuple(synonyms),
            )
        )
    return entries


def broker_entries(static: BrokerConfig, dynamic: DynamicConfigs) -> list[ConfigEntry]:
    """Every key of one broker, and what else its configuration names."""
    config, _ = broker_config(static, dynamic)
    changeable = dynamic_keys()
    entries = []
    for name, (attribute, key, _) in keys_of(BrokerConfig).items():
        synonyms = _broker_synonyms(static, dynamic, name)
        entries.append(
            ConfigEntry(
                name,
                to_text(getattr(config, attribute)),
                synonyms[0].source,
                key.type,
                f"{key.meaning} Takes {key.expected}.",
                is_read_only=name not in changeable,
                synonyms=tuple(synonyms),
            )
        )
    entries.extend(_endpoint_entries(static))
    entries.extend(_other_entries(static, {entry.name for entry in entries}))
    return sorted(entries, key=lambda entry: entry.name)


def cluster_entries(dynamic: DynamicConfigs) -> list[ConfigEntry]:
    """What is set for all brokers, and nothing else, as Kafka tells it."""
    declared = dynamic_keys()
    return [
        ConfigEntry(
            name,
            text,
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
            declared[name].type if name in declared else ConfigType.STRING,
            declared[name].meaning if name in declared else _NO_EFFECT,
            synonyms=(Synonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER),),
        )
        for name, text in sorted(dynamic.cluster.items())
    ]


def chosen(entries: Iterable[ConfigEntry], keys: Sequence[str] | None) -> list[ConfigEntry]:
    """Those asked for; all of them for None."""
    if keys is None:
        return list(entries)
    wanted = dict.fromkeys(keys)
    return [entry for entry in entries if entry.name in wanted]


def _broker_synonyms(static: BrokerConfig, dynamic: DynamicConfigs, name: str) -> list[Synonym]:
    attribute, key, default = keys_of(BrokerConfig)[name]
    names = (name, *key.synonyms, *_COARSER.get(name, ()))
    found: list[Synonym] = []
    for layer, source in (
        (dynamic.own, ConfigSource.DYNAMIC_BROKER),
        (dynamic.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (static.given, ConfigSource.STATIC_BROKER),
    ):
        found.extend(Synonym(one, layer[one].strip(), source) for one in names if one in layer)
    if not found and getattr(static, attribute) != default:
        # Follows from other keys, as metadata.store does from zookeeper.connect.
        found.append(Synonym(name, to_text(getattr(static, attribute)), ConfigSource.STATIC_BROKER))
    found.append(Synonym(name, to_text(default), ConfigSource.DEFAULT))
    return found


def _endpoint_entries(static: BrokerConfig) -> list[ConfigEntry]:
    values = (
        ("log.dirs", ",".join(static.log_dirs), "The log directories."),
        ("listeners", _endpoints(static.listeners), "Where this broker listens."),
        (
            "advertised.listeners",
            _endpoints(static.advertised_listeners),
            "Where clients and other brokers reach this broker.",
        ),
        (
            "inter.broker.listener.name",
            static.inter_broker_listener_name,
            "The listener by which brokers reach each other.",
        ),
    )
    entries = []
    for name, value, meaning in values:
        names = (name, *_COARSER.get(name, ()))
        given = [
            Synonym(one, static.given[one], ConfigSource.STATIC_BROKER)
            for one in names
            if one in static.given
        ]
        source = given[0].source if given else ConfigSource.DEFAULT
        kind = ConfigType.LIST if name == "log.dirs" else ConfigType.STRING
        synonyms = tuple(given) or (Synonym(name, value, ConfigSource.DEFAULT),)
        entries.append(
            ConfigEntry(name, value, source, kind, meaning, is_read_only=True, synonyms=synonyms)
        )
    return entries


def _endpoints(endpoints: Sequence[Endpoint]) -> str:
    return ",".join(f"{one.listener}://{one.host}:{one.port}" for one in endpoints)


def _other_entries(static: BrokerConfig, told: set[str]) -> list[ConfigEntry]:
    """Coarser keys as they were given, and names of those without effect."""
    supported = dict.fromkeys(supported_keys())
    return [
        ConfigEntry(
            name,
            static.given[name] if name in supported else None,
            ConfigSource.STATIC_BROKER,
            ConfigType.STRING,
            _FOLDED if name in supported else _NO_EFFECT,
            is_read_only=True,
            is_sensitive=name not in supported,
        )
        for name in sorted(static.given)
        if name not in told
    ]
