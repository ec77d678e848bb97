"""A log directory on real files, run by a lane without threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.log import (
    LogHarness,
)

from tidelog.log.config import LogConfig


@pytest.fixture
def harness(tmp_path: Path) -> LogHarness:
    return LogHarness(tmp_path)


@pytest.fixture
def small() -> Callable[..., LogConfig]:
    """Small segments."""
    return lambda **more: LogConfig(
        **{"segment_bytes": 1000, "index_interval_bytes": 150, "file_delete_delay_ms": 1000, **more}
    )
