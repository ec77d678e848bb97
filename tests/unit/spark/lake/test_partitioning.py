"""Partition columns: which may be one, the values of rows, and a task's open files."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.spark.lake.partitioning import (
    by_values,
    check_new,
    check_same,
    folder_of_values,
    with_day,
    with_partitions,
)
from tidelog.spark.lake.row_checks import NULL_NAME, check_rows
from tidelog.spark.lake.staging import MOST_OPEN, FilePlan, StagingFolder, TaskFiles, in_columns
from tidelog.spark.lake.state import TableError
from tidelog.spark.lake.stores import LakeStore

SCHEMA = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("c", pa.string())])


def rows(values: list[str | None], start: int = 0) -> pa.RecordBatch:
    count = len(values)
    partitions = pa.array([0] * count, pa.int32())
    offsets = pa.array(range(start, start + count), pa.int64())
    return pa.RecordBatch.from_arrays([partitions, offsets, pa.array(values)], schema=SCHEMA)


def test_rows_are_split_by_value_in_their_order() -> None:
    batch = rows(["b", "a", None, "b", "", "a"])
    split = [(values, part["offset"].to_pylist()) for values, part in by_values(batch, ["c"])]
    assert split == [(("b",), [0, 3]), (("a",), [1, 5]), ((None,), [2, 4])]
    [(values, part)] = by_values(batch.slice(0, 1), ["partition", "c", "gone"])
    assert (values, part) == (("0", "b", None), batch.slice(0, 1))
    kinds = pa.RecordBatch.from_pydict({"d": [date(2026, 1, 2)], "b": [True]})
    assert [values for values, _ in by_values(kinds, ["d", "b"])] == [("2026-01-02", "true")]


def test_the_day_is_that_of_utc() -> None:
    times = [datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), None]
    zone = pa.timestamp("us", "America/New_York")
    batch = pa.RecordBatch.from_arrays(
        [pa.array(times, pa.timestamp("us", "UTC")).cast(zone)], ["timestamp"]
    )
    assert with_day(batch)["day"].to_pylist() == [date(2026, 1, 1), date(2026, 1, 2), None]


def test_a_day_that_readers_lack_is_null() -> None:
    first, last = -62_135_596_800_000_000, 253_402_300_800_000_000 - 1
    times = pa.array([first - 1, first, last, last + 1], pa.timestamp("us", "UTC"))
    found = with_day(pa.RecordBatch.from_arrays([times], ["timestamp"]))["day"]
    assert found.to_pylist() == [None, date(1, 1, 1), date(9999, 12, 31), None]


def test_far_dates_partition_no_table() -> None:
    for days in (-719_163, 2_932_897):
        dates = pa.array([None, 0, days], pa.int32()).cast(pa.date32())
        batch = rows(["a", "b", "c"], 7).append_column("d", dates)
        check_rows(3, batch, ["c", "d"], ["c"])
        with pytest.raises(TableError, match="partition column 'd' of partition 3, offset 9, is"):
            check_rows(3, batch, ["c"], ["c", "d"])


def test_the_name_of_null_partitions_no_table() -> None:
    batch = rows(["a", None, NULL_NAME], 7)
    check_rows(3, batch, ["c"], ["partition"])
    with pytest.raises(TableError, match="column 'c' of partition 3, offset 9, is '__HIVE"):
        check_rows(3, batch, ["c"], ["c"])


@pytest.mark.parametrize("is_nested", [False, True])
def test_text_in_no_utf_8_is_refused_with_its_offset(is_nested: bool) -> None:
    raw = pa.array([b"ok", None, b"\xff", b"ok"])
    text: pa.Array = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    if is_nested:
        text = pa.StructArray.from_arrays([text], ["x"])
    batch = rows(["a"] * 4, 5).append_column("t", text)
    check_rows(2, batch.slice(0, 2), ["t"], ["c"])
    check_rows(2, batch, ["c"], [])
    for names, by in ((["t"], []), ([], ["t"])):
        with pytest.raises(TableError, match="'t' of partition 2, offset 7, is no text in UTF-8"):
            check_rows(2, batch, names, by)


def test_columns_that_partition_no_table_are_named() -> None:
    schema = pa.schema([*SCHEMA, ("f", pa.float64()), ("n", pa.int8())])
    assert with_partitions(schema, ["n", "c"]) == schema
    assert with_partitions(schema, ["day"]).field("day").type == pa.date32()
    with pytest.raises(TableError, match="'f' is double, and a table is partitioned by text"):
        with_partitions(schema, ["f"])
    with pytest.raises(TableError, match="by 'offset': each record would be a file"):
        with_partitions(schema, ["offset"])
    with pytest.raises(TableError, match="column 'a=b' partitions no table, .* rename it"):
        with_partitions(pa.schema([("a=b", pa.string())]), ["a=b"])
    with pytest.raises(TableError, match="no column 'x' .* its columns are partition, offset, c"):
        check_new(schema, ["x"])
    with pytest.raises(TableError, match="t is not partitioned, and this run asks for c"):
        check_same("t", (), ["c"])
    check_same("t", ("c",), ())


def test_values_in_paths_are_escaped_and_not_too_long() -> None:
    assert folder_of_values({}) == ""
    assert folder_of_values({"day": "2026-01-02"}) == "day=2026-01-02/"
    assert folder_of_values({"a b": "x/y=%z", "n": None}) == (
        "a b=x%2Fy%3D%25z/n=__HIVE_DEFAULT_PARTITION__/"
    )
    assert len(folder_of_values({"n": "ä" * 42})) == 255
    with pytest.raises(TableError, match="value of 'n' is too long .*: n=%C3.* has 260 bytes"):
        folder_of_values({"n": "ä" * 43})


@pytest.fixture
def plan(tmp_path: Path) -> FilePlan:
    place = StagingFolder(LakeStore(str(tmp_path / "table")), "run-0-x")
    return FilePlan(place, "flights", SCHEMA, partition_by=("c",))


def test_a_file_has_the_rows_of_one_value_without_its_column(plan: FilePlan) -> None:
    files = TaskFiles(plan)
    files.append(0, rows(["b", "a", None]))
    files.append(0, rows(["a", "b"], 3))
    closed = {file.values["c"]: file for file in files.close()}
    assert {value: (file.start, file.end, file.rows) for value, file in closed.items()} == {
        "b": (0, 5, 2),
        "a": (1, 4, 2),
        None: (2, 3, 1),
    }
    assert files.reopened == 0
    path = Path(plan.place.store.location, closed["a"].path)
    assert path.parent.name == "c=a"
    table = pq.ParquetFile(path).read()
    assert table.to_pydict() == {"partition": [0, 0], "offset": [1, 3]}
    [batch] = table.to_batches()
    assert in_columns(batch, SCHEMA, {"c": "a"})["c"].to_pylist() == ["a", "a"]


def test_a_task_has_few_files_open_and_counts_those_that_it_opened_again(plan: FilePlan) -> None:
    files = TaskFiles(plan)
    names: list[str | None] = [f"v{number:02}" for number in range(MOST_OPEN + 4)]
    files.append(0, rows(sorted(names * 3, key=str)))
    assert (len(files._open), files.reopened) == (MOST_OPEN, 0), "in order of value"
    assert len(files.close()) == len(names)
    files = TaskFiles(plan)
    for start in range(3):
        files.append(0, rows(names, start * len(names)))
    assert len(files._open) == MOST_OPEN
    closed = files.close()
    assert len(closed) == len(names) + files.reopened
    assert sum(file.rows for file in closed) == 3 * len(names)
    files.abandon()


def test_rows_that_fill_a_file_open_no_file_again(plan: FilePlan) -> None:
    files = TaskFiles(replace(plan, target_bytes=1))
    for start in range(5):
        files.append(0, rows(["a"], start))
    assert (len(files.close()), files.reopened) == (5, 0)
