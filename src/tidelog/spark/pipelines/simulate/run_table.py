"""A directory of finished runs: Parquet files, a row per run, and a lock for one search at a time.

Each file is written under a temporary name, renamed to its final name, and never changed. A run in
two files counts once, because equal runs have equal results. `compact` merges many small files into
one. Only the driver accesses the directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.core.errors import TidelogError
from tidelog.spark.pipelines.directory_lock import directory_lock, whole_file
from tidelog.spark.pipelines.simulate.work import RUN_KEY

_COUNTS: Final = pa.map_(pa.string(), pa.int64())
SCHEMA: Final = pa.schema(
    [
        ("profile", pa.string()),
        ("seed", pa.int64()),
        ("policy", pa.string()),
        ("mutant", pa.string()),
        ("faults", pa.string()),
        #: Digest of the code that made the run.
        ("code", pa.string()),
        ("command", pa.string()),
        ("trace_hash", pa.string()),
        ("events", pa.int64()),
        ("simulated_ns", pa.int64()),
        ("seconds", pa.float64()),
        ("violation", pa.string()),
        #: Why the run failed; the row of a failed run is shown but never kept.
        ("failure", pa.string()),
        ("counters", _COUNTS),
        ("played", _COUNTS),
        ("marks", _COUNTS),
        ("outcomes", pa.map_(pa.string(), pa.float64())),
    ]
)
_FILES: Final = "runs-*.parquet"
#: Maximum number of Parquet files of the run table; more files make reads slow.
_MOST_FILES: Final = 20

Row = dict[str, Any]


class RunTableError(TidelogError):
    """The error for an unusable directory of runs; the message states the remedy."""


class RunTable:
    """The finished runs of the simulator in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory and hold its lock; raise RunTableError if another search has it."""
        with directory_lock(self.directory, RunTableError, "runs", "another search"):
            yield

    def rows(self) -> list[Row]:
        """Return the rows of all files, each run once.

        Raises RunTableError for a file that does not belong to this table.
        """
        found: dict[tuple[Any, ...], Row] = {}
        for path in sorted(self.directory.glob(_FILES)):
            for row in _read(path):
                found[(*(row[name] for name in RUN_KEY), row["code"])] = row
        return list(found.values())

    def add(self, rows: Sequence[Row]) -> None:
        """Add a file with the rows of runs."""
        if not rows:
            return
        numbers = [int(path.stem.partition("-")[2]) for path in self.directory.glob(_FILES)]
        path = self.directory / f"runs-{max(numbers, default=0) + 1:06d}.parquet"
        with whole_file(path) as file:
            pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), file, compression="zstd")

    def compact(self) -> None:
        """Merge the rows of many files into one file, then delete the old files."""
        paths = sorted(self.directory.glob(_FILES))
        if len(paths) <= _MOST_FILES:
            return
        self.add(self.rows())
        for path in paths:
            path.unlink()


def _read(path: Path) -> list[Row]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise RunTableError(
            f"{path} is no Parquet file of runs: {error}; move it away, and its runs are made again"
        ) from error
    if table.schema.names != SCHEMA.names:
        raise RunTableError(
            f"{path} has the columns {', '.join(table.schema.names)}, not those of runs; keep runs"
            " of this version in a directory of their own"
        )
    rows: list[Row] = table.to_pylist(maps_as_pydicts="strict")
    return rows
