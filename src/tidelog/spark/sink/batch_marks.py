"""The mark of a record: a header that names its write, batch, run, task, attempt and row.

With `tidelog.batch.headers` each record carries a header `tidelog.batch` after its own headers. The
value of the header `tidelog.batch` is text, whose parts are separated by slashes:

    <query or write id>/<batch>/<run>/<task>/<attempt>/<row>/<1 for its task's last row, else 0>

A *run* is one execution of a batch by a driver; a batch that is repeated after the driver died has
another run. An *attempt* is Spark's id of a task attempt, which is unique within a run. Rows are
numbered from 0 in the order in which the task read them. The header shows which attempts wrote
all their rows; a reader keeps one attempt of each task, and one run of each batch: see
`tidelog.spark.deduplication`. This module uses no Spark session.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog.core.dataclass import dataclass

HEADER: Final = "tidelog.batch"
#: The batch part of the header `tidelog.batch` for a write that is not a stream.
NO_BATCH: Final = "-"
_ROW_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class AttemptMark:
    """The parts of the header `tidelog.batch` that are equal in a task attempt's records."""

    #: Id of the streaming query, or of the write.
    write_id: str
    batch: str
    run: str
    task: int
    attempt: int

    @property
    def prefix(self) -> str:
        """The value of the header `tidelog.batch` before the number of the row."""
        return f"{self.write_id}/{self.batch}/{self.run}/{self.task}/{self.attempt}/"

    def values(self, rows: npt.NDArray[np.int64], last_row: int | None) -> npt.NDArray[np.uint8]:
        """Return the header's value for each row, as a row of bytes; mark the task's `last_row`."""
        prefix = np.frombuffer(self.prefix.encode(), dtype=np.uint8)
        start = len(prefix)
        out = np.empty((len(rows), start + _ROW_DIGITS + 2), dtype=np.uint8)
        out[:, :start] = prefix
        left = rows.copy()
        for place in range(start + _ROW_DIGITS - 1, start - 1, -1):
            left, digit = np.divmod(left, 10)
            out[:, place] = digit + ord("0")
        out[:, -2] = ord("/")
        out[:, -1] = ord("0")
        if last_row is not None:
            out[rows == last_row, -1] = ord("1")
        return out
