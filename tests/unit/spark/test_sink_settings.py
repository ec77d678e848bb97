"""The sink's options: the connector's meaning, and a sentence for every wrong one."""

from __future__ import annotations

import pytest

from tidelog.core.errors import ConfigError
from tidelog.records import compression
from tidelog.spark.options import OptionError
from tidelog.spark.sink.row_columns import SinkError, check_columns
from tidelog.spark.sink.settings import BATCH_BYTES, SinkSettings, parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(**options: str) -> SinkSettings:
    return parse_sink_options({**SERVERS, **{k.replace("__", "."): v for k, v in options.items()}})


def test_defaults_are_idempotent_and_large() -> None:
    settings = parse()
    assert (settings.topic, settings.batch_bytes) == (None, BATCH_BYTES)
    assert (settings.producer.acks, settings.producer.idempotent) == (-1, True)
    assert settings.producer.max_in_flight == 5
    assert not settings.batch_headers


def test_options_have_the_producers_meaning() -> None:
    settings = parse(
        topic="t",
        KAFKA__Compression__Type="zstd",
        kafka__compression__zstd__level="9",
        kafka__compression__gzip__level="2",
        kafka__batch__size="65536",
        kafka__linger__ms="5",
        kafka__client__id="me",
        kafka__request__timeout__ms="1000",
        kafka__delivery__timeout__ms="2000",
        tidelog__batch__headers="TRUE",
        tidelog__write__id="nightly",
        checkpointLocation="/somewhere",
    )
    producer = settings.producer
    assert (producer.codec, producer.level) == (compression.ZSTD, 9)
    assert (producer.request_timeout_ms, producer.delivery_timeout_ms) == (1000, 2000)
    assert (settings.batch_bytes, settings.client_id) == (65536, "me")
    assert (settings.batch_headers, settings.write_id) == (True, "nightly")


def test_weaker_acks_end_idempotence_as_in_kafkas_producer() -> None:
    producer = parse(
        kafka__acks="1", kafka__max__in__flight__requests__per__connection="9"
    ).producer
    assert (producer.acks, producer.idempotent, producer.max_in_flight) == (1, False, 9)
    assert parse(kafka__acks="-1").producer.idempotent
    assert not parse(kafka__enable__idempotence="false").producer.idempotent


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is required"),
        ({"kafka.bootstrap.servers": "nowhere"}, "lacks a host or a port"),
        ({"topic": ""}, "option topic is empty"),
        ({"kafka.acks": "2"}, "kafka.acks is '2'; expected all, -1, 1, 0"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs all"),
        ({"kafka.compression.type": "rar"}, "is 'rar'; expected none, gzip, snappy, lz4, zstd"),
        ({"kafka.compression.gzip.level": "11"}, "from 1 to 9"),
        ({"kafka.batch.size": "many"}, "kafka.batch.size is 'many'; expected a number"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "at most 5"),
        ({"kafka.delivery.timeout.ms": "5"}, "at least kafka.request.timeout.ms"),
        ({"kafka.security.protocol": "SSL"}, "only PLAINTEXT"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "no TLS and no SASL yet"),
        ({"kafka.key.serializer": "x"}, "bytes of the column key"),
        ({"kafka.partitioner.class": "x"}, "a column partition decides"),
        ({"kafka.transactional.id": "x"}, "without transactions"),
        ({"startingOffsets": "earliest"}, "is for reading"),
        ({"kafka.linger": "5"}, "not known to the sink.*did you mean kafka.linger.ms"),
        ({"acks": "all"}, "did you mean kafka.acks"),
        ({"tidelog.batch.header": "true"}, "did you mean tidelog.batch.headers"),
        ({"tidelog.batch.headers": "yes"}, "is 'yes'; expected true or false"),
        ({"tidelog.batch.headers": "true", "kafka.acks": "1"}, "needs idempotent writes"),
        ({"tidelog.write.id": "a/b"}, "without /"),
        ({"tidelog.timestamps": "then"}, "expected now, column"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_sink_options({**SERVERS, **options})


@pytest.mark.parametrize(
    ("ddl", "options", "sentence"),
    [
        ("key string", {}, "column value is required, and the columns are key"),
        ("value string", {}, "no topic is named: set the option topic"),
        ("value int, topic string", {}, "column value is of type int; expected string or binary"),
        ("value string, topic int", {}, "column topic is of type int; expected string"),
        ("value string, key double", {"topic": "t"}, "column key is of type double"),
        ("value string, partition bigint", {"topic": "t"}, "type bigint; expected int"),
        ("value string, headers map<string,binary>", {"topic": "t"}, "expected array<struct"),
        ("value string", {"topic": "t", "tidelog.timestamps": "column"}, "no column timestamp"),
        (
            "value string, timestamp bigint",
            {"topic": "t", "tidelog.timestamps": "column"},
            "column timestamp is of type bigint; expected timestamp",
        ),
    ],
)
def test_a_schema_that_cannot_be_written_names_the_column(
    ddl: str, options: dict[str, str], sentence: str
) -> None:
    types = dict(column.split(" ") for column in ddl.split(", "))
    with pytest.raises(SinkError, match=sentence):
        check_columns(types, parse_sink_options({**SERVERS, **options}))


def test_other_columns_are_ignored_and_the_option_topic_wins() -> None:
    ddl = (
        "key binary, value string, topic int, partition int, offset bigint, timestamp timestamp,"
        " headers array<struct<key:string,value:binary>>, mine map<int,int>"
    )
    types = dict(column.split(" ") for column in ddl.split(", "))
    check_columns(types, parse(topic="t"))


def test_an_option_error_is_a_config_error() -> None:
    assert issubclass(OptionError, ConfigError)
