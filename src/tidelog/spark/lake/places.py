"""The table at a place as a user writes it.

The place alone says which format the table has.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.stores import location_of
from tidelog.spark.lake.table import Lake


def lake_at(place: str, options: Mapping[str, str] | None) -> Lake:
    """Return the Delta table at a path or URI (`location_of`). Raises TableError."""
    return DeltaLake(location_of(place), options)
