"""The table: runs count once, whatever interrupts them, and belong to one topic."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.table_files import Crash, ObjectStore, StoppingFiles

from tidelog.spark.pipelines import table as table_module
from tidelog.spark.pipelines.manifests import DataFile, Manifest, Origin, PartitionRun, TableError
from tidelog.spark.pipelines.table import (
    BOOK,
    TopicTable,
    file_name,
    local_files,
    open_table,
    read_only,
)
from tidelog.spark.pipelines.table_files import LocalFiles, TableFiles

ORIGIN = Origin("t", "id", "c")


def write(files: TableFiles, path: str, text: str) -> None:
    """Write a data file as Spark's tasks do."""
    while isinstance(files, StoppingFiles):
        files = files._inner
    if isinstance(files, ObjectStore):
        files.put(path, text)
        return
    target = Path(files.root) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def stage(table: TopicTable, ranges: list[tuple[int, int]]) -> tuple[str, list[DataFile]]:
    run, folder = table.new_run()
    staged = []
    for start, end in ranges:
        path = f"{folder}/part-{start}.parquet"
        write(table.files, path, f"{start} to {end}")
        staged.append(DataFile(path, file_name("t", 0, start, end), 0, start, end, end - start))
    return run, staged


def commit(table: TopicTable, start: int, end: int) -> Manifest:
    middle = (start + end) // 2
    run, staged = stage(table, [(start, middle), (middle, end)])
    return table.commit(run, ORIGIN, [PartitionRun(0, start, end, end - start)], staged)


def merge(table: TopicTable) -> Manifest:
    """Replace all files by one."""
    gone = sorted(table.state.files.values(), key=lambda each: each.start)
    run, staged = stage(table, [(gone[0].start, gone[-1].end)])
    return table.commit(run, ORIGIN, [], staged, gone, whole=True)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.parquet"))


def data_paths(directory: Path) -> list[str]:
    found = (directory / BOOK / "data").rglob("*.parquet")
    return sorted(str(path.relative_to(directory)) for path in found)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path / "table"))


def test_a_run_is_its_files_and_its_manifest(files: LocalFiles, tmp_path: Path) -> None:
    with open_table(files, create=True) as table:
        manifest = commit(table, 0, 10)
        assert table.state.next_offsets() == {0: 10}
    assert names(tmp_path / "table") == [file_name("t", 0, 0, 5), file_name("t", 0, 5, 10)]
    with open_table(files, create=False) as table:
        assert table.manifests == [manifest]
        commit(table, 10, 12)
        assert table.state.next_offsets() == {0: 12}
        assert [each.number for each in table.manifests] == [1, 2]
    assert read_only(files).state.next_offsets() == {0: 12}


def test_names_sort_by_offset() -> None:
    assert file_name("t", 0, 9, 10) < file_name("t", 0, 10, 11) < file_name("t", 0, 100, 101)


def test_every_hundredth_manifest_is_whole(files: LocalFiles) -> None:
    with open_table(files, create=True) as table:
        for number in range(101):
            run, _ = table.new_run()
            table.commit(run, ORIGIN, [PartitionRun(0, number, number + 1, 0, control=1)], [])
    table = read_only(files)
    assert [each.number for each in table.manifests] == [100, 101]
    assert table.state.runs[0] == PartitionRun(0, 0, 101, 0, control=101)


class TestCrashes:
    """Each step of what changes files is the last one of a program once."""

    def steps_of(self, files: TableFiles, act: str) -> list[str]:
        counting = StoppingFiles(files)
        self.act(counting, act)
        return counting.taken

    def act(self, files: TableFiles, act: str) -> None:
        with open_table(files, create=False) as table:
            if act == "commit":
                commit(table, 10, 20)
            elif act == "merge":
                merge(table)
            else:
                assert table.clean(0) == 2

    def prepare(self, files: TableFiles, act: str) -> None:
        with open_table(files, create=True) as table:
            commit(table, 0, 10)
            if act == "clean":
                merge(table)

    @pytest.mark.parametrize("store", ["local", "objects"])
    @pytest.mark.parametrize("act", ["commit", "merge", "clean"])
    def test_a_crash_at_any_step_leaves_each_run_once_or_not_at_all(
        self, tmp_path: Path, store: str, act: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_module, "ORPHAN_MS", -1)
        tried = 0
        while True:
            files: TableFiles = (
                LocalFiles(str(tmp_path / f"{tried}")) if store == "local" else ObjectStore()
            )
            self.prepare(files, act)
            stopping = StoppingFiles(files, crash_at=tried)
            try:
                self.act(stopping, act)
            except Crash:
                tried += 1
            else:
                break
            self.check(files, act)
        expected = {"commit": 4, "merge": 4, "clean": 3} if store == "local" else {}
        assert tried >= expected.get(act, 2)

    def check(self, files: TableFiles, act: str) -> None:
        with open_table(files, create=False) as table:
            done = table.state.next_offsets()[0]
            if act == "commit" and done == 10:
                commit(table, 10, 20)
            live = sorted(table.state.files.values(), key=lambda each: each.start)
            end = 20 if act == "commit" else 10
            covered = [(each.start, each.end) for each in live]
            assert covered[0][0] == 0
            assert covered[-1][1] == end
            assert all(low[1] == high[0] for low, high in pairwise(covered))
            if isinstance(files, LocalFiles):
                root = Path(files.root)
                assert names(root) == sorted(each.name for each in live)
                for each in live:
                    assert (root / each.name).samefile(root / each.path)
                assert set(data_paths(root)) >= {each.path for each in live}
            table.clean(0)
        with open_table(files, create=False) as table:
            assert sorted(table.state.files.values(), key=lambda each: each.start) == live
            if isinstance(files, LocalFiles):
                assert data_paths(Path(files.root)) == sorted(each.path for each in live)
                half = [p.name for p in (Path(files.root) / BOOK).iterdir() if p.name[0] == "."]
                assert half == []

    def test_a_first_run_that_dies_leaves_a_table(self, tmp_path: Path) -> None:
        for step in range(8):
            files = LocalFiles(str(tmp_path / f"{step}"))
            try:
                with open_table(StoppingFiles(files, step), create=True) as table:
                    commit(table, 0, 10)
            except Crash:
                pass
            with open_table(files, create=True) as table:
                if table.state.number == 0:
                    commit(table, 0, 10)
            assert len(names(tmp_path / f"{step}")) == 2


class TestCompaction:
    def test_replaced_files_stay_for_readers_until_they_are_cleaned(
        self, files: LocalFiles, tmp_path: Path
    ) -> None:
        with open_table(files, create=True) as table:
            commit(table, 0, 10)
            old = read_only(files)
            merge(table)
            assert names(tmp_path / "table") == [file_name("t", 0, 0, 10)]
            assert table.clean(60_000) == 0
        with open_table(files, create=False):
            pass
        for path in old.state.files:
            assert (tmp_path / "table" / path).exists()
        with open_table(files, create=False) as table:
            assert table.clean(0) == 2
            commit(table, 10, 20)
        assert not any((tmp_path / "table" / path).exists() for path in old.state.files)
        assert read_only(files).state.next_offsets() == {0: 20}
        assert [each.number for each in read_only(files).all_manifests()] == [2, 3]


class TestObjectStores:
    def test_of_two_writers_one_commits_and_one_leaves_nothing(self) -> None:
        store = ObjectStore()
        with open_table(store, create=True) as first, open_table(store, create=False) as second:
            commit(first, 0, 10)
            with pytest.raises(TableError, match="another run has committed.*manifest 1"):
                commit(second, 0, 10)
        assert sum(name.endswith(".parquet") for name in store.objects) == 2
        assert read_only(store).state.next_offsets() == {0: 10}

    def test_a_torn_manifest_is_no_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = ObjectStore()
        with open_table(store, create=True) as table:
            commit(table, 0, 10)
            store.torn, store.now_ms = True, table_module.now_ms()
            with pytest.raises(Crash):
                commit(table, 10, 20)
        store.torn = False
        assert read_only(store).state.next_offsets() == {0: 10}
        with (
            pytest.raises(TableError, match=r"000002\.json is not whole: another run writes it"),
            open_table(store, create=False),
        ):
            pass
        monkeypatch.setattr(table_module, "_TORN_MS", -1)
        with open_table(store, create=False) as table:
            commit(table, 10, 20)
        assert read_only(store).state.next_offsets() == {0: 20}

    def test_files_of_a_run_that_may_go_on_are_left_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = ObjectStore()
        store.now_ms = table_module.now_ms()
        with open_table(store, create=True) as table:
            stage(table, [(0, 10)])
        with open_table(store, create=False):
            assert any(name.endswith(".parquet") for name in store.objects)
        monkeypatch.setattr(table_module, "ORPHAN_MS", -1)
        with open_table(store, create=False):
            assert not any(name.endswith(".parquet") for name in store.objects)


class TestRefusals:
    def test_another_topic_or_a_recreated_one(self, files: LocalFiles) -> None:
        with open_table(files, create=True) as table:
            commit(table, 0, 10)
            table.belongs_to(ORIGIN)
            with pytest.raises(TableError, match="holds topic 't', not 'u'"):
                table.belongs_to(Origin("u", "id", "c"))
            with pytest.raises(TableError, match="recreated, or it is another cluster"):
                table.belongs_to(Origin("t", "id2", "c"))

    def test_two_runs_at_once(self, files: LocalFiles) -> None:
        with (
            open_table(files, create=True),
            pytest.raises(TableError, match="another ingest is writing"),
            open_table(files, create=True),
        ):
            pass

    def test_a_directory_with_other_files(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("x")
        with (
            pytest.raises(TableError, match="holds other files"),
            open_table(LocalFiles(str(tmp_path)), create=True),
        ):
            pass

    def test_a_file_among_the_tables_own(self, files: LocalFiles, tmp_path: Path) -> None:
        with open_table(files, create=True) as table:
            commit(table, 0, 10)
        (tmp_path / "table" / "mine.parquet").write_text("x")
        with (
            pytest.raises(TableError, match=r"holds mine\.parquet, which no ingest wrote"),
            open_table(files, create=False),
        ):
            pass
        assert (tmp_path / "table" / "mine.parquet").exists()

    def test_a_data_file_that_is_gone(self, files: LocalFiles, tmp_path: Path) -> None:
        with open_table(files, create=True) as table:
            gone = commit(table, 0, 10).files[0]
        (tmp_path / "table" / gone.path).unlink()
        (tmp_path / "table" / gone.name).unlink()
        with (
            pytest.raises(TableError, match=f"{gone.path} belongs to the table and does not"),
            open_table(files, create=False),
        ):
            pass

    def test_a_directory_that_is_no_table(self, tmp_path: Path) -> None:
        with pytest.raises(TableError, match="holds no table"):
            read_only(LocalFiles(str(tmp_path)))
        with (
            pytest.raises(TableError, match="holds no table"),
            open_table(LocalFiles(str(tmp_path)), create=False),
        ):
            pass
        assert list(tmp_path.iterdir()) == []

    def test_a_path_that_cannot_be_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with (
            pytest.raises(TableError, match="cannot be"),
            open_table(LocalFiles(str(tmp_path / "file" / "x")), create=True),
        ):
            pass

    def test_a_path_is_local_without_a_scheme_or_with_file(self) -> None:
        assert local_files("s3a://bucket/x") is None
        for text in ("/a/b", "file:/a/b", "file:///a/b"):
            found = local_files(text)
            assert found is not None
            assert found.root == "/a/b"

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1}'])
    def test_a_manifest_that_is_none(self, files: LocalFiles, tmp_path: Path, text: str) -> None:
        with open_table(files, create=True) as table:
            commit(table, 0, 10)
        path = tmp_path / "table" / BOOK / "000001.json"
        path.write_text(text)
        with pytest.raises(TableError, match=str(path)), open_table(files, create=False):
            pass

    def test_a_missing_manifest(self, files: LocalFiles, tmp_path: Path) -> None:
        with open_table(files, create=True) as table:
            for start in (0, 10, 20):
                commit(table, start, start + 10)
        book = tmp_path / "table" / BOOK
        (book / "000002.json").rename(tmp_path / "kept")
        with pytest.raises(TableError, match=r"lacks the manifest 000002\.json"):
            read_only(files)
        (tmp_path / "kept").rename(book / "000002.json")
        (book / "000001.json").unlink()
        with pytest.raises(TableError, match=r"begins with 000002\.json, which is not whole"):
            read_only(files)
