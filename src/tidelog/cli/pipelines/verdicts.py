"""Results of `tidelog pipeline prove`: a table, lines with each fault, and a verdict.

Each method of `Proofs` makes a proof, in the form in which the command prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.output import OutputFormat, print_json, print_line, print_table
from tidelog.cli.target import choose_target
from tidelog.core.dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.content_proof import ContentFault
    from tidelog.spark.pipelines.counting import FileFault
    from tidelog.spark.pipelines.landing import Transform
    from tidelog.spark.pipelines.offset_faults import OffsetFault

#: Maximum number of faulty offset ranges that are printed as lines; the JSON document has all.
_SHOWN_FAULTS: Final = 100

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ProofVerdict:
    """A proof as the command prints it; the last line is the verdict."""

    document: dict[str, Any]
    rows: Rows
    lines: list[str]
    holds: bool

    def show(self, output: OutputFormat) -> None:
        """Print the proof."""
        if output is OutputFormat.JSON:
            print_json(self.document)
            return
        if self.rows:
            print_table(list(self.rows[0]), [list(row.values()) for row in self.rows])
        for line in self.lines:
            print_line(line)

    def and_content(self, content: ProofVerdict) -> ProofVerdict:
        """Return this proof, extended by the proof `content` of the table's content."""
        holds = self.holds and content.holds
        document = {**self.document, "holds": holds, "content": content.document}
        lines = list(dict.fromkeys((*self.lines, *content.lines)))
        return replace(self, document=document, lines=lines, holds=holds)


@dataclass(frozen=True, slots=True)
class Proofs:
    """The proofs of one table; `columns` names the offset columns of another tool's table."""

    spark: SparkSession
    table: str
    #: Options of the object store that has the table.
    keys: dict[str, str]
    columns: tuple[str, str, str | None, str | None] | None = None
    bootstrap: str | None = None

    def of_sequence(self, column: str, produced: int) -> ProofVerdict:
        """Count the numbers of a column, which must be 0, 1, 2 ... once each.

        Raises TableError, OptionError.
        """
        from tidelog.spark.pipelines.landed import read_rows
        from tidelog.spark.pipelines.sequence import prove_sequence

        proof = prove_sequence(read_rows(self.spark, self.table, self.keys), column, produced)
        values = {
            "count": proof.count,
            "distinct": proof.distinct,
            "sum": proof.total,
            "minimum": proof.smallest,
            "maximum": proof.largest,
            "lost": proof.lost,
            "doubled": proof.doubled,
            "foreign": proof.foreign,
        }
        rows = [{"of " + column: name, "value": value} for name, value in values.items()]
        return ProofVerdict(values, rows, [proof.verdict()], proof.holds)

    def of_offsets(self) -> ProofVerdict:
        """Compare the offsets in an ingest's table with the offsets that its commits name.

        Raises TableError.
        """
        from tidelog.spark.pipelines.ingest_report import row_of
        from tidelog.spark.pipelines.landed import prove_table

        proof = prove_table(self.spark, self.table, storage_options=self.keys)
        offsets = proof.offsets
        rows = [{**row_of(each), "stray": each.stray} for each in offsets.partitions]
        document = {"table": self.table, "version": proof.version, "holds": proof.holds}
        document |= {**_fault_documents(proof.faults, proof.ranges, {}), "ranges": rows}
        document["rollback"] = proof.rollback or None
        wrong = f", {len(proof.faults)} wrong files" if proof.faults else ""
        verdict = (
            f"{offsets.rows} rows, {offsets.lost} lost, {offsets.doubled} doubled,"
            f" {offsets.stray} stray{wrong}"
        )
        lines = _fault_lines(proof.faults, proof.ranges, {})
        lines += [proof.rollback] if proof.rollback else []
        return ProofVerdict(document, rows, [*lines, verdict], proof.holds)

    @property
    def is_upsert(self) -> bool:
        """Whether the table has the latest row of each key, from an upsert. Raises TableError."""
        from tidelog.spark.lake.places import lake_at

        origin = lake_at(self.table, self.keys).read().origin
        return origin is not None and bool(origin.upsert_key)

    def of_latest_rows(self, transform: Transform | None) -> ProofVerdict:
        """Compare a table of latest rows with the rows that a replay of its topic gives.

        Raises TableError, KafkaError.
        """
        from tidelog.spark.pipelines.upsert_proof import prove_upserts

        assert self.bootstrap is not None
        proof = prove_upserts(
            self.spark,
            self.table,
            self.bootstrap,
            transform=transform,
            storage_options=self.keys,
        )
        keys = [
            {
                "kind": each.kind,
                "key": each.key,
                "partition": each.partition,
                "offset": each.offset,
                "log_offset": each.log_offset,
            }
            for each in proof.faults
        ]
        files = [{"path": each.path, "reason": each.reason} for each in proof.files]
        document = {"table": self.table, "version": proof.version, "holds": proof.holds}
        document |= {"rows": proof.rows, "unreached": proof.unreached}
        document |= {str(kind): count for kind, count in proof.counts.items()}
        document |= {"faults": files, "keys": keys}
        lines = [f"{file.path} {file.reason}" for file in proof.files]
        return ProofVerdict(document, keys, [*lines, proof.verdict], proof.holds)

    def of_columns(self) -> ProofVerdict:
        """Find lost and doubled offsets in the columns of a table that another tool wrote.

        Raises TableError, OptionError, KafkaError.
        """
        from tidelog.spark.pipelines.column_proof import prove_columns
        from tidelog.spark.pipelines.counting import OffsetColumns

        assert self.columns is not None

        columns, prove = (
            OffsetColumns(*self.columns),
            partial(prove_columns, self.spark, self.table),
        )
        if self.bootstrap is None:
            proof = prove(columns, storage_options=self.keys)
        else:
            with choose_target(self.bootstrap, None).client(30.0) as client:
                proof = prove(columns, client=client, storage_options=self.keys)
        rows = [
            {
                "partition": each.partition,
                "from": each.start,
                "to": each.end,
                "rows": each.rows,
                "missing": each.missing,
                "doubled": each.doubled,
                "control": each.control,
                "absent": each.absent,
                "lost": each.lost,
                "log from": each.log_start,
                "log to": each.log_end,
            }
            for each in proof.partitions
        ]
        document = {"table": self.table, "version": proof.version, "holds": proof.holds}
        document |= {**_fault_documents(proof.files, proof.offsets, proof.added_in), "ranges": rows}
        lost = sum(each.lost for each in proof.partitions)
        unread = ""
        if self.bootstrap is None and lost:
            unread = " (the log was not asked: markers and aborted records count as lost)"
        verdict = (
            f"{sum(each.rows for each in proof.partitions)} rows, {lost} lost{unread},"
            f" {sum(each.doubled for each in proof.partitions)} doubled"
        )
        lines = _fault_lines(proof.files, proof.offsets, proof.added_in, proof.commit_noun)
        return ProofVerdict(document, rows, [*lines, verdict], proof.holds)

    def of_content(self, compare: Sequence[str]) -> ProofVerdict:
        """Compare a table's rows with the log. Raises TableError, OptionError, KafkaError."""
        from tidelog.spark.pipelines.content_proof import prove_content
        from tidelog.spark.pipelines.counting import OffsetColumns

        assert self.bootstrap is not None

        proof = prove_content(
            self.spark,
            self.table,
            self.bootstrap,
            offsets=OffsetColumns(*self.columns) if self.columns else None,
            compare=compare,
            storage_options=self.keys,
        )
        rows = [
            {
                "partition": each.partition,
                "from": each.start,
                "to": each.end,
                "log from": each.log_start,
                "log to": each.log_end,
                "rows": each.rows,
                "compared": each.compared,
                "differing": each.differing,
                "unknown": each.unknown,
                "beyond": each.beyond,
                "unreached": each.unreached,
                "removed": each.removed,
            }
            for each in proof.partitions
        ]
        differences = [
            {
                "partition": each.partition,
                "start": each.start,
                "end": each.end,
                "columns": list(each.columns),
                "path": each.file,
            }
            for each in proof.faults
        ]
        document = {
            "holds": proof.holds,
            "columns": list(proof.columns),
            "ranges": rows,
            "differences": differences,
        }
        lines = _shown([_difference_line(each) for each in proof.faults])
        lines += [f"{file.path} {file.reason}" for file in proof.files]
        for each in proof.partitions:
            if each.unreached:
                lines.append(
                    f"partition {each.partition}: {each.unreached} rows at offsets {each.start} to"
                    f" {min(each.end, each.log_start)} lie below the log's start"
                )
            if each.removed:
                lines.append(
                    f"partition {each.partition}: compaction removed the records of {each.removed}"
                    " rows from the log"
                )
        return ProofVerdict(document, rows, [*lines, proof.verdict], proof.holds)


def _difference_line(fault: ContentFault) -> str:
    where = f"partition {fault.partition}: offsets {fault.start} to {fault.end}"
    if fault.columns:
        return f"{where} differ from the log in {', '.join(fault.columns)}, in {fault.file}"
    return f"{where} have no record in the log, in {fault.file}"


def _shown(lines: Sequence[str]) -> list[str]:
    """Return the lines, or the first lines and the number of omitted lines."""
    more = len(lines) - _SHOWN_FAULTS
    return [*lines[:_SHOWN_FAULTS], *([f"{more} more ranges: see -o json"] if more > 0 else [])]


def _fault_lines(
    files: Iterable[FileFault],
    offsets: Iterable[OffsetFault],
    added_in: Mapping[str, Sequence[int]],
    noun: str = "version",
) -> list[str]:
    """Return a line for each wrong file and each faulty offset range.

    `added_in` has the table versions that added each file; `noun` is the word for a version.
    """
    lines = []
    for fault in offsets:
        named = [
            f"{name} ({noun} {', '.join(map(str, added_in[name]))})" if name in added_in else name
            for name in fault.files
        ]
        place = "between" if fault.kind == "missing" else "in"
        where = f", {place} {' and '.join(named)}" if named else ""
        if fault.versions:
            where += f", landed in version {', '.join(map(str, fault.versions))}"
        some = "" if fault.is_exact else "some of "
        lines.append(
            f"partition {fault.partition}: {some}offsets {fault.start} to {fault.end} are"
            f" {fault.kind}{where}"
        )
    return [*_shown(lines), *(f"{file.path} {file.reason}" for file in files)]


def _fault_documents(
    files: Iterable[FileFault],
    offsets: Iterable[OffsetFault],
    added_in: Mapping[str, Sequence[int]],
) -> dict[str, Any]:
    """Return the wrong files and the faulty offset ranges as part of a JSON document."""
    ranges = [
        {
            "kind": each.kind,
            "partition": each.partition,
            "start": each.start,
            "end": each.end,
            "exact": each.is_exact,
            "landed": list(each.versions),
            "files": [
                {"path": name, "versions": list(added_in.get(name, ()))} for name in each.files
            ],
        }
        for each in offsets
    ]
    return {
        "faults": [{"path": each.path, "reason": each.reason} for each in files],
        "offsets": ranges,
    }
