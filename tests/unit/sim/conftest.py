from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.sim.world import CollectorPaused, World


@pytest.fixture
def world() -> Iterator[World]:
    with CollectorPaused():
        made = World(7)
        yield made
        made.close()
