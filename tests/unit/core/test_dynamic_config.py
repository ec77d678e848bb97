"""Settings that change while brokers run: operations, what may be set, what is in force."""

from __future__ import annotations

import pytest

from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import Key, keys_of
from tidelog.core.dynamic_config import (
    Alteration,
    ConfigOperation,
    DynamicConfigs,
    altered,
    broker_config,
    check_broker,
    check_topic,
    dynamic_keys,
    inherited_by_broker,
    inherited_by_topic,
    replacing,
)
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.topic_config import TopicConfig

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def broker(**keys: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in keys.items()}
    return BrokerConfig.from_properties({"broker.id": "1", **given})


def topic_keys() -> dict[str, Key]:
    return {name: key for name, (_, key, _) in keys_of(TopicConfig).items()}


def alter(
    current: dict[str, str],
    *alterations: tuple[str, int, str | None],
    of: BrokerConfig | None = None,
) -> dict[str, str]:
    wanted = [Alteration(*one) for one in alterations]
    return altered(current, wanted, topic_keys(), inherited_by_topic(of or broker()))


def refused(code: ErrorCode, *alterations: tuple[str, int, str | None]) -> str:
    with pytest.raises(KafkaError) as caught:
        alter({}, *alterations)
    assert caught.value.code is code
    return caught.value.message


class TestOperations:
    def test_setting_adds_or_replaces_and_leaves_the_rest(self) -> None:
        before = {"retention.ms": "1", "segment.ms": "2"}
        after = alter(before, ("retention.ms", SET, " 5 "), ("flush.ms", SET, "7"))
        assert after == {"retention.ms": "5", "segment.ms": "2", "flush.ms": "7"}
        assert before == {"retention.ms": "1", "segment.ms": "2"}

    def test_deleting_unsets_what_is_set_and_minds_nothing_else(self) -> None:
        assert alter({"retention.ms": "1"}, ("retention.ms", DELETE, None)) == {}
        assert alter({"flush.ms": "1"}, ("retention.ms", DELETE, None)) == {"flush.ms": "1"}

    def test_appending_starts_from_what_is_set(self) -> None:
        after = alter({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "delete"))
        assert after == {"cleanup.policy": "compact,delete"}

    def test_appending_starts_from_what_is_inherited_where_nothing_is_set(self) -> None:
        compacting = broker(log_cleanup_policy="compact")
        after = alter({}, ("cleanup.policy", APPEND, "delete"), of=compacting)
        assert after == {"cleanup.policy": "compact,delete"}

    def test_appending_what_is_there_changes_nothing(self) -> None:
        once = alter({}, ("cleanup.policy", APPEND, "compact"))
        assert alter(once, ("cleanup.policy", APPEND, "compact")) == once

    def test_subtracting_takes_elements_away(self) -> None:
        both = {"cleanup.policy": "delete,compact"}
        assert alter(both, ("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": "compact"}

    @pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
    def test_only_lists_grow_and_shrink(self, operation: ConfigOperation) -> None:
        message = refused(ErrorCode.INVALID_CONFIG, ("retention.ms", operation, "5"))
        assert "retention.ms='5'" in message and "no list" in message

    def test_a_key_that_is_not_known_is_no_list(self) -> None:
        assert "nonsense" in refused(ErrorCode.INVALID_CONFIG, ("nonsense", APPEND, "a"))

    def test_a_key_named_twice_is_refused(self) -> None:
        message = refused(
            ErrorCode.INVALID_REQUEST, ("flush.ms", SET, "1"), ("flush.ms", DELETE, None)
        )
        assert "flush.ms" in message

    def test_an_unknown_operation_is_refused(self) -> None:
        assert "operation 9" in refused(ErrorCode.INVALID_REQUEST, ("flush.ms", 9, "1"))

    @pytest.mark.parametrize("operation", [SET, APPEND, SUBTRACT])
    def test_a_missing_value_is_refused(self, operation: ConfigOperation) -> None:
        assert "null" in refused(ErrorCode.INVALID_REQUEST, ("cleanup.policy", operation, None))

    def test_replacing_unsets_what_is_not_named(self) -> None:
        wanted = [Alteration("flush.ms", SET, "1")]
        assert replacing({"flush.ms": "9", "retention.ms": "2"}, wanted) == [
            *wanted,
            Alteration("retention.ms", DELETE, None),
        ]


class TestTopics:
    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("retention.ms", "soon", "an integer of at least -1 expected"),
            ("retention.mz", "1", "did you mean retention.ms?"),
            ("compression.type", "squash", "is not valid"),
            ("cleanup.policy", "delete,", "a comma list of delete, compact expected"),
            ("compression.lz4.level", "18", "an integer from 1 to 17 expected"),
            ("remote.storage.enable", "true", "false expected"),
        ],
    )
    def test_what_cannot_be_set_says_why(self, name: str, value: str, expected: str) -> None:
        with pytest.raises(KafkaError) as caught:
            check_topic(broker(), {}, {name: value})
        assert caught.value.code is ErrorCode.INVALID_CONFIG
        assert name in caught.value.message and expected in caught.value.message

    def test_what_somebody_else_stored_does_not_stand_in_the_way(self) -> None:
        stored = {"nonsense": "1", "retention.ms": "soon"}
        check_topic(broker(), stored, {**stored, "flush.ms": "1"})

    def test_settings_are_judged_together(self) -> None:
        stored = {"max.compaction.lag.ms": "5"}
        with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms=6 must not be more"):
            check_topic(broker(), stored, {**stored, "min.compaction.lag.ms": "6"})

    def test_settings_are_judged_with_what_the_broker_has(self) -> None:
        given = broker(log_cleaner_max_compaction_lag_ms="5")
        with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms=6 must not be more"):
            check_topic(given, {}, {"min.compaction.lag.ms": "6"})


class TestBrokers:
    def test_defaults_of_topics_are_dynamic(self) -> None:
        assert {"message.max.bytes", "log.retention.ms", "min.insync.replicas"} <= set(
            dynamic_keys()
        )
        check_broker(broker(), {}, {"message.max.bytes": "5000", "log.cleanup.policy": "compact"})

    def test_events_of_the_cluster_may_be_asked_for_while_it_runs(self) -> None:
        check_broker(broker(), {}, {"cluster.events.enable": "true"})

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("broker.id", "read-only while the broker runs"),
            ("num.replica.fetchers", "restart the broker"),
            ("log.dirs", "read-only while the broker runs"),
            ("num.io.threads", "num.io.threads='0' is not valid: a number of at least 1"),
            ("log.message.format.version", "read-only while the broker runs"),
            ("inter.broker.protocol.version", "read-only while the broker runs"),
            ("sasl.server.callback.handler.class", "not supported here"),
            ("ssl.keystore.location", "listener.name.NAME.ssl.keystore.location"),
            ("listener.name.internal.ssl.keystore.password", "there is no password encoder"),
            ("listener.name.a.plain.sasl.jaas.config", "there is no password encoder"),
            ("listener.name.internal.ssl.client.auth", "required or requested or none expected"),
        ],
    )
    def test_other_keys_are_refused_by_name(self, name: str, expected: str) -> None:
        with pytest.raises(KafkaError) as caught:
            check_broker(broker(), {}, {name: "0"})
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert name in caught.value.message and expected in caught.value.message

    @pytest.mark.parametrize(
        ("name", "value", "why"),
        [
            ("nonsense", "1", "the key is not known"),
            ("log.retention.mz", "x", "the key is not known"),
            ("num.io.threads", "16", "a broker is one loop"),
            ("max.connections.per.ip", "1000", "max.connections alone"),
            ("metric.reporters", "org.example.Reporter", "Java classes"),
            ("principal.builder.class", "org.example.Builder", "plain text"),
            ("sasl.enabled.mechanisms", "PLAIN", "plain text"),
            ("listener.name.a.ssl.keystore.location", "/k", "plain text"),
            ("listener.name.a.ssl.client.auth", "required", "plain text"),
        ],
    )
    def test_a_key_without_effect_is_taken_and_named(self, name: str, value: str, why: str) -> None:
        check_broker(broker(), {}, {name: value})
        config, problems = broker_config(broker(), DynamicConfigs(cluster={name: value}))
        assert config == broker()
        [problem] = problems
        assert problem.startswith(f"{name} has no effect here: ") and why in problem

    @pytest.mark.parametrize(
        "name", ["sasl.enabled.mechanisms", "listener.name.a.ssl.keystore.type"]
    )
    def test_keys_of_single_brokers_are_not_set_for_all(self, name: str) -> None:
        check_broker(broker(), {}, {name: "x"})
        with pytest.raises(KafkaError, match="for single brokers only"):
            check_broker(broker(), {}, {name: "x"}, for_all=True)

    def test_a_bad_value_says_what_would_be_right(self) -> None:
        with pytest.raises(KafkaError, match="message.max.bytes='big' is not valid: an integer"):
            check_broker(broker(), {}, {"message.max.bytes": "big"})

    def test_what_somebody_else_stored_does_not_stand_in_the_way(self) -> None:
        stored = {"num.io.threads": "9", "message.max.bytes": "7000"}
        check_broker(broker(), stored, {**stored, "log.retention.ms": "5"})
        check_broker(broker(), stored, {})

    def test_lists_grow_from_what_the_broker_was_started_with(self) -> None:
        given = broker(log_cleanup_policy="compact")
        assert inherited_by_broker(given)("log.cleanup.policy") == "compact"
        assert inherited_by_broker(given)("nonsense") == ""

    def test_a_broker_of_its_own_comes_before_all_brokers(self) -> None:
        static = broker(message_max_bytes="1000", log_retention_ms="10")
        layers = DynamicConfigs(
            cluster={"message.max.bytes": "2000", "log.retention.ms": "20"},
            own={"message.max.bytes": "3000"},
        )
        config, problems = broker_config(static, layers)
        assert (config.message_max_bytes, config.log_retention_ms) == (3000, 20)
        assert problems == ()
        assert config.given == static.given

    def test_a_finer_key_comes_before_a_coarser_one_that_was_given(self) -> None:
        static = broker(log_retention_hours="2")
        config, _ = broker_config(static, DynamicConfigs(own={"log.retention.ms": "5"}))
        assert (static.log_retention_ms, config.log_retention_ms) == (7_200_000, 5)

    def test_a_stored_setting_that_cannot_be_used_leaves_what_lies_below(self) -> None:
        layers = DynamicConfigs(
            cluster={"message.max.bytes": "2000", "broker.id": "9"},
            own={"message.max.bytes": "big", "log.retention.ms": "5"},
        )
        config, problems = broker_config(broker(), layers)
        assert (config.message_max_bytes, config.log_retention_ms) == (2000, 5)
        assert config.broker_id == 1
        assert [problem.split()[0] for problem in problems] == [
            "broker.id",
            "message.max.bytes='big'",
        ]

    def test_without_settings_nothing_is_made_anew(self) -> None:
        static = broker()
        assert broker_config(static, DynamicConfigs())[0] is static
