"""Results of scanned ranges, kept in a directory, so that a stopped audit can continue.

The name of a result is made from the file's path, size, time, inode and bytes, so a changed file is
scanned again. A result file is written under a temporary name, then renamed to its final name. An
unreadable result counts as missing. All executors must have access to the directory of results and
to the log directories.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.spark.pipelines.audit.ranges import RangeJob, RangeResult


@dataclass(frozen=True, slots=True)
class KeptResults:
    """A directory that keeps the results of scanned ranges for a repetition of the audit."""

    directory: str

    @classmethod
    def opened(cls, directory: str) -> KeptResults:
        """Create a directory for results of ranges; return the results in it.

        Raises ConfigError.
        """
        try:
            os.makedirs(directory, exist_ok=True)
            probe = Path(directory, f".{os.getpid()}.probe")
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"--keep {directory}: results cannot be kept there: {error.strerror}"
            ) from error
        return cls(os.path.abspath(directory))

    def read(self, job: RangeJob) -> RangeResult | None:
        """Return the kept result of a range; None if the range must be scanned."""
        try:
            found = RangeResult.from_json(json.loads(self._path(job).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the kept result is incomplete or of another version: scan the range again
        return found if found.is_valid_for(job.high) else None

    def write(self, job: RangeJob, result: RangeResult) -> None:
        """Write the result of a scanned range to the directory. Raises OSError."""
        path = self._path(job)
        half = path.with_name(f".{path.name}.{os.getpid()}")
        half.write_text(json.dumps(result.to_json(), separators=(",", ":")), encoding="utf-8")
        half.replace(path)

    def _path(self, job: RangeJob) -> Path:
        return Path(self.directory, f"{job.key}.json")
