"""docs/reference/history.md says what the checker does."""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.history import ANOMALIES, HistoryChecker, parse
from tidelog.history.operations import KINDS

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "history.md").read_text(encoding="utf-8")


def rows(header: str) -> list[list[str]]:
    table = TEXT.split(header, 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")[2:]]


def test_the_lines_shown_are_a_sound_history() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    checker = HistoryChecker()
    for line, text in enumerate(block.splitlines(), 1):
        checker.add(parse(text, line), line)
    report = checker.finish()
    assert (report.forbidden, report.operations, report.polled_records) == ({}, 4, 2)


def test_every_kind_is_described_with_its_fields() -> None:
    described = {row[0].strip("`"): row[1] for row in rows("| kind | further fields |")}
    assert list(described) == list(KINDS)
    for kind, fields in KINDS.items():
        assert [name for name in fields if f"`{name}`" not in described[kind]] == []


def test_every_anomaly_is_described_with_when_it_is_allowed() -> None:
    described = {row[0].strip("`"): row[2] for row in rows("| name | meaning | allowed |")}
    assert described.keys() == ANOMALIES.keys()
    for name, meaning in ANOMALIES.items():
        assert described[name].replace("`", "") == meaning.allowed
