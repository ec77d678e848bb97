"""What each format of lake tables holds: states, commits by compare-and-set, looks back.

Files are real, so that a format may read their footers.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.rest_catalog import REST

from tidelog.spark.lake.commits import first_known, landed_runs, version_at, version_with
from tidelog.spark.lake.evolution import add_columns, missing_columns
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.protocol import NO_VERSION, CommitAnswer, CommitObstacle
from tidelog.spark.lake.runs import commit_run, opened
from tidelog.spark.lake.staging import (
    FilePlan,
    LakeFileWriter,
    StagingFolder,
    TaskFiles,
    run_folder,
)
from tidelog.spark.lake.state import (
    LakeFile,
    LakeState,
    Origin,
    PartitionRun,
    TableChange,
    TableError,
)
from tidelog.spark.lake.table import Lake

ORIGIN = Origin("flights", "flights-id", "cluster-id")
SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
#: The URI of a folder in an object store, whose options are in the environment.
STORE = "TIDELOG_TEST_LAKE_STORE"
MORE = (REST, STORE)
#: Opens the table of a test.
Opening = Callable[[], Lake]
#: A process imports the libraries of a table first.
_LIMIT_S = 300


@pytest.fixture(params=["delta", "iceberg", *(name for name in MORE if name in os.environ)])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    if request.param == "delta":
        return functools.partial(lake_at, str(tmp_path / "table"), None)
    if request.param == STORE:
        return functools.partial(lake_at, f"{os.environ[STORE]}/{tmp_path.name}", None)
    if request.param == REST:
        options = {"type": "rest", "uri": os.environ[REST]}
        return functools.partial(lake_at, f"iceberg:{tmp_path.name}.flights", options)
    return functools.partial(lake_at, "iceberg:landed.flights", {"warehouse": str(tmp_path)})


def made(opening: Opening) -> tuple[Lake, LakeState]:
    lake = opening()
    return lake, opened(lake, ORIGIN, lambda: SCHEMA)


def staging(lake: Lake, run: str) -> StagingFolder:
    return run_folder(lake, run, 0)


def filled(plan: FilePlan, partition: int, start: int, end: int, **more: int) -> LakeFile:
    """Write all offsets of a range; a row has `more` columns."""
    rows = [
        {
            "value": b"v",
            "partition": partition,
            "offset": offset,
            "headers": [{"key": "k"}],
            **more,
        }
        for offset in range(start, end)
    ]
    writer = LakeFileWriter(plan, partition)
    writer.append(pa.RecordBatch.from_pylist(rows, plan.schema))
    return writer.close()


def staged(lake: Lake, run: str, start: int, end: int, partition: int = 0) -> LakeFile:
    """A file with all offsets of a range."""
    plan = FilePlan(staging(lake, run), "flights", SCHEMA)
    return filled(plan, partition, start, end)


def change_of(lake: Lake, run: str, start: int, end: int, partition: int = 0) -> TableChange:
    """An ingest's change without gaps."""
    offsets = (PartitionRun(partition, start, end, end - start),)
    return TableChange(run, offsets, (staged(lake, run, start, end, partition),))


def test_a_place_without_a_table_has_no_version(opening: Opening) -> None:
    assert opening().read() == LakeState()
    assert opening().newest() == NO_VERSION


def test_a_new_table_has_its_topic_and_nothing_else(opening: Opening) -> None:
    lake, state = made(opening)
    assert state == LakeState(0, ORIGIN)
    assert state.table_id
    assert opening().create(ORIGIN, SCHEMA) is CommitAnswer.CONFLICT
    assert lake.schema().equals(SCHEMA)
    assert lake.files() == []


def test_offsets_and_files_are_one_commit(opening: Opening) -> None:
    lake, state = made(opening)
    change = change_of(lake, "a", 5, 15)
    assert lake.commit(state, change) is CommitAnswer.COMMITTED
    state = opening().read()
    assert state.partitions == {0: PartitionRun(0, 5, 15, 10)}
    [file] = opening().files()
    staged_file = change.added[0]
    assert (file.path, file.partition, file.start, file.end, file.rows, file.size_bytes) == (
        staged_file.path,
        0,
        5,
        15,
        10,
        staged_file.size_bytes,
    )
    assert lake.files(0) == []
    [newest, *_] = lake.commits()
    assert (newest.version, newest.is_misplaced) == (1, False)
    [added] = lake.added_in([file.path])[file.path]
    assert [each.path for each in lake.files(added)] == [file.path]


def test_runs_of_a_partition_are_joined_and_others_stay(opening: Opening) -> None:
    lake, state = made(opening)
    for number, change in enumerate(
        [
            change_of(lake, "a", 0, 10),
            change_of(lake, "b", 0, 3, partition=1),
            change_of(lake, "c", 10, 12),
        ]
    ):
        outcome = commit_run(lake, state, change)
        assert outcome.obstacle is None
        state = outcome.state
        assert state.version == number + 1
    assert state == lake.read() == opening().read()
    assert state.partitions == {0: PartitionRun(0, 0, 12, 12), 1: PartitionRun(1, 0, 3, 3)}
    assert landed_runs(lake, 0) == ["c", "b", "a"]
    assert landed_runs(lake, 2) == ["c"]
    assert first_known(lake) <= 1


def test_earlier_versions_are_found_by_time_and_offset(opening: Opening) -> None:
    lake, state = made(opening)
    state = commit_run(lake, state, change_of(lake, "a", 0, 10)).state
    commit_run(lake, state, change_of(lake, "b", 10, 20))
    newest, before = lake.commits()[:2]
    assert (newest.version, before.version) == (2, 1)
    assert version_at(lake, newest.time_ms) == 2
    assert version_at(lake, newest.time_ms - 1) < 2
    assert version_with(lake, 0, 10) == 1
    assert version_with(lake, 0, 11) == 2
    assert [file.end for file in lake.files(1)] == [10]
    with pytest.raises(TableError, match="offsets below 20 of partition 0, not offsets below 21"):
        version_with(lake, 0, 21)
    with pytest.raises(TableError, match="version 7"):
        lake.files(7)


def test_a_version_takes_one_commit(opening: Opening) -> None:
    lake, state = made(opening)
    other = opening()
    same = other.read()
    change = change_of(lake, "a", 0, 10)
    assert lake.commit(state, change) is CommitAnswer.COMMITTED
    assert other.commit(same, change_of(lake, "b", 0, 10)) is CommitAnswer.CONFLICT
    assert [file.path for file in other.files()] == [change.added[0].path]


def test_a_run_that_was_overtaken_starts_over(opening: Opening) -> None:
    lake, state = made(opening)
    other, same = made(opening)
    assert commit_run(lake, state, change_of(lake, "a", 0, 10)).obstacle is None
    outcome = commit_run(other, same, change_of(lake, "b", 0, 10))
    assert outcome.obstacle is CommitObstacle.OVERTAKEN
    assert outcome.state.following() == {0: 10}


def test_a_commit_of_another_writer_between_costs_a_look(opening: Opening) -> None:
    lake, state = made(opening)
    other, same = made(opening)
    assert commit_run(other, same, TableChange("x", fence=0)).obstacle is None
    outcome = commit_run(lake, state, change_of(lake, "a", 0, 10))
    assert (outcome.obstacle, outcome.state.version) == (None, 2)
    assert opening().read().following() == {0: 10}


def test_a_fence_ends_the_runs_that_began_below_it(opening: Opening) -> None:
    lake, state = made(opening)
    other, same = made(opening)
    assert commit_run(other, same, TableChange("v", fence=1)).obstacle is None
    outcome = commit_run(lake, state, change_of(lake, "a", 0, 10))
    assert outcome.obstacle is CommitObstacle.FENCED
    assert commit_run(lake, outcome.state, change_of(lake, "b", 0, 10)).obstacle is None
    assert lake.read().fence == 1


def test_merged_files_take_the_place_of_others_once(opening: Opening) -> None:
    lake, state = made(opening)
    state = commit_run(lake, state, change_of(lake, "a", 0, 10)).state
    state = commit_run(lake, state, change_of(lake, "b", 10, 20)).state
    state = commit_run(lake, state, change_of(lake, "c", 0, 5, partition=1)).state
    before = tuple(file for file in lake.files() if file.partition == 0)
    merged = [TableChange(run, (), (staged(lake, run, 0, 20),), before) for run in ("m", "n")]
    assert commit_run(lake, state, merged[0]).obstacle is None
    assert commit_run(opening(), state, merged[1]).obstacle is CommitObstacle.REPLACED
    assert sorted((file.partition, file.start, file.end) for file in lake.files()) == [
        (0, 0, 20),
        (1, 0, 5),
    ]
    assert lake.read().following() == {0: 20, 1: 5}


def test_replaced_files_are_deleted_after_their_time_and_others_stay(opening: Opening) -> None:
    lake, state = made(opening)
    state = commit_run(lake, state, change_of(lake, "a", 0, 10)).state
    state = commit_run(lake, state, change_of(lake, "b", 10, 20)).state
    before = tuple(lake.files())
    commit_run(lake, state, TableChange("m", (), (staged(lake, "m", 0, 20),), before))
    assert lake.vacuum(keep_hours=1) == 0
    paths = [file.path for file in before]
    assert lake.store.existing(paths) == paths
    assert lake.vacuum(keep_hours=0) == 2
    assert lake.store.existing(paths) == []
    [file] = opening().files()
    assert lake.store.existing([file.path]) == [file.path]
    assert opening().read().following() == {0: 20}
    assert lake.vacuum(keep_hours=0) == 0


def _deafened(lake: Lake, *, arrives: bool) -> list[str]:
    """Lose the answers of a table's first two commits, before or after the commit."""
    lost: list[str] = []
    commit = lake.commit

    def losing(state: LakeState, change: TableChange) -> CommitAnswer:
        if len(lost) == 2:
            return commit(state, change)
        lost.append(change.run)
        if arrives:
            commit(state, change)
        return CommitAnswer.LOST

    lake.commit = losing  # type: ignore[method-assign]  # an answer is lost
    return lost


@pytest.mark.parametrize("arrives", [False, True])
def test_a_lost_answer_is_sought_in_the_table(opening: Opening, arrives: bool) -> None:
    lake, state = made(opening)
    waits: list[float] = []
    change = change_of(lake, "a", 0, 10)
    _deafened(lake, arrives=arrives)
    assert commit_run(lake, state, change, sleep=waits.append).obstacle is None
    assert lake.read().following() == {0: 10}
    assert len(lake.files()) == 1
    assert len(waits) == (1 if arrives else 2)


def test_a_table_of_another_topic_is_refused(opening: Opening) -> None:
    made(opening)
    other = Origin("trains", "trains-id", "cluster-id")
    with pytest.raises(TableError, match="holds topic 'flights', not 'trains'"):
        opened(opening(), other, lambda: SCHEMA)
    again = Origin("flights", "new-id", "cluster-id")
    with pytest.raises(TableError, match="was recreated, or it is another cluster"):
        opened(opening(), again, lambda: SCHEMA)


def test_columns_are_added_once_and_their_types_stay(opening: Opening) -> None:
    lake, state = made(opening)
    state = commit_run(lake, state, change_of(lake, "a", 0, 10)).state
    grown = SCHEMA.append(pa.field("n", pa.int64())).remove(0)
    assert lake.types(SCHEMA) == lake.types()
    assert missing_columns(lake, grown).names == ["n"]
    other = opening()
    assert add_columns(lake, grown) == ("n",)
    assert add_columns(other, grown) == ()
    assert other.schema().names == [*SCHEMA.names, "n"]
    assert lake.read().following() == {0: 10}
    plan = FilePlan(staging(lake, "b"), "flights", lake.schema())
    file = filled(plan, 0, 10, 20, n=7)
    change = TableChange("b", (PartitionRun(0, 10, 20, 10),), (file,))
    assert commit_run(lake, lake.read(), change).obstacle is None
    assert opening().read().following() == {0: 20}
    wrong = SCHEMA.set(0, pa.field("value", pa.string()))
    with pytest.raises(TableError, match="column 'value' is binary in the table and string in"):
        missing_columns(lake, wrong)
    with pytest.raises(TableError, match="column 'Value' of this run is 'value' in the table"):
        missing_columns(lake, SCHEMA.set(0, pa.field("Value", pa.binary())))


def test_partition_columns_are_the_tables_and_their_values_the_files(opening: Opening) -> None:
    kinds = {"c": pa.string(), "kept": pa.bool_(), "day": pa.date32(), "n": pa.int16()}
    schema = pa.schema([*SCHEMA, *kinds.items()])
    by = ("partition", *kinds)
    lake = opening()
    state = opened(lake, ORIGIN, lambda: schema, by)
    assert state.partition_by == opening().read().partition_by == by
    files = TaskFiles(FilePlan(staging(lake, "a"), "flights", schema, partition_by=by))
    rows = [
        {
            "partition": 7,
            "offset": offset,
            "value": b"v",
            "c": text,
            "kept": kept,
            "day": day,
            "n": 3,
        }
        for offset, (text, kept, day) in enumerate(
            [("y/z %41", True, date(2026, 1, 2)), (None, False, None), ("", False, None)]
        )
    ]
    files.append(7, pa.RecordBatch.from_pylist(rows, schema))
    added, offsets = tuple(files.close()), (PartitionRun(7, 0, 3, 3),)
    state = commit_run(lake, state, TableChange("a", offsets, added)).state
    values = [dict(file.values) for file in sorted(lake.files(), key=lambda file: file.start)]
    shared = {"partition": "7", "n": "3"}
    assert values[0] == {"c": "y/z %41", "kept": "true", "day": "2026-01-02", **shared}
    assert values[1] == {"c": None, "kept": "false", "day": None, **shared}
    assert [file["c"] for file in values[2:]] == ([""] if lake.keeps_partition_columns else [])
    assert {file.partition for file in lake.files()} == {7}
    again = opened(opening(), ORIGIN, lambda: schema)
    assert again.partition_by == by
    with pytest.raises(TableError, match="is partitioned by partition, c, kept, .* asks for day"):
        opened(opening(), ORIGIN, lambda: schema, ("day",))


def test_columns_that_the_format_lacks_are_refused_before_there_is_a_table(
    opening: Opening,
) -> None:
    lake = opening()
    with pytest.raises(TableError, match="has no such column"):
        lake.create(ORIGIN, SCHEMA.append(pa.field("n", pa.duration("s"))))
    assert lake.newest() == NO_VERSION


def _race(opening: Opening, run: str, start: Any) -> None:
    lake = opening()
    state = lake.read()
    change = change_of(lake, run, 0, 10)
    start.wait()
    outcome = commit_run(lake, state, change)
    assert outcome.state.following() == {0: 10}


def test_two_processes_at_once_land_each_offset_once(opening: Opening) -> None:
    """A process that has started delta-rs cannot fork: it spawns."""
    made(opening)
    spawning = multiprocessing.get_context("spawn")
    start = spawning.Barrier(2)
    racing = [spawning.Process(target=_race, args=(opening, run, start)) for run in "ab"]
    for each in racing:
        each.start()
    for each in racing:
        each.join(_LIMIT_S)
        assert each.exitcode == 0
    assert len(opening().files()) == 1
    assert opening().read().following() == {0: 10}


WIDER = SCHEMA.append(pa.field("extra", pa.int64()))


def _die_at_new_columns(opening: Opening, when: str) -> None:
    """Add a column, and be killed before or after its commit."""
    lake = opening()
    if when == "after":
        lake.add_columns(lake.read(), pa.schema([WIDER.field("extra")]))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_killed_at_the_commit_of_new_columns_leaves_offsets_and_rows(
    opening: Opening, when: str
) -> None:
    lake, state = made(opening)
    commit_run(lake, state, change_of(lake, "a", 0, 10))
    dying = multiprocessing.get_context("spawn").Process(
        target=_die_at_new_columns, args=(opening, when)
    )
    dying.start()
    dying.join(_LIMIT_S)
    assert dying.exitcode == -signal.SIGKILL
    lake = opening()
    assert lake.read().following() == {0: 10}
    assert ("extra" in lake.schema().names) == (when == "after")
    assert add_columns(lake, WIDER) == (("extra",) if when == "before" else ())
    assert lake.schema().names == WIDER.names
    outcome = commit_run(lake, lake.read(), change_of(lake, "b", 10, 20))
    assert (outcome.obstacle, outcome.state.following()) == (None, {0: 20})
    assert sorted((file.start, file.end) for file in lake.files()) == [(0, 10), (10, 20)]


@pytest.fixture(autouse=True)
def closed_catalogs() -> Iterator[None]:
    """End the connections of embedded catalogs, which only the garbage collector would."""
    import gc

    yield
    gc.collect()
