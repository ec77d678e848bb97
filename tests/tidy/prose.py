"""Counts words and sentences that the project's style bans, by package.

`python -m tests.tidy.prose` writes the counts to `tests/tidy/prose.toml`: a package's numbers may
fall and may not rise, so that what is written from now on keeps the style.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator

from tests.tidy.sources import ROOT, Source, python_sources

TABLE = ROOT / "tests" / "tidy" / "prose.toml"
MAX_WORDS = 35
#: Verbs and subjects that hide the actor or the field's own word.
BANNED = ("told", "tell", "tells", "anew", "somebody", "nobody", "anybody", "so-and-so")
_WORD = re.compile(r"[A-Za-z']+")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\s*\n")
#: Kinds of findings.
WORDS, SENTENCES, LOOPS = "banned_words", "long_sentences", "loops_over_one"


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
        words = [word.lower() for word in _WORD.findall(text)]
        found[WORDS] += sum(word in BANNED for word in words)
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            sentences = _END.split(ast.get_docstring(node) or "")
            found[SENTENCES] += sum(len(each.split()) > MAX_WORDS for each in sentences)
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            target = node.target
            found[LOOPS] += isinstance(target, ast.Name) and target.id == "one"
    return found


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
    for package, found in counts().items():
        lines.append(f"\n[{package}]\n")
        lines += [f"{kind} = {number}\n" for kind, number in found.items()]
    TABLE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
