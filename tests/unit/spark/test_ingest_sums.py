"""The sums of a followed topic's batches, which need no more memory the longer it runs."""

from __future__ import annotations

from tidelog.core.types import TopicPartition
from tidelog.spark.lake.state import LakeFile
from tidelog.spark.pipelines.continuity import ContinuityProof, PartitionProof
from tidelog.spark.pipelines.ingest import IngestReport
from tidelog.spark.pipelines.ingest_report import IngestSums, ingest_report
from tidelog.spark.planning import OffsetRange


def batch(version: int, files: int = 1) -> IngestReport:
    wanted = OffsetRange(TopicPartition("t", 0), 3 * version, 3 * version + 3)
    proof = ContinuityProof((PartitionProof(wanted, 3, 0, 0, 0, 0),))
    return IngestReport("t", "to", proof, (LakeFile("f", 0, 0, 3, 3, 1),) * files, version, 0.5)


def test_a_report_has_all_sums_and_the_ranges_of_the_last_batches() -> None:
    report = ingest_report("t", "to", IngestSums(batch(number) for number in range(1_200)))
    assert report.verdict == "3600 records in 1200 files, 0 lost, 0 doubled, in 600.0 s"
    (ranges,) = report.tables
    assert len(ranges.rows) == 1_000
    assert ranges.rows[-1][:4] == (1_199, 0, 3_597, 3_600)
    assert "the last 1000 batches of 1200" in ranges.note
    assert (dict(report.facts)["batches"], dict(report.facts)["version"]) == (1_200, 1_199)


def test_many_files_of_one_batch_are_said_with_a_remedy() -> None:
    assert "fewer values" not in IngestSums([batch(1, 1_000), batch(2, 1_000)]).verdict
    assert "; 1001 files in one batch slow readers" in IngestSums([batch(1, 1_001)]).verdict
