"""Upserts against a replay in Python: batches of changes to few keys, in files without Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import parquet

from tidelog.spark.lake.staging import FilePlan, LakeFileWriter, StagingFolder
from tidelog.spark.lake.state import LakeFile, TableError
from tidelog.spark.lake.stores import LakeStore
from tidelog.spark.pipelines.latest_rows import UpsertKeyError, check_key, superseded
from tidelog.spark.pipelines.upserts import UpsertFiles, upsert_files

#: A row as (partition, offset, key, value); a row without a value is a tombstone.
Change = tuple[int, int, str | None, bytes | None]
COLUMNS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("value", pa.binary()),
    ]
)
MARKED = COLUMNS.append(pa.field("tombstone", pa.bool_()))
NO_SPARK = cast(Any, None)


def staged(place: StagingFolder, changes: list[Change], schema: pa.Schema) -> list[LakeFile]:
    """Write a file of each partition's changes."""
    files = []
    for partition in sorted({change[0] for change in changes}):
        ours = [change for change in changes if change[0] == partition]
        rows = [
            {**dict(zip(COLUMNS.names, change, strict=True)), "tombstone": change[3] is None}
            for change in ours
        ]
        writer = LakeFileWriter(FilePlan(place, "t", schema), partition)
        for row in rows:  # as many Arrow batches as rows
            writer.append(pa.RecordBatch.from_pylist([row], schema=schema))
        files.append(writer.close())
    return files


def rows_of(place: StagingFolder, files: list[LakeFile]) -> list[dict[str, Any]]:
    found = []
    for file in files:
        table = parquet.read_table(Path(place.store.location) / file.path, partitioning=None)
        assert table.schema.names == COLUMNS.names
        assert table.column("offset").to_pylist() == sorted(table.column("offset").to_pylist())
        assert (file.rows, file.start) == (table.num_rows, table.column("offset")[0].as_py())
        found += table.to_pylist()
    return found


class Table:
    """A table without a log: its files after each upsert."""

    def __init__(self, path: Path, *, is_marked: bool = False) -> None:
        self.place = StagingFolder(LakeStore(str(path)), "run-0-0")
        self.files: list[LakeFile] = []
        self.is_marked = is_marked

    def upsert(self, changes: list[Change]) -> UpsertFiles:
        new = staged(self.place, changes, MARKED if self.is_marked else COLUMNS)
        change = upsert_files(
            NO_SPARK,
            FilePlan(self.place, "t", COLUMNS),
            ["key"],
            self.files,
            new,
            is_marked=self.is_marked,
        )
        self.files = [each for each in self.files if each not in change.removed]
        self.files += change.added
        return change

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.place, self.files)


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_any_batches_end_as_a_replay_does(tmp_path: Path, seed: int, is_marked: bool) -> None:
    draws = random.Random(seed)
    table = Table(tmp_path, is_marked=is_marked)
    ends = [0, 0]
    latest: dict[str, Change] = {}
    for _ in range(draws.randrange(1, 8)):
        batch: list[Change] = []
        for _ in range(draws.randrange(12)):
            partition = draws.randrange(2)
            key = f"{partition}-{draws.randrange(4)}"
            value = None if draws.random() < 0.3 else b"%d" % draws.randrange(99)
            batch.append((partition, ends[partition], key, value))
            ends[partition] += draws.choice((1, 1, 3))
            latest[key] = batch[-1]
        table.upsert(batch)
        found = sorted(tuple(row.values()) for row in table.rows())
        assert found == sorted(each for each in latest.values() if each[3] is not None)


def test_files_without_a_changed_key_stay(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert([(0, 0, "a", b"1"), (0, 1, "b", b"1")])
    table.upsert([(0, 2, "c", b"1")])
    [first, second] = table.files
    change = table.upsert([(0, 3, "c", b"2")])
    assert change.removed == (second,)
    assert table.files == [first, *change.added]
    assert [(each.start, each.end) for each in change.added] == [(3, 4)]


def test_a_tombstone_of_an_unknown_key_changes_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert([(0, 0, "a", b"1")])
    assert table.upsert([(0, 1, "b", None)]) == UpsertFiles((), ())
    assert table.upsert([]) == UpsertFiles((), ())


@pytest.mark.parametrize("value", [b"2", None])
def test_a_key_in_two_partitions_is_refused(tmp_path: Path, value: bytes | None) -> None:
    table = Table(tmp_path)
    table.upsert([(0, 7, "a", b"1")])
    reason = r"key 'a' is in partitions 0 \(offset 7\) and 2 \(offset 3\): their"
    with pytest.raises(UpsertKeyError, match=reason):
        table.upsert([(2, 3, "a", value)])


def test_a_record_without_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpsertKeyError, match=r"t-1 at offset 9 has no key \(key is null\)"):
        Table(tmp_path).upsert([(1, 8, "a", b"1"), (1, 9, None, b"1")])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert([(0, 0, "a", b"1")])
    (tmp_path / table.files[0].path).unlink()
    with pytest.raises(TableError, match="parquet is missing. `tidelog pipeline prove`"):
        table.upsert([(0, 1, "a", b"2")])


def test_an_offset_twice_in_a_file_of_the_table_is_no_base(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.files = staged(table.place, [(0, 0, "a", b"1"), (0, 0, "b", b"1")], COLUMNS)
    with pytest.raises(TableError, match="has an offset twice"):
        table.upsert([(0, 1, "a", b"2")])


def test_keys_of_several_columns_are_compared_as_a_whole() -> None:
    rows = {
        "k0": ["a", "a", "b", "b", "a"],
        "k1": [1, 2, 1, 2, 2],
        "k2": [b"", b"", b"", b"", b""],
        "file": pa.array([0, 0, 0, 0, 1], pa.int32()),
        "partition": pa.array([0] * 5, pa.int32()),
        "offset": [0, 1, 2, 3, 4],
        "tombstone": [False, False, False, True, False],
    }
    leaving = superseded(pa.table(rows)).to_pylist()
    assert sorted(each["offset"] for each in leaving) == [1, 3]


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.list_(pa.int64()), pa.struct([("a", pa.int8())])]
)
def test_types_that_are_no_key(kind: pa.DataType) -> None:
    with pytest.raises(TableError, match="column 'id' is .*: a key is of texts"):
        check_key(pa.schema([("id", kind)]), ["id"])
    with pytest.raises(TableError, match="column 'no' is no column of the table, which has id"):
        check_key(pa.schema([("id", kind)]), ["no"])
