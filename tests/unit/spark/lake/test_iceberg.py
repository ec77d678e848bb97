"""Iceberg tables of ingests: rollbacks, expired snapshots, foreign changes, catalogs."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableUpdate, update_table_metadata
from tests.support.iceberg import add_position_deletes
from tests.unit.spark.lake.test_lake_contract import (
    ORIGIN,
    SCHEMA,
    change_of,
    closed_catalogs,
    staged,
)

from tidelog.spark.lake import iceberg_commits, iceberg_library, iceberg_vacuum
from tidelog.spark.lake.commits import landed_runs, version_at
from tidelog.spark.lake.field_ids import check_field_ids
from tidelog.spark.lake.iceberg import IcebergLake
from tidelog.spark.lake.iceberg_library import CATALOG_FILE, store_options
from tidelog.spark.lake.iceberg_manifests import reachable
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.protocol import CommitAnswer, CommitObstacle
from tidelog.spark.lake.runs import commit_run, opened
from tidelog.spark.lake.staging import FilePlan, LakeFileWriter, run_folder
from tidelog.spark.lake.state import (
    HiddenRowsError,
    LakeState,
    PartitionRun,
    TableChange,
    TableError,
)
from tidelog.spark.lake.vacuum import vacuum_staged

__all__ = ["closed_catalogs"]
NAME = "landed.flights"


def lake_in(directory: Path) -> IcebergLake:
    return IcebergLake(NAME, {"warehouse": str(directory)})


def made(directory: Path) -> tuple[IcebergLake, LakeState]:
    lake = lake_in(directory)
    return lake, opened(lake, ORIGIN, lambda: SCHEMA)


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Table]:
    """The table as another tool opens it, with three commits: [0, 10), [10, 20), [20, 30)."""
    lake, state = made(tmp_path)
    for start in (0, 10, 20):
        change = change_of(lake, f"run-{start}", start, start + 10)
        state = commit_run(lake, state, change).state
    uri = f"sqlite:///{tmp_path}/{CATALOG_FILE}"
    with load_catalog(None, type="sql", uri=uri, warehouse=str(tmp_path)) as catalog:
        yield catalog.load_table(NAME)


def rows_of(table: Table) -> int:
    return int(table.refresh().scan().count())


def test_readers_find_columns_by_the_ids_in_the_files(tmp_path: Path, foreign: Table) -> None:
    lake = lake_in(tmp_path)
    path = lake.store.url(lake.files()[0].path)
    [value, partition, offset, headers] = pq.read_schema(path)
    ids = [field.metadata[b"PARQUET:field_id"] for field in (value, partition, offset, headers)]
    assert ids == [b"1", b"2", b"3", b"4"]
    with foreign.update_schema() as update:
        update.rename_column("value", "payload")
    rows = foreign.refresh().scan().to_arrow()
    assert rows.column("payload").to_pylist() == [b"v"] * 30
    assert rows.column("headers").to_pylist()[0] == [{"key": "k", "value": None}]
    with pytest.raises(TableError, match="has a renamed column 'value': read it with Iceberg's"):
        lake.check_files_are_rows()


def test_a_rollback_takes_offsets_and_rows_back_together(tmp_path: Path, foreign: Table) -> None:
    before = foreign.history()[1].snapshot_id
    foreign.manage_snapshots().rollback_to_snapshot(before).commit()
    lake = lake_in(tmp_path)
    state = lake.read()
    assert (state.following(), state.version) == ({0: 20}, 3)
    assert landed_runs(lake, 0) == ["run-10", "run-0"]
    outcome = commit_run(lake, state, change_of(lake, "again", 20, 30))
    assert (outcome.obstacle, outcome.state.version) == (None, 4)
    assert rows_of(foreign) == 30


def test_offsets_outlive_expired_snapshots(tmp_path: Path, foreign: Table) -> None:
    """Another tool rewrites the files and expires all snapshots that have notes."""
    foreign.overwrite(foreign.scan().to_arrow())
    ids = [each.snapshot_id for each in foreign.snapshots() if each != foreign.current_snapshot()]
    foreign.maintenance.expire_snapshots().by_ids(ids).commit()
    lake = lake_in(tmp_path)
    state = lake.read()
    assert state.following() == {0: 30}
    assert commit_run(lake, state, change_of(lake, "later", 30, 40)).obstacle is None
    assert rows_of(foreign) == 40


def test_a_rollback_that_leaves_no_note_is_refused(tmp_path: Path, foreign: Table) -> None:
    """Another tool rolls back, rewrites the files, and expires all snapshots with notes."""
    foreign.manage_snapshots().rollback_to_snapshot(foreign.history()[0].snapshot_id).commit()
    foreign.overwrite(foreign.refresh().scan().to_arrow())
    head = foreign.refresh().current_snapshot()
    ids = [each.snapshot_id for each in foreign.snapshots() if each != head]
    foreign.maintenance.expire_snapshots().by_ids(ids).commit()
    with pytest.raises(TableError, match="one has fewer rows than have landed: it was rolled back"):
        lake_in(tmp_path).read()


def test_a_run_that_was_planned_before_a_rollback_starts_over(
    tmp_path: Path, foreign: Table
) -> None:
    """A rollback changes no sequence number."""
    lake = lake_in(tmp_path)
    state = lake.read()
    foreign.manage_snapshots().rollback_to_snapshot(foreign.history()[1].snapshot_id).commit()
    outcome = commit_run(lake, state, change_of(lake, "late", 30, 40))
    assert outcome.obstacle is CommitObstacle.OVERTAKEN
    outcome = commit_run(lake, outcome.state, change_of(lake, "again", 20, 40))
    assert (outcome.obstacle, outcome.state.following()) == (None, {0: 40})
    table = foreign.refresh()
    table.manage_snapshots().rollback_to_snapshot(table.history()[0].snapshot_id).commit()
    late = change_of(lake, "later", 40, 50)
    assert commit_run(lake, outcome.state, late).obstacle is CommitObstacle.OVERTAKEN


def test_delete_files_are_not_read_as_rows(tmp_path: Path, foreign: Table) -> None:
    lake = lake_in(tmp_path)
    lake.check_files_are_rows()
    add_position_deletes(foreign)
    with pytest.raises(TableError, match="has delete files: read it with Iceberg's own reader"):
        lake.check_files_are_rows()
    state = lake.read()
    assert commit_run(lake, state, change_of(lake, "later", 30, 40)).obstacle is None


def test_commits_are_tried_once_whatever_others_set(tmp_path: Path, foreign: Table) -> None:
    lake, other = lake_in(tmp_path), lake_in(tmp_path)
    state, same = lake.read(), other.read()
    foreign.transaction().remove_properties("commit.retry.num-retries").commit_transaction()
    change = change_of(lake, "a", 30, 40)
    assert lake.commit(state, change) is CommitAnswer.CONFLICT, "the property comes first"
    assert foreign.refresh().properties["commit.retry.num-retries"] == "0"
    assert commit_run(lake, state, change).obstacle is None
    assert other.commit(same, change_of(lake, "b", 30, 40)) is CommitAnswer.CONFLICT
    assert rows_of(foreign) == 40


def test_rows_that_others_delete_during_a_merge_stay_deleted(
    tmp_path: Path, foreign: Table
) -> None:
    lake = lake_in(tmp_path)
    state, before = lake.read(), tuple(lake.files())
    change = TableChange("m", (), (staged(lake, "m", 0, 30),), before)
    add_position_deletes(foreign)
    with pytest.raises(HiddenRowsError, match="has delete files"):
        commit_run(lake, state, change)


def test_a_landed_run_without_a_note_keeps_its_files(tmp_path: Path, foreign: Table) -> None:
    """The answer was lost, and another run's vacuum has expired the snapshot since."""
    lake, other = lake_in(tmp_path), lake_in(tmp_path)
    state = lake.read()
    change = change_of(lake, "lost", 30, 40)
    commit = lake.commit

    def losing(state: LakeState, change: TableChange) -> CommitAnswer:
        commit(state, change)
        commit_run(other, other.read(), change_of(other, "next", 40, 50))
        other.vacuum(keep_hours=0)
        return CommitAnswer.LOST

    lake.commit = losing  # type: ignore[method-assign]  # an answer is lost
    assert commit_run(lake, state, change, sleep=lambda _: None).obstacle is None
    assert rows_of(foreign) == 50


def test_a_file_with_a_renamed_column_is_not_read_by_name(tmp_path: Path, foreign: Table) -> None:
    lake = lake_in(tmp_path)
    [first, *_] = lake.files()
    columns = pq.read_schema(lake.store.url(first.path))
    check_field_ids(columns, lake.field_ids(), first.path)
    for path, name in (("value", "payload"), ("headers.key", "name")):
        with foreign.update_schema() as update:
            update.rename_column(path, name)
        with pytest.raises(HiddenRowsError, match=f"column '.*{path.rpartition('.')[2]}', which"):
            check_field_ids(columns, lake.field_ids(), first.path)
        with foreign.update_schema() as update:
            update.rename_column(path.replace(path.rpartition(".")[2], name), path.split(".")[-1])
    with pytest.raises(HiddenRowsError, match="renamed column"):
        lake.check_files_are_rows()


def test_a_vacuum_of_dead_runs_keeps_the_files_of_other_snapshots(
    tmp_path: Path, foreign: Table
) -> None:
    foreign.manage_snapshots().create_tag(foreign.history()[2].snapshot_id, "kept").commit()
    foreign.manage_snapshots().rollback_to_snapshot(foreign.history()[1].snapshot_id).commit()
    lake = lake_in(tmp_path)
    dead = staged(lake, "0123456789abcdef", 20, 30)
    report = vacuum_staged(lake, [lake.store], dead_after_ms=0)
    assert report.deleted == (dead.path,)
    assert foreign.refresh().scan(snapshot_id=foreign.refs()["kept"].snapshot_id).count() == 30


def test_a_time_before_a_rollback_has_the_version_of_then(tmp_path: Path, foreign: Table) -> None:
    first, _, third = foreign.history()
    before_ms = third.timestamp_ms
    foreign.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    lake = lake_in(tmp_path)
    rolled_back_ms = foreign.refresh().history()[-1].timestamp_ms
    assert version_at(lake, rolled_back_ms) == 1
    version = version_at(lake, min(before_ms, rolled_back_ms - 1))
    assert [len(lake.files(each)) for each in (1, version)] == [1, 3]


def test_a_vacuum_expires_nothing_while_branches_move(
    tmp_path: Path, foreign: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_in(tmp_path)
    first = foreign.history()[0].snapshot_id
    real = reachable

    def moving(table: Table, snapshots: list[Snapshot]) -> dict[str, bool]:
        monkeypatch.setattr(iceberg_vacuum, "reachable", real)
        foreign.manage_snapshots().rollback_to_snapshot(first).commit()
        return real(table, snapshots)

    monkeypatch.setattr(iceberg_vacuum, "reachable", moving)
    assert lake.vacuum(keep_hours=0) == 0
    assert rows_of(foreign) == 10
    table = foreign.refresh()
    foreign.manage_snapshots().create_tag(foreign.snapshots()[-1].snapshot_id, "late").commit()
    foreign.manage_snapshots().remove_tag("late").commit()
    lost = table.snapshots()[1].snapshot_id
    table.metadata.refs["main"] = SnapshotRef.model_validate(
        {"snapshot-id": lost, "type": SnapshotRefType.BRANCH}
    )
    with pytest.raises(CommitFailedException, match="main has changed"):
        iceberg_commits.expire(table, {table.snapshots()[2].snapshot_id})


def test_a_vacuum_deletes_the_manifests_of_commits_that_died(
    tmp_path: Path, foreign: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, files = lake_in(tmp_path), Path(lake_in(tmp_path).store.location, "metadata")
    kept = set(files.iterdir())

    def dies(*_: object) -> None:
        raise OSError("the process is gone")

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", dies)
        state = lake.read()
        assert lake.commit(state, change_of(lake, "dead", 30, 40)) is CommitAnswer.LOST
    left = set(files.iterdir()) - kept
    assert len(left) == 2, "a manifest, and a list of manifests"
    assert lake.vacuum(keep_hours=168) == 0
    assert left <= set(files.iterdir()), "a commit may be on its way"
    for path in files.iterdir():
        os.utime(path, (0, 1_000_000_000))
    assert lake.vacuum(keep_hours=168) == 0
    assert set(files.iterdir()) == kept
    assert rows_of(foreign) == 30


def test_a_commit_copies_no_snapshots_but_the_newest(
    tmp_path: Path, foreign: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, looks = lake_in(tmp_path), list[int]()
    real = update_table_metadata

    def looked(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
        looks.append(len(metadata.snapshots))
        return real(metadata, updates)

    monkeypatch.setattr(iceberg_commits, "update_table_metadata", looked)
    commit_run(lake, lake.read(), change_of(lake, "run", 30, 40))
    assert set(looks) == {1}
    assert len(looks) <= 3
    assert len(foreign.refresh().snapshots()) == 4
    assert rows_of(foreign) == 40


def test_a_vacuum_goes_on_where_another_has_deleted_files(tmp_path: Path, foreign: Table) -> None:
    lake = lake_in(tmp_path)
    before = tuple(lake.files())
    commit_run(lake, lake.read(), TableChange("m", (), (staged(lake, "m", 0, 30),), before))
    Path(lake.store.url(before[0].path)).unlink()
    assert lake.vacuum(keep_hours=0) == 3
    assert lake.store.existing([file.path for file in before]) == []


def test_partition_values_are_those_of_the_rows_whatever_statistics_are_kept(
    tmp_path: Path,
) -> None:
    lake = lake_in(tmp_path)
    schema = SCHEMA.append(pa.field("c", pa.string()))
    state = opened(lake, ORIGIN, lambda: schema, ("c",))
    table = lake._at_head()
    table.transaction().set_properties(
        {"write.metadata.metrics.default": "none"}
    ).commit_transaction()
    plan = FilePlan(run_folder(lake, "a", 0), "flights", schema, partition_by=("c",))
    writer = LakeFileWriter(plan, 0, {"c": "AA"})
    rows = [{"partition": 0, "offset": offset, "c": "AA"} for offset in range(10)]
    writer.append(pa.RecordBatch.from_pylist(rows, schema))
    change = TableChange("a", (PartitionRun(0, 0, 10, 10),), (writer.close(),))
    assert commit_run(lake, state, change).obstacle is None
    assert table.refresh().scan(row_filter="c = 'AA'").count() == 10
    with pytest.raises(TableError, match=r"reads the partition column 'a.b' as nested"):
        IcebergLake("landed.dotted", {"warehouse": str(tmp_path)}).create(
            ORIGIN, SCHEMA.append(pa.field("a.b", pa.string())), ("a.b",)
        )


def test_times_that_python_lacks_have_no_bounds(tmp_path: Path) -> None:
    lake = lake_in(tmp_path)
    schema = SCHEMA.append(pa.field("t", pa.timestamp("us", "UTC")))
    state = opened(lake, ORIGIN, lambda: schema)
    writer = LakeFileWriter(FilePlan(run_folder(lake, "a", 0), "flights", schema), 0)
    times = pa.array([0, 10**18], pa.int64()).cast(pa.timestamp("us", "UTC"))
    offsets = pa.array([0, 1], pa.int64())
    columns = [pa.nulls(2, field.type) for field in SCHEMA]
    columns[1:3] = [pa.array([0, 0], pa.int32()), offsets]
    writer.append(pa.RecordBatch.from_arrays([*columns, times], schema=schema))
    change = TableChange("a", (PartitionRun(0, 0, 2, 2),), (writer.close(),))
    assert commit_run(lake, state, change).obstacle is None
    [file] = lake.files()
    assert (file.start, file.end) == (0, 2)


def test_an_embedded_catalog_has_one_name_and_no_files_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    monkeypatch.setenv("PYICEBERG_DEFAULT_CATALOG", "prod")
    assert lake_in(tmp_path).newest() == 0
    (tmp_path / CATALOG_FILE).unlink()
    with pytest.raises(TableError, match="not in the catalog of .*, which holds files of such a"):
        lake_in(tmp_path).create(ORIGIN, SCHEMA)


@pytest.mark.parametrize(
    "warehouse", ["{}/w", "file://{}/w", "file:{}/w", "{}/with ? and # and %41"]
)
def test_a_warehouse_is_where_it_says(tmp_path: Path, warehouse: str) -> None:
    lake = IcebergLake(NAME, {"warehouse": warehouse.format(tmp_path)})
    opened(lake, ORIGIN, lambda: SCHEMA)
    [catalog] = tmp_path.rglob(CATALOG_FILE)
    assert catalog.parent.parent == tmp_path
    assert lake.store.location.startswith(str(catalog.parent))


def test_foreign_commits_between_ours_are_no_obstacle(tmp_path: Path, foreign: Table) -> None:
    lake = lake_in(tmp_path)
    state = lake.read()
    foreign.delete("offset = 3")
    outcome = commit_run(lake, state, change_of(lake, "later", 30, 40))
    assert (outcome.obstacle, outcome.state.version) == (None, 5)
    assert rows_of(foreign) == 39


def test_a_merge_is_no_new_data_to_incremental_readers(tmp_path: Path, foreign: Table) -> None:
    lake = lake_in(tmp_path)
    change = TableChange("m", (), (staged(lake, "m", 0, 30),), tuple(lake.files()))
    assert commit_run(lake, lake.read(), change).obstacle is None
    summaries = [snapshot.summary for snapshot in foreign.refresh().snapshots()]
    assert [str(each and each.operation) for each in summaries] == [
        "Operation.APPEND",
        "Operation.APPEND",
        "Operation.APPEND",
        "Operation.REPLACE",
    ]
    assert summaries[-1] is not None and summaries[-1]["total-records"] == "30"
    assert rows_of(foreign) == 30


def test_a_vacuum_deletes_files_that_no_snapshot_refers_to(tmp_path: Path, foreign: Table) -> None:
    lake = lake_in(tmp_path)
    state = lake.read()
    before = tuple(lake.files())
    tag = foreign.history()[0].snapshot_id
    foreign.manage_snapshots().create_tag(tag, "kept").commit()
    commit_run(lake, state, TableChange("m", (), (staged(lake, "m", 0, 30),), before))
    assert lake.vacuum(keep_hours=0) == 2, "the file of the tagged snapshot stays"
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert len(left) == 2
    assert rows_of(foreign) == 30
    assert foreign.scan(snapshot_id=tag).count() == 10
    manifests = {Path(each).name for each in _metadata_files(foreign.refresh())}
    on_disk = {path.name for path in tmp_path.rglob("*.avro")}
    assert on_disk == manifests


def _metadata_files(table: Table) -> list[str]:
    lists = [snapshot.manifest_list for snapshot in table.snapshots()]
    inside = [
        manifest.manifest_path
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
    ]
    return [*lists, *inside]


def test_a_table_that_no_ingest_made_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    uri = f"sqlite:///{tmp_path}/{CATALOG_FILE}"
    with load_catalog(None, type="sql", uri=uri, warehouse=str(tmp_path)) as catalog:
        catalog.create_table("landed.other", SCHEMA)
        catalog.create_table("landed.old", SCHEMA, properties={"format-version": "1"})
    with pytest.raises(TableError, match="an Iceberg table that no ingest has made"):
        IcebergLake("landed.other", {"warehouse": str(tmp_path)}).read()
    with pytest.raises(TableError, match="has format version 1; upgrade it to 2"):
        IcebergLake("landed.old", {"warehouse": str(tmp_path)}).newest()


@pytest.mark.parametrize("name", ["flights", ".flights", "landed.", ""])
def test_a_name_without_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(TableError, match=f"iceberg:{name} is not like iceberg:NAMESPACE.TABLE"):
        lake_at(f"iceberg:{name}", None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "has no catalog: .* Give one, such as warehouse=DIRECTORY"),
        ({"type": "unheard"}, "has no catalog: 'unheard' is not a valid CatalogType"),
        ({"warehouse": "s3://lake/w"}, "needs a catalog, whose commits are atomic"),
        ({"warehouse": "/proc/lake"}, "/proc/lake cannot be created: No such file"),
        ({"uri": "http://127.0.0.1:9"}, "has no catalog: .*Connection refused"),
        ({"type": "sql", "uri": "sqlite:////proc/x.db"}, "unable to open database file"),
    ],
)
def test_a_catalog_that_is_not_there_is_named(
    options: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", "/nonexistent")
    with pytest.raises(TableError, match=reason):
        IcebergLake(NAME, options).read()


def test_a_catalog_that_cannot_be_written_ends_a_commit(tmp_path: Path) -> None:
    lake, state = made(tmp_path)
    change = change_of(lake, "a", 0, 10)
    connection = sqlite3.connect(tmp_path / CATALOG_FILE)
    connection.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON iceberg_tables"
        " BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
    )
    connection.close()
    with pytest.raises(TableError, match="cannot be written: .*disk is full"):
        lake.commit(state, change)
    assert lake_in(tmp_path).read().following() == {}


def test_metadata_is_durable_before_the_catalog_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(iceberg_library, "sync_file", synced.append)
    lake, state = made(tmp_path)
    commit_run(lake, state, change_of(lake, "a", 0, 10))
    table = lake._at_head()
    wanted = [table.metadata_location, *_metadata_files(table)]
    assert [path for path in wanted if path.removeprefix("file://") not in synced] == []


def test_options_of_files_have_the_names_of_their_stores() -> None:
    options = store_options(
        {
            "s3.endpoint": "http://127.0.0.1:5000",
            "s3.access-key-id": "id",
            "client.region": "eu-central-1",
            "AWS_PROFILE": "lake",
            "uri": "sqlite://",
        }
    )
    assert options == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:5000",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_REGION": "eu-central-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_PROFILE": "lake",
    }


def test_a_clock_that_is_behind_the_table_commits_nothing(
    tmp_path: Path, foreign: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's readers refuse a table whose times go back by over a minute."""
    lake = lake_in(tmp_path)
    state = lake.read()
    now_ns = foreign.refresh().metadata.last_updated_ms * 1_000_000
    last = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now_ns - 3_600 * 1_000_000_000)
        sentence = (
            f"iceberg:{NAME} has version 3 of {last:%Y-%m-%d %H:%M:%S} UTC, and the clock of this"
            " machine is 3600 seconds behind it. Spark and other readers refuse a table whose times"
            " go back, so nothing was committed: set the clocks of all machines that write the"
            " table"
        )
        for commit in (
            lambda: commit_run(lake, state, change_of(lake, "late", 30, 40)),
            lambda: lake.add_columns(state, pa.schema([("new", pa.int64())])),
            lambda: lake.vacuum(0),
        ):
            with pytest.raises(TableError) as raised:
                commit()
            assert str(raised.value) == sentence
        assert lake.read() == state
        patch.setattr(time, "time_ns", lambda: now_ns - 50 * 1_000_000_000)
        assert commit_run(lake, state, change_of(lake, "near", 30, 40)).state.version == 4
