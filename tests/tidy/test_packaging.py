"""What pyproject.toml tells installers and the package index is true and stands in one place."""

from __future__ import annotations

import re
import tomllib

from tests.tidy.sources import PACKAGES, ROOT, python_sources

import tidelog

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[^\w-]", requirement, maxsplit=1)[0] for requirement in requirements]


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PROJECT and PROJECT["dynamic"] == ["version"]
    assert SETTINGS["tool"]["hatch"]["version"] == {"path": "src/tidelog/__init__.py"}
    written = f'"{tidelog.__version__}"'
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
    assert sorted(extras) == ["demo", "schemas", "spark", "testing", "zookeeper"]
    assert sorted(groups) == ["build", "test"]
    assert names(extras["zookeeper"]) == ["kazoo"]
    assert names(SETTINGS["build-system"]["requires"])[0] in names(groups["build"])


def test_an_installation_on_the_embedded_store_stays_small() -> None:
    assert sorted(names(PROJECT["dependencies"])) == ["cramjam", "crc32c", "rich", "typer"]
