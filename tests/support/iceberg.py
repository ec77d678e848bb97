"""Commits to Iceberg tables that pyiceberg itself does not make."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import _FastAppendFiles


def add_position_deletes(table: Table) -> None:
    """Commit a file of position deletes, as engines with merge-on-read do."""

    class DeleteWriter(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    class Deletes(_FastAppendFiles):
        def new_manifest_writer(self, spec: object) -> DeleteWriter:
            return DeleteWriter(
                self._transaction.table_metadata.spec(),
                self.schema(),
                self.new_manifest_output(),
                self._snapshot_id,
                self._compression,
            )

    target = next(iter(table.scan().plan_files())).file.file_path
    path = f"{table.location()}/deletes.parquet"
    pq.write_table(pa.table({"file_path": [target], "pos": [0]}), path)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition={},
        record_count=1,
        file_size_in_bytes=os.path.getsize(path),
        spec_id=0,
    )
    transaction = table.transaction()
    producer = Deletes(
        operation=table.current_snapshot().summary.operation,  # type: ignore[union-attr]  # it has one
        transaction=transaction,
        io=table.io,
    )
    producer.append_data_file(file)
    producer.commit()
    transaction.commit_transaction()
