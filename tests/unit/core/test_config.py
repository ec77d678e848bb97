"""What a broker's configuration accepts, refuses and warns about (rules F9, D1)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.config import BrokerConfig, known_keys, supported_keys
from tidelog.core.config_text import (
    decode_properties,
    environment_name,
    from_environment,
    parse_overrides,
    parse_properties,
    parse_toml,
)
from tidelog.core.errors import ConfigError
from tidelog.core.kafka_keys import REFUSED_KEYS, UNSUPPORTED_KEYS
from tidelog.core.receive_budget import budget_bytes
from tidelog.core.types import Endpoint

KAFKA_SERVER_PROPERTIES = """
# A comment
! Another one
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/data/a, /data/b/
num.partitions=1
offsets.topic.replication.factor=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def config(**properties: str) -> BrokerConfig:
    """A configuration of broker 1 with some keys (underscores for dots)."""
    given_keys = {key.replace("_", "."): value for key, value in properties.items()}
    return BrokerConfig.from_properties({"broker.id": "1", **given_keys})


def refusal(**properties: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**properties)
    return str(caught.value)


class TestFromProperties:
    def test_the_file_that_comes_with_kafka_is_read_as_it_is(self) -> None:
        read = BrokerConfig.from_properties(parse_properties(KAFKA_SERVER_PROPERTIES))
        assert read.broker_id == 0
        assert read.log_dirs == ("/data/a", "/data/b")
        assert read.log_retention_ms == 168 * 3_600_000
        assert read.metadata_store == "zookeeper://localhost:2181"

    def test_numbers_are_those_of_java(self) -> None:
        assert config(num_partitions="\u0661\u0662").num_partitions == 12
        for text, value in (("0x1p-1", 0.5), (".5d", 0.5), ("1E0F", 1.0), ("+0.25", 0.25)):
            ratio = config(log_cleaner_min_cleanable_ratio=text).log_cleaner_min_cleanable_ratio
            assert ratio == value
        for text in ("inf", "1_0", "0x1", "nan", "0,5", "Infinityd"):
            assert "is not valid" in refusal(log_cleaner_io_max_bytes_per_second=text)
        read = config(log_cleaner_io_max_bytes_per_second="Infinity")
        assert read.log_cleaner_io_max_bytes_per_second == float("inf")
        assert config(log_cleaner_io_max_bytes_per_second="0x1p99999").log_cleaner_enable

    def test_values_are_trimmed_as_java_does(self) -> None:
        assert config(broker_rack="\x01 \u00a0a\u0085\t").broker_rack == "\u00a0a\u0085"

    def test_hours_are_of_32_bits(self) -> None:
        assert "log.retention.hours" in refusal(log_retention_hours="3000000000")
        assert "log.roll.hours" in refusal(log_roll_hours="0")
        assert config(log_roll_hours="2", log_roll_jitter_hours="1").log_roll_ms == 7_200_000

    def test_two_numbers_of_one_broker_are_refused(self) -> None:
        assert "name two numbers" in refusal(node_id="2")
        assert config(node_id="1").broker_id == 1

    def test_a_negative_idle_time_is_never(self) -> None:
        assert config(connections_max_idle_ms="-2").connections_max_idle_ms == -2

    def test_configuration_providers_are_refused(self) -> None:
        assert "providers are Java classes" in refusal(config_providers="file")
        assert config(config_providers="").broker_id == 1

    def test_known_but_unsupported_keys_are_named(self) -> None:
        read = BrokerConfig.from_properties(parse_properties(KAFKA_SERVER_PROPERTIES))
        named = [line.split(" ")[0] for line in read.warnings if "not supported here" in line]
        assert named == [
            "num.io.threads",
            "num.network.threads",
            "socket.send.buffer.bytes",
        ]

    def test_an_unknown_key_is_warned_about_with_the_one_that_was_meant(self) -> None:
        read = config(num_partitons="3")
        assert (
            "num.partitons is not a known key: it has no effect; did you mean num.partitions?"
            in (read.warnings)
        )
        assert read.num_partitions == 1

    def test_broker_id_is_needed(self) -> None:
        with pytest.raises(ConfigError, match=r"broker\.id is not set"):
            BrokerConfig.from_properties({})

    def test_node_id_is_the_same_as_broker_id(self) -> None:
        assert BrokerConfig.from_properties({"node.id": "4"}).broker_id == 4

    def test_overrides_win_over_the_environment_and_that_over_the_file(self) -> None:
        read = BrokerConfig.from_properties(
            {"broker.id": "1", "num.partitions": "2", "fetch.max.bytes": "2048"},
            {"num.partitions": "4"},
            environment={"num.partitions": "3", "fetch.max.bytes": "4096"},
        )
        assert read.num_partitions == 4
        assert read.fetch_max_bytes == 4096

    def test_defaults_are_kafkas(self) -> None:
        read = config()
        assert read.log_segment_bytes == 1024**3
        assert read.replica_lag_time_max_ms == 30_000
        assert read.message_max_bytes == 1_048_588
        assert read.log_retention_ms == 7 * 24 * 3_600_000
        assert read.metadata_session_timeout_ms == 18_000
        assert read.log_dirs == ("/tmp/kafka-logs",)

    @pytest.mark.parametrize(
        ("key", "value", "right"),
        [
            ("broker.id", "-1", "an integer of at least 0"),
            ("num.partitions", "0", "an integer of at least 1"),
            ("num.partitions", "2147483648", "an integer of at least 1"),
            ("num.partitions", "many", "an integer of at least 1"),
            ("num.partitions", "1_0", "an integer of at least 1"),
            ("num.partitions", "", "an integer of at least 1"),
            ("auto.create.topics.enable", "yes", "true or false"),
            ("log.message.timestamp.type", "createtime", "CreateTime or LogAppendTime"),
            ("log.cleanup.policy", "shred", "a comma list of delete, compact"),
            ("default.replication.factor", "0", "an integer of at least 1"),
            ("metadata.store", "/somewhere", "or zookeeper://host:port[,host:port][/chroot]"),
            ("compression.type", "brotli", "snappy or lz4 or zstd"),
            ("compression.gzip.level", "0", "an integer from 1 to 9, or -1"),
            ("log.retention.hours", "soon", "is not valid: an integer"),
            ("log.retention.bytes", "9223372036854775808", "is not valid: an integer"),
        ],
    )
    def test_a_bad_value_is_refused_with_key_value_and_what_is_right(
        self, key: str, value: str, right: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            BrokerConfig.from_properties({"broker.id": "1", key: value})
        assert f"{key}={value!r}" in str(caught.value)
        assert f"{right} expected" in str(caught.value)

    def test_every_supported_key_says_what_it_means(self) -> None:
        for field in dataclasses.fields(BrokerConfig):
            if "key" in field.metadata:
                assert field.metadata["key"].meaning.endswith(".")

    def test_a_key_is_supported_or_named_as_unsupported_never_both(self) -> None:
        assert [key for key in supported_keys() if key in UNSUPPORTED_KEYS] == []
        assert len(known_keys()) == len(dict.fromkeys(known_keys()))

    @pytest.mark.parametrize("key", sorted(REFUSED_KEYS))
    def test_what_would_open_the_cluster_is_refused(self, key: str) -> None:
        with pytest.raises(ConfigError, match="is refused"):
            BrokerConfig.from_properties({"broker.id": "1", key: "kafka.security.Something"})

    @pytest.mark.parametrize("key", sorted(REFUSED_KEYS))
    def test_harmless_values_of_refused_keys_pass(self, key: str) -> None:
        for value in REFUSED_KEYS[key][0]:
            read = BrokerConfig.from_properties({"broker.id": "1", key: value})
            assert not any("is refused" in warning for warning in read.warnings)


class TestWhatBelongsTogether:
    @pytest.mark.rule("F9")
    @pytest.mark.parametrize("wait_ms", ["30000", "30001"])
    def test_a_fetch_may_not_wait_as_long_as_the_lag_limit(self, wait_ms: str) -> None:
        message = refusal(replica_fetch_wait_max_ms=wait_ms, replica_lag_time_max_ms="30000")
        assert f"replica.fetch.wait.max.ms={wait_ms} must be less than" in message
        assert "replica.lag.time.max.ms=30000" in message

    @pytest.mark.rule("F9")
    def test_a_fetch_may_wait_just_less_than_the_lag_limit(self) -> None:
        read = config(replica_fetch_wait_max_ms="29999")
        assert read.replica_fetch_wait_max_ms == 29_999

    @pytest.mark.rule("F9")
    @pytest.mark.parametrize(("session_ms", "warned"), [("30000", True), ("29999", False)])
    def test_a_session_timeout_at_the_lag_limit_is_warned_about(
        self, session_ms: str, warned: bool
    ) -> None:
        read = config(metadata_session_timeout_ms=session_ms)
        assert any("metadata.session.timeout.ms=" in line for line in read.warnings) is warned

    def test_a_fetch_may_not_wait_longer_than_its_socket(self) -> None:
        assert "replica.socket.timeout.ms=100 must be at least" in refusal(
            replica_socket_timeout_ms="100"
        )

    def test_a_minimum_above_the_replication_factor_is_warned_about(self) -> None:
        read = config(min_insync_replicas="2")
        assert any("min.insync.replicas=2 is more than" in line for line in read.warnings)

    def test_a_message_limit_above_the_request_limit_is_warned_about(self) -> None:
        read = config(message_max_bytes="1000", socket_request_max_bytes="999")
        assert any("can never be reached" in line for line in read.warnings)


class TestLogDirectories:
    @pytest.mark.rule("D1")
    def test_log_dirs_is_a_list(self) -> None:
        assert config(log_dirs="/a,/b , /c/").log_dirs == ("/a", "/b", "/c")

    def test_log_dir_counts_where_log_dirs_is_absent_or_empty(self) -> None:
        assert config(log_dir="/x").log_dirs == ("/x",)
        assert config(log_dir="/x", log_dirs="").log_dirs == ("/x",)
        assert config(log_dir="/x", log_dirs="/y").log_dirs == ("/y",)

    def test_no_directory_is_refused(self) -> None:
        assert "names no directory" in refusal(log_dirs=" , ")

    def test_the_same_directory_twice_is_refused(self) -> None:
        assert "twice" in refusal(log_dirs="/a,/a/")
        assert "twice: /a and /b/../a" in refusal(log_dirs="/a,/b/../a")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("/a,/a/b", "/a/b lies inside /a"),
            ("/x/y/../z/d,/x/z", "/x/y/../z/d lies inside /x/z"),
            ("/a,/", "/a lies inside /"),
            ("b/c,b", "b/c lies inside b"),
        ],
    )
    def test_a_directory_inside_another_is_refused(self, text: str, problem: str) -> None:
        assert problem in refusal(log_dirs=text)

    def test_directories_side_by_side_are_apart(self) -> None:
        assert config(log_dirs="/a,/ab,/a-b").log_dirs == ("/a", "/ab", "/a-b")


class TestTimes:
    def test_the_finest_key_counts(self) -> None:
        keys = {
            "log_retention_ms": "5",
            "log_retention_minutes": "1",
            "log_retention_hours": "1",
        }
        assert config(**keys).log_retention_ms == 5
        del keys["log_retention_ms"]
        assert config(**keys).log_retention_ms == 60_000
        del keys["log_retention_minutes"]
        assert config(**keys).log_retention_ms == 3_600_000

    @pytest.mark.parametrize(
        "key", ["log_retention_ms", "log_retention_minutes", "log_retention_hours"]
    )
    def test_negative_retention_means_for_ever(self, key: str) -> None:
        assert config(**{key: "-1"}).log_retention_ms == -1

    def test_no_retention_at_all_is_refused(self) -> None:
        assert "at least 1, or -1 for no limit" in refusal(log_retention_ms="0")

    def test_roll_hours(self) -> None:
        assert config(log_roll_hours="2").log_roll_ms == 7_200_000
        assert config(log_roll_hours="2", log_roll_ms="3").log_roll_ms == 3
        assert "log.roll.hours='0'" in refusal(log_roll_hours="0")


class TestMetadataStore:
    def test_an_embedded_store_has_a_directory(self) -> None:
        assert config(metadata_store="embedded:/data/store").embedded_store_directory() == (
            "/data/store"
        )

    def test_no_store_is_refused_where_one_is_needed(self) -> None:
        with pytest.raises(ConfigError, match=r"metadata\.store is not set"):
            config().embedded_store_directory()

    def test_metadata_in_zookeeper_has_no_directory(self) -> None:
        assert config(zookeeper_connect="a:2181,b:2181/c").embedded_store_directory() is None
        read = config(metadata_store="zookeeper://a:2181/c")
        assert (read.embedded_store_directory(), read.metadata_store) == (
            None,
            "zookeeper://a:2181/c",
        )

    def test_a_store_of_ours_wins_over_zookeeper_connect(self) -> None:
        read = config(zookeeper_connect="a:2181", metadata_store="embedded:/d")
        assert read.metadata_store == "embedded:/d"
        assert "zookeeper.connect has no effect beside metadata.store" in read.warnings

    def test_zookeepers_session_timeout_is_a_synonym(self) -> None:
        assert config(zookeeper_session_timeout_ms="7000").metadata_session_timeout_ms == 7000


class TestReceiveBudget:
    def test_it_has_a_limit_by_default_with_room_for_the_largest_request(self) -> None:
        assert budget_bytes(config()) == 256 * 1024 * 1024
        assert budget_bytes(config(socket_request_max_bytes="500000000")) == 500_000_000
        assert budget_bytes(config(queued_max_request_bytes="-1")) is None
        given = {"queued_max_request_bytes": "2000", "socket_request_max_bytes": "1000"}
        assert budget_bytes(config(**given)) == 2000

    def test_one_without_room_for_the_largest_request_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"must be at least socket\.request\.max\.bytes"):
            config(queued_max_request_bytes="1000")


class TestListeners:
    def test_a_listener_that_is_not_advertised_is_named(self) -> None:
        read = config(
            listeners="A://h:1,B://h:2",
            advertised_listeners="A://h:1",
            listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
            inter_broker_listener_name="A",
        )
        assert any("listener B is not among advertised.listeners" in one for one in read.warnings)

    def test_the_default_is_advertised_on_loopback_with_a_warning(self) -> None:
        read = config()
        assert read.listeners == (Endpoint("PLAINTEXT", "", 9092),)
        assert read.inter_broker_endpoint == Endpoint("PLAINTEXT", "127.0.0.1", 9092)
        assert any("only this machine can reach" in line for line in read.warnings)

    def test_several_listeners_with_one_for_brokers(self) -> None:
        read = config(
            listeners="INTERNAL://10.0.0.1:9092,external://:9093",
            advertised_listeners="INTERNAL://10.0.0.1:9092,EXTERNAL://[2001:db8::1]:19093",
            listener_security_protocol_map="INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
            inter_broker_listener_name="INTERNAL",
        )
        assert read.listeners[1] == Endpoint("EXTERNAL", "", 9093)
        assert read.advertised_listeners[1] == Endpoint("EXTERNAL", "2001:db8::1", 19093)
        assert read.inter_broker_endpoint.host == "10.0.0.1"
        assert read.warnings == ()

    def test_two_listeners_share_a_port_with_addresses_of_both_kinds(self) -> None:
        read = config(
            listeners="PLAINTEXT://127.0.0.1:9092,SIX://[::1]:9092",
            listener_security_protocol_map="SIX:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        )
        assert [endpoint.port for endpoint in read.listeners] == [9092, 9092]

    @pytest.mark.parametrize("key", ["listeners", "advertised_listeners"])
    @pytest.mark.parametrize(("host", "advertised"), [("", "127.0.0.1"), ("[::]", "::1")])
    def test_every_address_is_advertised_as_this_machine(
        self, key: str, host: str, advertised: str
    ) -> None:
        read = config(**{key: f"PLAINTEXT://{host}:9092"})
        assert read.inter_broker_endpoint.host == advertised
        assert any("only this machine can reach" in line for line in read.warnings)

    def test_of_a_repeated_name_in_the_map_the_last_one_counts(self) -> None:
        mapping = "PLAINTEXT:SSL,PLAINTEXT:PLAINTEXT"
        assert config(listener_security_protocol_map=mapping).listeners[0].port == 9092

    def test_the_only_listener_serves_brokers_too(self) -> None:
        read = config(
            listeners="LOCAL://127.0.0.1:0", listener_security_protocol_map="LOCAL:PLAINTEXT"
        )
        assert read.inter_broker_listener_name == "LOCAL"

    @pytest.mark.parametrize(
        ("properties", "reason"),
        [
            ({"listeners": "localhost:9092"}, "NAME://HOST:PORT expected"),
            ({"listeners": "PLAINTEXT://h:65536"}, "ports from 0 to 65535"),
            ({"listeners": ""}, "names no listener"),
            ({"listeners": "SSL://:9093"}, "asks for SSL, which is not supported yet"),
            ({"listeners": "FOO://:1"}, "no entry in listener.security.protocol.map"),
            ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "names listener PLAINTEXT twice"),
            ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "set advertised.listeners"),
            (
                {
                    "listeners": "A://h:1,B://h:1",
                    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                },
                "each listener needs a port of its own",
            ),
            ({"listener.security.protocol.map": "A=PLAINTEXT"}, "NAME:PROTOCOL expected"),
            ({"listener.security.protocol.map": "A:TCP"}, "NAME:PROTOCOL expected"),
            (
                {
                    "listeners": "A://[::1]:1,B://[::]:1",
                    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                },
                "one of two an IPv4 address and the other an IPv6 address",
            ),
            ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "a host that clients can"),
            ({"advertised.listeners": "SSL://h:1"}, "not supported yet"),
            (
                {
                    "advertised.listeners": "B://h:1",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
                },
                "B is not among listeners",
            ),
            ({"inter.broker.listener.name": "OTHER"}, "not among the advertised listeners"),
            ({"security.inter.broker.protocol": "SSL"}, "not supported yet"),
            (
                {
                    "inter.broker.listener.name": "PLAINTEXT",
                    "security.inter.broker.protocol": "PLAINTEXT",
                },
                "only one of the two may be set",
            ),
            (
                {
                    "listeners": "A://h:1,B://h:2",
                    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                },
                "inter.broker.listener.name=PLAINTEXT is not among",
            ),
        ],
    )
    def test_what_cannot_be_served_is_refused(
        self, properties: dict[str, str], reason: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            BrokerConfig.from_properties({"broker.id": "1", **properties})
        assert reason in str(caught.value)


class TestPropertiesText:
    def test_separators_comments_and_blanks(self) -> None:
        text = "a=1\nb: 2\nc 3\n  d\t=\t4\n# e=5\n!f=6\n\ng\nh=\ni = x = y \n"
        assert parse_properties(text) == {
            "a": "1",
            "b": "2",
            "c": "3",
            "d": "4",
            "g": "",
            "h": "",
            "i": "x = y ",
        }

    def test_lines_continue_after_an_odd_number_of_backslashes(self) -> None:
        assert parse_properties("a=1,\\\n   2,\\\n 3\nb=c\\\\\nd=e") == {
            "a": "1,2,3",
            "b": "c\\",
            "d": "e",
        }
        assert parse_properties("a=1\\") == {"a": "1"}

    def test_a_comment_does_not_interrupt_a_continued_line(self) -> None:
        assert parse_properties("a=1,\\\n#2") == {"a": "1,#2"}

    def test_escapes(self) -> None:
        assert parse_properties("a\\ b\\=\\:=\\t\\u00e9\\q\\\\") == {"a b=:": "\té" + "q\\"}

    def test_two_escapes_are_one_character_of_utf_16(self) -> None:
        assert parse_properties(r"a=\uD83D\uDE00\uD83D") == {"a": "\N{GRINNING FACE}\ufffd"}

    def test_no_other_character_ends_a_line(self) -> None:
        ends = "\v\x1c\x85\u2028"
        assert parse_properties(f"a={ends}b\rc=1\r\nd=2") == {"a": f"{ends}b", "c": "1", "d": "2"}

    def test_a_backslash_at_the_end_of_the_file_is_a_line(self) -> None:
        assert parse_properties("a=1\n\\") == {"a": "1", "": ""}
        assert parse_properties("\\\n# no comment ends it\nb=2") == {"b": "2"}

    def test_a_file_is_utf_8_or_else_latin_1(self) -> None:
        assert decode_properties("a=\u00fc\u20ac".encode()) == "a=\u00fc\u20ac"
        assert decode_properties("a=\u00fc".encode("latin-1")) == "a=\u00fc"
        assert decode_properties(b"\xef\xbb\xbfa=1") == "a=1"

    def test_a_malformed_escape_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"line 3: .*four hex digits"):
            parse_properties("b=1\nc=1,\\\na=\\u12g4")

    @pytest.mark.parametrize("key", ["log.dirs", "log.dir", "metadata.store", "listeners"])
    def test_a_nul_character_is_refused_before_the_system_sees_it(self, key: str) -> None:
        with pytest.raises(ConfigError, match=rf"{key}='embedded:a\\x00b' has a NUL character"):
            BrokerConfig.from_properties(
                {"broker.id": "1", **parse_properties(f"{key}=embedded:a\\u0000b")}
            )

    def test_text_that_no_system_call_takes_may_have_a_nul_character(self) -> None:
        config = BrokerConfig.from_properties({"broker.id": "1", "broker.rack": "a\0b"})
        assert config.broker_rack == "a\0b"

    def test_the_last_of_a_repeated_key_counts(self) -> None:
        assert parse_properties("a=1\na=2") == {"a": "2"}

    @given(
        st.dictionaries(
            st.text(st.characters(categories=["L", "N"], include_characters="."), min_size=1),
            st.text(st.characters(categories=["L", "N", "P", "S"])),
        )
    )
    def test_what_is_written_plainly_is_read_back(self, properties: dict[str, str]) -> None:
        text = "\n".join(
            f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items()
        )
        assert parse_properties(text) == properties

    @given(st.text())
    def test_any_text_is_properties_or_a_configuration_error(self, text: str) -> None:
        try:
            parse_properties(text)
        except ConfigError:
            assert "\\u" in text


class TestOtherSources:
    def test_toml_tables_and_flat_keys_are_the_same(self) -> None:
        nested = (
            '[log]\ndirs = ["/a", "/b"]\nretention.ms = 5\n[auto]\ncreate.topics.enable = false'
        )
        flat = '"log.dirs" = "/a,/b"\n"log.retention.ms" = "5"\nauto.create.topics.enable = false'
        assert parse_toml(nested) == parse_toml(flat)
        read = BrokerConfig.from_properties({"broker.id": "1", **parse_toml(nested)})
        assert read.log_dirs == ("/a", "/b")
        assert read.auto_create_topics_enable is False

    @pytest.mark.parametrize("text", ["a =", "a = 2020-01-01", "a = [{b = 1}]"])
    def test_toml_without_a_text_form_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError):
            parse_toml(text)

    def test_the_environment_is_matched_with_known_keys(self) -> None:
        assert environment_name("log.dirs") == "TIDELOG_LOG_DIRS"
        found = from_environment(
            {"TIDELOG_LOG_DIRS": "/a", "TIDELOG_NO_SUCH_KEY": "1", "HOME": "/"}, known_keys()
        )
        assert found == {"log.dirs": "/a", "no.such.key": "1"}

    def test_the_address_of_commands_is_no_key(self) -> None:
        assert from_environment({"TIDELOG_BOOTSTRAP": "h:9092"}, known_keys()) == {}

    def test_every_known_key_has_an_environment_variable_of_its_own(self) -> None:
        variables = [environment_name(key) for key in known_keys()]
        assert len(dict.fromkeys(variables)) == len(variables)

    def test_overrides_are_key_value_words(self) -> None:
        assert parse_overrides(["a.b=1", "c = x=y "]) == {"a.b": "1", "c": "x=y"}
        with pytest.raises(ConfigError, match="not of the form key=value"):
            parse_overrides(["a.b"])
        with pytest.raises(ConfigError, match="not of the form key=value"):
            parse_overrides(["=1"])
