"""Iceberg's field ids in Arrow columns, by which readers find a renamed column.

Iceberg names nested fields by paths: `headers.element.key`. Arrow's Parquet writer takes the id of
a column from the metadata of the Arrow field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.spark.lake.state import HiddenRowsError

if TYPE_CHECKING:
    import pyarrow as pa

_KEY: Final = b"PARQUET:field_id"


def with_field_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """Return the columns with their ids, which `ids` has by column path; unchanged without ids.

    A column that the table lacks, such as the tombstone column of staged files, gets no id.
    """
    import pyarrow as pa

    if not ids:
        return schema
    numbered = [
        _with_id(field, field.name, ids) if field.name in ids else field for field in schema
    ]
    return pa.schema(numbered)


def _with_id(field: pa.Field, path: str, ids: Mapping[str, int]) -> pa.Field:
    typed = field.with_type(_with_inner_ids(field.type, path, ids))
    return typed.with_metadata({_KEY: str(ids[path]).encode()})


def _with_inner_ids(kind: pa.DataType, path: str, ids: Mapping[str, int]) -> pa.DataType:
    """Return a type with the ids of the fields inside of it."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([_with_id(field, f"{path}.{field.name}", ids) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_id(kind.value_field, f"{path}.element", ids))
    if pa.types.is_map(kind):
        key = _with_id(kind.key_field, f"{path}.key", ids)
        return pa.map_(key, _with_id(kind.item_field, f"{path}.value", ids))
    return kind


def check_field_ids(schema: pa.Schema, ids: Mapping[str, int], path: str) -> None:
    """Raise HiddenRowsError if a file's column has another name or another id than in the table.

    Another tool may have renamed the column, or dropped it and added a new column of the same name.
    """
    paths = {number: name for name, number in ids.items()}
    for name, number in _ids_of(schema):
        if paths.get(number, name) != name or ids.get(name, number) != number:
            raise HiddenRowsError(
                f"{path} has column {name!r}, which was renamed or added again since: read the"
                " table with Iceberg's own reader"
            )


def _ids_of(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield (path, id) of each column and each nested field that has an id."""
    import pyarrow as pa

    for field in fields:
        path = prefix + field.name
        number = (field.metadata or {}).get(_KEY)
        if number is not None:
            yield path, int(number)
        kind = field.type
        if pa.types.is_struct(kind):
            yield from _ids_of(kind, f"{path}.")
        elif pa.types.is_list(kind):
            yield from _ids_of([kind.value_field.with_name("element")], f"{path}.")
        elif pa.types.is_map(kind):
            inner = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
            yield from _ids_of(inner, f"{path}.")


def plain_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema without field ids, in Arrow types with 32-bit lengths, as Iceberg has them.

    Two schemas with equal columns are equal in this form.
    """
    import pyarrow as pa

    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind
