"""A log directory on real files, run by a lane without threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.log import LogHarness
from tests.unit.log.compacting import Small

from tidelog.log.config import LogConfig


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LogHarness]:
    """A log harness; whatever a test did, the invariants of its open logs hold in the end."""
    harness = LogHarness(tmp_path)
    yield harness
    if harness.directory is not None:
        for log in harness.directory.logs.values():
            if not log.is_closed:
                log.check_invariants()


@pytest.fixture
def small() -> Small:
    """Small segments."""
    return lambda **more: LogConfig(
        **{"segment_bytes": 1000, "index_interval_bytes": 150, "file_delete_delay_ms": 1000, **more}
    )


@pytest.fixture
def compact(small: Small) -> Small:
    return lambda **more: small(
        **{"compact_enabled": True, "delete_enabled": False, "segment_bytes": 400, **more}
    )
