"""The table's directory: runs count once, whatever interrupts them, and belong to one topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.spark.pipelines import table as table_module
from tidelog.spark.pipelines.table import (
    BOOK,
    DataFile,
    Manifest,
    PartitionRun,
    TableError,
    TopicTable,
    file_name,
    open_table,
)


class Crash(BaseException):
    """The program ends here."""


def stage(table: TopicTable, name: str, text: str) -> Path:
    path = table.staging / "run" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def commit(table: TopicTable, start: int, end: int) -> Manifest:
    staged = {}
    for half in ((start, (start + end) // 2), ((start + end) // 2, end)):
        data = DataFile(file_name("t", 0, *half), 0, *half, rows=half[1] - half[0])
        staged[stage(table, f"part-{half[0]}", str(half))] = data
    return table.commit("t", "id", "c", [PartitionRun(0, start, end, end - start)], staged)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.parquet"))


def test_a_run_is_its_files_and_its_manifest(tmp_path: Path) -> None:
    with open_table(str(tmp_path / "new"), create=True) as table:
        manifest = commit(table, 0, 10)
        assert table.next_offsets() == {0: 10}
    assert names(tmp_path / "new") == [file_name("t", 0, 0, 5), file_name("t", 0, 5, 10)]
    assert not (tmp_path / "new" / BOOK / "staging").exists()
    with open_table(str(tmp_path / "new"), create=False) as table:
        assert table.manifests == [manifest]
        commit(table, 10, 12)
        assert table.next_offsets() == {0: 12}
        assert [each.number for each in table.manifests] == [1, 2]


def test_names_sort_by_offset() -> None:
    assert file_name("t", 0, 9, 10) < file_name("t", 0, 10, 11) < file_name("t", 0, 100, 101)


class Steps:
    """Renames and syncs of a commit: counts them, and crashes before the one that is set."""

    def __init__(self, patch: pytest.MonkeyPatch, crash_at: int) -> None:
        self.taken = 0
        rename, sync = Path.rename, table_module._sync

        def step() -> None:
            if self.taken == crash_at:
                raise Crash
            self.taken += 1

        def counted_rename(path: Path, target: Path) -> Path:
            step()
            return rename(path, target)

        def counted_sync(path: Path) -> None:
            step()
            sync(path)

        patch.setattr(Path, "rename", counted_rename)
        patch.setattr(table_module, "_sync", counted_sync)


STEPS_OF_A_COMMIT = 13


def test_a_commit_has_as_many_steps_as_crashes_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch, crash_at=-1)
    with open_table(str(tmp_path), create=True) as table:
        commit(table, 0, 10)
    assert steps.taken == STEPS_OF_A_COMMIT


@pytest.mark.parametrize("step", range(STEPS_OF_A_COMMIT))
def test_a_crash_at_any_step_leaves_each_run_once_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    with open_table(str(tmp_path), create=True) as table:
        commit(table, 0, 10)
    with monkeypatch.context() as patch:
        Steps(patch, crash_at=step)
        with pytest.raises(Crash), open_table(str(tmp_path), create=False) as table:
            commit(table, 10, 20)
    with open_table(str(tmp_path), create=False) as table:
        assert table.next_offsets()[0] in (10, 20)
        listed = sorted(each.name for manifest in table.manifests for each in manifest.files)
        assert names(tmp_path) == listed
        if table.next_offsets()[0] == 10:
            commit(table, 10, 20)
    covered = [name.removesuffix(".parquet").split("-")[2:] for name in names(tmp_path)]
    assert [(int(low), int(high)) for low, high in covered] == [(0, 5), (5, 10), (10, 15), (15, 20)]


class TestRefusals:
    def test_another_topic_or_a_topic_made_anew(self, tmp_path: Path) -> None:
        with open_table(str(tmp_path), create=True) as table:
            commit(table, 0, 10)
            table.belongs_to("t", "id", "c")
            with pytest.raises(TableError, match="holds topic 't', not 'u'"):
                table.belongs_to("u", "id", "c")
            with pytest.raises(TableError, match="recreated, or it is another cluster"):
                table.belongs_to("t", "id2", "c")

    def test_two_runs_at_once(self, tmp_path: Path) -> None:
        with (
            open_table(str(tmp_path), create=True),
            pytest.raises(TableError, match="another ingest is writing"),
            open_table(str(tmp_path), create=True),
        ):
            pass

    def test_a_directory_with_other_files(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("x")
        with (
            pytest.raises(TableError, match="holds other files"),
            open_table(str(tmp_path), create=True),
        ):
            pass

    def test_a_directory_that_is_no_table(self, tmp_path: Path) -> None:
        with (
            pytest.raises(TableError, match="holds no table"),
            open_table(str(tmp_path), create=False),
        ):
            pass

    def test_a_path_that_cannot_be_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with (
            pytest.raises(TableError, match="cannot be used"),
            open_table(str(tmp_path / "file" / "x"), create=True),
        ):
            pass

    def test_a_remote_file_system(self) -> None:
        with (
            pytest.raises(TableError, match="local file system"),
            open_table("s3a://bucket/x", create=True),
        ):
            pass

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 2}'])
    def test_a_manifest_that_is_none(self, tmp_path: Path, text: str) -> None:
        with open_table(str(tmp_path), create=True) as table:
            commit(table, 0, 10)
        path = tmp_path / BOOK / "000001.json"
        path.write_text(text)
        with pytest.raises(TableError, match=str(path)), open_table(str(tmp_path), create=False):
            pass

    def test_a_missing_manifest(self, tmp_path: Path) -> None:
        with open_table(str(tmp_path), create=True) as table:
            commit(table, 0, 10)
            commit(table, 10, 20)
        (tmp_path / BOOK / "000001.json").unlink()
        with (
            pytest.raises(TableError, match="manifests 1 to 1"),
            open_table(str(tmp_path), create=False),
        ):
            pass
