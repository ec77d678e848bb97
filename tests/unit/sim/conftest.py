from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.sim.simulator import CollectorPaused, Simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with CollectorPaused():
        made = Simulator(7)
        yield made
        made.close()
