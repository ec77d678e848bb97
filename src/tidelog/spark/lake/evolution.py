"""Schema evolution of a table: a run adds its new columns; a changed column type is an error.

A column that a run lacks is null in the run's rows, and a new column is null in all earlier rows. A
run commits its new columns before it writes files. If another commit comes first, the run compares
its columns with the table's columns again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.spark.lake.protocol import CommitAnswer
from tidelog.spark.lake.runs import FIRST_WAIT_S, LONGEST_WAIT_S, MOST_COMMITS
from tidelog.spark.lake.state import TableError
from tidelog.spark.lake.table import Lake

if TYPE_CHECKING:
    import pyarrow as pa


def missing_columns(table: Lake, schema: pa.Schema) -> pa.Schema:
    """Return the columns of `schema` that a table lacks.

    Raises TableError for a column whose type differs from the table's. Also raises TableError for
    two names that differ only in case, because most readers treat such names as equal.
    """
    import pyarrow as pa

    held, given = table.types(), table.types(schema)
    by_case = {name.lower(): name for name in held}
    for name, kind in given.items():
        known = by_case.get(name.lower(), name)
        if known != name:
            raise TableError(
                f"{table.location}: column {name!r} of this run is {known!r} in the table; rename"
                " it in the transform, because readers ignore the case"
            )
        if held.get(name, kind) != kind:
            raise TableError(
                f"{table.location}: column {name!r} is {held[name]} in the table and {kind} in this"
                " run; cast it in the transform, or ingest to another table"
            )
    return pa.schema([field.with_nullable(True) for field in schema if field.name not in held])


def add_columns(
    table: Lake, schema: pa.Schema, *, sleep: Callable[[float], None] = time.sleep
) -> tuple[str, ...]:
    """Add the columns of `schema` that a table lacks; return their names.

    Raises TableError as `missing_columns` does, also for columns that another run adds during this
    call.
    """
    added = tuple(missing_columns(table, schema).names)
    if not added:
        return ()
    wait_s = FIRST_WAIT_S
    for _ in range(MOST_COMMITS):
        state = table.read()
        missing = missing_columns(table, schema)
        if not missing or table.add_columns(state, missing) is CommitAnswer.COMMITTED:
            return added
        sleep(wait_s * random.uniform(0.5, 1.0))
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
    raise TableError(
        f"{table.location} refused {MOST_COMMITS} commits of new columns, or did not answer them;"
        " run it again"
    )
