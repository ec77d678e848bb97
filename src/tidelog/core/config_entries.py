"""Configuration entries of DescribeConfigs: each key's value, its source, and its synonyms.

Synonyms are the possible sources of a value, most specific first; the first synonym that is set
gives the value (KIP-226). A key in a coarser time unit (`log.retention.hours`) is a synonym of the
key in the finer unit (`log.retention.ms`), with a value in its own unit. As in Kafka, synonyms in
coarser units are listed only if the key in the finer unit is set. A key in the finer unit has no
synonyms if only a key in a coarser unit is set. A key that Kafka does not know is listed without
its value, because the value may be a secret. Source: ConfigHelper,
DynamicBrokerConfig.brokerConfigSynonyms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile

from tidelog.core.config import BrokerConfig, folded_keys
from tidelog.core.config_keys import INT64_MAX, ConfigType, keys_of, to_text
from tidelog.core.dataclass import dataclass
from tidelog.core.dynamic_config import DynamicConfigs, broker_config, dynamic_keys
from tidelog.core.kafka_key_table import kafka_keys
from tidelog.core.topic_config import TopicConfig, broker_keys
from tidelog.core.types import Endpoint
from tidelog.core.unsupported import why

#: Key in a fine unit -> the keys in coarser units, each with its default. If the key in the fine
#: unit is not set, the keys in coarser units are read, in this order.
_COARSER: dict[str, tuple[tuple[str, str | None], ...]] = {
    "log.retention.ms": (("log.retention.minutes", None), ("log.retention.hours", "168")),
    "log.roll.ms": (("log.roll.hours", "168"),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", "0"),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", str(INT64_MAX)),),
}
#: Keys whose default is null in Kafka, so that the default is not listed.
_WITHOUT_DEFAULT = (
    *_COARSER,
    "broker.rack",
    "zookeeper.connect",
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.truststore.location",
)
_NOT_KNOWN = "Not known to Kafka or to this broker: it has no effect."
_FOLDED = "Read together with the key that it belongs to."


class ConfigSource(IntEnum):
    """The source of a value (DescribeConfigsResponse.ConfigSource)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_LOGGER = 6


@dataclass(frozen=True, slots=True)
class Synonym:
    """One source that gives a key's value, in the list of sources that DescribeConfigs reports."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """The entry of one key of a resource. `value` is None if it is hidden (`is_sensitive`)."""

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
    """Return the entry of every topic key, for a topic with these `overrides`.

    `in_force` is the broker's static configuration overridden by the dynamic configuration.
    """
    config, _ = TopicConfig.lenient(in_force, overrides)
    below = broker_keys()
    declared = keys_of(TopicConfig)
    entries = []
    for name, (attribute, key, _) in declared.items():
        value = to_text(getattr(config, attribute))
        synonyms = []
        if name in overrides:
            synonyms.append(Synonym(name, value, ConfigSource.DYNAMIC_TOPIC))
        if name in below:
            synonyms.extend(_broker_synonyms(static, dynamic, below[name]))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        entries.append(
            ConfigEntry(name, value, source, key.type, key.documentation, synonyms=tuple(synonyms))
        )
    layer = [(overrides, ConfigSource.DYNAMIC_TOPIC)]
    entries.extend(_not_known(name, layer, False) for name in overrides if name not in declared)
    return entries


def broker_entries(static: BrokerConfig, dynamic: DynamicConfigs) -> list[ConfigEntry]:
    """Return the entries of every broker key, and of unknown keys that the broker sets."""
    config, _ = broker_config(static, dynamic)
    changeable = dynamic_keys()
    entries = []
    for name, (attribute, key, _) in keys_of(BrokerConfig).items():
        synonyms = _broker_synonyms(static, dynamic, name)
        value = to_text(getattr(config, attribute))
        entries.append(
            ConfigEntry(
                name,
                None if value == "" and name in _WITHOUT_DEFAULT else value,
                synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                key.type,
                key.documentation,
                is_read_only=name not in changeable,
                synonyms=tuple(synonyms),
            )
        )
    entries.extend(_endpoint_entries(static))
    entries.extend(_kafka_entries(static, dynamic, {entry.name for entry in entries}))
    entries.extend(_other_entries(static, dynamic, {entry.name for entry in entries}))
    return sorted(entries, key=lambda entry: entry.name)


def cluster_entries(dynamic: DynamicConfigs) -> list[ConfigEntry]:
    """Return the entries of the keys that are set for all brokers, and no others, as in Kafka."""
    declared = dynamic_keys()
    layer = [(dynamic.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
    entries = []
    for name, text in sorted(dynamic.cluster.items()):
        if name in declared:
            kind, documentation = declared[name].type, declared[name].documentation
        elif name in kafka_keys():
            kind, documentation = kafka_keys()[name].type, _documentation(name)
        else:
            entries.append(_not_known(name, layer, True))
            continue
        synonyms = (Synonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        entries.append(ConfigEntry(name, text, source, kind, documentation, synonyms=synonyms))
    return entries


def chosen(entries: Iterable[ConfigEntry], keys: Sequence[str] | None) -> list[ConfigEntry]:
    """Return the entries of `keys`, in this order; all entries if `keys` is empty, as in Kafka."""
    if not keys:
        return list(entries)
    by_name = {entry.name: entry for entry in entries}
    return [by_name[name] for name in dict.fromkeys(keys) if name in by_name]


def _broker_synonyms(static: BrokerConfig, dynamic: DynamicConfigs, name: str) -> list[Synonym]:
    attribute, key, default = keys_of(BrokerConfig)[name]
    own = (name, *key.synonyms)
    coarser = _COARSER.get(name, ())
    names = (*own, *(other for other, _ in coarser))
    found: list[Synonym] = []
    for layer, source in _layers(static, dynamic):
        found.extend(
            Synonym(synonym, layer[synonym].strip(), source)
            for synonym in names
            if synonym in layer
        )
    if not found and getattr(static, attribute) != default:
        # The value is derived from another key, for example metadata.store from zookeeper.connect.
        found.append(Synonym(name, to_text(getattr(static, attribute)), ConfigSource.STATIC_BROKER))
    if name not in _WITHOUT_DEFAULT:
        found.append(Synonym(name, to_text(default), ConfigSource.DEFAULT))
    found.extend(
        Synonym(other, text, ConfigSource.DEFAULT) for other, text in coarser if text is not None
    )
    return list(dropwhile(lambda synonym: synonym.name not in own, found))


def _layers(
    static: BrokerConfig, dynamic: DynamicConfigs
) -> list[tuple[Mapping[str, str], ConfigSource]]:
    return [
        (dynamic.own, ConfigSource.DYNAMIC_BROKER),
        (dynamic.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (static.given, ConfigSource.STATIC_BROKER),
    ]


def _kafka_entries(
    static: BrokerConfig, dynamic: DynamicConfigs, listed: set[str]
) -> list[ConfigEntry]:
    """Return the entries of Kafka's keys that `BrokerConfig` does not declare.

    Internal keys are listed only if they are set, as in Kafka. Entries of secrets have no value.
    """
    folded = dict.fromkeys(folded_keys())
    entries = []
    for name, key in kafka_keys().items():
        if name in listed:
            continue
        layers = _layers(static, dynamic)[-1:] if name in folded else _layers(static, dynamic)
        is_secret = key.type is ConfigType.PASSWORD
        synonyms = [
            Synonym(name, None if is_secret else layer[name].strip(), source)
            for layer, source in layers
            if name in layer
        ]
        if key.is_internal and not synonyms:
            continue
        if key.default is not None:
            default = str(static.broker_id) if name == "node.id" else key.default
            synonyms.append(Synonym(name, None if is_secret else default, ConfigSource.DEFAULT))
        entries.append(
            ConfigEntry(
                name,
                synonyms[0].value if synonyms else None,
                synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                key.type,
                _FOLDED if name in folded else _documentation(name),
                is_read_only=name in folded or not key.changes,
                is_sensitive=is_secret,
                synonyms=tuple(synonyms),
            )
        )
    return entries


def _documentation(name: str) -> str:
    return f"A key of Kafka. It has no effect here: {why(name)}."


def _not_known(
    name: str, layers: Iterable[tuple[Mapping[str, str], ConfigSource]], is_read_only: bool
) -> ConfigEntry:
    """Return the entry of an unknown stored key without its value, which may be a secret."""
    synonyms = tuple(Synonym(name, None, source) for layer, source in layers if name in layer)
    return ConfigEntry(
        name,
        None,
        synonyms[0].source,
        ConfigType.UNKNOWN,
        _NOT_KNOWN,
        is_read_only=is_read_only,
        is_sensitive=True,
        synonyms=synonyms,
    )


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
        synonyms: tuple[Synonym, ...] = ()
        if name in static.given:
            synonyms = (Synonym(name, static.given[name], ConfigSource.STATIC_BROKER),)
        if name == "listeners":  # of the keys in `values`, only this one has a default in Kafka
            synonyms += (Synonym(name, "PLAINTEXT://:9092", ConfigSource.DEFAULT),)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        kind = ConfigType.STRING
        entries.append(
            ConfigEntry(name, value, source, kind, meaning, is_read_only=True, synonyms=synonyms)
        )
    return entries


def _endpoints(endpoints: Sequence[Endpoint]) -> str:
    return ",".join(
        f"{endpoint.listener}://{endpoint.host}:{endpoint.port}" for endpoint in endpoints
    )


def _other_entries(
    static: BrokerConfig, dynamic: DynamicConfigs, listed: set[str]
) -> list[ConfigEntry]:
    """Return the entries, without values, of keys that are set and that Kafka does not know."""
    layers = _layers(static, dynamic)
    given = sorted({**dynamic.own, **dynamic.cluster, **static.given})
    return [_not_known(name, layers, True) for name in given if name not in listed]
