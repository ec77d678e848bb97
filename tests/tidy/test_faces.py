"""The docstring of each package lists what the package holds, and nothing that is gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.tidy.sources import PACKAGES

from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import keys_of
from tidelog.core.names import CLUSTER_EVENTS, CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.core.topic_config import TopicConfig

TIDELOG = PACKAGES / "tidelog"
FACES = sorted(path.parent for path in TIDELOG.rglob("__init__.py"))
#: Packages whose modules are named after API keys: a list would repeat the registry.
NAMED_AFTER_API_KEYS = ("broker/apis", "wire/messages")
#: Configuration keys and internal topics.
INTERNAL_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE, CLUSTER_EVENTS)
DECLARED = {*keys_of(BrokerConfig), *keys_of(TopicConfig), *INTERNAL_TOPICS}
_CODE = re.compile(r"`([^`]+)`")
_NAME = re.compile(r"[a-z_][a-z0-9_./]*")
_CALL = re.compile(r"([a-z_][a-z0-9_]*)\([a-z_, ]*\)")


def contents(folder: Path) -> set[str]:
    """The modules, sub-packages and C sources of a package by name."""
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return modules | packages | {path.name for path in folder.glob("*.c")}


def unnamed(face: str, folder: Path) -> list[str]:
    """The modules, sub-packages and C sources that a face does not name."""
    named = {name.removesuffix("/") for name in _CODE.findall(face)}
    return sorted(contents(folder) - named)


def stale(face: str, folder: Path) -> list[str]:
    """The lower-case names of a face that name nothing."""
    return [
        name
        for name in _CODE.findall(face)
        if (_NAME.fullmatch(name) and not is_there(name.removesuffix("/"), folder))
        or ((call := _CALL.fullmatch(name)) and call[1] not in functions(folder))
    ]


def is_there(name: str, folder: Path) -> bool:
    """Whether a name is a module here, a path or dotted name of the project, or a declared key."""
    if name in contents(folder):
        return True
    if "." not in name and "/" not in name and not name.startswith("__"):
        return (PACKAGES / name / "__init__.py").is_file()
    path = name.removesuffix(".py").replace(".", "/")
    candidates = [start / path for start in (PACKAGES, TIDELOG, folder)]
    return any(is_code(each) for each in candidates) or name in DECLARED


def is_code(path: Path) -> bool:
    """Whether a path without a suffix is a package, a module, or a class or function of one."""
    if (path / "__init__.py").is_file() or path.with_suffix(".py").is_file():
        return True
    module = path.parent.with_suffix(".py")
    return module.is_file() and path.name in defined(module)


def defined(module: Path) -> set[str]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def functions(folder: Path) -> set[str]:
    return {name for module in folder.glob("*.py") for name in defined(module)}


def face_of(folder: Path) -> str:
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or ""


@pytest.mark.parametrize("folder", FACES, ids=lambda path: str(path.relative_to(PACKAGES)))
def test_a_face_names_everything_in_its_package_and_nothing_else(folder: Path) -> None:
    face = face_of(folder)
    assert stale(face, folder) == []
    if folder.relative_to(TIDELOG).as_posix() not in NAMED_AFTER_API_KEYS:
        assert unnamed(face, folder) == []


@pytest.mark.parametrize("name", NAMED_AFTER_API_KEYS)
def test_a_face_that_lists_no_modules_gives_the_reason(name: str) -> None:
    assert "named after API keys" in face_of(TIDELOG / name)
    assert len(unnamed(face_of(TIDELOG / name), TIDELOG / name)) > 20


def test_a_module_that_a_face_does_not_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "isr.py").write_text("def shrink(): ...\n")
    (tmp_path / "lag.py").touch()
    (tmp_path / "_walk.c").touch()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "__init__.py").touch()
    assert unnamed("`isr` uses lag and `tables/`.", tmp_path) == ["_walk.c", "lag"]
    assert unnamed("`isr`, `lag`, `tables` and `_walk.c`.", tmp_path) == []


def test_a_name_in_a_face_that_names_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "isr.py").write_text("def shrink(): ...\n")
    good = "`isr`, `shrink(now)`, `core.ports.Lane`, `log/scan.py`, `broker.id`, `tidelog up`"
    assert stale(good, tmp_path) == []
    gone = ["expand", "expand()", "shrink", "core.no_ports", "core.ports.no_lane", "log/no_scan"]
    assert stale(", ".join(f"`{name}`" for name in gone), tmp_path) == gone
