"""The project's own files, as the tidy tests look at them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ROOT / "src"


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path below the project, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def project_files() -> list[Path]:
    """Every file that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    names = [name for name in listed.decode().split("\0") if name]
    return [ROOT / name for name in sorted(names) if (ROOT / name).is_file()]


@cache
def python_sources(*, below: str = "") -> tuple[Source, ...]:
    """The Python files of the project below a folder."""
    found = []
    for path in project_files():
        name = path.relative_to(ROOT).as_posix()
        if name.endswith(".py") and name.startswith(below):
            text = path.read_text(encoding="utf-8")
            found.append(Source(name, text, ast.parse(text, name)))
    assert found, f"no Python file below {below!r}: this test looks at nothing"
    return tuple(found)


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
