"""`format("tidelog")` in a real Spark session, over scripted logs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import Row, batch

from tidelog.core.types import TopicPartition
from tidelog.spark.columns import COLUMNS, arrow_schema
from tidelog.spark.option_values import OptionError
from tidelog.spark.plan_schema import SourceSchema
from tidelog.spark.shipping import shipped
from tidelog.spark.source import TidelogDataSource
from tidelog.wire.registry import FETCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 2)
    rows = [Row(b"k%d" % n, b"v%d" % n, 1_700_000_000_123 + n) for n in range(10)]
    logs.append(T0, batch(rows[:4], 0), batch(rows[4:9], 4), batch(rows[9:], 9))
    logs.append(T1, batch([Row(None, None, headers=[("h", b"1"), ("g", None)])], 0))
    return logs


def load(spark: SparkSession, logs: FakeLogs, **options: str) -> DataFrame:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", logs.bootstrap)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    rows = frame.select("partition", "offset").collect()
    return sorted((row[0], row[1]) for row in rows)


@pytest.mark.parametrize("columns", [COLUMNS, (*COLUMNS, "headers"), ("headers", "offset")])
def test_the_arrow_schema_is_what_spark_makes_of_the_sources_schema(
    columns: tuple[str, ...],
) -> None:
    planned = to_arrow_schema(SourceSchema(columns), timezone="UTC")
    assert arrow_schema(columns).equals(planned)


def test_a_schema_of_the_users_own_must_be_that_of_the_options(
    spark: SparkSession, filled: FakeLogs
) -> None:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", filled.bootstrap)
    reader = reader.option("subscribe", "t").option("columns", "partition,offset")
    assert reader.schema("partition int, offset bigint").load().count() == 11
    with pytest.raises(PySparkException) as caught:
        reader.schema("partition string, offset bigint").load().collect()
    assert (
        "the schema given is partition string, offset bigint; with these options the columns are"
        " partition int, offset bigint. Leave out .schema(...)" in str(caught.value)
    )


def test_a_stream_of_another_schema_is_rejected_when_it_is_first_called() -> None:
    source = TidelogDataSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
    given = StructType([StructField("value", StringType())])
    with pytest.raises(OptionError, match="the schema given is value string; with these options"):
        source.streamReader(given).initialOffset()


def test_it_is_found_without_being_registered(spark: SparkSession, filled: FakeLogs) -> None:
    frame = load(spark, filled, subscribe="t")
    assert frame.count() == 11
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )


def test_a_row_holds_what_the_record_held(spark: SparkSession, filled: FakeLogs) -> None:
    frame = load(spark, filled, subscribe="t").where("partition = 0 and offset = 5")
    (row,) = frame.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    assert (bytes(row.key), bytes(row.value)) == (b"k5", b"v5")
    assert (row.topic, row.partition, row.offset, row.timestampType) == ("t", 0, 5, 0)
    assert row.ms == 1_700_000_000_128
    assert isinstance(row.timestamp, datetime.datetime)


def test_headers_come_on_request(spark: SparkSession, filled: FakeLogs) -> None:
    frame = load(spark, filled, subscribe="t", includeHeaders="true")
    by_key: dict[Any, Any] = {}
    for row in frame.collect():
        by_key[row.key and bytes(row.key)] = row.headers
    assert [(h.key, h.value and bytes(h.value)) for h in by_key[None]] == [("h", b"1"), ("g", None)]
    assert by_key[b"k0"] is None


def test_offsets_bound_what_is_read(spark: SparkSession, filled: FakeLogs) -> None:
    frame = load(
        spark,
        filled,
        assign='{"t": [0]}',
        startingOffsets='{"t": {"0": 3}}',
        endingOffsets='{"t": {"0": 6}}',
    )
    assert offsets(frame) == [(0, 3), (0, 4), (0, 5)]


def test_min_partitions_splits_without_losing_or_doubling(
    spark: SparkSession, filled: FakeLogs
) -> None:
    frame = load(spark, filled, subscribe="t", minPartitions="5")
    assert frame.rdd.getNumPartitions() == 5
    assert offsets(frame) == [(0, n) for n in range(10)] + [(1, 0)]


def test_only_the_chosen_columns_are_read(spark: SparkSession, filled: FakeLogs) -> None:
    frame = load(spark, filled, assign='{"t": [1]}', columns="headers, offset")
    assert frame.schema.simpleString() == (
        "struct<headers:array<struct<key:string,value:binary>>,offset:bigint>"
    )
    (row,) = frame.collect()
    assert ([each.key for each in row.headers], row.offset) == (["h", "g"], 0)


class TestPushdown:
    ENABLED = "spark.sql.python.filterPushdown.enabled"

    @pytest.fixture
    def many(self, logs: FakeLogs) -> FakeLogs:
        """Three partitions; timestamps go up and down, and later ones up again."""
        logs.create("t", 3)
        for number in range(3):
            times = [1_000 * (n + 20 * (n % 2)) for n in range(40)]
            rows = [Row(b"k", b"v%d" % n, time) for n, time in enumerate(times)]
            batches = [batch(rows[at : at + 4], at) for at in range(0, 40, 4)]
            logs.append(TopicPartition("t", number), *batches)
        return logs

    @pytest.mark.parametrize(
        ("condition", "ranges"),
        [
            ("true", {(0, 0), (1, 0), (2, 0)}),
            ("partition = 1", {(1, 0)}),
            ("partition <> 1 and topic = 't'", {(0, 0), (2, 0)}),
            ("partition in (0, 2) and offset >= 37 and value is not null", {(0, 37), (2, 37)}),
            ("offset between 5 and 6 and partition > 1", {(2, 5)}),
            ("timestamp >= timestamp_seconds(50) and partition = 0", {(0, 31)}),
            (
                "timestamp > timestamp_millis(49999) and timestamp < timestamp_seconds(55)",
                {(0, 31), (1, 31), (2, 31)},
            ),
            ("partition = 0 or offset = 3", {(0, 0), (1, 0), (2, 0)}),
            ("topic = 'other'", set()),
        ],
    )
    def test_fewer_ranges_are_fetched_and_the_rows_are_the_same(
        self,
        spark: SparkSession,
        many: FakeLogs,
        condition: str,
        ranges: set[tuple[int, int]],
    ) -> None:
        plain = offsets(load(spark, many, subscribe="t").where(condition))
        spark.conf.set(self.ENABLED, "true")
        try:
            many[1].requests.clear()
            assert offsets(load(spark, many, subscribe="t").where(condition)) == plain
        finally:
            spark.conf.unset(self.ENABLED)
        asked: dict[int, int] = {}
        for request in many[1].asked(FETCH):
            for each in request.topics[0].partitions:
                asked.setdefault(each.partition, each.fetch_offset)
        assert set(asked.items()) == ranges

    def test_filters_may_be_kept_from_the_reader(self, spark: SparkSession, many: FakeLogs) -> None:
        spark.conf.set(self.ENABLED, "true")
        try:
            frame = load(spark, many, subscribe="t", pushdown="false").where("partition = 1")
            assert frame.rdd.getNumPartitions() == 3
            assert frame.count() == 40
        finally:
            spark.conf.unset(self.ENABLED)


def test_workers_leave_the_modules_of_a_task_out_of_their_collections(spark: SparkSession) -> None:
    def frozen(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        yield pa.RecordBatch.from_pydict({"n": [gc.get_freeze_count()]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(shipped(frozen), "n long").collect()
    assert row.n > 10_000, "the modules of PySpark and pyarrow"


def test_an_empty_topic_is_no_rows(spark: SparkSession, logs: FakeLogs) -> None:
    logs.create("empty", 3)
    assert load(spark, logs, subscribe="empty").count() == 0


def test_a_wrong_option_fails_when_the_source_is_loaded(
    spark: SparkSession, filled: FakeLogs
) -> None:
    with pytest.raises(PySparkException, match="exactly one of the options assign, subscribe"):
        load(spark, filled)
    with pytest.raises(PySparkException, match="cannot be latest in a batch"):
        load(spark, filled, subscribe="t", startingOffsets="latest").count()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"subscribe": "t", "startingOfsets": "earliest"},
            "option startingofsets is not known to format tidelog; did you mean startingOffsets?",
        ),
        ({"subscribe": "t", "minPartitions": "0"}, "option minPartitions is '0'; expected"),
        ({"subscribe": "nope"}, "topic 'nope'"),
    ],
)
def test_the_driver_shows_the_sentence_and_no_traceback_of_a_worker(
    spark: SparkSession, filled: FakeLogs, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        load(spark, filled, **options).count()
    told = str(raised.value)
    assert sentence in told.splitlines()[0]
    assert "Traceback" not in told


def test_an_error_of_a_task_begins_with_the_sentence(spark: SparkSession, filled: FakeLogs) -> None:
    damaged = bytearray(filled.batches[T0][1])
    damaged[-1] ^= 1
    filled.batches[T0][1] = bytes(damaged)
    with pytest.raises(PySparkException) as raised:
        load(spark, filled, subscribe="t").collect()
    told = str(raised.value)
    assert "t-0, at or after offset 0" in told
    assert "Traceback" not in told


def test_an_unknown_topic_fails_with_its_name(spark: SparkSession, filled: FakeLogs) -> None:
    with pytest.raises(PySparkException, match="topic 'nope'"):
        load(spark, filled, subscribe="nope").count()


def test_deleted_offsets_fail_the_query_unless_that_is_allowed(
    spark: SparkSession, filled: FakeLogs
) -> None:
    filled.log_starts[T0] = 4
    start = '{"t": {"0": 1, "1": 0}}'
    with pytest.raises(PySparkException, match="t-0 should be read from 1 to 10"):
        load(spark, filled, subscribe="t", startingOffsets=start).count()
    frame = load(spark, filled, subscribe="t", startingOffsets=start, failOnDataLoss="false")
    assert offsets(frame) == [(0, n) for n in range(4, 10)] + [(1, 0)]


def test_a_damaged_batch_fails_the_query_with_its_place(
    spark: SparkSession, filled: FakeLogs
) -> None:
    damaged = bytearray(filled.batches[T0][1])
    damaged[-1] ^= 1
    filled.batches[T0][1] = bytes(damaged)
    with pytest.raises(PySparkException, match="t-0, at or after offset 0"):
        load(spark, filled, subscribe="t").collect()
