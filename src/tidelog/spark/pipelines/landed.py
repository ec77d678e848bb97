"""Landed tables: their rows as a DataFrame without any jar, and a repeated proof.

Readers take no lock. A reader takes the files of one version from the table's log, so that it sees
no file of a run without a commit, even if a listing of the directory shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.lake.protocol import NO_VERSION
from tidelog.spark.lake.state import LakeFile, LakeState, TableError
from tidelog.spark.lake.stores import LakeStore, location_of
from tidelog.spark.pipelines.continuity import ContinuityProof, PartitionProof, no_rows
from tidelog.spark.pipelines.counting import FileFault, count_files
from tidelog.spark.planning import OffsetRange
from tidelog.spark.shipping import shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class TableProof:
    """The proof of a whole table at one version."""

    version: int
    offsets: ContinuityProof
    #: Files that readers cannot read, or that differ from the table's log.
    faults: tuple[FileFault, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether each offset is in the table once, and each file is as the table's log says."""
        return self.offsets.holds and not self.faults


def read_landed(
    spark: SparkSession,
    table: str,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a Delta table, which needs no jar of Delta.

    `version` is an earlier version of the table. Files of an object store are read by the tasks
    themselves, with `storage_options` as in `ingest`. Raises TableError, also for a table with
    features that this reader lacks (deletion vectors, column mapping, partition columns).
    """
    store = LakeStore(location_of(table), storage_options or {})
    lake = DeltaLake(store.location, store.options)
    schema, files = lake.readable(version)
    empty = spark.createDataFrame(schema.empty_table())
    if not files:
        return empty
    if store.is_local:
        return spark.read.schema(empty.schema).parquet(*[store.url(path) for path in files])
    return _read_in_tasks(spark, store, schema, empty.schema, files)


def _read_in_tasks(
    spark: SparkSession, store: LakeStore, schema: pa.Schema, columns: StructType, files: list[str]
) -> DataFrame:
    """Return the rows of files that Spark itself cannot reach."""
    serialized = schema.serialize().to_pybytes()

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import parquet

        from tidelog.spark.lake.staging import in_columns

        wanted = pa.ipc.read_schema(pa.py_buffer(serialized))
        opened = store.open()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with (
                    opened.open_input_file(files[number]) as source,
                    parquet.ParquetFile(source) as file,
                ):
                    for each in file.iter_batches():
                        yield in_columns(each, wanted)

    numbers = spark.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(shipped(rows), columns)


def read_rows(spark: SparkSession, place: str, options: Mapping[str, str] | None) -> DataFrame:
    """Return the rows of a Delta table, or of any Parquet files at a path."""
    store = LakeStore(location_of(place), options or {})
    if DeltaLake(store.location, store.options).exists():
        return read_landed(spark, place, storage_options=options)
    return spark.read.parquet(place)


def prove_table(
    spark: SparkSession, table: str, *, storage_options: Mapping[str, str] | None = None
) -> TableProof:
    """Count a Delta table again, and compare it with the offsets that its commits carry.

    The proof reads the files that readers read. It needs no cluster, because the commits have the
    record count of each range. Raises TableError.
    """
    store = LakeStore(location_of(table), storage_options or {})
    lake = DeltaLake(store.location, store.options)
    state = lake.read()
    if state.version == NO_VERSION:
        raise TableError(f"{table} holds no table: ingest a topic to it first")
    return proof_of(spark, store, state, lake.files(state.version))


def proof_of(
    spark: SparkSession, store: LakeStore, state: LakeState, files: list[LakeFile]
) -> TableProof:
    """Compare the files of a table's version with the offsets of its commits."""
    from tidelog.spark.pipelines.spans import counts_of

    assert state.origin is not None
    topic = state.origin.topic
    ranges = [
        OffsetRange(TopicPartition(topic, run.partition), run.start, run.end)
        for run in state.partitions.values()
    ]
    counted = count_files(spark, store, files)
    counts = {**no_rows(ranges), **counts_of(topic, counted.spans)}
    proofs = []
    for wanted in ranges:
        found, run = counts.pop(wanted.tp), state.partitions[wanted.tp.partition]
        in_range = wanted.start <= found.first and found.last < wanted.end
        stray = 0 if found.rows == 0 or in_range else 1
        proofs.append(
            PartitionProof(
                wanted=wanted,
                rows=found.rows,
                doubled=found.rows - found.distinct,
                lost=max(0, run.rows - found.distinct),
                control=run.control,
                compacted=run.compacted,
                stray=max(stray, found.distinct - run.rows),
                dead=run.dead,
            )
        )
    for tp, found in counts.items():
        nothing = OffsetRange(tp, found.first, found.first)
        proofs.append(PartitionProof(nothing, found.rows, 0, 0, 0, 0, stray=found.rows))
    return TableProof(state.version, ContinuityProof(tuple(proofs)), counted.faults)
