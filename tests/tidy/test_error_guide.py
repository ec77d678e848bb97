"""docs/guide/errors.md tells of every error that brokers answer, and quotes what is really said."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.tidy.sources import ROOT, python_sources

from tidelog.core.errors import ErrorCode

GUIDE = ROOT / "docs" / "guide" / "errors.md"
REFERENCE = ROOT / "docs" / "reference" / "cli.md"
#: What runs in a broker, and what may stand in its answers.
ANSWERING = ("broker", "controller", "replication", "group", "log", "records", "wire", "metadata")
QUOTING = ("What `tidelog` prints", "What brokers log")
_CODE = re.compile(r"(?<![\w=])[A-Z]+(?:_[A-Z]+)+\b")
#: Words that stay of a quotation when what changes is left out; shorter ones are everywhere.
_TELLING_CHARS = 7


def sections() -> dict[str, str]:
    parts = GUIDE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {title: text for title, _, text in (part.partition("\n") for part in parts)}


def first_cells(text: str) -> list[str]:
    """What stands in the first column of tables, without their heads."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [row.split(" | ")[0].removeprefix("| ") for row in rows if " --- " not in row][1:]


def answered() -> set[str]:
    """The members of ErrorCode that the code of brokers names."""
    found = set()
    for package in ANSWERING:
        for source in python_sources(below=f"src/tidelog/{package}/"):
            for node in source.nodes:
                match node:
                    case ast.Attribute(value=ast.Name(id="ErrorCode"), attr=name):
                        found.add(name)
    return found & set(ErrorCode.__members__) - {"NONE"}


@cache
def said() -> tuple[str, ...]:
    """Every text of the package; of one with fields in it, what stands between them."""
    return tuple(
        node.value
        for source in python_sources(below="src/tidelog/")
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_every_error_that_brokers_answer_is_explained() -> None:
    explained = {
        name
        for title, text in sections().items()
        if not title.startswith("One error")
        for cell in (first_cells(text) if title != "Between brokers" else [text])
        for name in _CODE.findall(cell)
    }
    assert len(answered()) > 50
    assert sorted(answered() - explained) == []


def test_the_guide_names_no_error_that_brokers_do_not_answer() -> None:
    text = "\n".join(text for title, text in sections().items() if not title.startswith("One"))
    own = {name for name in _CODE.findall(text) if not name.startswith("_")}
    assert sorted(own & set(ErrorCode.__members__) - answered()) == []


def test_what_is_quoted_is_said() -> None:
    quoted = [
        (quotation, [piece.strip(" :;,.") for piece in quotation.split("…")])
        for title in QUOTING
        for cell in first_cells(sections()[title])
        for quotation in re.findall(r"`([^`]+)`", cell)
    ]
    assert len(quoted) > 35
    for quotation, pieces in quoted:
        telling = [piece for piece in pieces if len(piece) >= _TELLING_CHARS]
        # What the system says (strerror) is none of ours.
        if quotation == "Too many open files":
            continue
        assert telling, f"{quotation!r} quotes too little to be looked for"
        for piece in telling:
            assert any(piece in text for text in said()), f"{piece!r} of {quotation!r} is not said"


def test_commands_in_the_guide_exist_with_their_options() -> None:
    reference = REFERENCE.read_text(encoding="utf-8")
    common, *rest = reference.split("\n## ")
    commands = {part.partition("\n")[0]: part for part in rest}
    spans = re.findall(r"`(tidelog [^`]+)`", GUIDE.read_text(encoding="utf-8"))
    assert len(spans) > 20
    for span in spans:
        if span.startswith("tidelog: "):
            continue
        words = span.split()
        known = [name for name in commands if words[: len(name.split())] == name.split()]
        assert known, f"`{span}` is no command"
        for word in words:
            if word.startswith("-"):
                assert f"`{word}`" in commands[known[0]] + common, f"`{span}` has no {word}"
