"""Tables that other tools have landed, proved by their columns of partition and offset."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from tests.spark.commands import pipeline
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import CONTROL, Row, batch, rewritten

from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.lake.state import TableError
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines.column_proof import PartitionOffsets, prove_columns
from tidelog.spark.pipelines.counting import OffsetColumns
from tidelog.spark.pipelines.offset_faults import OffsetFaultKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = TopicPartition("t", 0)
COLUMNS = OffsetColumns("kafka_partition", "kafka_offset")


def rows(partition: int, *offsets: int, topic: str = "t") -> pa.Table:
    """Rows as a sink of another project writes them."""
    return pa.table(
        {
            "kafka_topic": [topic] * len(offsets),
            "kafka_partition": [partition] * len(offsets),
            "kafka_offset": offsets,
            "text": [f"v{offset}" for offset in offsets],
        }
    )


def write(table: Path, *parts: pa.Table, partition_by: Sequence[str] = ()) -> None:
    for part in parts:
        write_deltalake(str(table), part, mode="append", partition_by=list(partition_by) or None)


def add_again(table: Path, version: int) -> str:
    """Commit a copy of the file of a version, as a coordinator does that forgot its commit."""
    delta = DeltaTable(str(table))
    log = table / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    [added] = [action["add"] for action in actions if "add" in action]
    copy = f"again-{added['path']}"
    shutil.copy(table / added["path"], table / copy)
    again = AddAction(copy, added["size"], {}, 0, True, added["stats"])
    delta.create_write_transaction([again], "append", delta.schema())
    return copy


def test_a_table_with_each_offset_once_holds(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, rows(0, *range(5, 20)), rows(1, *range(8)), rows(0, *range(20, 30)))
    proof = prove_columns(spark, str(tmp_path), COLUMNS)
    assert proof.holds
    assert proof.partitions == (
        PartitionOffsets(0, 5, 30, 25, 0, 0),
        PartitionOffsets(1, 0, 8, 8, 0, 0),
    )


def test_a_file_in_two_commits_is_named_with_both_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, rows(0, *range(10)), rows(0, *range(10, 30)))
    copy = add_again(tmp_path, version=0)
    proof = prove_columns(spark, str(tmp_path), COLUMNS)
    assert not proof.holds
    [fault] = proof.offsets
    assert (fault.kind, fault.start, fault.end) == (OffsetFaultKind.DOUBLED, 0, 10)
    assert copy in fault.files
    assert sorted(proof.added_in[name] for name in fault.files) == [(0,), (2,)]
    assert proof.partitions[0].doubled == 10


def test_what_is_missing_is_lost_unless_the_log_explains_it(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path
) -> None:
    logs.create("t", 1)
    logs.append(T0, batch([Row(b"k", b"v")] * 10, 0))
    logs.append(T0, rewritten(batch([Row()], 10), attributes=CONTROL))
    logs.append(T0, batch([Row(b"k", b"v")] * 9, 11))
    write(tmp_path, rows(0, *range(8)), rows(0, *range(11, 20)))
    alone = prove_columns(spark, str(tmp_path), COLUMNS)
    assert [(each.missing, each.lost) for each in alone.partitions] == [(3, 3)]
    with BlockingClient(logs.bootstrap) as client:
        of_topic = OffsetColumns("kafka_partition", "kafka_offset", topic="t")
        proof = prove_columns(spark, str(tmp_path), of_topic, client=client)
        assert [(each.missing, each.control, each.lost) for each in proof.partitions] == [(3, 1, 2)]
        write(tmp_path, rows(0, 8, 9))
        proof = prove_columns(spark, str(tmp_path), of_topic, client=client)
        assert (proof.holds, proof.offsets) == (True, ()), "an explained gap is no fault"
        with pytest.raises(OptionError, match="needs the topic"):
            prove_columns(spark, str(tmp_path), COLUMNS, client=client)


def test_offsets_beyond_the_log_are_not_explained(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path
) -> None:
    """Records behind an open transaction, and of a topic's earlier life."""
    logs.create("t", 2)
    logs.append(T0, *(batch([Row(b"k", b"v")], offset) for offset in range(20)))
    logs.last_stable[T0] = 5
    write(tmp_path, rows(0, *range(3), *range(10, 12), *range(30, 32)))
    of_topic = OffsetColumns("kafka_partition", "kafka_offset", topic="t")
    with BlockingClient(logs.bootstrap) as client:
        proof = prove_columns(spark, str(tmp_path), of_topic, client=client)
        [first, second] = proof.partitions
        assert (first.missing, first.lost, first.log_start, first.log_end) == (25, 25, 0, 5)
        assert (second.rows, second.log_end) == (0, 0)
        assert [(each.start, each.end) for each in proof.offsets] == [(3, 10), (12, 30)]
        write(tmp_path, rows(7, 0))
        with pytest.raises(TableError, match="rows of partition 7; topic 't' has partitions 0 to"):
            prove_columns(spark, str(tmp_path), of_topic, client=client)


@pytest.mark.parametrize("value", ["a b", "a:b", "a%b", "é/x"])
def test_partition_values_of_any_characters_lead_to_their_files(
    spark: SparkSession, tmp_path: Path, value: str
) -> None:
    table = rows(0, 0, 1).append_column("kind", pa.array([value] * 2))
    write(tmp_path, table, partition_by=["kind"])
    assert prove_columns(spark, str(tmp_path), COLUMNS).holds


def test_a_text_column_named_offset_is_no_bound(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, pa.table({"partition": [0, 0], "offset": ["1", "2"], "a.b": [1, 2]}))
    assert prove_columns(spark, str(tmp_path), OffsetColumns("partition", "offset")).holds
    assert prove_columns(spark, str(tmp_path), OffsetColumns("partition", "a.b")).holds


def test_a_topic_without_a_row_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, rows(0, 0, 1))
    wrong = OffsetColumns("kafka_partition", "kafka_offset", "kafka_topic", "tt")
    with pytest.raises(TableError, match="has no row of topic 'tt'"):
        prove_columns(spark, str(tmp_path), wrong)


def test_a_lost_file_is_named_with_its_offsets(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "flat", rows(0, *range(10)), rows(1, *range(5)))
    write(tmp_path / "split", rows(0, *range(10)), partition_by=["kafka_partition"])
    for place in ("flat", "split"):
        table = DeltaTable(str(tmp_path / place))
        for path in pa.table(table.get_add_actions())["path"].to_pylist():
            (tmp_path / place / path).unlink()
    reasons = [file.reason for file in prove_columns(spark, str(tmp_path / "flat"), COLUMNS).files]
    assert sorted(reasons) == [
        "is missing, with offsets 0 to 10 of partition 0",
        "is missing, with offsets 0 to 5 of partition 1",
    ]
    [fault] = prove_columns(spark, str(tmp_path / "split"), COLUMNS).files
    assert fault.reason == "is missing, with offsets 0 to 10 of partition 0"


def test_columns_of_structs_partition_columns_and_other_topics(
    spark: SparkSession, tmp_path: Path
) -> None:
    nested = pa.table(
        {"kafka": [{"partition": 0, "offset": offset} for offset in (0, 1, 2, 2)], "n": [1] * 4}
    )
    write(tmp_path / "nested", nested)
    columns = OffsetColumns("kafka.partition", "kafka.offset")
    proof = prove_columns(spark, str(tmp_path / "nested"), columns)
    assert proof.partitions == (PartitionOffsets(0, 0, 3, 4, 0, 1),)

    split = tmp_path / "split"
    write(split, rows(0, 0, 1), rows(1, 0, 1, 2), partition_by=["kafka_partition"])
    proof = prove_columns(spark, str(split), COLUMNS)
    assert [(each.partition, each.rows) for each in proof.partitions] == [(0, 2), (1, 3)]
    assert proof.holds

    mixed = tmp_path / "mixed"
    write(mixed, rows(0, 0, 1), rows(0, 0, 1, 2, topic="u"))
    assert not prove_columns(spark, str(mixed), COLUMNS).holds
    of_topic = OffsetColumns("kafka_partition", "kafka_offset", "kafka_topic", "u")
    assert prove_columns(spark, str(mixed), of_topic).partitions == (
        PartitionOffsets(0, 0, 3, 3, 0, 0),
    )


def test_what_cannot_be_proved_is_said(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, rows(0, 0, 1))
    wrong = OffsetColumns("kafka_partition", "place")
    with pytest.raises(TableError, match="no column 'place'; it has kafka_topic, kafka_partition"):
        prove_columns(spark, str(tmp_path), wrong)
    proof = prove_columns(spark, str(tmp_path), OffsetColumns("text", "kafka_offset"))
    [fault] = proof.files
    assert not proof.holds
    assert fault.reason.startswith("cannot be read: Failed to parse string: 'v")
    nulls = pa.table(
        {
            "kafka_topic": ["t"],
            "kafka_partition": pa.array([None], pa.int64()),
            "kafka_offset": [2],
            "text": ["v"],
        }
    )
    write(tmp_path, nulls)
    [fault] = prove_columns(spark, str(tmp_path), COLUMNS).files
    assert fault.reason == "cannot be read: column kafka_partition has 1 nulls"


def test_the_command_names_files_and_versions(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write(table, rows(0, *range(10)), rows(0, *range(12, 30)))
    copy = add_again(table, version=1)
    words = ("prove", str(table), "--partition-column", "kafka_partition")
    ran = pipeline(*words, "--offset-column", "kafka_offset")
    assert ran.returncode == 1, ran.stderr
    lines = ran.stdout.splitlines()
    assert "partition 0: offsets 10 to 12 are missing, between" in ran.stdout
    assert f"{copy} (version 2)" in ran.stdout
    assert lines[-1] == (
        "46 rows, 2 lost (the log was not asked: markers and aborted records count as lost),"
        " 18 doubled"
    )
    ran = pipeline(*words)
    assert ran.returncode == 2
    assert "--partition-column and --offset-column belong together" in ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--sequence", "n", "--produced", "1"),
        ("--topic", "t"),
        ("--topic-column", "c"),
        ("--bootstrap-server", "127.0.0.1:1"),
    ],
)
def test_options_that_do_not_belong_together_are_refused_before_spark_starts(
    words: tuple[str, ...],
) -> None:
    columns = ("--partition-column", "p", "--offset-column", "o")
    ran = pipeline("prove", "nowhere", *columns, *words)
    assert ran.returncode == 2
    assert "exclude each other" in ran.stderr or " need" in ran.stderr
