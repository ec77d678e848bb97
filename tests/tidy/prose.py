"""Counts words and sentences that the project's style bans, by package and by page.

`python -m tests.tidy.prose` writes the counts to `tests/tidy/prose.toml`: the numbers of a package
or a Markdown page may fall and may not rise. A page without an entry has none.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.sources import ROOT, Source, project_files, python_sources

TABLE = ROOT / "tests" / "tidy" / "prose.toml"
MAX_WORDS = 35
#: Verbs and subjects that hide the actor or the field's own word.
BANNED = ("told", "tell", "tells", "anew", "somebody", "nobody", "anybody", "so-and-so")
_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\s*\n")
#: Kinds of findings.
WORDS, SENTENCES, LOOPS = "banned_words", "long_sentences", "loops_over_one"

#: Commands write these pages; their sentences stand in the sources of those commands.
GENERATED = (
    "docs/configuration.md",
    "docs/internals/coverage.md",
    "docs/internals/drawn-mutants.md",
    "docs/internals/mutants.md",
    "docs/reference/cli.md",
)
MAX_PAGE_WORDS = 40
#: Code, and what commands write into a page: quoted lines, and parts between two comments.
_CODE_BLOCK = re.compile(
    r"^( *)```.*?^\1```$|^>[^\n]*$|^<!-- .*?^<!-- end of ", re.MULTILINE | re.DOTALL
)
_CODE_SPAN = re.compile(r"`[^`]+`")
#: What ends a sentence on a page: a full stop, a blank line, a heading, a list item, a table cell.
_PAGE_END = re.compile(
    r"(?<=[.!?])\s+(?=[A-Z*(\[`])|\n\s*\n|^#.*$|^\s*(?:[-*]|\d+\.)\s|\|", re.MULTILINE
)


def prose(source: Source) -> Iterator[str]:
    """The docstrings and comments of a file."""
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    yield "\n".join(each.string for each in tokens if each.type == tokenize.COMMENT)


def findings(source: Source) -> Counter[str]:
    """How often a file breaks each rule."""
    found: Counter[str] = Counter()
    for text in prose(source):
        found[WORDS] += len(_BANNED.findall(text))
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            sentences = _END.split(ast.get_docstring(node) or "")
            found[SENTENCES] += sum(len(each.split()) > MAX_WORDS for each in sentences)
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            target = node.target
            found[LOOPS] += isinstance(target, ast.Name) and target.id == "one"
    return found


def page_findings(text: str) -> Counter[str]:
    """How often a Markdown page breaks each rule outside its code; a code span is one word."""
    text = _CODE_SPAN.sub("`code`", _CODE_BLOCK.sub("", text))
    sentences = _PAGE_END.split(text)
    return Counter(
        {
            WORDS: len(_BANNED.findall(text)),
            SENTENCES: sum(len(each.split()) > MAX_PAGE_WORDS for each in sentences),
        }
    )


def pages() -> dict[str, Path]:
    """The Markdown pages that are written by hand, at least in part."""
    found = {path.relative_to(ROOT).as_posix(): path for path in project_files()}
    return {
        name: path
        for name, path in found.items()
        if path.suffix == ".md"
        and (name.startswith("docs/") or "/" not in name)
        and name not in GENERATED
    }


def page_counts() -> dict[str, dict[str, int]]:
    """Findings by page; a page without findings is left out."""
    found = {
        name: page_findings(path.read_text(encoding="utf-8")) for name, path in pages().items()
    }
    return {name: dict(kinds) for name, kinds in found.items() if kinds.total()}


def counts() -> dict[str, dict[str, int]]:
    """Findings by package of the project."""
    by_package: dict[str, Counter[str]] = {}
    for source in python_sources(below="src/tidelog/"):
        parts = source.path.split("/")
        package = parts[2] if len(parts) > 3 else "tidelog"
        by_package.setdefault(package, Counter()).update(findings(source))
    return {
        package: {kind: found[kind] for kind in (WORDS, SENTENCES, LOOPS)}
        for package, found in sorted(by_package.items())
    }


def allowed() -> dict[str, dict[str, int]]:
    """The counts that are recorded."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def main() -> None:
    """Record today's counts."""
    lines = ["# Written by `python -m tests.tidy.prose`: these numbers may fall, not rise.\n"]
    for place, found in (counts() | page_counts()).items():
        lines.append(f"\n[{place}]\n" if place.isidentifier() else f'\n["{place}"]\n')
        lines += [f"{kind} = {number}\n" for kind, number in found.items()]
    TABLE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
