"""The documents' links lead somewhere, and the code that they name is still there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def links(document: Path) -> list[tuple[str, str]]:
    return _LINK.findall(document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(document: Path) -> None:
    missing = [
        target
        for _, target in links(document)
        if "://" not in target
        and not target.startswith("#")
        and not (document.parent / target.partition("#")[0]).exists()
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "least"),
    [("life-of-a-record", 30), ("life-of-an-isr-change", 15), ("life-of-a-failover", 15)],
)
def test_the_life_of_a_thing_names_code_that_exists(name: str, least: int) -> None:
    document = ROOT / f"docs/internals/{name}.md"
    named = [(text, target) for text, target in links(document) if text.startswith("`")]
    assert len(named) >= least
    assert [
        f"{text} in {target}"
        for text, target in named
        for name in text.strip("`").split(".")
        if Path(target).stem != name and not defines(document.parent / target, name)
    ] == []


def defines(path: Path, name: str) -> bool:
    """Whether a module defines a class or function of that name."""
    source = path.read_text(encoding="utf-8")
    return bool(re.search(rf"^\s*(class|def|async def) {name}\b", source, re.MULTILINE))
