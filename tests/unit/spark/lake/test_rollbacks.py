"""Versions that other tools rolled back: an ingest never goes on from notes that are not true."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.spark.lake.test_delta import ORIGIN, SCHEMA, change_of, made

from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.rollbacks import noted_commits
from tidelog.spark.lake.runs import commit_run, opened
from tidelog.spark.lake.state import CommitNote, LakeCommit, LakeState, TableError
from tidelog.spark.lake.vacuum import vacuum_staged


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A table with three commits of ten offsets; version 3 is the newest."""
    place = str(tmp_path / "table")
    lake, state = made(place)
    for number in range(3):
        change = change_of(f"r{number}", 10 * number, 10 * number + 10)
        state = commit_run(lake, state, change).state
        for file in change.added:  # a restore looks for them
            Path(place, file.path).parent.mkdir()
            Path(place, file.path).touch()
    return place


def reopened(location: str) -> LakeState:
    return opened(DeltaLake(location), ORIGIN, lambda: SCHEMA)


def test_a_table_that_was_restored_takes_no_commit_until_it_is_put_right(location: str) -> None:
    DeltaTable(location).restore(1)
    sentence = (
        "was restored to version 1 after an ingest had committed version 3: offsets of partition 0"
        " from 10 to 30 are gone. Restore it to version 3, or ingest to another table"
    )
    with pytest.raises(TableError, match=sentence):
        reopened(location)
    lake = DeltaLake(location)
    state = lake.read()
    assert state.following() == {0: 30}, "a proof finds what the notes say"
    with pytest.raises(TableError, match="was restored to version 1"):
        lake.commit(state, change_of("r3", 30, 40))
    DeltaTable(location).restore(2)
    DeltaTable(location).restore(4)
    with pytest.raises(TableError, match="partition 0 from 10 to 30 are gone"):
        reopened(location)
    with pytest.raises(TableError, match="was restored"):
        DeltaLake(location).add_columns(DeltaLake(location).read(), SCHEMA)
    DeltaTable(location).restore(3)
    state = reopened(location)
    assert commit_run(DeltaLake(location), state, change_of("r3", 30, 40)).state.version == 8
    assert reopened(location).following() == {0: 40}


def test_a_run_that_began_before_a_restore_does_not_commit_after_it(location: str) -> None:
    lake = DeltaLake(location)
    state = lake.read()
    DeltaTable(location).restore(2)
    with pytest.raises(TableError, match="partition 0 from 20 to 30 are gone"):
        commit_run(lake, state, change_of("r3", 30, 40))


def test_a_vacuum_does_not_hide_a_restore(location: str) -> None:
    folder = Path(location, "run-1-0123456789abcdef")
    folder.mkdir()
    (folder / "part.parquet").write_bytes(b"of a dead run")
    DeltaTable(location).restore(2)
    lake = DeltaLake(location)
    with pytest.raises(TableError, match="was restored"):
        vacuum_staged(lake, [lake.store], dead_after_ms=0)
    assert folder.exists()


def test_a_restore_to_a_time_or_before_all_ingests_is_seen(location: str) -> None:
    lake = DeltaLake(location)
    time.sleep(0.02)  # the next commit has another time in ms
    time_ms = time.time_ns() // 1_000_000
    time.sleep(0.02)  # this moment lies between two commits
    commit_run(lake, lake.read(), change_of("r3", 30, 40))
    DeltaTable(location).restore(datetime.fromtimestamp(time_ms / 1000, UTC))
    with pytest.raises(TableError, match="was restored to an earlier version after .* version 4"):
        reopened(location)
    DeltaTable(location).restore(0)
    with pytest.raises(TableError, match="to version 0 .* partition 0 from 0 to 40 are gone"):
        reopened(location)


def test_a_restored_copy_of_the_whole_log_is_an_earlier_table(location: str) -> None:
    log = Path(location, "_delta_log")
    for version in (2, 3):
        (log / f"{version:020}.json").unlink()
    state = reopened(location)
    assert (state.version, state.following()) == (1, {0: 10})
    state = commit_run(DeltaLake(location), state, change_of("other", 10, 25)).state
    assert reopened(location).following() == {0: 25}


def test_an_older_commit_in_place_of_the_newest_is_refused(location: str) -> None:
    log = Path(location, "_delta_log")
    shutil.copy(log / f"{1:020}.json", log / f"{3:020}.json")
    assert DeltaLake(location).read().following() == {0: 10}
    with pytest.raises(
        TableError, match="has the commit of version 1 in the place of version 3: it was"
    ):
        reopened(location)


def test_a_commit_that_is_cut_or_lost_is_refused(location: str) -> None:
    log = Path(location, "_delta_log", f"{3:020}.json")
    whole = log.read_text()
    log.write_text(whole.splitlines()[0] + "\n")
    with pytest.raises(TableError, match="has landed up to offset 30, its transactions say 20"):
        reopened(location)
    log.write_text(whole)
    assert reopened(location).following() == {0: 30}
    (log.parent / f"{2:020}.json").unlink()
    with pytest.raises(TableError, match="cannot be read: its log has lost version 2; put the"):
        reopened(location)


def test_a_log_that_goes_back_under_an_open_table_is_named(location: str) -> None:
    lake = DeltaLake(location)
    state = lake.read()
    Path(location, "_delta_log", f"{3:020}.json").unlink()
    with pytest.raises(TableError, match="went back to an earlier version while it was open"):
        commit_run(lake, state, change_of("r3", 30, 40))


def commit(version: int, restored: int | None = None, *, is_noted: bool = True) -> LakeCommit:
    note = CommitNote("run", ORIGIN, (), ()) if is_noted and restored is None else None
    return LakeCommit(version, 0, note, restored)


@pytest.mark.parametrize(
    ("commits", "newest", "effective"),
    [
        ([commit(2), commit(1)], 2, 2),
        ([commit(3, is_noted=False), commit(2)], 2, 2),
        ([commit(3, 1), commit(2), commit(1)], 2, 1),
        ([commit(3, 2), commit(2), commit(1)], 2, 2),
        ([commit(4, 3), commit(3, 1), commit(2), commit(1)], 2, 1),
        ([commit(5, 2), commit(4, 1), commit(3, is_noted=False), commit(2)], 2, 2),
        ([commit(5), commit(4, 1), commit(2), commit(1)], 5, 5),
        ([commit(3, -1), commit(2)], 2, None),
        ([], None, None),
    ],
)
def test_the_note_of_the_restored_version_counts(
    commits: list[LakeCommit], newest: int | None, effective: int | None
) -> None:
    noted = noted_commits(commits)
    assert (noted.newest and noted.newest.version) == newest
    assert (noted.effective and noted.effective.version) == effective
