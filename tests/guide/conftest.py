"""A terminal for each test of a guide, whose cluster is taken down after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.guide.documents import Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    if (tmp_path / "tidelog-cluster").exists():
        made.run("tidelog down\n")
