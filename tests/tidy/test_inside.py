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


INTERNALS = ROOT / "docs" / "internals"
PACKAGES = sorted(path.parent.name for path in ROOT.glob("src/tidelog/*/__init__.py"))
#: The ways of things and the pages of packages, which name the code of each step.
WALKS = [
    *INTERNALS.glob("life-of-*.md"),
    *(path for name in PACKAGES if (path := INTERNALS / f"{name}.md").exists()),
]


@pytest.mark.parametrize("document", WALKS, ids=lambda path: path.stem)
def test_a_page_of_the_inside_names_code_that_exists(document: Path) -> None:
    named = [(text, target) for text, target in links(document) if text.startswith("`")]
    assert len(named) >= 5
    assert [
        f"{text} in {target}"
        for text, target in named
        if not is_module(text.strip("`"), target)
        for name in text.strip("`").split(".")
        if Path(target).stem != name and not defines(document.parent / target, name)
    ] == []


def is_module(name: str, target: str) -> bool:
    """Whether the name is that of the linked module: `isr`, `partitions/isr`, `tidelog.log`."""
    module = target.removesuffix(".py").removesuffix("/__init__")
    return f"/{module}".endswith("/" + name.replace(".", "/"))


def test_the_index_of_the_inside_has_every_page() -> None:
    index = (INTERNALS / "README.md").read_text(encoding="utf-8")
    pages = [path.name for path in INTERNALS.glob("*.md") if path.name != "README.md"]
    assert len(pages) > 5
    assert [name for name in pages if f"({name})" not in index] == []


def test_every_package_has_a_page() -> None:
    assert [name for name in PACKAGES if not (INTERNALS / f"{name}.md").exists()] == []


def test_the_page_of_proofs_names_every_checker() -> None:
    page = (INTERNALS / "proof.md").read_text(encoding="utf-8")
    checkers = {path.stem for path in ROOT.glob("src/tidelog/sim/checkers/*_checker.py")}
    assert len(checkers) > 10
    assert sorted(name for name in checkers if f"{name}.py`" not in page) == []


def defines(path: Path, name: str) -> bool:
    """Whether a module defines a class or function of that name."""
    source = path.read_text(encoding="utf-8")
    return bool(re.search(rf"^\s*(class|def|async def) {name}\b", source, re.MULTILINE))
