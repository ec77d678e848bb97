"""An ingest that kills itself: `dying_ingest.py BOOTSTRAP TOPIC TABLE STEP LOG [KEY]`.

STEP is one of STEPS, of COLUMN_STEPS or of UPSERT_STEPS: SIGKILL comes before or after a call.
Spark logs to LOG. With KEY, a column, the ingest is an upsert.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame

from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.iceberg import IcebergLake
from tidelog.spark.pipelines import ingest as ingest_module
from tidelog.spark.pipelines import landing, upserts
from tidelog.spark.session import start_session

#: The calls of a run that change something, or prove it.
_CALLS: Final[dict[str, tuple[tuple[Any, str], ...]]] = {
    "create": ((DeltaLake, "create"), (IcebergLake, "create")),
    "writing": ((landing, "_write"),),
    "count": ((landing, "count_files"),),
    "clean-up": ((ingest_module, "discard"),),
    "commit": ((DeltaLake, "commit"), (IcebergLake, "commit")),
}
#: Iceberg's commit in its catalog, before which manifests are written.
_CATALOG_CALLS: Final = {"catalog": ((SqlCatalog, "commit_table"),)}
#: The commit of columns that the table lacks.
_COLUMN_CALLS: Final = {"columns": ((DeltaLake, "add_columns"), (IcebergLake, "add_columns"))}
#: The calls that an upsert makes besides.
_UPSERT_CALLS: Final[dict[str, tuple[tuple[Any, str], ...]]] = {
    "comparing": ((upserts, "superseded"),),
    "rewriting": ((upserts, "_rewrite"),),
    "upsert": ((ingest_module, "upsert_files"),),
}


def _steps(calls: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{when} {name}" for name in calls for when in ("before", "after"))


STEPS: Final = _steps(_CALLS)
ICEBERG_STEPS: Final = _steps([*_CALLS, *_CATALOG_CALLS])
COLUMN_STEPS: Final = _steps(_COLUMN_CALLS)
UPSERT_STEPS: Final = _steps([*_CALLS, *_UPSERT_CALLS])


def deadly(call: Callable[..., Any], when: str) -> Callable[..., Any]:
    """Return a call before or after which the process is gone."""

    def called(*args: Any, **kwargs: Any) -> None:
        if when == "after":
            call(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    return called


def with_column(frame: DataFrame) -> DataFrame:
    """Return the records with a column that the table of before lacks."""
    return frame.withColumn("extra", frame["offset"] + 1)


def main(bootstrap: str, topic: str, table: str, step: str, log_path: str, key: str = "") -> None:
    when, _, name = step.partition(" ")
    for owner, attribute in {**_CALLS, **_CATALOG_CALLS, **_COLUMN_CALLS, **_UPSERT_CALLS}[name]:
        setattr(owner, attribute, deadly(getattr(owner, attribute), when))
    spark = start_session("dying ingest", quick=True, log_path=log_path)
    ingest_module.ingest(
        spark,
        bootstrap,
        topic,
        table,
        upsert_by=(key,) if key else (),
        transform=with_column if name in _COLUMN_CALLS else None,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
