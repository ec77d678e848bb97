"""Dynamic configuration, which changes while brokers run (KIP-226, KIP-339).

The store holds one mapping from keys to values (as text) for each topic, for each broker, and for
all brokers together. `altered` applies the operations of a request to one of these mappings.
`check_topic` and `check_broker` check the altered settings. `broker_config` applies the stored
settings over a broker's own configuration. A value comes from the first of these layers that sets
it: the topic, the broker (`/config/brokers/N`), all brokers (`/config/brokers/<default>`), the
broker's configuration at start, the default. This module does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import NamedTuple

from tidelog.core.config import BrokerConfig, supported_keys
from tidelog.core.config_keys import ConfigType, Key, comma_list, keys_of, read_value, to_text
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError, ErrorCode, KafkaError
from tidelog.core.kafka_key_table import kafka_keys
from tidelog.core.kafka_keys import LISTENER_KEY_PREFIX, REFUSED_KEYS, UNSUPPORTED_KEYS
from tidelog.core.log_dir_keys import still_there
from tidelog.core.throttle_keys import FOREIGN_RATES
from tidelog.core.topic_config import TopicConfig, broker_keys, validate_topic_configs
from tidelog.core.unsupported import why

#: The dynamic broker keys that are not defaults of topics: supported keys of Kafka, and keys that
#: only tidelog has.
_DYNAMIC = (
    "cluster.events.enable",
    "cordoned.log.dirs",
    "draining.log.dirs",
    "follower.replication.throttled.rate",
    "leader.relinquish.on.slow.reads.enable",
    "leader.replication.throttled.rate",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.dir.balance.check.interval.seconds",
    "log.dir.balance.enable",
    "log.dir.balance.threshold.percent",
    "log.dir.reserve.bytes",
    "log.dir.slow.action",
    "log.dir.slow.threshold.ms",
    "log.dir.slow.window.ms",
    "max.connections",
    "producer.id.expiration.ms",
    "reassignment.max.concurrent.partitions",
    "reassignment.max.concurrent.partitions.per.broker",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


class ConfigOperation(IntEnum):
    """The operation of IncrementalAlterConfigs on a key (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One operation of an alteration request on one key."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class DynamicConfigs:
    """The store's dynamic settings for all brokers and for one broker."""

    cluster: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)


def dynamic_keys() -> dict[str, Key]:
    """Return the broker keys whose changes take effect without a restart.

    `log.message.format.version` is left out, because Kafka reads this key only at start.
    """
    declared = keys_of(BrokerConfig)
    names = dict.fromkeys([*broker_keys().values(), *_DYNAMIC])
    del names["log.message.format.version"]
    return {name: declared[name][1] for name in sorted(names)}


def is_accepted_without_effect(name: str) -> bool:
    """Return whether this broker, like Kafka, stores a dynamic key that has no effect.

    Kafka stores its own dynamic keys, including the keys of single listeners, and any key that
    Kafka does not know (KIP-226).
    """
    if name in supported_keys():
        return False
    key = kafka_keys().get(name)
    if key is not None:
        return key.changes in ("cluster", "broker")
    return name not in REFUSED_KEYS


def broker_config(
    static: BrokerConfig, dynamic: DynamicConfigs
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Return the configuration in force, and a sentence for each unusable stored setting.

    Another program may have written an unusable setting; the value of the next layer then stays in
    force.
    """
    usable: dict[str, str] = {}
    config = static
    problems: list[str] = []
    known = dynamic_keys()
    for layer in (dynamic.cluster, dynamic.own):
        for name in sorted(layer):
            if name not in known:
                problems.append(_skip_reason(name))
                continue
            text = still_there(name, layer[name], static.log_dirs)
            try:
                config = static.with_dynamic({**usable, name: text})
            except ConfigError as error:
                problems.append(str(error))
            else:
                usable[name] = text
    return config, tuple(problems)


#: Keys in a coarser unit that set the same value as a dynamic key.
_COARSER = (
    "log.roll.hours",
    "log.roll.jitter.hours",
    "log.retention.hours",
    "log.retention.minutes",
)


class Reloaded(NamedTuple):
    """The result of reading a broker's static configuration again while the broker runs."""

    static: BrokerConfig
    #: Dynamic keys with a new value, including keys that are no longer set and so have their
    #: default.
    changed: tuple[str, ...]
    #: Other keys whose setting has changed; the new setting takes effect only at the broker's next
    #: start.
    need_restart: tuple[str, ...]


def reloaded(static: BrokerConfig, offered: BrokerConfig) -> Reloaded:
    """Return `static` with the values of `offered` for keys that can change while brokers run.

    Raises ConfigError if new values contradict values of `static` that do not change.
    """
    reloadable = {*dynamic_keys(), *_COARSER}
    kept = {name: text for name, text in static.given.items() if name not in reloadable}
    taken = {name: text for name, text in offered.given.items() if name in reloadable}
    made = BrokerConfig.from_properties({**kept, **taken})
    declared = keys_of(BrokerConfig)
    changed = [
        name
        for name in dynamic_keys()
        if getattr(made, declared[name][0]) != getattr(static, declared[name][0])
    ]
    others = {*supported_keys()} - reloadable
    need_restart = [name for name in others if static.given.get(name) != offered.given.get(name)]
    return Reloaded(made, tuple(changed), tuple(sorted(need_restart)))


def _skip_reason(name: str) -> str:
    if is_accepted_without_effect(name):
        reason = why(name) or "the key is not known"
        return f"{name} has no effect here: {reason}"
    return f"{name} cannot be changed while the broker runs"


# altering

#: A function that returns a key's inherited value. If the key is not set, APPEND adds elements to
#: the inherited list.
Inherited = Callable[[str], str]


def altered(
    current: Mapping[str, str],
    alterations: Sequence[Alteration],
    declared: Mapping[str, Key],
    inherited: Inherited,
) -> dict[str, str]:
    """Apply operations to stored settings and return the result; the caller checks the values.

    Raises KafkaError INVALID_REQUEST for a key that is named twice, a missing value or an unknown
    operation. Raises INVALID_CONFIG for APPEND and SUBTRACT on a key that is no list.
    """
    _check_request(alterations)
    result = dict(current)
    for name, operation, value in alterations:
        if operation == ConfigOperation.DELETE:
            result.pop(name, None)
            continue
        assert value is not None
        if operation == ConfigOperation.SET:
            result[name] = value.strip()
            continue
        key = declared.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a known key, so no list")
        if key.type is not ConfigType.LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name}={value!r} cannot be appended or subtracted: {name} is no list; set it",
            )
        before = comma_list(result[name] if name in result else inherited(name))
        changed = comma_list(value)
        if operation == ConfigOperation.APPEND:
            kept = [*before, *(element for element in changed if element not in before)]
        else:
            kept = [element for element in before if element not in changed]
        result[name] = ",".join(kept)
    return result


def _check_request(alterations: Sequence[Alteration]) -> None:
    counts = Counter(alteration.name for alteration in alterations)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"named more than once: {', '.join(twice)}")
    for name, operation, value in alterations:
        if operation not in list(ConfigOperation):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name}: operation {operation} is not known; 0 (set), 1 (delete), 2 (append) or"
                " 3 (subtract) expected",
            )
        if value is None and operation != ConfigOperation.DELETE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name} has no value (null); delete it to unset it"
            )


def replacing(current: Mapping[str, str], wanted: Sequence[Alteration]) -> list[Alteration]:
    """Return the operations of an AlterConfigs request, which deletes omitted keys (KIP-133)."""
    named = dict.fromkeys(alteration.name for alteration in wanted)
    gone = [Alteration(name, ConfigOperation.DELETE, None) for name in current if name not in named]
    return [*wanted, *gone]


# checks


def check_topic(broker: BrokerConfig, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise KafkaError(INVALID_CONFIG) unless the settings `after` a change are valid for a topic.

    Settings that do not change are not checked again: the writer of each setting checked it.
    """
    changed = {name: text for name, text in after.items() if before.get(name) != text}
    try:
        validate_topic_configs(changed)
        kept = {name: text for name, text in after.items() if _is_topic_value(name, text)}
        _check_lags(TopicConfig.of(broker, kept))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _check_lags(config: TopicConfig) -> None:
    """Check that the compaction lags of the topic and of the broker fit together, as in Kafka."""
    lag_ms, limit_ms = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if lag_ms > limit_ms:
        raise ConfigError(
            f"min.compaction.lag.ms={lag_ms} must not be more than max.compaction.lag.ms={limit_ms}"
        )


def _is_topic_value(name: str, text: str) -> bool:
    try:
        validate_topic_configs({name: text})
    except ConfigError:
        return False
    return True


def check_broker(
    static: BrokerConfig,
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    for_all: bool = False,
) -> None:
    """Raise KafkaError(INVALID_REQUEST), as in Kafka, unless the settings of `after` are valid.

    A setting is rejected if its key takes effect only at a restart, or if its value is bad. A key
    without effect is accepted if Kafka accepts it; Kafka also accepts every key that it does not
    know. `for_all` says that the settings apply to all brokers.
    """
    known = dynamic_keys()
    kept: dict[str, str] = {}
    for name, text in after.items():
        if before.get(name) == text:
            if name in known:
                kept[name] = text
            continue
        try:
            if name in known:
                static.with_dynamic({name: text})
                kept[name] = text
            elif is_accepted_without_effect(name):
                _check_without_effect(name, text, for_all)
            else:
                raise ConfigError(f"{name}={text!r}: {_refusal(name)}")
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    config, problems = broker_config(static, DynamicConfigs(cluster=kept))
    if not problems:
        try:
            _check_lags(TopicConfig.of(config, {}))
        except ConfigError as error:
            problems = (f"as defaults of topics, {error}",)
    if problems:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problems[0])


def _check_without_effect(name: str, text: str, for_all: bool) -> None:
    """Raise ConfigError for a key without effect in tidelog if Kafka would reject its value.

    A secret is rejected: Kafka stores secrets encrypted by password.encoder.secret, and rejects
    them without that key.
    """
    is_of_listener = name.startswith(LISTENER_KEY_PREFIX)
    base = name.split(".", 3)[-1] if is_of_listener else name
    declared = kafka_keys()
    secrets = (each for each, key in declared.items() if key.type is ConfigType.PASSWORD)
    if any(name.endswith(secret) for secret in secrets if declared[secret].changes):
        raise ConfigError(f"{name} is a secret, which is not stored: there is no password encoder")
    key = declared.get(base)
    if for_all and (is_of_listener or (key is not None and key.changes == "broker")):
        raise ConfigError(f"{name} is set for single brokers only: name the broker")
    if key is not None:
        try:
            key.check(text)
        except ValueError as error:
            raise ConfigError(f"{name}={text!r} is not valid: {error}") from error


def check_rates(settings: Mapping[str, str]) -> None:
    """Raise KafkaError(INVALID_REQUEST) unless the replication throttle's rates are valid (R15).

    If a request changes the settings of another broker, this broker checks only the rates. Whether
    other settings are valid depends on the other broker's static configuration.
    """
    declared = keys_of(BrokerConfig)
    for name in FOREIGN_RATES:
        if name in settings:
            try:
                read_value(name, declared[name][1], settings[name])
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _refusal(name: str) -> str:
    supported = supported_keys()
    if name in supported:
        return (
            f"{name} is read-only while the broker runs: set it in the broker's configuration and"
            " restart the broker"
        )
    key = kafka_keys().get(name)
    if key is not None and key.changes == "listener":
        return (
            f"{name} is set for single listeners only while brokers run:"
            f" {LISTENER_KEY_PREFIX}NAME.{name}; it has no effect here: {why(name)}"
        )
    if name in UNSUPPORTED_KEYS or name in REFUSED_KEYS:
        reason = why(name)
        return f"{name} is a key of Kafka that is not supported here" + (
            f": {reason}" if reason else ""
        )
    raise AssertionError(f"{name} is not known, so it is accepted")


# inheriting


def inherited_by_topic(broker: BrokerConfig) -> Inherited:
    """Return a function from topic key to inherited value, which is empty for an unknown key."""
    config = TopicConfig.of(broker, {})
    declared = keys_of(TopicConfig)
    return lambda name: to_text(getattr(config, declared[name][0])) if name in declared else ""


def inherited_by_broker(broker: BrokerConfig) -> Inherited:
    """Return a function from broker key to the static value, which is empty for an unknown key."""
    declared = keys_of(BrokerConfig)
    return lambda name: to_text(getattr(broker, declared[name][0])) if name in declared else ""
