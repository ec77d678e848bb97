"""The source and the sink as Sail calls them: with Arrow's schemas, in its own process."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, GreaterThanOrEqual
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog.spark.columns import COLUMNS, arrow_schema
from tidelog.spark.options import OptionError
from tidelog.spark.pipelines.task_rows import run_tasks
from tidelog.spark.plan_schema import SourceSchema, types_of
from tidelog.spark.pushdown import take_filters
from tidelog.spark.shipping import Shipped
from tidelog.spark.sink.row_columns import SinkError
from tidelog.spark.source import FilteringReader, TidelogDataSource, TidelogReader

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9"}
ALL = (*COLUMNS, "headers")
VALUES = pa.schema([("value", pa.binary())])


def source(**options: str) -> TidelogDataSource:
    return TidelogDataSource(CaseInsensitiveDict({**SERVERS, **options}))


def test_the_sources_schema_is_sparks_and_imports_as_arrows() -> None:
    schema = source(subscribe="t", includeHeaders="true").schema()
    assert isinstance(schema, SourceSchema)
    assert StructType.fromJson(json.loads(schema.json())).names == list(ALL)
    assert pa.schema(schema) == arrow_schema(ALL)
    assert to_arrow_schema(schema, timezone="UTC") == arrow_schema(ALL)
    assert types_of(schema) == types_of(arrow_schema(ALL))


def test_a_reader_for_arrows_schema_takes_filters() -> None:
    plain, filtering = TidelogReader, FilteringReader
    for schema, pushdown, expected in (
        (arrow_schema(COLUMNS), "true", filtering),
        (arrow_schema(COLUMNS), "false", plain),
        (SourceSchema(COLUMNS), "true", plain),  # no process of Spark plans here
    ):
        assert type(source(subscribe="t", pushdown=pushdown).reader(schema)) is expected
    with pytest.raises(OptionError, match="the schema given is value binary"):
        source(subscribe="t").reader(VALUES)


@pytest.mark.parametrize("given, from_ms", [(1_500, 2), (2_000, 2), (-5, None), (True, None)])
def test_a_time_may_be_a_number_of_microseconds(given: int, from_ms: int | None) -> None:
    narrowing, left = take_filters([GreaterThanOrEqual(("timestamp",), given)])
    assert narrowing.from_ms == from_ms
    assert len(left) == 1


def test_the_sink_refuses_what_sail_would_do_otherwise() -> None:
    assert source(topic="t").writer(VALUES, overwrite=False)
    with pytest.raises(SinkError, match="keep no checkpoint; run streams with Spark"):
        source(topic="t", checkpointLocation="/tmp/c").writer(VALUES, overwrite=False)
    with pytest.raises(SinkError, match="numbers of tasks .* which Sail does not give"):
        source(topic="t", **{"tidelog.batch.headers": "true"}).writer(VALUES, overwrite=False)
    with pytest.raises(SinkError, match="column value is of type int; expected string or binary"):
        source(topic="t").writer(pa.schema([("value", pa.int32())]), overwrite=False)


def test_sail_shows_an_error_without_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines() -> int:
        try:
            source(subscribe="t", nope="1").schema()
        except OptionError as error:
            return len(traceback.extract_tb(error.__traceback__))
        raise AssertionError("the option is unknown")

    assert lines() > 2
    monkeypatch.setitem(sys.modules, "pysail", sys)
    assert lines() == 1  # this file's own


class Frame:
    """A session, and a frame whose tasks end in the reverse order."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def range(self, start: int, end: int, step: int, tasks: int) -> Frame:
        numbers = range(start, end, step)
        assert len(numbers) == tasks
        self._batches = [pa.record_batch({"id": [number]}) for number in numbers]
        return self

    def mapInArrow(self, work: Any, schema: str) -> Frame:  # noqa: N802 - Spark's name
        assert schema == "number long, row string"
        self._batches = [row for batch in reversed(self._batches) for row in work(iter([batch]))]
        return self

    def collect(self) -> list[dict[str, Any]]:
        return [row for batch in self._batches for row in batch.to_pylist()]


def twice(spec: int) -> Iterator[dict[str, Any]]:
    yield {"spec": spec, "time": 1}
    yield {"spec": spec, "time": 2}


def test_rows_of_tasks_are_in_the_order_of_their_specs() -> None:
    session: Any = Frame()
    rows = run_tasks(session, [7, 8, 9], twice)
    assert [(row["spec"], row["time"]) for row in rows] == [
        (spec, time) for spec in (7, 8, 9) for time in (1, 2)
    ]


def test_readers_and_writers_are_shipped() -> None:
    assert isinstance(source(topic="t").writer(VALUES, overwrite=False), Shipped)
