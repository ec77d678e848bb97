"""Options of the source: the data that they select, and the errors of wrong ones."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tidelog.core.errors import ConfigError
from tidelog.core.types import READ_COMMITTED, TopicPartition
from tidelog.spark.client_options import ClientSettings
from tidelog.spark.options import (
    COLUMNS,
    EARLIEST,
    LATEST,
    Bounds,
    OptionError,
    ReadOptions,
    offsets_json,
    parse_options,
)

BASE = {"kafka.bootstrap.servers": "h:9092"}


def test_defaults_are_the_connectors_for_a_batch() -> None:
    options = parse_options({**BASE, "subscribe": "a"})
    assert options.topics == ("a",)
    assert options.partitions is None
    assert options.starting == Bounds(everywhere=EARLIEST)
    assert options.ending == Bounds(everywhere=LATEST)
    assert (options.include_headers, options.fail_on_data_loss) == (False, True)
    assert options.min_partitions is None


def test_names_may_be_in_any_case_and_topics_repeated() -> None:
    options = parse_options(
        {
            "KAFKA.bootstrap.SERVERS": "h:1",
            "Subscribe": " a, b,a ",
            "INCLUDEheaders": "TRUE",
            "failondataloss": "false",
            "minPartitions": "7",
        }
    )
    assert options.topics == ("a", "b")
    assert (options.include_headers, options.fail_on_data_loss) == (True, False)
    assert options.min_partitions == 7


def test_assign_names_partitions() -> None:
    options = parse_options({**BASE, "assign": '{"a": [1, 0], "b": [3]}'})
    assert options.partitions == (("a", 1), ("a", 0), ("b", 3))
    assert options.topics is None


def test_offsets_are_read_from_json_and_written_back() -> None:
    text = '{"a": {"0": 23, "1": -2}}'
    options = parse_options({**BASE, "subscribe": "a", "startingOffsets": text})
    expected = {TopicPartition("a", 0): 23, TopicPartition("a", 1): EARLIEST}
    assert options.starting.by_partition == expected
    assert json.loads(offsets_json(expected)) == json.loads(text)


def test_client_settings_are_passed_on() -> None:
    options = parse_options(
        {
            **BASE,
            "subscribe": "a",
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "1234",
            "kafka.security.protocol": "plaintext",
            "kafka.max.poll.records": "10",
        }
    )
    assert (options.client_id, options.timeout_ms) == ("me", 1234)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers is required"),
        (BASE, "exactly one of.*assign, subscribe, subscribePattern must be set; none is given"),
        ({**BASE, "subscribe": "a", "assign": "{}"}, "given are assign, subscribe"),
        ({**BASE, "subscribe": "a", "subscribePattern": "a"}, "are subscribe, subscribePattern"),
        ({**BASE, "subscribe": " , "}, "expected topic names"),
        ({**BASE, "subscribe": "a", "kafka.auto.offset.reset": "x"}, "startingOffsets says where"),
        ({**BASE, "subscribe": "a", "kafka.enable.auto.commit": "x"}, "commits no offsets"),
        ({**BASE, "subscribe": "a", "kafka.value.deserializer": "x"}, "values come as bytes"),
        ({**BASE, "subscribe": "a", "kafka.security.protocol": "SSL"}, "only PLAINTEXT"),
        ({**BASE, "subscribe": "a", "kafka.ssl.key.password": "x"}, "neither TLS nor SASL"),
        ({**BASE, "subscribe": "a", "kafka.sasl.mechanism": "x"}, "kafka.sasl.mechanism is not"),
        (
            {**BASE, "subscribe": "a", "kafka.isolation.level": "serializable"},
            "'serializable'; expected read_uncommitted or read_committed",
        ),
        (
            {**BASE, "subscribe": "a", "kafka.fetch.max.bytes": "1k"},
            "kafka.fetch.max.bytes is '1k'",
        ),
        ({**BASE, "subscribe": "a", "fetchOffset.numRetries": "-1"}, "'-1'; expected a number, 0"),
        ({**BASE, "subscribe": "a", "kafkaConsumer.pollTimeoutMs": "0"}, "a number above 0"),
        ({**BASE, "assign": "a:0"}, "expected JSON like"),
        ({**BASE, "assign": "[]"}, "expected JSON like"),
        ({**BASE, "assign": "{}"}, "names no partition"),
        ({**BASE, "assign": '{"a": [-1]}'}, r"\[-1\] for topic 'a'"),
        ({**BASE, "assign": '{"a": [true]}'}, "expected JSON like"),
        ({**BASE, "assign": '{"a": 0}'}, "expected JSON like"),
        (
            {**BASE, "subscribe": "a", "startingOffsets": "latest"},
            "cannot be latest in a batch query; expected earliest or JSON",
        ),
        ({**BASE, "subscribe": "a", "endingOffsets": "Earliest"}, "cannot be earliest in a batch"),
        (
            {**BASE, "subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'},
            "cannot be latest in a batch query; expected an offset, or -2 for earliest",
        ),
        (
            {**BASE, "subscribe": "a", "startingOffsets": '{"a":{"0":9223372036854775808}}'},
            "has the offset 9223372036854775808 for a-0; expected a number",
        ),
        ({**BASE, "subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'}, "cannot be earliest"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "the offset -3 for a-0"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":{"0":true}}'}, "expected a number"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":{"x":1}}'}, "the partition 'x'"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":[0]}'}, r"has \[0\] for topic 'a'"),
        (
            {**BASE, "subscribe": "a", "startingOffsets": "first"},
            "'first'; expected earliest or JSON",
        ),
        ({**BASE, "subscribe": "a", "includeHeaders": "yes"}, "expected true or false"),
        ({**BASE, "subscribe": "a", "minPartitions": "0"}, "a number above 0"),
        ({"kafka.bootstrap.servers": "h", "subscribe": "a"}, "lacks a host or a port"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(options)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingOfsets", "startingOffsets"),
        ("SUBSCRIBEE", "subscribe"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("fail_on_data_loss", "failOnDataLoss"),
        ("kafka.reqest.timeout.ms", "kafka.request.timeout.ms"),
    ],
)
def test_a_misspelt_option_is_an_error_with_the_nearest_right_one(wrong: str, right: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse_options({**BASE, "subscribe": "a", wrong: "x"})
    told = f"option {wrong} is not known to format tidelog; did you mean {right}?"
    assert str(raised.value) == told


def test_an_option_without_a_near_one_is_an_error_all_the_same() -> None:
    with pytest.raises(OptionError, match="option zzz is not known to format tidelog$"):
        parse_options({**BASE, "subscribe": "a", "zzz": "x"})


@pytest.mark.parametrize(
    "name",
    ["path", "serialization.format", "groupIdPrefix", "fetchOffset.numRetries", "kafka.group.id"],
)
def test_options_of_spark_and_of_the_connector_that_change_no_row_pass(name: str) -> None:
    assert parse_options({**BASE, "subscribe": "a", name: "1"}).topics == ("a",)


def parse(**options: str) -> ReadOptions:
    return parse_options({**BASE, "subscribe": "a", **options})


def parse_stream(**options: str) -> ReadOptions:
    return parse_options({**BASE, "subscribe": "a", **options}, is_stream=True)


class TestBounds:
    A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)

    def test_a_stream_starts_at_the_end_and_a_batch_at_the_start(self) -> None:
        assert parse().starting == Bounds(everywhere=EARLIEST)
        assert parse_stream().starting == Bounds(everywhere=LATEST)
        assert parse_stream().ending == Bounds(everywhere=LATEST)

    def test_a_stream_may_start_anywhere(self) -> None:
        mixed = parse_stream(startingOffsets='{"a": {"0": -1, "1": -2}}').starting
        assert mixed.by_partition == {self.A0: LATEST, self.A1: EARLIEST}
        assert parse_stream(startingOffsets=" Earliest ").starting.everywhere == EARLIEST

    def test_a_timestamp_holds_for_all_partitions(self) -> None:
        options = parse(startingTimestamp=" 1000 ", endingTimestamp="2000")
        assert (options.starting.timestamp, options.ending.timestamp) == (1000, 2000)
        assert (options.starting.latest_if_none, options.ending.latest_if_none) == (False, True)

    def test_timestamps_may_be_given_by_partition(self) -> None:
        times = '{"a": {"0": 5, "1": 0}}'
        options = parse(startingOffsetsByTimestamp=times, endingOffsetsByTimestamp=times)
        assert options.starting.timestamps == {self.A0: 5, self.A1: 0}
        assert options.ending.timestamps == options.starting.named == options.ending.named

    def test_the_strategy_concerns_starts_alone(self) -> None:
        options = parse(
            startingTimestamp="1",
            endingTimestamp="1",
            startingOffsetsByTimestampStrategy="LATEST",
        )
        assert options.starting.latest_if_none
        assert not parse(startingTimestamp="1").starting.latest_if_none

    def test_timestamps_take_precedence_and_the_others_are_not_looked_at(self) -> None:
        options = parse(
            startingTimestamp="7", startingOffsetsByTimestamp="nonsense", startingOffsets="latest"
        )
        assert options.starting.timestamp == 7
        assert options.remarks == (
            "option startingOffsetsByTimestamp has no effect: startingTimestamp takes precedence",
            "option startingOffsets has no effect: startingTimestamp takes precedence",
        )
        options = parse(endingOffsetsByTimestamp='{"a": {"0": 1}}', endingOffsets="earliest")
        assert options.ending.timestamps == {self.A0: 1}
        assert options.remarks == (
            "option endingOffsets has no effect: endingOffsetsByTimestamp takes precedence",
        )

    def test_negative_timestamps_are_those_of_list_offsets(self) -> None:
        options = parse(startingOffsetsByTimestamp='{"a": {"0": -2}}', endingTimestamp=" -1")
        assert options.starting.timestamps == {self.A0: -2}
        assert options.ending.timestamp == -1
        assert parse(startingTimestamp="5", endingTimestamp="-1").ending.timestamp == -1

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"startingTimestamp": "yesterday"},
                "startingTimestamp is 'yesterday'; expected milli",
            ),
            ({"endingTimestamp": "--1"}, "endingTimestamp is '--1'; expected milliseconds"),
            ({"startingTimestamp": str(2**63)}, "expected milliseconds since 1970"),
            ({"startingOffsetsByTimestamp": "5"}, "ByTimestamp is '5'; expected JSON like"),
            ({"startingOffsetsByTimestamp": '{"a":{"0":1.5}}'}, "the timestamp 1.5 for a-0"),
            ({"endingOffsetsByTimestamp": '{"a":{"0":"5"}}'}, "the timestamp '5' for a-0"),
            ({"startingOffsetsByTimestampStrategy": "first"}, "'first'; expected error or latest"),
            ({"startingTimestamp": "9", "endingTimestamp": "8"}, "9, which is after endingTimest"),
            (
                {
                    "startingOffsets": '{"a":{"0":9,"1":-2}}',
                    "endingOffsets": '{"a":{"0":8,"1":-1}}',
                },
                "startingOffsets has 9 for a-0, which is after 8 of endingOffsets",
            ),
            (
                {
                    "startingOffsetsByTimestamp": '{"a":{"0":9}}',
                    "endingOffsetsByTimestamp": '{"a":{"1":8},"b":{"0":1}}',
                },
                "must name the same partitions; only one of them names a-0, a-1, b-0",
            ),
        ],
    )
    def test_a_bound_that_cannot_be_is_named(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            parse(**options)

    @pytest.mark.parametrize(
        "name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"]
    )
    def test_a_stream_has_no_end(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"option {name} is not valid in a stream"):
            parse_stream(**{name: "latest"})


class TestTriggers:
    def test_limits_of_a_stream(self) -> None:
        options = parse_stream(
            maxOffsetsPerTrigger="1000",
            minOffsetsPerTrigger="10",
            maxTriggerDelay=" 2H ",
        )
        assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (10, 1000)
        assert options.max_trigger_delay_ms == 7_200_000
        assert options.remarks == ()

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("250", 250), ("3s", 3_000), ("4min", 240_000), ("1d", 86_400_000), ("5000us", 5)],
    )
    def test_times_are_sparks(self, text: str, expected: int) -> None:
        assert parse_stream(maxTriggerDelay=text).max_trigger_delay_ms == expected

    def test_the_delay_is_a_quarter_of_an_hour_unless_given(self) -> None:
        assert parse_stream().max_trigger_delay_ms == 15 * 60_000

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'; expected a number above"),
            ({"minOffsetsPerTrigger": "x"}, "minOffsetsPerTrigger is 'x'"),
            ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9, above.*Trigger 8"),
            ({"maxTriggerDelay": "5 weeks"}, "'5 weeks'; expected a time such as 15m"),
            ({"maxTriggerDelay": "-5m"}, "'-5m'; expected a time"),
        ],
    )
    def test_a_wrong_limit_is_named(self, options: dict[str, str], message: str) -> None:
        for parse_either in (parse, parse_stream):
            with pytest.raises(OptionError, match=message):
                parse_either(**options)

    def test_a_batch_remarks_that_limits_have_no_effect(self) -> None:
        assert parse(maxOffsetsPerTrigger="5", maxTriggerDelay="5m").remarks == (
            "option maxOffsetsPerTrigger has no effect in a batch query",
            "option maxTriggerDelay has no effect in a batch query",
        )


def test_columns_are_those_of_the_connector_unless_chosen() -> None:
    assert parse().columns == COLUMNS
    assert parse(includeHeaders="true").columns == (*COLUMNS, "headers")
    chosen = parse(columns="OFFSET, timestamptype,headers,offset")
    assert chosen.columns == ("offset", "timestampType", "headers")
    assert chosen.include_headers
    assert not parse(columns="key").include_headers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "key,size"}, "names 'size'; the columns are key, value, topic,.* headers"),
        ({"columns": " , "}, "expected names of columns with commas"),
        ({"columns": "key", "includeHeaders": "true"}, "includeHeaders is true, but columns 'key'"),
        ({"pushdown": "on"}, "pushdown is 'on'; expected true or false"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition is '0'"),
        ({"segments": "/d"}, "segments and kafka.bootstrap.servers exclude each other"),
    ],
)
def test_an_option_of_this_source_alone_is_checked_too(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**options)


def test_log_directories_take_the_place_of_brokers() -> None:
    options = parse_options({"segments": "/a/*, /b"})
    assert (options.segments, options.bootstrap) == (("/a/*", "/b"), "")
    assert (options.topics, options.partitions, options.pattern) == (None, None, None)
    assert parse_options({"segments": "/a", "subscribe": "t"}).topics == ("t",)
    with pytest.raises(OptionError, match="expected log directories"):
        parse_options({"segments": ","})


def test_settings_of_the_client_are_taken() -> None:
    options = parse(
        **{
            "kafka.isolation.level": "Read_Committed",
            "kafka.fetch.max.bytes": "5000",
            "kafka.max.partition.fetch.bytes": "4000",
            "kafka.fetch.min.bytes": "3",
            "kafka.fetch.max.wait.ms": "0",
            "kafka.request.timeout.ms": "100",
            "kafka.default.api.timeout.ms": "200",
        }
    )
    assert options.client == ClientSettings("tidelog-spark", 200, READ_COMMITTED, 4000, 3, 0)
    assert parse(**{"kafka.max.partition.fetch.bytes": "9000000"}).client.fetch_bytes == 9_000_000
    assert parse().client == ClientSettings()


@pytest.mark.parametrize("parsed", [parse, parse_stream])
def test_a_group_has_no_effect_and_the_remark_names_what_commits(
    parsed: Callable[..., ReadOptions],
) -> None:
    found = parsed(groupIdPrefix="p", **{"kafka.group.id": "g"}).remarks
    assert [each.split(" has no effect: the source joins no group; ")[0] for each in found] == [
        "option kafka.group.id",
        "option groupIdPrefix",
    ]
    assert all("GroupCommitListener commits" in each for each in found)


def test_a_strategy_or_a_delay_alone_is_remarked() -> None:
    (remark,) = parse(startingOffsetsByTimestampStrategy="latest").remarks
    assert remark == (
        "option startingOffsetsByTimestampStrategy has no effect without a starting timestamp"
    )
    (remark,) = parse_stream(maxTriggerDelay="1s").remarks
    assert remark == "option maxTriggerDelay has no effect without minOffsetsPerTrigger"


def test_option_errors_are_configuration_errors() -> None:
    assert issubclass(OptionError, ConfigError)
