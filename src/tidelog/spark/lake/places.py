"""The table at a place that a user names.

The place alone says which format the table has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.iceberg import IcebergLake
from tidelog.spark.lake.stores import location_of
from tidelog.spark.lake.table import Lake

#: The prefix by which users name an Iceberg table: `iceberg:NAMESPACE.TABLE`.
ICEBERG: Final = "iceberg:"


def lake_at(place: str, options: Mapping[str, str] | None) -> Lake:
    """Return the Iceberg table of `iceberg:NAMESPACE.TABLE`, or the Delta table of a path or URI.

    Raises TableError (`location_of`).
    """
    if place.startswith(ICEBERG):
        return IcebergLake(place.removeprefix(ICEBERG), options)
    return DeltaLake(location_of(place), options)
