"""Staged files: their names, order, statistics and footers, and what a vacuum makes of them."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.spark.lake import staging, vacuum
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.protocol import CommitObstacle
from tidelog.spark.lake.runs import commit_run, opened
from tidelog.spark.lake.staging import (
    FilePlan,
    LakeFileWriter,
    StagingFolder,
    TaskFiles,
    as_json,
    discard,
    folder_of,
    in_columns,
    partitions_of,
    staged_files,
)
from tidelog.spark.lake.state import (
    LakeFile,
    LakeState,
    Origin,
    PartitionRun,
    TableChange,
    TableError,
)
from tidelog.spark.lake.stores import LakeStore, location_of, reason_of
from tidelog.spark.lake.vacuum import vacuum_staged

ORIGIN = Origin("flights", "flights-id", "cluster-id")
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.binary()),
    ]
)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
RUNS = ("a" * 16, "b" * 16)


def rows(start: int, end: int) -> pa.RecordBatch:
    count = end - start
    return pa.RecordBatch.from_arrays(
        [
            pa.array([0] * count, pa.int32()),
            pa.array(range(start, end), pa.int64()),
            pa.array(
                [NOON + timedelta(microseconds=n) for n in range(count)],
                pa.timestamp("us", "UTC"),
            ),
            pa.array([b"v"] * count),
        ],
        schema=SCHEMA,
    )


def plan(store: LakeStore, folder: str, schema: pa.Schema = SCHEMA) -> FilePlan:
    return FilePlan(StagingFolder(store, folder), "flights", schema)


def staged(store: LakeStore, run: str, began: int, start: int, end: int) -> LakeFile:
    writer = LakeFileWriter(plan(store, folder_of(run, began)), 0)
    writer.append(rows(start, end))
    return writer.close()


@pytest.fixture
def store(tmp_path: Path) -> LakeStore:
    return LakeStore(str(tmp_path / "table"))


def made(store: LakeStore) -> tuple[DeltaLake, LakeState]:
    lake = DeltaLake(store.location)
    return lake, opened(lake, ORIGIN, lambda: SCHEMA)


def landed(lake: DeltaLake, state: LakeState, run: str, file: LakeFile) -> LakeState:
    change = TableChange(run, (PartitionRun(0, file.start, file.end, file.rows),), (file,))
    outcome = commit_run(lake, state, change)
    assert outcome.obstacle is None
    return outcome.state


def test_a_file_is_described_as_it_is(store: LakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "ROW_GROUP_BYTES", 1_000)
    writer = LakeFileWriter(plan(store, folder_of(RUNS[0], 3)), 0)
    for start in range(10, 110, 25):
        writer.append(rows(start, start + 25))
    file = writer.close()
    path = Path(store.location, file.path)
    assert file.path.startswith(f"run-3-{RUNS[0]}/part-flights-0-")
    assert (file.start, file.end, file.rows) == (10, 110, 100)
    assert file.size_bytes == path.stat().st_size
    assert pq.ParquetFile(path).num_row_groups > 1
    assert pq.read_table(path).column("offset").to_pylist() == list(range(10, 110))
    stats = json.loads(file.stats)
    assert stats == {
        "numRecords": 100,
        "minValues": {"partition": 0, "offset": 10, "timestamp": "2026-11-30T12:00:00.000Z"},
        "maxValues": {"partition": 0, "offset": 109, "timestamp": "2026-11-30T12:00:00.001Z"},
        "nullCount": {"partition": 0, "offset": 0, "timestamp": 0},
    }


def test_bounds_of_times_are_rounded_away_from_the_values() -> None:
    value = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    assert as_json(value, up=False) == "2026-01-02T03:04:05.678Z"
    assert as_json(value, up=True) == "2026-01-02T03:04:05.679Z"
    whole = value.replace(microsecond=678_000)
    assert as_json(whole, up=False) == as_json(whole, up=True) == "2026-01-02T03:04:05.678Z"
    assert as_json(value.date(), up=True) == "2026-01-02"
    assert (as_json(7, up=True), as_json(True, up=True), as_json("x", up=True)) == (7, None, None)


def test_an_abandoned_file_leaves_nothing(store: LakeStore) -> None:
    writer = LakeFileWriter(plan(store, folder_of(RUNS[0], 0)), 0)
    writer.append(rows(0, 10))
    writer.flush()
    assert len(staged_files(store)) == 1
    writer.abandon()
    assert list(store.listed()) == []
    assert os.listdir(store.location) == []


def test_files_are_known_by_run_and_begin_and_others_are_not_looked_at(store: LakeStore) -> None:
    made(store)
    staged(store, RUNS[0], 12, 0, 10)
    for name in ("run-1-short/x.parquet", "data.parquet", f"run-x-{RUNS[0]}/x.parquet"):
        path = Path(store.location, name)
        path.parent.mkdir(exist_ok=True)
        path.touch()
    [found] = staged_files(store)
    assert (found.run, found.began) == (RUNS[0], 12)


def age(store: LakeStore, file: LakeFile, seconds: int) -> None:
    path = os.path.join(store.location, file.path)
    then = os.stat(path).st_mtime - seconds
    os.utime(path, (then, then))


def test_a_vacuum_deletes_the_files_of_dead_runs_behind_a_fence(store: LakeStore) -> None:
    lake, state = made(store)
    kept = staged(store, RUNS[0], state.version, 0, 10)
    dead = staged(store, RUNS[1], state.version, 0, 10)
    after = landed(lake, state, RUNS[0], kept)
    age(store, dead, 100)
    age(store, kept, 100)
    report = vacuum_staged(lake, [store], dead_after_ms=50_000)
    assert report == vacuum.VacuumReport((dead.path,), (), after.version + 1)
    assert [file.path for file in store.listed(folder_of(RUNS[0], 0))] == [kept.path]
    assert not Path(store.location, folder_of(RUNS[1], 0)).exists()
    assert lake.read().fence == after.version + 1
    # The run that was given up wakes.
    change = TableChange(RUNS[1], (PartitionRun(0, 0, 10, 10),), (dead,))
    assert commit_run(DeltaLake(store.location), state, change).obstacle is CommitObstacle.FENCED


def test_a_vacuum_gives_up_no_run_that_wrote_lately(store: LakeStore) -> None:
    lake, state = made(store)
    running = staged(store, RUNS[0], state.version, 0, 10)
    dead = staged(store, RUNS[1], state.version, 0, 10)
    age(store, dead, 100)
    report = vacuum_staged(lake, [store], dead_after_ms=50_000)
    # Both began at one version: the fence cannot part them yet.
    assert report == vacuum.VacuumReport((), (RUNS[0],), None)
    assert lake.read() == state
    after = landed(lake, state, RUNS[0], running)
    assert after.version == 1
    report = vacuum_staged(lake, [store], dead_after_ms=50_000)
    assert (report.deleted, report.running) == ((dead.path,), ())


def test_a_vacuum_without_dead_runs_commits_nothing(store: LakeStore) -> None:
    lake, state = made(store)
    after = landed(lake, state, RUNS[0], staged(store, RUNS[0], 0, 0, 10))
    assert vacuum_staged(lake, [store], dead_after_ms=0) == vacuum.VacuumReport()
    assert lake.read() == after


def test_a_vacuum_leaves_runs_whose_commits_may_be_cleaned(
    store: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, state = made(store)
    after = landed(lake, state, RUNS[0], staged(store, RUNS[0], 0, 0, 10))
    staged(store, RUNS[1], 0, 10, 20)
    monkeypatch.setattr(vacuum, "first_known", lambda table: 2)
    assert vacuum_staged(lake, [store], dead_after_ms=0) == vacuum.VacuumReport()
    assert lake.read() == after


def test_the_stores_clock_dates_its_files(store: LakeStore) -> None:
    made(store)
    before = store.now_ms()
    file = staged(store, RUNS[0], 0, 0, 10)
    [found] = [each for each in store.listed() if each.path == file.path]
    assert before <= found.modified_ms <= store.now_ms()
    assert list(store.listed("_tidelog")) == []


def test_a_files_removal_is_final_once_readers_had_their_time(store: LakeStore) -> None:
    """The format's own vacuum deletes what commits removed, and nothing that a run stages."""
    lake, state = made(store)
    old, new = staged(store, RUNS[0], 0, 0, 10), staged(store, RUNS[1], 1, 0, 10)
    state = landed(lake, state, RUNS[0], old)
    assert commit_run(lake, state, TableChange(RUNS[1], added=(new,), removed=(old,))).state
    waiting = staged(store, "c" * 16, 2, 10, 20)
    assert lake.vacuum(1) == 0
    assert (Path(store.location) / old.path).exists()
    assert lake.vacuum(0) == 1
    assert [file.path for file in staged_files(store)] == [new.path, waiting.path]


def test_a_runs_folder_keeps_the_files_of_its_commit(store: LakeStore) -> None:
    kept, repeated = (staged(store, RUNS[0], 0, 0, 10) for _ in range(2))
    other = staged(store, RUNS[1], 0, 0, 10)
    place = StagingFolder(store, folder_of(RUNS[0], 0))
    discard(place, [kept])
    assert [file.path for file in store.listed()] == [kept.path, other.path]
    assert repeated.path != kept.path
    discard(place)
    assert [file.path for file in store.listed()] == [other.path]


def noisy(start: int, end: int) -> pa.RecordBatch:
    """Rows whose values do not compress."""
    values = pa.array([random.Random(n).randbytes(1_000) for n in range(start, end)])
    batch = rows(start, end)
    return batch.set_column(3, "value", values)


def test_files_close_near_their_target(store: LakeStore) -> None:
    small = replace(plan(store, folder_of(RUNS[0], 0)), target_bytes=100_000)
    files = TaskFiles(small)
    for start in range(0, 1_000, 10):
        files.append(0, noisy(start, start + 10))
        files.append(1, rows(start, start + 10))
    closed = files.close()
    assert sorted((file.partition, file.start) for file in closed)[-1] == (1, 0), "one small file"
    sizes = [file.size_bytes for file in closed if file.partition == 0]
    assert all(90_000 < size < 120_000 for size in sizes[:-1]), sizes
    assert len(sizes) == 11
    ends = sorted((file.start, file.end) for file in closed if file.partition == 0)
    assert [start for start, _ in ends[1:]] == [end for _, end in ends[:-1]]


def test_open_files_together_hold_one_row_group(
    store: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "ROW_GROUP_BYTES", 20_000)
    files = TaskFiles(plan(store, folder_of(RUNS[0], 0)))
    for start in range(0, 100, 2):
        for partition in range(10):
            files.append(partition, noisy(start, start + 2))
            assert sum(each.held_bytes for each in files._open.values()) <= 20_000
    assert [(file.partition, file.rows) for file in files.close()] == [(n, 100) for n in range(10)]


def test_rows_in_order_of_partition_are_split_without_a_copy() -> None:
    numbers = [0, 0, 1, 3, 3, 3]
    batch = pa.RecordBatch.from_pydict({"partition": numbers, "offset": range(6)})
    parts = [(number, part.column("offset").to_pylist()) for number, part in partitions_of(batch)]
    assert parts == [(0, [0, 1]), (1, [2]), (3, [3, 4, 5])]
    assert list(partitions_of(batch.slice(0, 0))) == []


def test_rows_of_an_older_file_take_the_tables_columns() -> None:
    batch = pa.RecordBatch.from_pydict({"gone": [1], "offset": pa.array([7], pa.int32())})
    rows = in_columns(batch, pa.schema([("offset", pa.int64()), ("new", pa.string())]))
    assert rows.to_pylist() == [{"offset": 7, "new": None}]
    assert rows.schema.field("offset").type == pa.int64()


@pytest.mark.parametrize(
    ("place", "location"),
    [
        ("/a/b/", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("s3://bucket/t/", "s3://bucket/t"),
        ("a", f"{os.getcwd()}/a"),
    ],
)
def test_a_place_is_a_path_or_a_uri(place: str, location: str) -> None:
    assert location_of(place) == location


@pytest.mark.parametrize("place", ["file:a/b", "file://host/a"])
def test_a_uri_of_no_local_path_is_refused(place: str) -> None:
    with pytest.raises(TableError, match="is no local path; write it as file:///"):
        location_of(place)


def test_times_beyond_pythons_leave_out_their_bounds(store: LakeStore) -> None:
    """A producer that writes microseconds where Kafka wants milliseconds."""
    schema = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    writer = LakeFileWriter(plan(store, "run-0-x", schema), 0)
    times = pa.array([1_700_000_000_000_000_000], pa.int64()).cast(schema.field(1).type)
    writer.append(pa.RecordBatch.from_arrays([pa.array([7], pa.int64()), times], schema=schema))
    stats = json.loads(writer.close().stats)
    assert stats["minValues"] == {"offset": 7}
    assert stats["numRecords"] == 1


def test_years_are_written_with_four_digits() -> None:
    assert as_json(datetime(9, 1, 1, tzinfo=UTC), up=False) == "0009-01-01T00:00:00.000Z"
    with pytest.raises(OverflowError):
        as_json(datetime.max.replace(tzinfo=UTC), up=True)


def test_a_file_that_cannot_be_written_is_given_up(
    store: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk refuses the end of a file as well."""
    writer = LakeFileWriter(plan(store, "run-0-x"), 0)
    writer.append(rows(0, 10))
    writer.flush()

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer._writer, "close", full)
    writer.abandon()
    assert list(store.listed()) == []


def test_reasons_of_libraries_become_one_line() -> None:
    assert reason_of(FileNotFoundError(2, "No such file")) == "No such file"
    colours = "Generic S3 error\n   \x1b[31m↳\x1b[0m Error performing GET\n\n"
    assert reason_of(OSError(colours)) == "Generic S3 error: Error performing GET"
    answer = "403\n<Error>\n<Code>AccessDenied</Code><Message>not yours</Message></Error>"
    assert reason_of(OSError(answer)) == "AccessDenied: not yours"
