"""Features of Delta tables that tidelog does not support, and the names of column types.

Other tools add such features to a table. Error messages name the feature, because users do not see
it in the table's columns or files.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Final

from tidelog.spark.lake.state import TableError
from tidelog.spark.lake.stores import reason_of

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

#: Part of delta-rs's error message for a log that has lost its newest versions.
_SHORTER: Final = "is older than the existing snapshot version"
#: delta-rs's error message for missing versions, which names the versions around the gap.
_GAP: Final = re.compile(r"found gap: .*?version: (\d+),.*?version: (\d+),", re.DOTALL)


def needs_delta(location: str, feature: str) -> str:
    """Return the message about a table that only Delta's own reader can read."""
    return (
        f"{location} has {feature}: read it with Delta's own reader, as in"
        " spark.read.format('delta') with its jar, or with deltalake"
    )


def hidden_rows(table: DeltaTable) -> list[str]:
    """Return the features that make the rows in the data files differ from the table's rows."""
    settings = table.metadata().configuration
    found = []
    if settings.get("delta.columnMapping.mode", "none") != "none":
        found.append("column mapping")
    if "deletionVectors" in (table.protocol().reader_features or ()):
        found.append("deletion vectors")
    return found


def unsupported_features(table: DeltaTable) -> list[str]:
    """Return the features of a table that an ingest would break."""
    found = hidden_rows(table)
    prefix = "delta.constraints."
    found += [
        f"the constraint {name.removeprefix(prefix)!r}"
        for name in table.metadata().configuration
        if name.startswith(prefix)
    ]
    rules = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
    found += [
        f"a rule for column {column.name!r}"
        for column in table.schema().fields
        if any(rule in column.metadata for rule in rules)
    ]
    return found


def log_reason(error: Exception) -> str:
    """Return why delta-rs cannot read a table's log; name the versions that the log lacks."""
    text = reason_of(error)
    if _SHORTER in text:
        return "its log went back to an earlier version while it was open; run it again"
    gap = _GAP.search(text)
    if gap is None:
        return text
    first, last = int(gap[1]) + 1, int(gap[2]) - 1
    which = f"version {first}" if first == last else f"versions {first} to {last}"
    return f"its log has lost {which}; put the commits back from a copy of the log"


def check_folder(location: str) -> None:
    """Raise TableError if a local folder without a Delta table has other files."""
    if "://" in location:
        return
    if "%" in location or "\\" in location:
        raise TableError(f"{location} has a % or a backslash, which delta-rs cannot open")
    if not os.path.isdir(location):
        return
    names = sorted(os.listdir(location))
    if os.path.exists(os.path.join(location, "_tidelog", "table.json")):
        raise TableError(
            f"{location} is a table in the format of tidelog 0.9, which that version reads; ingest"
            " to another directory"
        )
    foreign = [name for name in names if not name.startswith(("_", ".", "run-"))]
    if foreign:
        raise TableError(
            f"{location} is no Delta table and holds other files, such as {foreign[0]!r}; ingest to"
            " an empty or new directory"
        )


def types_of(schema: Schema) -> dict[str, str]:
    """Return the type of each column, as Delta writes it."""
    types = {}
    for column in schema.fields:
        described = json.loads(column.to_json())["type"]
        types[column.name] = described if isinstance(described, str) else json.dumps(described)
    return types
