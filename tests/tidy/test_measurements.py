"""What rule A14 wants to be measured is on the page of measurements, with its figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measurements.md"


@pytest.mark.rule("A14")
@pytest.mark.parametrize(
    "figure",
    [
        "all leaderships moved and all brokers informed, by its own log, ms",
        "| batched |",
        "| each |",
        "from the store to the last of three brokers' Metadata, ms",
        "changes a second",
    ],
)
def test_what_was_measured_is_reported(figure: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    [line] = [one for one in page.splitlines() if figure in one][:1] or [""]
    assert re.search(r"\d", line), f"{figure}: no figure of it"
