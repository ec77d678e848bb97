"""Delta tables of ingests: states, commits by compare-and-set, and what a look back finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from tidelog.spark.lake.commits import first_known, landed_runs, version_at
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.protocol import CommitAnswer
from tidelog.spark.lake.runs import commit_run, opened
from tidelog.spark.lake.state import (
    LakeFile,
    LakeState,
    Origin,
    PartitionRun,
    TableChange,
    TableError,
)

ROOT = Path(__file__).resolve().parents[4]
_LIMIT_S = 300
ORIGIN = Origin("flights", "flights-id", "cluster-id")
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def file_of(run: str, partition: int, start: int, end: int) -> LakeFile:
    """A file with all offsets of a range; only its description matters here."""
    stats = {
        "numRecords": end - start,
        "minValues": {"partition": partition, "offset": start},
        "maxValues": {"partition": partition, "offset": end - 1},
        "nullCount": {"partition": 0, "offset": 0},
    }
    path = f"run-0-{run}/flights-{partition}.parquet"
    return LakeFile(path, partition, start, end, end - start, 100, json.dumps(stats))


def change_of(run: str, start: int, end: int, partition: int = 0) -> TableChange:
    """An ingest's change without gaps."""
    offsets = (PartitionRun(partition, start, end, end - start),)
    return TableChange(run, offsets, (file_of(run, partition, start, end),))


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def made(location: str) -> tuple[DeltaLake, LakeState]:
    lake = DeltaLake(location)
    return lake, opened(lake, ORIGIN, lambda: SCHEMA)


def test_a_new_table_has_its_topic_and_nothing_else(location: str) -> None:
    _, state = made(location)
    assert state == LakeState(0, ORIGIN)
    metadata = DeltaTable(location).metadata()
    assert metadata.name == "flights"
    assert metadata.configuration["delta.checkpointInterval"] == "20", "looks read few commits"
    assert DeltaLake(location).create(ORIGIN, SCHEMA) is CommitAnswer.CONFLICT


def test_offsets_and_files_are_one_commit(location: str) -> None:
    lake, state = made(location)
    assert lake.commit(state, change_of("a", 5, 15)) is CommitAnswer.COMMITTED
    state = DeltaLake(location).read()
    assert state.partitions == {0: PartitionRun(0, 5, 15, 10)}
    assert state.following() == {0: 15}
    [file] = lake.files()
    assert (file.path, file.partition, file.start, file.end, file.rows) == (
        "run-0-a/flights-0.parquet",
        0,
        5,
        15,
        10,
    )
    assert DeltaTable(location).transaction_version("tidelog-flights-id-0") == 15
    assert lake.files(0) == []


def test_offsets_outlive_the_metadata_of_commits(location: str) -> None:
    lake, state = made(location)
    state = commit_run(lake, state, change_of("a", 0, 10)).state
    commit_run(lake, state, change_of("b", 10, 20))
    DeltaTable(location).create_checkpoint()
    for path in sorted(Path(location, "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    newest = sorted(Path(location, "_delta_log").glob("*.json"))[-1]
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    lines[0]["commitInfo"].pop("tidelog")
    newest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    state = DeltaLake(location).read()
    assert state.origin == ORIGIN
    assert state.following() == {0: 20}


def test_a_cleaned_log_knows_where_its_commits_begin(location: str) -> None:
    lake, state = made(location)
    assert first_known(lake) == 0
    for number in range(4):
        change = change_of(f"run-{number}", 10 * number, 10 * number + 10)
        state = commit_run(lake, state, change).state
    DeltaTable(location).create_checkpoint()
    for path in sorted(Path(location, "_delta_log").glob("*.json"))[:3]:
        path.unlink()
    again = DeltaLake(location)
    assert first_known(again) == 3
    assert landed_runs(again, 2) == ["run-3", "run-2"]
    assert again.read().following() == {0: 40}


def test_a_table_that_no_ingest_made_is_refused(location: str) -> None:
    write_deltalake(location, pa.table({"offset": [1]}))
    with pytest.raises(TableError, match="a Delta table that no ingest has made"):
        DeltaLake(location).read()


def test_a_later_versions_table_is_refused(location: str) -> None:
    lake, state = made(location)
    commit_run(lake, state, change_of("a", 0, 10))
    path = Path(location, "_delta_log", f"{1:020}.json")
    path.write_text(path.read_text().replace(r"\"format\":1", r"\"format\":2"))
    with pytest.raises(TableError, match="later version of tidelog"):
        DeltaLake(location).read()


@pytest.mark.parametrize(
    ("settings", "feature"),
    [
        ({"delta.columnMapping.mode": "name"}, "column mapping"),
        ({"delta.enableDeletionVectors": "true"}, "deletion vectors"),
    ],
)
def test_a_table_whose_files_are_not_its_rows_is_not_read_by_files(
    location: str, settings: dict[str, str], feature: str
) -> None:
    DeltaTable.create(location, SCHEMA, configuration=settings)
    with pytest.raises(TableError, match=f"has {feature}: read it with Delta's own reader"):
        DeltaLake(location).check_files_are_rows()


def clean_log(location: str) -> None:
    """Leave a log without the commits of ingests, as Delta does after its retention."""
    table = DeltaTable(location)
    table.create_write_transaction([], "append", table.schema())
    table.update_incremental()
    table.create_checkpoint()
    for path in Path(location, "_delta_log").glob("*.json"):
        if int(path.stem) < table.version():
            path.unlink()


def test_where_the_log_was_cleaned_the_transactions_say_what_landed(location: str) -> None:
    lake, state = made(location)
    state = commit_run(lake, state, change_of("a", 0, 10)).state
    commit_run(lake, state, change_of("b", 10, 15))
    commit_run(lake, lake.read(), TableChange("c", (PartitionRun(7, 3, 3, 0),)))
    clean_log(location)
    state = DeltaLake(location).read()
    assert state.following() == {0: 15, 7: 3}
    assert not state.is_whole
    state = commit_run(lake, lake.read(), change_of("d", 15, 20)).state
    assert (state.following()[0], state.is_whole) == (20, False)
    assert not DeltaLake(location).read().is_whole, "no later commit has the counts of before"


def test_a_first_commit_during_a_look_is_seen_by_the_next_look(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, state = made(location)
    described = DeltaLake._described
    answers: list[CommitAnswer] = []

    def commits_meanwhile(reader: DeltaLake, table: DeltaTable) -> Origin | None:
        if not answers:
            answers.append(lake.commit(state, change_of("a", 0, 10)))
        return described(reader, table)

    monkeypatch.setattr(DeltaLake, "_described", commits_meanwhile)
    assert DeltaLake(location).read().following() == {0: 10}
    assert answers == [CommitAnswer.COMMITTED]


def test_a_new_table_whose_log_was_cleaned_is_whole(location: str) -> None:
    made(location)
    clean_log(location)
    assert DeltaLake(location).read().is_whole


def test_a_table_without_any_offsets_of_its_files_is_refused(location: str) -> None:
    """A restored or foreign log: nothing tells where an ingest goes on."""
    made(location)
    write_deltalake(location, pa.table({name: [] for name in SCHEMA.names}, SCHEMA), mode="append")
    rows = pa.table({"topic": ["flights"], "partition": [0], "offset": [1]}).cast(SCHEMA)
    write_deltalake(location, rows, mode="append")
    clean_log(location)
    with pytest.raises(TableError, match="has files, and its log has no offsets"):
        DeltaLake(location).read()


def test_a_file_of_several_partitions_has_no_partition(location: str) -> None:
    made(location)
    rows = pa.table({"topic": ["t"] * 2, "partition": [0, 1], "offset": [1, 2]}).cast(SCHEMA)
    write_deltalake(location, rows, mode="append")
    assert [file.partition for file in DeltaLake(location).files()] == [-1]


def test_a_state_belongs_to_one_version(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`DeltaTable.history` shows a commit that came after the table was opened."""
    lake, state = made(location)
    other = DeltaLake(location)
    real = DeltaLake._noted
    came: list[bool] = []

    def note(self: DeltaLake, table: DeltaTable) -> object:
        if not came:
            came.append(True)
            commit_run(other, state, change_of("a", 0, 10))
        return real(self, table)

    monkeypatch.setattr(DeltaLake, "_noted", note)
    found = lake.read()
    assert (found.version, found.following()) == (1, {0: 10})


def test_a_state_that_is_behind_conflicts_without_its_version(location: str) -> None:
    """Others may have cleaned the version that a follower has seen."""
    lake, state = made(location)
    commit_run(lake, state, change_of("a", 0, 10))
    clean_log(location)
    assert DeltaLake(location).commit(state, change_of("b", 0, 10)) is CommitAnswer.CONFLICT


def test_a_refused_commit_that_met_no_other_is_told(location: str) -> None:
    made(location)
    log = Path(location, "_delta_log", f"{0:020}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            feature = ["rowTracking", "domainMetadata"]
            action["protocol"] = {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": feature,
            }
    log.write_text("\n".join(json.dumps(action) for action in actions) + "\n")
    lake = DeltaLake(location)
    with pytest.raises(TableError, match="takes no commit: .*RowTracking"):
        commit_run(lake, lake.read(), change_of("a", 0, 10))


@pytest.mark.parametrize(
    ("settings", "feature"),
    [
        ({"delta.columnMapping.mode": "name"}, "column mapping"),
        ({"delta.enableDeletionVectors": "true"}, "deletion vectors"),
    ],
)
def test_an_ingests_table_with_a_foreign_feature_is_refused(
    location: str, settings: dict[str, str], feature: str
) -> None:
    description = json.dumps({"tidelog": asdict(ORIGIN)})
    DeltaTable.create(location, SCHEMA, configuration=settings, description=description)
    with pytest.raises(TableError, match=f"has {feature}, which ingests do not support"):
        DeltaLake(location).read()


def test_an_ingests_table_with_a_constraint_is_refused(location: str) -> None:
    made(location)
    DeltaTable(location).alter.add_constraint({"few": "offset < 45"})
    with pytest.raises(TableError, match="has the constraint 'few', which ingests do not support"):
        DeltaLake(location).read()


def test_partition_columns_are_the_tables_and_their_values_the_files(location: str) -> None:
    lake = DeltaLake(location)
    schema = pa.schema([*SCHEMA, ("kept", pa.bool_()), ("c", pa.string())])
    names = ("partition", "kept", "c")
    state = opened(lake, ORIGIN, lambda: schema, names)
    assert state.partition_by == DeltaLake(location).read().partition_by == names
    values = {"partition": "7", "kept": "true", "c": None}
    stats = json.dumps({"numRecords": 5, "minValues": {"offset": 5}, "maxValues": {"offset": 9}})
    file = LakeFile("run-0-a/c=%2F/x.parquet", 7, 5, 10, 5, 100, stats, values)
    other = replace(file, path="run-0-a/c=y/x.parquet", values={**values, "c": "y/z %41"})
    state = commit_run(lake, state, TableChange("a", (), (file, other))).state
    found = {each.path: replace(each, stats=stats) for each in lake.files()}
    assert found == {file.path: file, other.path: other}
    merged = replace(file, path="run-1-b/x.parquet")
    assert commit_run(lake, state, TableChange("b", (), (merged,), (file,))).obstacle is None
    assert sorted(each.path for each in lake.files()) == [other.path, merged.path]


def test_a_path_that_the_library_cannot_open_is_refused_before_it_is_made(tmp_path: Path) -> None:
    location = str(tmp_path / "a%25b")
    with pytest.raises(TableError, match="has a % or a backslash"):
        DeltaLake(location).create(ORIGIN, SCHEMA)
    assert not Path(location).exists()


def test_a_lost_answer_to_the_creation_finds_the_table(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = transaction.create_table_with_add_actions

    def lost(*args: object, **kwargs: object) -> None:
        real(*args, **kwargs)  # type: ignore[arg-type]  # passed on
        raise OSError("connection reset")

    monkeypatch.setattr(transaction, "create_table_with_add_actions", lost)
    assert DeltaLake(location).create(ORIGIN, SCHEMA) is CommitAnswer.CONFLICT
    assert DeltaLake(location).read() == LakeState(0, ORIGIN)


def test_a_commit_that_exists_has_not_failed(
    location: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: str) -> None:
        raise OSError(28, "No space left on device", path)

    lake, state = made(location)
    monkeypatch.setattr("tidelog.spark.lake.delta.sync_file", full)
    assert lake.commit(state, change_of("a", 0, 10)) is CommitAnswer.COMMITTED
    assert "is committed, but not durable yet: No space left on device" in caplog.text

    real = DeltaTable.create_write_transaction

    def lost(*args: object, **kwargs: object) -> None:
        real(*args, **kwargs)  # type: ignore[arg-type]  # passed on
        raise OSError("No space left on device: the checkpoint")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    outcome = commit_run(lake, lake.read(), change_of("b", 10, 20), sleep=lambda wait_s: None)
    assert (outcome.obstacle, outcome.state.following()) == (None, {0: 20})


@pytest.mark.parametrize("conflicts", [2, 99])
def test_a_vacuum_that_another_commit_overtakes_is_repeated(
    location: str, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    for mode in ("append", "overwrite"):
        write_deltalake(location, pa.table({"n": [1]}), mode=mode)
    real, calls = DeltaTable.vacuum, []

    def vacuum(table: DeltaTable, hours: int, *, dry_run: bool = True, **options: Any) -> list[str]:
        if not dry_run:
            calls.append(hours)
            if len(calls) <= conflicts:
                raise CommitFailedError("a concurrent transaction deleted data")
        return real(table, hours, dry_run=dry_run, **options)

    monkeypatch.setattr(DeltaTable, "vacuum", vacuum)
    assert DeltaLake(location).vacuum(0) == (1 if conflicts == 2 else 0)
    assert len(calls) == (3 if conflicts == 2 else 5)
    assert len(list(Path(location).glob("*.parquet"))) == (1 if conflicts == 2 else 2)


def test_a_commit_by_a_clock_that_was_ahead_is_older_than_later_commits(location: str) -> None:
    lake, state = made(location)
    for start in (0, 10, 20):
        state = commit_run(lake, state, change_of(f"run-{start}", start, start + 10)).state
    log = Path(location, "_delta_log", f"{2:020}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    [info] = (action["commitInfo"] for action in actions if "commitInfo" in action)
    info["timestamp"] += 3_600_000
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    times = {version: time_ms for time_ms, version in DeltaLake(location).history()}
    assert [version for _, version in DeltaLake(location).history()] == [3, 2, 1, 0]
    assert times[2] == info["timestamp"]
    assert times[3] == times[2] + 1
    assert version_at(DeltaLake(location), times[2] - 1) == 1
    assert version_at(DeltaLake(location), times[2]) == 2
    assert version_at(DeltaLake(location), times[3]) == 3


READ_ONLY = """
import os, sys
import deltalake.exceptions, deltalake.transaction, pyarrow.compute, pyarrow.fs, pyarrow.parquet
from tests.unit.spark.lake.test_delta import change_of, made
from tidelog.spark.lake import vacuum
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.runs import commit_run
from tidelog.spark.lake.state import TableError

if os.getuid() == 0:
    os.setuid(65534)  # root may write everywhere
table, place = sys.argv[1:]
lake = DeltaLake(table)
state = lake.read()
for act in (
    lambda: commit_run(lake, state, change_of("b", 10, 20)),
    lambda: lake.store.now_ms(),
    lambda: made(place),
):
    try:
        act()
    except TableError as error:
        print(error)
print(lake.read() == state)
"""


def test_a_table_that_may_not_be_written_is_named_with_the_reason() -> None:
    with tempfile.TemporaryDirectory() as directory:
        table, place = os.path.join(directory, "table"), os.path.join(directory, "new")
        lake, state = made(table)
        commit_run(lake, state, change_of("a", 0, 10))
        for folder, _, _ in os.walk(directory):
            os.chmod(folder, 0o555)
        ended = subprocess.run(
            [sys.executable, "-c", READ_ONLY, table, place],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        for folder, _, _ in os.walk(directory):
            os.chmod(folder, 0o755)
    assert ended.returncode == 0, ended.stderr
    *refused, is_same = ended.stdout.splitlines()
    for sentence, start in zip(
        refused,
        (f"{table} cannot be written: ", f"{table} cannot be written: ", f"{place} cannot be crea"),
        strict=True,
    ):
        assert sentence.startswith(start) and "Permission denied" in sentence
    assert is_same == "True"
