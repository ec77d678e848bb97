"""Ingest into Delta and Iceberg tables, whose own transactions carry the offsets.

A run stages its rows as Parquet, proves them, and appends them in one transaction of the table. The
transaction also records the end offsets. Only the first of two runs with the same number counts:
Delta skips the second by its transaction's version, and Iceberg refuses to publish it. The jars on
Spark's class path decide the available formats; `prepare` tests a format before a row is read.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.continuity import ContinuityProof
from tidelog.spark.pipelines.ingest import IngestReport
from tidelog.spark.pipelines.landing import LandingOptions, Place, columns_of, land
from tidelog.spark.pipelines.manifests import Origin, PartitionRun, check_origin
from tidelog.spark.pipelines.new_offsets import new_ranges, origin_of
from tidelog.spark.pipelines.table_access import files_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MARK: Final = "tidelog"
#: Java's errors for classes that were built against other versions.
_MISFITS: Final = (
    "NoSuchMethodError",
    "NoSuchFieldError",
    "NoClassDefFoundError",
    "ClassNotFoundException",
    "IncompatibleClassChangeError",
    "AbstractMethodError",
)


class LakeError(TidelogError):
    """A Delta or Iceberg table that cannot be used; the message has the reason."""


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """The content of an ingest's last transaction, with the offsets of all runs so far."""

    number: int
    run: str
    origin: Origin
    partitions: tuple[PartitionRun, ...] = field(default=())

    def to_json(self) -> str:
        """Return this commit as JSON text, which its transaction stores."""
        return json.dumps({_MARK: 1, **asdict(self)})

    @classmethod
    def from_json(cls, text: str, where: str) -> LakeCommit:
        """Parse the text of `to_json`. Raises LakeError."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop(_MARK) != 1:
                raise LakeError(f"{where} was ingested by a later version of tidelog")
            return cls(
                number=fields["number"],
                run=fields["run"],
                origin=Origin(**fields["origin"]),
                partitions=tuple(PartitionRun(**each) for each in fields["partitions"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeError(f"{where} carries no offsets of an ingest: {error!r}") from error

    def after(self, number: int, run: str, runs: tuple[PartitionRun, ...]) -> LakeCommit:
        """Return the next commit: this commit's runs, joined with the later `runs`."""
        joined = {each.partition: each for each in self.partitions}
        for each in runs:
            before = joined.get(each.partition)
            joined[each.partition] = each if before is None else before.followed_by(each)
        return LakeCommit(number, run, self.origin, tuple(joined[each] for each in sorted(joined)))


class LakeTable(Protocol):
    """The operations of an ingest on a Delta or Iceberg table."""

    name: str

    def prepare(self, rows: DataFrame) -> None:
        """Create the table with these columns if it does not exist; check that Spark reads it."""
        ...

    def last(self) -> LakeCommit | None:
        """Return the last commit of an ingest; None before the first."""
        ...

    def append(self, rows: DataFrame, commit: LakeCommit) -> None:
        """Append rows in one transaction, unless a transaction with this number exists."""
        ...


class DeltaTable:
    """A Delta table at a path. Written for delta-spark 4.4 on Spark 4.2."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self.name = f"delta table {path}"

    def prepare(self, rows: DataFrame) -> None:
        """Create the table with these columns if it does not exist; check that Spark reads it."""
        with _fitting(self._spark, self.name, "Delta", "io.delta:delta-spark_2.13"):
            rows.limit(0).write.format("delta").mode("append").save(self._path)
            self._spark.read.format("delta").load(self._path).limit(1).count()

    def last(self) -> LakeCommit | None:
        """Return the last commit of an ingest, from the metadata in Delta's log."""
        with _fitting(self._spark, self.name, "Delta", "io.delta:delta-spark_2.13"):
            history = self._spark.sql(f"describe history delta.`{self._path}`")
            found = (
                history.where(f"userMetadata like '{{\"{_MARK}\"%'")
                .orderBy("version", ascending=False)
                .select("userMetadata")
                .first()
            )
        return None if found is None else LakeCommit.from_json(found[0], self.name)

    def append(self, rows: DataFrame, commit: LakeCommit) -> None:
        """Append rows in one transaction; Delta skips a version that already exists."""
        with _fitting(self._spark, self.name, "Delta", "io.delta:delta-spark_2.13"):
            (
                rows.write.format("delta")
                .mode("append")
                .option("txnAppId", f"tidelog-{commit.origin.topic_id}")
                .option("txnVersion", str(commit.number))
                .option("userMetadata", commit.to_json())
                .save(self._path)
            )


class IcebergTable:
    """An Iceberg table `catalog.namespace.table`. Written for Iceberg's Spark 4.0 runtime.

    A run stages a snapshot under an id made of topic and number, then publishes it
    (write-audit-publish). Iceberg publishes no second snapshot with the same id. The snapshot of a
    dead run stays unpublished until Iceberg expires it.
    """

    def __init__(self, spark: SparkSession, identifier: str) -> None:
        if identifier.count(".") < 2:
            raise LakeError(f"{identifier!r} is no Iceberg table: name it catalog.namespace.table")
        self._spark = spark
        self._identifier = identifier
        self._catalog, _, self._table = identifier.partition(".")
        self.name = f"iceberg table {identifier}"

    def prepare(self, rows: DataFrame) -> None:
        """Create the table with these columns if it does not exist; check that Spark reads it."""
        with self._fitting():
            if not self._spark.catalog.tableExists(self._identifier):
                rows.limit(0).writeTo(self._identifier).using("iceberg").create()
            self._spark.sql(
                f"alter table {self._identifier} set tblproperties ('write.wap.enabled'='true')"
            )
            self._spark.table(self._identifier).limit(1).count()

    def last(self) -> LakeCommit | None:
        """Return the last commit of an ingest, from the properties of current snapshots."""
        with self._fitting():
            found = self._spark.sql(
                f"select s.summary['{_MARK}'] as text"
                f" from {self._identifier}.history h join {self._identifier}.snapshots s"
                " on h.snapshot_id = s.snapshot_id"
                f" where h.is_current_ancestor and s.summary['{_MARK}'] is not null"
                " order by h.made_current_at desc limit 1"
            ).first()
        return None if found is None else LakeCommit.from_json(found[0], self.name)

    def append(self, rows: DataFrame, commit: LakeCommit) -> None:
        """Append rows as a staged snapshot and publish it, unless its id was published before."""
        wap_id = f"tidelog-{commit.origin.topic_id}-{commit.number}"
        with self._fitting():
            self._spark.conf.set("spark.wap.id", wap_id)
            try:
                rows.writeTo(self._identifier).option(
                    f"snapshot-property.{_MARK}", commit.to_json()
                ).append()
            finally:
                self._spark.conf.unset("spark.wap.id")
            staged = self._spark.sql(
                f"select snapshot_id from {self._identifier}.snapshots"
                f" where summary['{_MARK}'] like '%\"run\": \"{commit.run}\"%'"
            ).collect()
            self._spark.sql(
                f"call {self._catalog}.system.cherrypick_snapshot('{self._table}', {staged[0][0]})"
            )

    def _fitting(self) -> contextlib.AbstractContextManager[None]:
        jar = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13"
        return _fitting(self._spark, self.name, "Iceberg", jar)


def lake_table(spark: SparkSession, table_format: str, target: str) -> LakeTable:
    """Return the table of a format; raise LakeError for an unknown format."""
    if table_format == "delta":
        return DeltaTable(spark, target)
    if table_format == "iceberg":
        return IcebergTable(spark, target)
    raise LakeError(f"format {table_format!r} is none of parquet, delta, iceberg")


def ingest_lake(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    table: LakeTable,
    staging: str,
    options: LandingOptions | None = None,
) -> IngestReport:
    """Append the new records of `topic` to a Delta or Iceberg table.

    Driver and tasks must be able to write to the directory `staging`; a run's files in it are
    deleted at its end. Raises LakeError, and the errors of `ingest`.
    """
    started = time.monotonic()
    options = options or LandingOptions()
    files = files_at(spark, staging)
    with BlockingClient(bootstrap, "tidelog-ingest") as client:
        origin, partitions = origin_of(client, topic)
        table.prepare(columns_of(spark, bootstrap, topic, options))
        before = table.last() or LakeCommit(0, "", origin)
        check_origin(before.origin, origin, table.name)
        following = {each.partition: each.end for each in before.partitions}
        ranges = new_ranges(client, partitions, following)
        if not ranges:
            seconds = time.monotonic() - started
            return IngestReport(topic, table.name, ContinuityProof(()), (), None, seconds)
        run, number = uuid.uuid4().hex[:16], before.number + 1
        letters = None
        if options.dead_letter is not None:
            folder = f"run-{origin.topic_id}-{number:06}"
            letters = Place(files_at(spark, options.dead_letter), folder)
            letters.files.delete(folder)  # files that a dead run with this number left
        try:
            place = Place(files, run)
            landing = land(spark, client, bootstrap, ranges, options, place, letters)
            table.append(spark.read.parquet(place.path), before.after(number, run, landing.runs))
        finally:
            files.delete(run)
        last = table.last()
        if last is None or last.run != run:
            raise LakeError(
                f"another run has committed to {table.name} meanwhile; nothing of this one was"
                " added. Run it again"
            )
    seconds = time.monotonic() - started
    return IngestReport(topic, table.name, landing.proof, (), number, seconds, landing.dead_letters)


@contextlib.contextmanager
def _fitting(spark: SparkSession, name: str, product: str, jar: str) -> Iterator[None]:
    """Raise LakeError in one sentence if the format is missing or does not fit this Spark."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        java = getattr(error, "java_exception", None)
        reason = str(java.toString() if java is not None else error).splitlines()[0]
        whole = f"{reason} {error}"
        if "DATA_SOURCE_NOT_FOUND" in whole or "CATALOG_NOT_FOUND" in whole:
            raise LakeError(
                f"{name}: Spark has no {product} on its class path; add a jar such as {jar} with"
                f" spark.jars, and {product}'s session settings"
            ) from error
        if any(misfit in whole for misfit in _MISFITS):
            reason = reason.partition("(")[0]
            raise LakeError(
                f"{name}: the {product} on the class path was built for another Spark than"
                f" {spark.version} ({reason}); nothing was ingested. Take {product}'s jar for this"
                " version, or ingest to Parquet"
            ) from error
        if "DuplicateWAPCommitException" in whole:
            raise LakeError(
                f"another run has committed to {name} meanwhile; nothing of this one was added."
                " Run it again"
            ) from error
        raise LakeError(f"{name}: {reason}") from error
