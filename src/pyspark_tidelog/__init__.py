"""The entry point by which Spark finds `format("tidelog")`: a top-level module `pyspark_*`.

Every Spark session of an environment imports this module on the first use of any Python source, so
it imports nothing: `DefaultSource` is loaded when Spark requests it.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from tidelog.spark.source import TidelogDataSource

        return TidelogDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
