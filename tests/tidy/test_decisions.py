"""DESIGN.md stays short, and each recorded decision names code and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.rules import rule_ids
from tests.tidy.sources import PACKAGES, ROOT, project_files

DESIGN = ROOT / "DESIGN.md"
FOLDER = ROOT / "docs" / "adr"
INDEX = FOLDER / "README.md"
DESIGN_LINES = 200
DECISION_LINES = range(20, 46)
#: In this order; "Rejected" is left out where no alternative is known.
SECTIONS = ("Context", "Decision", "Consequences", "Rejected", "Where", "Tests")
OPTIONAL = {"Rejected"}
DECISIONS = sorted(path for path in FOLDER.glob("*.md") if path != INDEX)

_NAME = re.compile(r"(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*\.md")
_STATUS = re.compile(r"Status: (?:in force|replaced by (\d{4}))")
_RULE = re.compile(r"[A-Z]\d+")
_CITED = re.compile(r"DESIGN\.md, ([^\n.)]*)")


def sections(text: str) -> dict[str, str]:
    """The text below each heading of the second level, in their order."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def named(text: str) -> list[str]:
    """The first name in each item of a list: a path or, in a line of rules, every rule id."""
    found: list[str] = []
    for item in re.findall(r"^- (.+)$", text, re.MULTILINE):
        names = re.findall(r"`([^`]+)`", item)
        found += names if item.startswith("rules:") else names[:1]
    return found


def test_the_design_fits_a_short_read() -> None:
    assert len(DESIGN.read_text(encoding="utf-8").splitlines()) <= DESIGN_LINES


def test_the_layout_names_every_package() -> None:
    layout = sections(DESIGN.read_text(encoding="utf-8"))["Layout"]
    packages = sorted(path.parent.name for path in (PACKAGES / "tidelog").glob("*/__init__.py"))
    assert len(packages) > 10, "this test looks at nothing"
    assert [name for name in packages if not re.search(rf"^  {name}/ ", layout, re.MULTILINE)] == []


def test_numbers_have_no_gaps() -> None:
    assert [path.name for path in DECISIONS if not _NAME.fullmatch(path.name)] == []
    numbers = [int(path.name[:4]) for path in DECISIONS]
    assert len(numbers) > 40, "this test looks at nothing"
    assert numbers == list(range(1, len(DECISIONS) + 1))


def test_the_index_names_each_decision_once() -> None:
    index = INDEX.read_text(encoding="utf-8")
    lines = re.findall(r"^- \[(\d{4})\]\(([^)]+)\) (.+)$", index, re.MULTILINE)
    titles = {path.name: path.read_text(encoding="utf-8").partition("\n")[0] for path in DECISIONS}
    assert sorted(name for _, name, _ in lines) == sorted(titles)
    assert {name: f"# {number}. {title}" for number, name, title in lines} == titles


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem[:4])
def test_a_decision_has_its_sections(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) in DECISION_LINES
    assert lines[0].startswith(f"# {path.name[:4]}. ")
    found = sections(text)
    assert [name for name, body in found.items() if not body.strip()] == []
    assert list(found) == [name for name in SECTIONS if name in found or name not in OPTIONAL]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem[:4])
def test_the_status_of_a_decision_is_known(path: Path) -> None:
    match = _STATUS.fullmatch(path.read_text(encoding="utf-8").splitlines()[2])
    assert match is not None, "the third line says `Status: in force` or `replaced by NNNN`"
    later = match[1]
    assert later is None or (later > path.name[:4] and list(FOLDER.glob(f"{later}-*.md")) != [])


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem[:4])
def test_files_and_tests_of_a_decision_exist(path: Path) -> None:
    found = sections(path.read_text(encoding="utf-8"))
    rules = rule_ids()
    places, tests = named(found["Where"]), named(found["Tests"])
    files = [name for name in tests if not _RULE.fullmatch(name)]
    assert places and tests
    assert [name for name in [*places, *files] if not (ROOT / name).is_file()] == []
    assert [name for name in tests if name not in files and name not in rules] == []
    assert [name for name in files if not name.rpartition("/")[2].startswith("test_")] == []


def citations(pattern: re.Pattern[str]) -> list[tuple[str, re.Match[str]]]:
    """Each place in the code that matches, with the path of its file."""
    return [
        (path.relative_to(ROOT).as_posix(), match)
        for path in project_files()
        if path.suffix == ".py" and path != Path(__file__).resolve()
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]


def test_the_code_cites_rules_and_sections_of_the_design_that_exist() -> None:
    text = DESIGN.read_text(encoding="utf-8")
    rules = re.findall(r"^(\d+)\. \*\*", text, re.MULTILINE)
    known = [*(f"rule {number}" for number in rules), *sections(text)]
    found = citations(_CITED)
    assert len(found) > 30, "this test looks at nothing"
    assert [
        f"{path}: {cited}"
        for path, match in found
        for cited in [match[1].replace("rules ", "rule ")]
        if not any(re.match(rf"{name}\b", cited) for name in known)
    ] == []


def test_the_code_cites_decisions_that_exist() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    found = citations(re.compile(r"docs/adr/(\w+)"))
    assert len(found) >= 4, "this test looks at nothing"
    assert [f"{path}: {match[1]}" for path, match in found if match[1] not in numbers] == []
