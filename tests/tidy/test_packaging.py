"""What pyproject.toml tells installers and the package index is true and stands in one place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import hatch_build
import pytest
from tests.tidy.sources import PACKAGES, ROOT, python_sources

import tidelog

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[^\w-]", requirement, maxsplit=1)[0] for requirement in requirements]


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PROJECT and PROJECT["dynamic"] == ["version"]
    assert SETTINGS["tool"]["hatch"]["version"] == {"path": "src/tidelog/__init__.py"}
    written = f'= "{tidelog.__version__}"'
    assert [each.path for each in python_sources(below="src/") if written in each.text] == [
        "src/tidelog/__init__.py"
    ]


def test_every_package_of_the_wheel_is_typed() -> None:
    packages = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == [
        path.relative_to(ROOT).as_posix()
        for path in sorted(PACKAGES.iterdir(), reverse=True)
        if (path / "__init__.py").is_file()
    ]
    assert [path for path in packages if not (ROOT / path / "py.typed").is_file()] == []


def test_what_users_choose_are_extras_and_what_builds_and_tests_are_groups() -> None:
    extras, groups = PROJECT["optional-dependencies"], SETTINGS["dependency-groups"]
    assert sorted(extras) == [
        "console",
        "iceberg",
        "schemas",
        "spark",
        "testing",
        "top",
        "zookeeper",
    ]
    assert sorted(groups) == ["build", "demo", "test"]
    assert names(extras["zookeeper"]) == ["kazoo"]
    assert names(SETTINGS["build-system"]["requires"])[0] in names(groups["build"])


def test_an_installation_on_the_embedded_store_stays_small() -> None:
    assert sorted(names(PROJECT["dependencies"])) == ["cramjam", "crc32c", "rich", "typer"]


def test_the_build_hook_compiles_every_c_source_of_the_packages() -> None:
    sources = {path.relative_to(ROOT) for path in (ROOT / "src").rglob("*.c")}
    assert set(hatch_build.WITHOUT) == sources and len(sources) == 3


@pytest.mark.parametrize("source", hatch_build.WITHOUT, ids=lambda source: source.stem)
def test_an_extension_that_does_not_compile_is_named(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("TIDELOG_NO_EXTENSION", raising=False)
    monkeypatch.setenv("CC", "false")
    assert hatch_build.compiled(source, ROOT, tmp_path) is None
    assert capsys.readouterr().out.startswith(f"tidelog: {source.name} is not compiled, so ")
    monkeypatch.setenv("TIDELOG_NO_EXTENSION", "1")
    assert hatch_build.compiled(source, ROOT, tmp_path) is None
    assert "TIDELOG_NO_EXTENSION is set" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["requirements.lock", "requirements-test.lock", "website/requirements.lock"]
)
def test_locks_have_hashes_and_name_no_path_of_a_machine_and_no_index(name: str) -> None:
    lock = (ROOT / name).read_text(encoding="utf-8")
    sources = re.findall(r"-[rc] (\S+)", lock)
    assert [path for path in sources if path.startswith("/")] == []
    assert "://" not in lock and "--index-url" not in lock
    pinned = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert pinned and [each for each in pinned if "--hash=sha256:" not in each] == []
