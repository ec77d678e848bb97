"""A log directory on real files, run by a lane without threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.log.log_rig import (
    TOPIC_ID,
    TP,
    Events,
    FakeClock,
    FaultyFiles,
    StepLane,
    open_directory,
)

from tidelog.core.ports import Handle
from tidelog.log.config import LogConfig
from tidelog.log.log_directory import LogDirectory
from tidelog.log.partition_log import PartitionLog
from tidelog.runtime.files import OsFiles


class UnsyncedFiles(OsFiles):
    """Real files that nothing waits for: no test here cuts the power, and whoever wants to know
    what would have been synced asks FaultyFiles. A sync takes milliseconds, a test asks for many.
    """

    def fsync(self, handle: Handle) -> None:
        """Leave it to the page cache."""

    def fsync_directory(self, path: str) -> None:
        """Leave it to the page cache."""

    def sync_volume(self, path: str) -> None:
        """Leave it to the page cache."""

    def replace_file(self, path: str, data: bytes, *, sync: bool) -> None:
        """Old or new, as ever."""
        super().replace_file(path, data, sync=False)


class Rig:
    """One log directory on real files that can be opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path / "logs"
        self.clock = FakeClock()
        self.tracer = Events()
        self.config = LogConfig()
        self.files = FaultyFiles(UnsyncedFiles())
        self.lane = StepLane(str(self.path), self.files)
        #: Opened last.
        self.directory: LogDirectory | None = None

    def open(self, config: LogConfig | None = None, max_open_files: int = 100) -> LogDirectory:
        """Open it, as after a crash of the process."""
        self.config = config or self.config
        self.files = FaultyFiles(UnsyncedFiles())
        self.lane = StepLane(str(self.path), self.files)
        self.directory = open_directory(
            self.lane, self.config, self.clock, self.tracer, max_open_files=max_open_files
        )
        return self.directory

    def log(self, config: LogConfig | None = None) -> PartitionLog:
        """A new log in a new directory."""
        directory = self.open(config)
        return directory.create(TP, TOPIC_ID, self.config).result()

    def again(self, config: LogConfig | None = None) -> PartitionLog:
        """The log after a crash of the process."""
        return self.open(config).logs[TP]

    @property
    def log_path(self) -> Path:
        return self.path / "topic-0"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A rig; whatever a test did, the invariants of its open logs hold in the end."""
    rig = Rig(tmp_path)
    yield rig
    if rig.directory is not None:
        for log in rig.directory.logs.values():
            if not log.is_closed:
                log.check_invariants()


@pytest.fixture
def small() -> Callable[..., LogConfig]:
    """Small segments."""
    return lambda **more: LogConfig(
        **{"segment_bytes": 1000, "index_interval_bytes": 150, "file_delete_delay_ms": 1000, **more}
    )
