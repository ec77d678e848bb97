"""Upkeep of a followed table: when it merges, that batches go on, and what it raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.spark.lake.state import LakeFile, TableError
from tidelog.spark.pipelines import file_upkeep
from tidelog.spark.pipelines.file_upkeep import FileUpkeep

LIMIT_S = 30


def files(*partitions: int, size_bytes: int = 10) -> list[LakeFile]:
    return [LakeFile("f", number, 0, 1, 1, size_bytes) for number in partitions]


class Table:
    """A table that has files of before, and counts its vacuums."""

    store = None

    def __init__(self) -> None:
        self.held: list[LakeFile] = []
        self.vacuums: list[int] = []

    def files(self) -> list[LakeFile]:
        return self.held

    def vacuum(self, keep_hours: int) -> int:
        self.vacuums.append(keep_hours)
        return 0


class Merges:
    """Rounds that wait for a permission each, and end when `left` is 0."""

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(0)
        self.begun: list[threading.Thread] = []
        self.has_begun = threading.Event()
        self.left = 1
        self.error: Exception | None = None

    def __call__(self, *_: object) -> bool:
        self.begun.append(threading.current_thread())
        self.has_begun.set()
        assert self.allowed.acquire(timeout=LIMIT_S)
        if self.error is not None:
            raise self.error
        self.left -= 1
        return self.left > 0


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> Merges:
    found = Merges()
    monkeypatch.setattr(file_upkeep, "merge_some", found)
    monkeypatch.setattr(file_upkeep, "vacuum_staged", lambda *_: None)
    return found


@pytest.fixture
def table() -> Table:
    return Table()


def made(table: Any, *, after: int = 3, is_beside: bool = True) -> FileUpkeep:
    return FileUpkeep(
        None,  # type: ignore[arg-type]  # merges are replaced
        table,
        after=after,
        target_file_bytes=100,
        keep_hours=168,
        is_beside=is_beside,
    )


def test_a_batch_does_not_wait_for_merges(table: Table, merges: Merges) -> None:
    with made(table) as upkeep:
        upkeep.added([])
        upkeep.added(files(0, 0, 1))
        upkeep.added(files(1, 2, size_bytes=51))
        assert merges.begun == [], "large files, and too few small ones of any partition"
        upkeep.added(files(0))
        upkeep.added(files(0, 0, 0))
        assert merges.has_begun.wait(LIMIT_S)
        assert len(merges.begun) == 1
        assert merges.begun[0] is not threading.current_thread()
        merges.allowed.release()
    assert table.vacuums == [168]


@pytest.mark.parametrize("is_beside", [True, False])
def test_files_are_deleted_in_time_though_none_are_merged(
    table: Table, merges: Merges, monkeypatch: pytest.MonkeyPatch, is_beside: bool
) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with made(table, is_beside=is_beside) as upkeep:
        for minute in range(180):
            now_s = 60.0 * minute
            upkeep.added(files(0, size_bytes=100))
            if upkeep._thread is not None:
                upkeep._thread.join(LIMIT_S)
    assert (merges.begun, table.vacuums) == ([], [168, 168, 168])


def test_files_of_before_count(table: Table, merges: Merges) -> None:
    table.held = files(0, 0, 0)
    merges.allowed.release()
    with made(table) as upkeep:
        upkeep.added(files(0))
    assert len(merges.begun) == 1


def test_rounds_go_on_until_nothing_is_left_or_the_end(table: Table, merges: Merges) -> None:
    merges.left = 3
    for _ in range(3):
        merges.allowed.release()
    with made(table) as upkeep:
        upkeep.added([])
        upkeep.added(files(0, 0, 0))
        joined = upkeep._thread
        assert joined is not None
        joined.join(LIMIT_S)
        assert len(merges.begun) == 3
        assert table.vacuums == [168], "within the hour"
        merges.left = 9
        upkeep.added(files(0, 0, 0))
        merges.allowed.release()
    assert len(merges.begun) == 4, "the end waits for the round that runs"


def test_a_batch_waits_for_a_round_when_merges_are_far_behind(table: Table, merges: Merges) -> None:
    merges.left = 3
    with made(table) as upkeep:
        upkeep.added([])
        upkeep.added(files(0, 0, 0))
        ended: list[bool] = []

        def batch() -> None:
            upkeep.added(files(*[0] * 12))
            ended.append(True)

        waiting = threading.Thread(target=batch)
        waiting.start()
        waiting.join(0.3)
        assert not ended
        merges.allowed.release()
        waiting.join(LIMIT_S)
        assert ended, "it waits for one round, not for all"
        assert merges.left == 2
        merges.allowed.release()
        merges.allowed.release()


def test_the_error_of_a_round_ends_the_batches(table: Table, merges: Merges) -> None:
    merges.error = TableError("gone")
    merges.allowed.release()

    def batches() -> None:
        with made(table) as upkeep:
            upkeep.added([])
            upkeep.added(files(0, 0, 0))
            if upkeep._thread is not None:
                upkeep._thread.join(LIMIT_S)
            upkeep.added([])
            pytest.fail("the error came too late")

    _raises(batches)


def test_an_error_of_the_last_round_is_raised_at_the_end(table: Table, merges: Merges) -> None:
    merges.error = TableError("gone")
    merges.allowed.release()

    def batches() -> None:
        with made(table) as upkeep:
            upkeep.added([])
            upkeep.added(files(0, 0, 0))

    _raises(batches)


def test_an_error_beside_that_of_a_batch_is_logged(
    table: Table, merges: Merges, caplog: pytest.LogCaptureFixture
) -> None:
    merges.error = TableError("gone")
    merges.allowed.release()
    with pytest.raises(KeyError), made(table) as upkeep:
        upkeep.added([])
        upkeep.added(files(0, 0, 0))
        raise KeyError("batch")
    assert "small files were not merged: gone" in caplog.text


def _raises(batches: Callable[[], None]) -> None:
    with pytest.raises(TableError, match="gone"):
        batches()


def test_a_batch_that_replaces_files_takes_turns_with_merges(table: Table, merges: Merges) -> None:
    merges.left = 9
    merges.allowed.release()
    with made(table, is_beside=False) as upkeep:
        upkeep.added([])
        upkeep.added(files(0, 0, 0))
    assert merges.begun == [threading.current_thread()], "one round"
