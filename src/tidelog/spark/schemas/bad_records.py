"""Records that do not fit their schema, and the ways in which a query handles them.

`permissive` returns a struct of the record and an error text, of which one is null: the query
continues, and can filter by the error. `failfast` returns only the record and fails the query at
the first bad record. A null value (a tombstone) has neither record nor error.

`decode_column` turns an Arrow column of bytes into the result column of `permissive` or `failfast`.
`decode_column` depends on no format: a decoder has the Arrow type of its records and turns bytes
into plain Python values.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import pyarrow as pa

from tidelog.records.confluent_format import BadRecordError
from tidelog.spark.option_values import OptionError

PERMISSIVE: Final = "permissive"
FAILFAST: Final = "failfast"
#: Number of bytes of a bad record that its error shows.
_SHOWN_BYTES: Final = 16


class RecordDecoder(Protocol):
    """A decoder that runs in tasks, to which it is pickled with the query."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type that this decoder's records have."""

    def decode(self, data: bytes) -> Any:
        """Return the record in `data`. Raises BadRecordError."""


def is_strict(mode: str) -> bool:
    """Return whether a bad record fails the query; raise OptionError for an unknown mode."""
    if mode.lower() not in (PERMISSIVE, FAILFAST):
        raise OptionError(f"mode is {mode!r}; expected {PERMISSIVE} or {FAILFAST}")
    return mode.lower() == FAILFAST


def result_type(record_type: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a column in permissive mode."""
    return pa.struct([pa.field("record", record_type), pa.field("error", pa.string())])


def decode_column(values: pa.Array, decoder: RecordDecoder, *, strict: bool) -> pa.Array:
    """Return the records of a column of bytes, with their errors unless `strict`.

    With `strict`, raises BadRecordError for the first bad record.
    """
    records: list[Any] = []
    errors: list[str | None] = []
    for data in values.to_pylist():
        record, error = None, None
        if data is not None:
            try:
                record = decoder.decode(data)
            except BadRecordError as bad:
                error = f"{bad}; {_shown(data)}"
                if strict:
                    raise BadRecordError(error) from bad
        records.append(record)
        errors.append(error)
    column = _arrow_column(records, decoder.arrow_type)
    if strict:
        return column
    return pa.StructArray.from_arrays(
        [column, pa.array(errors, pa.string())], fields=list(result_type(decoder.arrow_type))
    )


def _arrow_column(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    """Return an Arrow array of plain values, built field by field, as Arrow is slow with dicts."""
    if not pa.types.is_struct(arrow_type) or arrow_type.num_fields == 0:
        return pa.array(values, arrow_type)
    fields = [
        _arrow_column([None if row is None else row[field.name] for row in values], field.type)
        for field in arrow_type
    ]
    absent = pa.array([row is None for row in values], pa.bool_())
    return pa.StructArray.from_arrays(fields, fields=list(arrow_type), mask=absent)


def _shown(data: bytes) -> str:
    dots = " ..." if len(data) > _SHOWN_BYTES else ""
    return f"its {len(data)} bytes begin with {data[:_SHOWN_BYTES].hex(' ')}{dots}"
