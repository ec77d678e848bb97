"""docs/internals/rules.md is up to date, and has every rule whose id is cited anywhere."""

from __future__ import annotations

import re

from tests.support.rules import (
    DOCUMENT,
    generate,
    rule_ids,
    rule_texts,
    without_generated,
)
from tests.tidy.sources import ROOT, project_files

#: What reads as the id of a rule. A longer number, a digit 0 at its beginning, or letters around
#: it make another word of it: an error code of ruff, a name in a program, an escape in a string.
CITATION = re.compile(r"\b[VARDFEGSL][1-9][0-9]?\b")
#: Headings of the level that only rules have.
HEADING = re.compile(r"^### (.*)$", re.MULTILINE)


def document() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


def test_statuses_and_tests_are_as_the_command_writes_them() -> None:
    assert document() == generate(document()), "run: python -m tests.support.rules"


def test_the_command_writes_all_of_its_lines_anew_and_no_others() -> None:
    bare = without_generated(document())
    assert "\n>" not in bare
    assert generate(bare) == document()
    assert without_generated(generate(bare)).split() == bare.split()


def test_every_heading_of_its_level_is_a_rule() -> None:
    assert [heading.partition(": ")[0] for heading in HEADING.findall(document())] == rule_ids()


def test_every_rule_has_a_text() -> None:
    texts = rule_texts(document())
    assert list(texts) == rule_ids()
    assert [rule for rule, text in texts.items() if len(text.split()) < 8] == []


def test_rules_stand_in_the_order_of_their_ids() -> None:
    groups: dict[str, list[int]] = {}
    for rule in rule_ids():
        groups.setdefault(rule[0], []).append(int(rule[1:]))
    assert "".join(groups) == "VARDFEGSL"
    assert [prefix for prefix, numbers in groups.items() if numbers != sorted(numbers)] == []
    assert [rule for rule in rule_ids() if not CITATION.fullmatch(rule)] == []


def test_every_id_that_is_cited_is_a_rule() -> None:
    """Where the word is no id of a rule, another name for it saves readers the question, too."""
    rules = frozenset(rule_ids())
    unknown, cited = [], 0
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # pictures and recorded bytes
        for found in CITATION.finditer(text):
            cited += 1
            if found[0] not in rules:
                line = text.count("\n", 0, found.start()) + 1
                unknown.append(f"{path.relative_to(ROOT)}:{line} {found[0]}")
    assert cited > 2000, "this test looks at nothing"
    assert unknown == []


def test_a_citation_is_told_from_other_words() -> None:
    words = "V38's (A8), V60-V68: F401 A0 A10x xE1 E_2 \\xE9 V100 `S3`"
    assert CITATION.findall(words) == ["V38", "A8", "V60", "V68", "S3"]
