"""Fixtures of the store's contract suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.clusters import Cluster, SimCluster, SqliteCluster


@pytest.fixture(params=["sim", "sqlite"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """An empty store of each kind."""
    if request.param == "sqlite":
        yield SqliteCluster(tmp_path / "store")
        return
    simulated = SimCluster()
    yield simulated
    simulated.close()
