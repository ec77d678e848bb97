"""No file has a line that git wrote into it to mark a conflict of a merge."""

from __future__ import annotations

import re

import pytest
from tests.tidy.sources import ROOT, project_files

#: Git marks both sides, their common ancestor and the border between them: seven signs each.
SIGNS = ("<", "|", "=", ">")
MARKER = re.compile(
    "|".join(rf"^{re.escape(sign)}{{7}}(?!{re.escape(sign)})" for sign in SIGNS).encode(),
    re.MULTILINE,
)


def marked_lines(content: bytes) -> list[int]:
    """Return the numbers of the lines that begin with a marker."""
    lines = re.split(rb"\r\n|\r|\n", content)
    return [number for number, line in enumerate(lines, 1) if MARKER.match(line)]


def test_no_file_has_a_conflict_marker() -> None:
    files = project_files()
    assert len(files) > 1_000, "this test looks at nothing"
    assert [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number in marked_lines(path.read_bytes())
    ] == []


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("rest", ["", " HEAD", " 1a2b3c (words)"])
def test_a_marker_is_noticed(sign: str, rest: str) -> None:
    assert marked_lines(f"text\n\n{sign * 7}{rest}\nmore".encode()) == [3]
    assert marked_lines(f"text\r\n{sign * 7}{rest}\r\nmore".encode()) == [2]


def test_a_marker_that_a_repair_has_garbled_is_noticed() -> None:
    """A marker whose newline was lost: two of them stand in one line."""
    assert marked_lines(f"{'<' * 7} HEAD{'=' * 7}\n".encode()) == [1]


@pytest.mark.parametrize("line", ["<<<<<<<<", "======", "=" * 20, " " + "<" * 7, "| a | b |", ""])
def test_other_lines_are_no_markers(line: str) -> None:
    assert marked_lines(line.encode()) == []
