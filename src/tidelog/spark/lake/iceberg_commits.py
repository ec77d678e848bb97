"""Commits to Iceberg tables that pyiceberg's API lacks: staged files, merges, expired snapshots.

pyiceberg's API commits Arrow tables, for which it writes the files itself. An ingest commits files
that Spark tasks have written, with their offsets, on top of one known snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any

from pyarrow import parquet
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    UpdatesAndRequirements,
    update_table_metadata,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots, _OverwriteFiles
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    StringType,
    TimestampType,
    TimestamptzType,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


class HeadTransaction(Transaction):
    """A transaction whose metadata has only the newest snapshot of each branch and tag.

    pyiceberg copies the table's metadata some thirty times during a commit. With the metadata of a
    thousand snapshots, a commit would take seconds. The catalog receives only the updates, and
    applies them to the complete metadata.
    """

    _looked: tuple[int, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the updates so far, without older snapshots."""
        if self._looked is None or self._looked[0] != len(self._updates):
            whole = self._table.metadata
            heads = {ref.snapshot_id for ref in whole.refs.values()}
            newest = [each for each in whole.snapshots if each.snapshot_id in heads]
            head = whole.model_copy(update={"snapshots": newest, "snapshot_log": []})
            self._looked = len(self._updates), update_table_metadata(head, self._updates)
        return self._looked[1]


def expire(table: Table, ids: set[int]) -> None:
    """Remove snapshots, unless a branch or tag has moved since `table` was read.

    Raises CommitFailedException.
    """
    transaction = table.transaction()
    expiry = _Expiry(transaction)
    expiry._snapshot_ids_to_expire |= ids  # `by_ids` would copy all snapshots per id
    expiry.commit()
    transaction.commit_transaction()


class _Expiry(ExpireSnapshots):
    """An expiry of snapshots that fails if a branch has moved since the table was read; pyiceberg's
    own expiry would remove the branch.
    """

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = super()._commit()
        refs = self._transaction.table_metadata.refs
        kept = (
            AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
            for name, ref in refs.items()
        )
        return updates, (*requirements, *kept)


def data_file(
    io: FileIO, metadata: TableMetadata, path: str, values: Mapping[str, str | None]
) -> DataFile:
    """Return a staged file as a commit lists it, with statistics from its footer.

    `values` are the file's values of partition columns.

    pyiceberg would take partition values from statistics, which a table's settings may turn off.
    """
    source = io.new_input(path)
    with source.open() as stream:
        footer = parquet.read_metadata(stream)
    schema, spec = metadata.schema(), metadata.spec()
    plan = compute_statistics_plan(schema, metadata.properties)
    read = partial(
        data_file_statistics_from_parquet_metadata,
        parquet_metadata=footer,
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    try:
        statistics = read(stats_columns=plan)
    except OverflowError:  # a time that Python has no type for, such as the year 55,000
        counts = MetricsMode(MetricModeTypes.COUNTS)
        is_time = (DateType, TimestampType, TimestamptzType)
        for number, column in plan.items():
            if isinstance(column.iceberg_type, is_time):
                plan[number] = replace(column, mode=counts)
        statistics = read(stats_columns=plan)
    partition = [
        _partition_value(schema.find_type(field.source_id), values.get(field.name))
        for field in spec.fields
    ]
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        file_size_in_bytes=len(source),
        spec_id=metadata.default_spec_id,
        **statistics.to_serialized_dict(),
    )


def _partition_value(kind: IcebergType, text: str | None) -> Any:
    """Return a partition value, which is given as text, in the form of Iceberg's type."""
    if text is None:
        return None
    if isinstance(kind, DateType):
        return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()
    if isinstance(kind, BooleanType):
        return text == "true"
    return text if isinstance(kind, StringType) else int(text)


class ReplacedFiles(_OverwriteFiles):
    """A commit that replaces files by files with the same rows; incremental readers skip it."""

    def _summary(self, snapshot_properties: dict[str, str]) -> Summary:  # type: ignore[override]
        summary = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **summary.additional_properties)
