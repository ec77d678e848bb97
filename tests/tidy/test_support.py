"""Folders of tests do not know each other: what several of them use stands in tests/support.

tests/tidy looks at the whole project and may import what it looks at; nothing imports it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from tests.tidy.sources import ROOT, Source, python_sources

SUPPORT = "tests/support"
TIDY = "tests/tidy"


@cache
def modules() -> dict[str, Source]:
    """Return module name -> source, of tests and of bench."""
    sources = (*python_sources(below="tests/"), *python_sources(below="bench/"))
    names = (source.path.removesuffix(".py").replace("/", ".") for source in sources)
    return dict(zip((name.removesuffix(".__init__") for name in names), sources, strict=True))


def folder(path: str) -> str:
    """Return the folder that a file belongs to: `tests/rules`, `tests/unit/log`, `bench`."""
    parts = PurePosixPath(path).parent.parts
    return "/".join(parts[: 3 if parts[:2] == ("tests", "unit") else 2])


@cache
def imported(name: str) -> tuple[str, ...]:
    """Return the modules of tests that a module imports, wherever in its text."""
    found: list[str] = []
    for node in ast.walk(modules()[name].tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [part if part in modules() else node.module for part in parts]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return tuple(dict.fromkeys(target for target in found if target in modules()))


def imports() -> Iterator[tuple[Source, Source]]:
    """Yield each import of a folder of tests from another folder."""
    for name, source in modules().items():
        for target in imported(name):
            to = folder(modules()[target].path)
            if to not in ("bench", folder(source.path)):
                yield source, modules()[target]


def test_folders_of_tests_do_not_import_each_other() -> None:
    crossing = [
        (source, target)
        for source, target in imports()
        if target.path.startswith(f"{SUPPORT}/") or not source.path.startswith(f"{TIDY}/")
    ]
    assert len(crossing) > 300, "this test looks at nothing"
    assert [
        f"{source.path} imports {target.path}: move what both need to {SUPPORT}"
        for source, target in crossing
        if not target.path.startswith(f"{SUPPORT}/")
    ] == []


def test_support_has_no_import_circle() -> None:
    circles: list[str] = []
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            circles.append(" -> ".join((*above[above.index(name) :], name)))
        elif name not in done:
            done.add(name)
            for target in imported(name):
                walk(target, (*above, name))

    for name, source in modules().items():
        if source.path.startswith(f"{SUPPORT}/"):
            walk(name, ())
    assert len(done) > 40, "this test looks at nothing"
    assert circles == []


def test_support_serves_more_than_one_folder() -> None:
    """What serves one folder alone stands in that folder; a package of support is judged whole."""
    parts = sorted(part.name for part in (ROOT / SUPPORT).glob("[!_]*"))
    users: dict[str, set[str]] = {part: set() for part in parts}
    for source, target in imports():
        if target.path.startswith(f"{SUPPORT}/"):
            users[target.path.split("/")[2]].add(folder(source.path))
    assert [f"{part} serves {folders}" for part, folders in users.items() if len(folders) < 2] == []
