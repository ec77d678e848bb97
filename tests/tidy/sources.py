"""The project's own files, as the tidy tests look at them."""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ROOT / "src"


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path below the project, its text and its syntax tree.

    `nodes` are those of the tree as `ast.walk` gives them; walking all trees again takes seconds.
    """

    path: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    names = [name for name in listed.decode().split("\0") if name]
    return tuple(ROOT / name for name in sorted(names) if (ROOT / name).is_file())


@cache
def python_sources(*, below: str = "") -> tuple[Source, ...]:
    """The Python files of the project below a folder."""
    found = tuple(source for source in _every_python_source() if source.path.startswith(below))
    assert found, f"no Python file below {below!r}: this test looks at nothing"
    return found


@cache
def _every_python_source() -> tuple[Source, ...]:
    """Parse each Python file of the project, once in a process."""
    found = []
    gc.disable()
    try:
        for path in project_files():
            if path.suffix == ".py":
                name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
                tree = ast.parse(text, name)
                found.append(Source(name, text, tree, tuple(ast.walk(tree))))
    finally:
        # Each collection would visit the millions of nodes, which stay.
        gc.freeze()
        gc.enable()
    return tuple(found)


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
