"""Options of the source: what is read, and what a wrong one is told."""

from __future__ import annotations

import json

import pytest

from tidelog.core.errors import ConfigError
from tidelog.core.types import TopicPartition
from tidelog.spark.options import (
    EARLIEST,
    LATEST,
    Bounds,
    OptionError,
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
        (BASE, "exactly one of.*subscribe and assign.*none is given"),
        ({**BASE, "subscribe": "a", "assign": "{}"}, "given are assign, subscribe"),
        ({**BASE, "subscribe": " , "}, "expected topic names"),
        ({**BASE, "subscribePattern": "a.*"}, "subscribepattern is not supported"),
        ({**BASE, "subscribe": "a", "startingTimestamp": "1"}, "startingtimestamp is not"),
        ({**BASE, "subscribe": "a", "kafka.auto.offset.reset": "x"}, "chooses offsets itself"),
        ({**BASE, "subscribe": "a", "kafka.security.protocol": "SSL"}, "only PLAINTEXT"),
        (
            {**BASE, "subscribe": "a", "kafka.isolation.level": "read_committed"},
            "only read_uncommitted",
        ),
        ({**BASE, "assign": "a:0"}, "expected JSON like"),
        ({**BASE, "assign": "[]"}, "expected JSON like"),
        ({**BASE, "assign": "{}"}, "names no partition"),
        ({**BASE, "assign": '{"a": [-1]}'}, r"\[-1\] for topic 'a'"),
        ({**BASE, "assign": '{"a": [true]}'}, "expected JSON like"),
        ({**BASE, "assign": '{"a": 0}'}, "expected JSON like"),
        ({**BASE, "subscribe": "a", "startingOffsets": "latest"}, "cannot be latest in a batch"),
        ({**BASE, "subscribe": "a", "endingOffsets": "Earliest"}, "cannot be earliest in a batch"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "cannot be latest"),
        ({**BASE, "subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'}, "cannot be earliest"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "the offset -3 for a-0"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":{"0":true}}'}, "expected a number"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":{"x":1}}'}, "the partition 'x'"),
        ({**BASE, "subscribe": "a", "startingOffsets": '{"a":[0]}'}, r"has \[0\] for topic 'a'"),
        ({**BASE, "subscribe": "a", "startingOffsets": "first"}, "expected earliest or JSON"),
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


def test_option_errors_are_configuration_errors() -> None:
    assert issubclass(OptionError, ConfigError)
