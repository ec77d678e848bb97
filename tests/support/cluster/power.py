"""Power losses of real brokers: kill them and cut off what they have not synced.

`record_syncs.c` is preloaded into the brokers and records the size up to which each file is synced.
`lose_power` kills brokers together, and truncates each of their log files to the recorded size. A
file that was never synced becomes empty. Other files stay: brokers replace them with a sync, or can
do without them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster

SOURCE = Path(__file__).with_name("record_syncs.c")


def compiled(directory: Path) -> Path | None:
    """Return the compiled shim, None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "record_syncs.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True
    )
    return library


class Power:
    """The power supply of a cluster's brokers."""

    def __init__(self, cluster: LocalCluster, library: Path) -> None:
        self._cluster = cluster
        self._library = library

    def environment(self, broker_id: int) -> dict[str, str]:
        """Return the environment in which a broker's syncs are recorded."""
        return {
            "LD_PRELOAD": str(self._library),
            "TIDELOG_SYNC_LOG": str(self._log(broker_id)),
            "TIDELOG_SYNC_DIR": str(self._data(broker_id)),
        }

    def start(self) -> None:
        """Start every broker that is down, so that its syncs are recorded, and wait for all."""
        for broker_id in self._cluster.broker_ids:
            self._cluster.start(broker_id, environment=self.environment(broker_id))
        self._cluster.await_full_isrs()

    def lose(self, broker_ids: Iterable[int]) -> int:
        """Cut the power of these brokers together; return how many bytes were lost."""
        lost = list(broker_ids)
        for broker_id in lost:
            self._cluster.pause(broker_id)  # at one instant, more or less: killing takes longer
        for broker_id in lost:
            self._cluster.kill(broker_id)
        return sum(self._cut(broker_id) for broker_id in lost)

    def has_synced(self, broker_id: int, partition: TopicPartition) -> bool:
        """Return whether every byte of a replica's log files is synced."""
        synced = self._synced(broker_id)
        directory = self._data(broker_id) / f"{partition.topic}-{partition.partition}"
        return all(
            path.stat().st_size <= synced.get(str(path), 0) for path in directory.glob("*.log")
        )

    def _cut(self, broker_id: int) -> int:
        synced = self._synced(broker_id)
        lost_bytes = 0
        for path in sorted(self._data(broker_id).rglob("*.log")):
            size_bytes = path.stat().st_size
            kept_bytes = min(size_bytes, synced.get(str(path), 0))
            if kept_bytes < size_bytes:
                with path.open("r+b") as file:
                    file.truncate(kept_bytes)
                lost_bytes += size_bytes - kept_bytes
        return lost_bytes

    def _synced(self, broker_id: int) -> dict[str, int]:
        """Return the size up to which each file is synced."""
        log = self._log(broker_id)
        synced: dict[str, int] = {}
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
            size, _, path = line.partition(" ")
            synced[path] = int(size)
        return synced

    def _data(self, broker_id: int) -> Path:
        return Path(self._cluster.places()[broker_id].directory).resolve() / "data"

    def _log(self, broker_id: int) -> Path:
        return Path(self._cluster.places()[broker_id].directory).resolve() / "syncs"
