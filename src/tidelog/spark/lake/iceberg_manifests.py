"""Data files of Iceberg snapshots as their manifests list them, and all files in use by snapshots.

A snapshot has a list of manifests, and a manifest has entries of data files with their statistics.
Each function imports pyiceberg itself, because this module must load without pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: Iceberg's transform of a partition column that leaves the values as they are.
IDENTITY: Final = "identity"
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


def ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots of the table's history, from the newest on."""
    from pyiceberg.table.snapshots import ancestors_of

    yield from ancestors_of(table.current_snapshot(), table.metadata)


def entries(table: Table, snapshot: Snapshot | None) -> Iterator[ManifestEntry]:
    """Yield the data files of a snapshot, with the snapshots that added them."""
    from pyiceberg.manifest import ManifestContent

    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def hidden_rows(table: Table, snapshot: Snapshot | None) -> Iterator[str]:
    """Yield the features that make a snapshot's rows differ from the rows in its data files."""
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.schema import index_name_by_id

    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    if any(manifest.content != ManifestContent.DATA for manifest in manifests):
        yield "delete files"
    names: dict[int, str] = {}
    ids: dict[str, int] = {}
    for schema in table.schemas().values():
        for number, name in index_name_by_id(schema).items():
            if names.setdefault(number, name) != name:
                yield f"a renamed column {names[number]!r}"
                return
            if ids.setdefault(name, number) != number:
                yield f"a column {name!r} that was dropped and added again"
                return


def values_of(table: Table, file: DataFile) -> dict[str, str | None]:
    """Return a file's values of partition columns, as text."""
    from pyiceberg.types import DateType

    values: dict[str, str | None] = {}
    for place, field in enumerate(table.specs()[file.spec_id].fields):
        if str(field.transform) != IDENTITY:
            continue
        value = file.partition[place]
        if value is not None:
            is_date = isinstance(table.schema().find_type(field.source_id), DateType)
            value = date.fromordinal(_EPOCH_DAY + value) if is_date else value
            value = str(value).lower() if isinstance(value, bool) else str(value)
        values[field.name] = value
    return values


def bounds(file: DataFile) -> tuple[Mapping[int, bytes], Mapping[int, bytes]]:
    """Return a data file's lowest values and highest values, both by column id."""
    return file.lower_bounds or {}, file.upper_bounds or {}


def bound(schema: Schema, column: str, bounds: Mapping[int, bytes]) -> int | None:
    """Return a bound of an integer column, if the file has it."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.schema import index_by_name
    from pyiceberg.types import IntegerType, LongType

    ids = index_by_name(schema)
    field = schema.find_field(ids[column]) if column in ids else None
    if field is None or not isinstance(field.field_type, IntegerType | LongType):
        return None
    found = bounds.get(field.field_id)
    return None if found is None else int(from_bytes(field.field_type, found))


def reachable(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, bool]:
    """Return the files that snapshots refer to, and whether each is a data file."""
    found: dict[str, bool] = {}
    for snapshot in snapshots:
        found[snapshot.manifest_list] = False
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in found:
                continue
            found[manifest.manifest_path] = False
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                found[entry.data_file.file_path] = True
    return found
