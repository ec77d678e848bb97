"""What DescribeConfigs tells: values, where they come from, what lies below them."""

from __future__ import annotations

import pytest

from tidelog.core.config import BrokerConfig
from tidelog.core.config_entries import (
    ConfigEntry,
    ConfigSource,
    broker_entries,
    chosen,
    cluster_entries,
    topic_entries,
)
from tidelog.core.config_keys import ConfigType, keys_of
from tidelog.core.dynamic_config import DynamicConfigs, broker_config
from tidelog.core.topic_config import TopicConfig

NOTHING = DynamicConfigs()


def broker(**keys: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in keys.items()}
    return BrokerConfig.from_properties({"broker.id": "1", **given})


def of_topic(
    name: str,
    overrides: dict[str, str],
    static: BrokerConfig | None = None,
    dynamic: DynamicConfigs = NOTHING,
) -> ConfigEntry:
    static = static or broker()
    in_force, _ = broker_config(static, dynamic)
    [entry] = chosen(topic_entries(static, dynamic, in_force, overrides), [name])
    return entry


def of_broker(name: str, static: BrokerConfig, dynamic: DynamicConfigs = NOTHING) -> ConfigEntry:
    [entry] = chosen(broker_entries(static, dynamic), [name])
    return entry


def places(entry: ConfigEntry) -> list[tuple[str, str | None, str]]:
    return [(one.name, one.value, one.source.name) for one in entry.synonyms]


def test_a_topic_tells_every_key() -> None:
    static = broker()
    names = [entry.name for entry in topic_entries(static, NOTHING, static, {})]
    assert names == list(keys_of(TopicConfig))


def test_a_value_of_the_topic_hides_all_below() -> None:
    static = broker(message_max_bytes="1000")
    layers = DynamicConfigs({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    entry = of_topic("max.message.bytes", {"max.message.bytes": "4000"}, static, layers)
    assert (entry.value, entry.source) == ("4000", ConfigSource.DYNAMIC_TOPIC)
    assert places(entry) == [
        ("max.message.bytes", "4000", "DYNAMIC_TOPIC"),
        ("message.max.bytes", "3000", "DYNAMIC_BROKER"),
        ("message.max.bytes", "2000", "DYNAMIC_DEFAULT_BROKER"),
        ("message.max.bytes", "1000", "STATIC_BROKER"),
        ("message.max.bytes", "1048588", "DEFAULT"),
    ]


@pytest.mark.parametrize(
    ("static", "dynamic", "value", "source"),
    [
        (broker(), NOTHING, "1048588", "DEFAULT"),
        (broker(message_max_bytes="1000"), NOTHING, "1000", "STATIC_BROKER"),
        (broker(), DynamicConfigs({"message.max.bytes": "7"}), "7", "DYNAMIC_DEFAULT_BROKER"),
        (broker(), DynamicConfigs({}, {"message.max.bytes": "8"}), "8", "DYNAMIC_BROKER"),
    ],
)
def test_what_a_topic_does_not_say_comes_from_the_brokers(
    static: BrokerConfig, dynamic: DynamicConfigs, value: str, source: str
) -> None:
    entry = of_topic("max.message.bytes", {}, static, dynamic)
    assert (entry.value, entry.source.name) == (value, source)


def test_a_topic_key_without_a_broker_key_has_no_other_place() -> None:
    entry = of_topic("remote.storage.enable", {})
    assert (entry.value, entry.source, places(entry)) == ("false", ConfigSource.DEFAULT, [])
    name = "leader.replication.throttled.replicas"
    entry = of_topic(name, {name: "0:1"})
    assert places(entry) == [(name, "0:1", "DYNAMIC_TOPIC")]


def test_a_key_without_effect_says_so() -> None:
    entry = of_topic("preallocate", {"preallocate": "true"})
    assert entry.value == "true"
    assert entry.documentation.endswith("It has no effect here: files grow as they are written.")
    assert places(entry) == [
        ("preallocate", "true", "DYNAMIC_TOPIC"),
        ("log.preallocate", "false", "DEFAULT"),
    ]


def test_a_stored_key_that_is_not_known_is_listed_without_its_value() -> None:
    entry = of_topic("from.the.future", {"from.the.future": "secret"})
    assert (entry.value, entry.is_sensitive, entry.type) == (None, True, ConfigType.UNKNOWN)
    assert entry.source is ConfigSource.DYNAMIC_TOPIC


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("unclean.leader.election.enable", "false", ConfigType.BOOLEAN),
        ("retention.ms", "604800000", ConfigType.LONG),
        ("segment.bytes", "1073741824", ConfigType.INT),
        ("cleanup.policy", "delete", ConfigType.LIST),
        ("min.cleanable.dirty.ratio", "0.5", ConfigType.DOUBLE),
        ("compression.type", "producer", ConfigType.STRING),
        ("preallocate", "false", ConfigType.BOOLEAN),
        ("segment.jitter.ms", "0", ConfigType.LONG),
    ],
)
def test_values_are_texts_with_a_type(name: str, value: str, kind: ConfigType) -> None:
    entry = of_topic(name, {})
    assert (entry.value, entry.type) == (value, kind)
    assert entry.documentation


def test_a_list_is_a_comma_list() -> None:
    assert (
        of_topic("cleanup.policy", {"cleanup.policy": "compact, delete"}).value == "compact,delete"
    )


def test_a_stored_value_that_cannot_be_used_is_not_in_force() -> None:
    assert of_topic("retention.ms", {"retention.ms": "soon"}).value == "604800000"


def test_a_broker_tells_what_needs_a_restart() -> None:
    assert of_broker("num.partitions", broker()).is_read_only
    assert not of_broker("message.max.bytes", broker()).is_read_only


def test_coarser_keys_are_places_behind_the_finer_one_in_their_own_units() -> None:
    static = broker(log_retention_hours="2", log_retention_ms="5")
    assert places(of_broker("log.retention.ms", static)) == [
        ("log.retention.ms", "5", "STATIC_BROKER"),
        ("log.retention.hours", "2", "STATIC_BROKER"),
        ("log.retention.hours", "168", "DEFAULT"),
    ]


def test_a_coarser_key_alone_is_no_place_of_the_finer_one() -> None:
    """So Kafka answers: `retention.ms=7200000 synonyms={}`."""
    static = broker(log_retention_hours="2")
    for entry in (of_broker("log.retention.ms", static), of_topic("retention.ms", {}, static)):
        assert (entry.value, entry.source) == ("7200000", ConfigSource.DEFAULT)
        assert places(entry) == []
    assert of_topic("flush.ms", {}).synonyms == ()


def test_a_key_given_under_another_name_shows_that_name() -> None:
    entry = of_broker("broker.id", BrokerConfig.from_properties({"node.id": "7"}))
    assert (entry.value, places(entry)[0]) == ("7", ("node.id", "7", "STATIC_BROKER"))


def test_what_follows_from_another_key_is_not_called_a_default() -> None:
    entry = of_broker("metadata.store", broker(zookeeper_connect="localhost:2181"))
    assert (entry.value, entry.source) == ("zookeeper://localhost:2181", ConfigSource.STATIC_BROKER)


def test_places_of_logs_and_listeners_are_told() -> None:
    static = broker(log_dirs="/a,/b", listeners="PLAINTEXT://127.0.0.1:9000")
    assert of_broker("log.dirs", static).value == "/a,/b"
    assert of_broker("listeners", static).value == "PLAINTEXT://127.0.0.1:9000"
    assert of_broker("listeners", static).source is ConfigSource.STATIC_BROKER
    told = of_broker("advertised.listeners", static)
    assert (told.value, told.source) == ("PLAINTEXT://127.0.0.1:9000", ConfigSource.DEFAULT)
    assert told.is_read_only


def test_keys_without_effect_are_named_and_their_values_kept_back() -> None:
    static = broker(ssl_keystore_password="secret", log_retention_hours="2")
    entry = of_broker("ssl.keystore.password", static)
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert of_broker("log.retention.hours", static).value == "2"
    assert not [one for one in broker_entries(static, NOTHING) if one.value == "secret"]
    assert places(entry) == [("ssl.keystore.password", None, "STATIC_BROKER")]


def test_keys_of_kafka_without_effect_are_listed_with_their_defaults() -> None:
    entry = of_broker("num.io.threads", broker())
    assert (entry.value, entry.source, entry.is_read_only) == ("8", ConfigSource.DEFAULT, False)
    assert "It has no effect here: a broker is one loop" in entry.documentation
    assert of_broker("sasl.server.callback.handler.class", broker()).is_read_only
    assert of_broker("node.id", broker()).value == "1"
    names = [one.name for one in broker_entries(broker(), NOTHING)]
    assert "unstable.api.versions.enable" not in names
    static = broker(unstable_api_versions_enable="true")
    assert of_broker("unstable.api.versions.enable", static).value == "true"


def test_every_name_is_told_once() -> None:
    names = [entry.name for entry in broker_entries(broker(log_dir="/a", node_id="1"), NOTHING)]
    assert names == sorted(dict.fromkeys(names))


def test_the_defaults_of_all_brokers_tell_what_is_set_and_nothing_else() -> None:
    layers = DynamicConfigs(
        {"log.retention.ms": "5", "num.io.threads": "9", "own.key": "x"}, {"max.connections": "3"}
    )
    entries = cluster_entries(layers)
    assert [(one.name, one.value, one.source.name) for one in entries] == [
        ("log.retention.ms", "5", "DYNAMIC_DEFAULT_BROKER"),
        ("num.io.threads", "9", "DYNAMIC_DEFAULT_BROKER"),
        ("own.key", None, "DYNAMIC_DEFAULT_BROKER"),
    ]
    assert [one.type for one in entries] == [ConfigType.LONG, ConfigType.INT, ConfigType.UNKNOWN]
    assert "no effect here: a broker is one loop" in entries[1].documentation


def test_a_broker_lists_what_is_set_for_it_without_effect() -> None:
    layers = DynamicConfigs({"own.key": "1"}, {"leader.replication.throttled.rate": "1000"})
    throttle = of_broker("leader.replication.throttled.rate", broker(), layers)
    assert (throttle.value, throttle.source.name) == ("1000", "DYNAMIC_BROKER")
    assert not throttle.is_read_only
    unknown = of_broker("own.key", broker(), layers)
    assert (unknown.value, unknown.is_sensitive) == (None, True)
    assert places(unknown) == [("own.key", None, "DYNAMIC_DEFAULT_BROKER")]


def test_all_are_chosen_unless_names_are_given() -> None:
    entries = broker_entries(broker(), NOTHING)
    assert chosen(entries, None) == entries
    assert chosen(entries, []) == entries
    assert [one.name for one in chosen(entries, ["rack", "broker.rack"])] == ["broker.rack"]


def test_entries_come_in_the_order_asked_for_each_once() -> None:
    wanted = ["segment.ms", "cleanup.policy", "segment.ms", "retention.ms"]
    found = chosen(topic_entries(broker(), NOTHING, broker(), {}), wanted)
    assert [one.name for one in found] == ["segment.ms", "cleanup.policy", "retention.ms"]
