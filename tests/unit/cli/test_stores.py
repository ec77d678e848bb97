"""`tidelog store` on stores that are missing, and on files that name none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cli import run


class Store:
    """Runs `tidelog store` with words; its errors are one line each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def refused(self, *words: str) -> str:
        """Return the message of a command that must fail."""
        assert run(self._monkeypatch, "store", *words) == 1
        err = self._capsys.readouterr().err
        assert err.startswith("tidelog: ") and err.count("\n") == 1, err
        return err


@pytest.fixture
def store(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Store:
    monkeypatch.chdir(tmp_path)
    return Store(monkeypatch, capsys)


@pytest.mark.rule("E8")
@pytest.mark.parametrize("directory", ["mistyped", "empty"])
@pytest.mark.parametrize("verb", [("accept",), ("backup", "out"), ("export", "out")], ids=str)
def test_a_directory_without_a_store_stays_without_one(
    store: Store, tmp_path: Path, verb: tuple[str, ...], directory: str
) -> None:
    (tmp_path / "empty").mkdir()
    message = store.refused(verb[0], f"embedded:{directory}", *verb[1:])
    assert f"embedded:{directory}: there is no embedded store in {directory}" in message
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize(
    ("name", "content", "wrong"),
    [
        ("a.properties", b"node.id=3\nmetadata.store=embedded:m", "no embedded store in m"),
        ("a.properties", b"metadata.store=embedded:m", "no embedded store in m"),
        ("a.properties", b"#\xff\nmetadata.store=embedded:m", "no embedded store in m"),
        ("a.properties", b"", "a.properties: metadata.store is not set"),
        ("a.properties", b"\n\nx=\\u12", "a.properties: line 3: malformed escape"),
        ("a.properties", b"metadata.store=s3:m", "a.properties: metadata.store='s3:m'"),
        ("a.properties", b"log.dirs=/a\\u0000b", "log.dirs='/a\\x00b' has a NUL character"),
        ("a.toml", b"a = [", "a.toml: not valid TOML"),
        ("a.toml", b"a = 1\nb = 5x", "at line 2, column 6"),
        ("a.toml", b"a = " + b"[" * 50_000, "a.toml: not valid TOML: it is nested too deeply"),
        ("a.toml", b"\xff", "a.toml: byte 0 is not UTF-8"),
    ],
)
def test_a_file_is_read_as_a_broker_reads_it(
    store: Store, tmp_path: Path, name: str, content: bytes, wrong: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert wrong in store.refused("accept", name)


def test_a_missing_file_is_no_cluster_to_be_created(store: Store, tmp_path: Path) -> None:
    (tmp_path / "dir.toml").mkdir()
    for name, why in (("a.properties", "No such file"), ("dir.toml", "Is a directory")):
        message = store.refused("accept", name)
        assert f"{name}: {why}" in message and "a readable server.properties" in message


def test_the_environment_counts_as_for_the_broker(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.properties").write_text("node.id=3\nmetadata.store=embedded:m\n")
    monkeypatch.setenv("TIDELOG_METADATA_STORE", "embedded:other")
    assert "there is no embedded store in other" in store.refused("accept", "a.properties")


@pytest.mark.parametrize("content", [b"\xff\n", b"[" * 100_000])
def test_a_file_that_is_no_export_is_not_imported(
    store: Store, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert store.refused("import", "file", "embedded:m").startswith("tidelog: file")
    assert not (tmp_path / "m").exists()
