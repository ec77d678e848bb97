"""The configuration of one broker, read from server.properties and checked.

`BrokerConfig` has the attributes of `broker_keys`. The constructor of `BrokerConfig` checks each
value, and the combination of values that depend on each other. An unsupported key of Kafka is named
in `warnings`, or refused if ignoring the key would be dangerous. This module reads no file
(`core.config_text` reads text) and looks up no host name.

Rules: F9 (`replica.fetch.wait.max.ms` must be less than `replica.lag.time.max.ms`; the session
timeout should be less, too), D1 (`log.dirs` is a list), V17 (`controller.propagation.linger.ms`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from tidelog.core.broker_keys import EMBEDDED, ZOOKEEPER, BrokerKeys
from tidelog.core.config_checks import check_together, refuse_nul
from tidelog.core.config_keys import Key, integer, keys_of, read_all, read_value
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.core.kafka_keys import LISTENER_KEY_PREFIX, REFUSED_KEYS, UNSUPPORTED_KEYS
from tidelog.core.listeners import Listeners, read_listeners
from tidelog.core.log_dirs import read_log_dirs
from tidelog.core.types import Endpoint

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BrokerKeys):
    """The whole configuration of a broker with checked values, made by `from_properties`."""

    #: Warnings for the operator about this configuration, one sentence each.
    warnings: tuple[str, ...] = field(default=(), compare=False)
    #: The keys that the configuration sets, with the texts of their values; defaults are not
    #: included.
    given: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        overrides: Mapping[str, str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """Return the checked configuration; `overrides` win over `environment`, and both win over
        `properties`.

        `environment` and `overrides` are already keyed by configuration key (`core.config_text`).
        Raises ConfigError for an unusable value; the message names the key, the value and the right
        form.
        """
        merged = {**properties, **(environment or {}), **(overrides or {})}
        refuse_nul(merged)
        _refuse_dangerous(merged)
        values = read_all(cls, merged)
        warnings = _unknown_keys(merged)
        if "broker_id" not in values:
            raise ConfigError("broker.id is not set: an integer of at least 0 expected")
        node_id = merged.get("node.id", "").strip()
        if node_id and read_value("node.id", _COARSE, node_id) != values["broker_id"]:
            raise ConfigError(
                f"node.id={node_id} and broker.id={values['broker_id']} name two numbers: one of"
                " the two, or the same number, expected"
            )
        values["log_dirs"] = read_log_dirs(merged)
        _fold_times(merged, values)
        _fold_connection_timeout(values)
        _choose_store(values, warnings)
        listening = read_listeners(merged)
        values.update(_listener_values(listening))
        warnings.extend(listening.warnings)
        config = cls(**values)
        check_together(config, warnings)
        return dataclasses.replace(config, warnings=tuple(warnings), given=merged)

    def with_dynamic(self, dynamic: Mapping[str, str]) -> BrokerConfig:
        """Return this configuration overridden by the store's dynamic settings (KIP-226).

        Raises ConfigError like `from_properties`. The result keeps `given` and `warnings`
        unchanged.
        """
        if not dynamic:
            return self
        made = BrokerConfig.from_properties(self.given, dynamic)
        return dataclasses.replace(made, warnings=self.warnings, given=self.given)

    def embedded_store_directory(self) -> str | None:
        """Return the directory of the embedded metadata store, or None if ZooKeeper is the store.

        Raises ConfigError when no store is configured.
        """
        if self.metadata_store.startswith(EMBEDDED):
            return self.metadata_store[len(EMBEDDED) :].strip()
        if self.metadata_store:
            return None
        raise ConfigError(
            "metadata.store is not set: embedded:DIRECTORY or"
            " zookeeper://host:port[,host:port][/chroot] expected"
        )

    @property
    def inter_broker_endpoint(self) -> Endpoint:
        """The advertised endpoint on which other brokers reach this broker."""
        for endpoint in self.advertised_listeners:
            if endpoint.listener == self.inter_broker_listener_name:
                return endpoint
        raise AssertionError("checked when the configuration was made")


#: The type of keys in hours and minutes: Kafka's INT.
_COARSE: Key = integer(0, "").metadata["key"]
#: Keys without an attribute of their own: they set another key's attribute, or `core.listeners`
#: reads them.
_FOLDED_KEYS = (
    "node.id",
    "log.dir",
    "log.dirs",
    "log.roll.hours",
    "log.roll.jitter.hours",
    "log.retention.minutes",
    "log.retention.hours",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "zookeeper.session.timeout.ms",
)


def folded_keys() -> tuple[str, ...]:
    """Return the supported keys without a `BrokerConfig` attribute of their own name."""
    return _FOLDED_KEYS


def supported_keys() -> tuple[str, ...]:
    """Return every key that has an effect, in the order of the reference."""
    return (*keys_of(BrokerConfig), *_FOLDED_KEYS)


def known_keys() -> tuple[str, ...]:
    """Return the names of all keys, supported or not, that environment variables may set."""
    return (*supported_keys(), *sorted(UNSUPPORTED_KEYS))


def _refuse_dangerous(properties: Mapping[str, str]) -> None:
    for key, (harmless, reason) in REFUSED_KEYS.items():
        value = properties.get(key, "").strip()
        if value.lower() not in harmless and value not in harmless:
            raise ConfigError(f"{key}={value!r} is refused: {reason}")


def _unknown_keys(properties: Mapping[str, str]) -> list[str]:
    supported = dict.fromkeys(supported_keys())
    declared = keys_of(BrokerConfig)
    warnings = []
    for key in sorted(properties):
        inert = key in declared and declared[key][1].without_effect
        if inert:
            warnings.append(f"{key} has no effect here: {inert}")
        if key in supported or (key in REFUSED_KEYS and key not in UNSUPPORTED_KEYS):
            continue
        if key in UNSUPPORTED_KEYS or key.startswith(LISTENER_KEY_PREFIX):
            warnings.append(f"{key} is a key of Kafka that is not supported here: it has no effect")
            continue
        import difflib  # `difflib` takes 150 KiB, and few brokers need it

        near = difflib.get_close_matches(key, supported, n=1, cutoff=0.8)
        hint = f"; did you mean {near[0]}?" if near else ""
        warnings.append(f"{key} is not a known key: it has no effect{hint}")
    return warnings


def _fold_times(properties: Mapping[str, str], values: dict[str, Any]) -> None:
    """Apply a key in a coarser unit where the key in the finer unit is absent, as in Kafka."""

    def whole(key: str) -> int:
        number: int = read_value(key, _COARSE, properties[key])
        return number

    for attribute, key in (("log_roll_ms", "log.roll"), ("log_roll_jitter_ms", "log.roll.jitter")):
        hours = f"{key}.hours"
        if attribute not in values and hours in properties:
            declared = keys_of(BrokerConfig)[f"{key}.ms"][1]
            values[attribute] = read_value(hours, declared, str(whole(hours) * _HOUR_MS))
    if "log_retention_ms" not in values:
        for key, unit_ms in (
            ("log.retention.minutes", _MINUTE_MS),
            ("log.retention.hours", _HOUR_MS),
        ):
            if key in properties:
                values["log_retention_ms"] = whole(key) * unit_ms
                break
    if values.get("log_retention_ms") == 0:
        raise ConfigError(
            "log.retention.ms=0 is not valid: at least 1, or -1 for no limit, expected"
        )
    if values.get("log_retention_ms", 0) < 0:
        values["log_retention_ms"] = -1


def _fold_connection_timeout(values: dict[str, Any]) -> None:
    """Set an absent ZooKeeper connection timeout to the session timeout, as in Kafka."""
    session_ms = values.get("metadata_session_timeout_ms")
    if session_ms is not None:
        values.setdefault("zookeeper_connection_timeout_ms", session_ms)


def _choose_store(values: dict[str, Any], warnings: list[str]) -> None:
    connect = values.get("zookeeper_connect", "")
    if not connect:
        return
    if values.get("metadata_store"):
        warnings.append("zookeeper.connect has no effect beside metadata.store")
    else:
        values["metadata_store"] = ZOOKEEPER + connect


def _listener_values(listening: Listeners) -> dict[str, Any]:
    return {
        "listeners": listening.listeners,
        "advertised_listeners": listening.advertised,
        "inter_broker_listener_name": listening.inter_broker_name,
    }
