"""Log directories read without brokers: the choice of replicas, planning, and the rows."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from tests.support.audits import history, three_brokers
from tests.support.log_files import START_MS, TP, Disk, batches, flip, write_segment

from tidelog.core.errors import ConfigError, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.spark.decode import CorruptBatchError
from tidelog.spark.options import OptionError, ReadOptions, parse_options
from tidelog.spark.planning import DataLossError, OffsetRange
from tidelog.spark.pushdown import take_filters
from tidelog.spark.segments.listing import list_directories
from tidelog.spark.segments.replica_choice import NoReplicaError, choose_logs
from tidelog.spark.segments.segment_reading import (
    SegmentTask,
    UnreadableFileError,
    plan_segments,
    read_segments,
    split_by_bytes,
)


def options(root: Path, **given: str) -> ReadOptions:
    return parse_options({"segments": str(root / "broker-*"), **given})


def offsets(read: ReadOptions, tasks: list[SegmentTask] | None = None) -> list[int]:
    """Return the offsets of all rows, in the order of tasks and batches."""
    found: list[int] = []
    for task in plan_segments(read) if tasks is None else tasks:
        for batch in read_segments(read, task):
            table = pa.Table.from_batches([batch])
            found += table.column("offset").to_pylist()
            if "value" in table.column_names:
                values = [each.split(b" ")[0] for each in table.column("value").to_pylist()]
                assert values == [b"%d" % each for each in table.column("offset").to_pylist()]
    return found


def test_each_record_is_read_once_though_there_are_three_replicas(tmp_path: Path) -> None:
    three_brokers(tmp_path)
    assert offsets(options(tmp_path)) == list(range(600))


def test_rows_end_at_the_high_watermark_unless_the_log_end_is_asked_for(tmp_path: Path) -> None:
    for number, high in ((1, 420), (2, 445), (3, 300)):
        Disk.made(tmp_path / f"broker-{number}", number).replica(history(), high=high)
    assert offsets(options(tmp_path)) == list(range(445))
    assert offsets(options(tmp_path, segmentsToLogEnd="true")) == list(range(600))


def test_the_replica_of_the_latest_leader_epoch_is_read(tmp_path: Path) -> None:
    stale = batches(60)  # longer, and of the first leader only
    latest = batches(30) + batches(25, first=300, epoch=2)
    Disk.made(tmp_path / "broker-1", 1).replica(stale, high=300)
    Disk.made(tmp_path / "broker-2", 2).replica(latest, high=550)
    Disk.made(tmp_path / "broker-3", 3).replica(latest[:40], high=400)
    logs = choose_logs(
        list_directories([str(tmp_path / f"broker-{n}") for n in (1, 2, 3)]), to_log_end=False
    )
    assert (logs[TP].replica.broker, logs[TP].end, logs[TP].last_epoch) == (2, 550, 2)


def test_replicas_of_two_topics_of_one_name_are_an_error(tmp_path: Path) -> None:
    Disk.made(tmp_path / "broker-1", 1).replica(history())
    Disk.made(tmp_path / "broker-2", 2).replica(history(), topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    with pytest.raises(NoReplicaError, match="topics of different ids .*leave out"):
        plan_segments(options(tmp_path))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": '{"flights": {"0": 205}}'}, range(205, 600)),
        ({"endingOffsets": '{"flights": {"0": 205}}'}, range(205)),
        ({"startingTimestamp": str(START_MS + 317)}, range(317, 600)),
        ({"endingTimestamp": str(START_MS + 317)}, range(317)),
        ({"subscribe": "flights"}, range(600)),
        ({"assign": '{"flights": [0]}'}, range(600)),
        ({"subscribePattern": "fl.*"}, range(600)),
        ({"minPartitions": "7"}, range(600)),
        ({"maxRecordsPerPartition": "33"}, range(600)),
        ({"columns": "offset"}, range(600)),
    ],
)
def test_the_options_mean_what_they_mean_with_brokers(
    tmp_path: Path, given: dict[str, str], expected: range
) -> None:
    three_brokers(tmp_path)
    assert offsets(options(tmp_path, **given)) == list(expected)


def test_bad_options_are_named(tmp_path: Path) -> None:
    three_brokers(tmp_path)
    with pytest.raises(KafkaError, match="topic 'other' at .*broker-"):
        plan_segments(options(tmp_path, subscribe="other"))
    with pytest.raises(OptionError, match="isolation.level is read_committed"):
        plan_segments(options(tmp_path, **{"kafka.isolation.level": "read_committed"}))
    with pytest.raises(ConfigError, match="names no directory"):
        plan_segments(parse_options({"segments": str(tmp_path / "none-*")}))
    with pytest.raises(DataLossError, match="holds 0 to 600"):
        plan_segments(options(tmp_path, startingOffsets='{"flights": {"0": 700}}'))


def test_a_query_without_a_selection_reads_all_topics_but_internal_ones(tmp_path: Path) -> None:
    disk = Disk.made(tmp_path / "broker-1", 1)
    disk.replica(batches(3))
    disk.replica(batches(2), tp=TopicPartition("trains", 4))
    disk.replica(batches(2), tp=TopicPartition("__consumer_offsets", 0))
    tasks = plan_segments(options(tmp_path))
    assert [(each.topic, each.partition, each.end) for each in tasks] == [
        ("flights", 0, 30),
        ("trains", 4, 20),
    ]


def test_a_range_is_cut_where_files_begin_and_large_files_by_offsets(tmp_path: Path) -> None:
    three_brokers(tmp_path)
    (directory,) = list_directories([str(tmp_path / "broker-1")])
    segments = directory.replicas[0].segments
    size = segments[0].size
    wanted = OffsetRange(TP, 50, 590)
    whole = [(each.start, each.end) for each in split_by_bytes(wanted, segments, 2 * size + 999)]
    assert whole == [(50, 400), (400, 590)]
    parts = [(each.start, each.end) for each in split_by_bytes(wanted, segments, size // 2)]
    assert parts == [(50, 125), (125, 200), (200, 300), (300, 400), (400, 495), (495, 590)]


def test_damage_is_named_with_its_file_and_skipped_when_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    three_brokers(tmp_path)
    for number in (1, 2, 3):
        path = tmp_path / f"broker-{number}" / "flights-0" / f"{200:020d}.log"
        flip(path, 3000)
    with pytest.raises(CorruptBatchError, match=r"0200\.log: the batch at byte 2262 of flights-0"):
        offsets(options(tmp_path))
    with caplog.at_level(logging.WARNING, "tidelog.spark"):
        found = offsets(options(tmp_path, failOnDataLoss="false"))
    assert found == [each for each in range(600) if not 220 <= each < 230]
    assert "offset 220" in caplog.text and "1131 bytes are skipped" in caplog.text


def test_a_wrong_length_is_skipped_when_asked(tmp_path: Path) -> None:
    Disk.made(tmp_path / "broker-1", 1).replica(history())
    flip(tmp_path / "broker-1" / "flights-0" / f"{200:020d}.log", 8, 6)
    with pytest.raises(CorruptBatchError, match="byte 0 of flights-0, offset 200: no whole batch"):
        offsets(options(tmp_path))
    found = offsets(options(tmp_path, failOnDataLoss="false"))
    assert found == [each for each in range(600) if not 200 <= each < 210]


def test_files_that_vanish_after_planning_are_loss(tmp_path: Path) -> None:
    Disk.made(tmp_path / "broker-1", 1).replica(history())
    strict, lenient = options(tmp_path), options(tmp_path, failOnDataLoss="false")
    tasks = plan_segments(strict)
    (tmp_path / "broker-1" / "flights-0" / f"{0:020d}.log").unlink()
    with pytest.raises(DataLossError, match="was deleted before it was read"):
        offsets(strict, tasks)
    assert offsets(lenient, tasks) == list(range(200, 600))


def test_a_partial_batch_behind_the_readable_end_is_not_read(tmp_path: Path) -> None:
    directory = Disk.made(tmp_path / "broker-1", 1).replica(history(), high=590)
    path = directory / f"{400:020d}.log"
    path.write_bytes(path.read_bytes()[:-50])
    assert offsets(options(tmp_path)) == list(range(590))
    assert offsets(options(tmp_path, segmentsToLogEnd="true")) == list(range(590))


def test_offsets_that_compaction_removed_are_no_loss(tmp_path: Path) -> None:
    directory = Disk.made(tmp_path / "broker-1", 1).replica(history())
    shutil.rmtree(directory)
    kept = history()[:5] + history()[9:18]
    disk = Disk(tmp_path / "broker-1", 1)
    directory = disk.replica([], high=600, flushed=200, epochs=[(0, 0)])
    disk.checkpoint("cleaner-offset-checkpoint", TP, 200)
    write_segment(directory, kept)
    write_segment(directory, history()[20:])
    gone = (*range(50, 90), *range(180, 200))
    assert offsets(options(tmp_path)) == [each for each in range(600) if each not in gone]
    low = options(tmp_path, endingOffsets='{"flights": {"0": 195}}')
    assert offsets(low) == [each for each in range(180) if not 50 <= each < 90]


SEGMENTS = [f"{base:020d}.log" for base in (0, 200, 400)]


def cut_at_a_batch(directory: Path) -> None:
    path = directory / SEGMENTS[1]
    path.write_bytes(path.read_bytes()[: sum(map(len, history()[20:30]))])


def swapped(directory: Path) -> None:
    first, second = (directory / name for name in SEGMENTS[:2])
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)


@pytest.mark.parametrize(
    ("lose", "expected", "left"),
    [
        (cut_at_a_batch, "offsets 300 to 399 of flights-0 are missing", range(300, 400)),
        (lambda it: (it / SEGMENTS[1]).unlink(), "offsets 200 to 399", range(200, 400)),
        (swapped, "offsets 0 to 199 of flights-0 are missing before byte 0", range(200)),
        (lambda it: (it / SEGMENTS[2]).write_bytes(b""), "end at 400", range(400, 600)),
        (lambda it: [each.unlink() for each in it.glob("*.log")], "end at 0", range(600)),
    ],
)
def test_missing_offsets_of_a_log_that_is_not_compacted_are_loss(
    tmp_path: Path, lose: Callable[[Path], object], expected: str, left: range
) -> None:
    lose(Disk.made(tmp_path / "broker-1", 1).replica(history()))
    with pytest.raises(DataLossError, match=expected):
        offsets(options(tmp_path))
    found = offsets(options(tmp_path, failOnDataLoss="false"))
    assert found == [each for each in range(600) if each not in left]


def test_records_of_a_committed_end_that_no_replica_reaches_are_loss(tmp_path: Path) -> None:
    three_brokers(tmp_path, history()[:50])
    for number in (1, 2):
        Disk(tmp_path / f"broker-{number}", number).checkpoint(
            "replication-offset-checkpoint", TP, 510
        )
    with pytest.raises(DataLossError, match=r"read up to offset 510.* end at 500"):
        offsets(options(tmp_path))
    assert offsets(options(tmp_path, segmentsToLogEnd="true")) == list(range(500))


def test_files_that_compaction_replaces_after_planning_are_listed_again(tmp_path: Path) -> None:
    disk = Disk.made(tmp_path / "broker-1", 1)
    directory = disk.replica(history())
    disk.checkpoint("cleaner-offset-checkpoint", TP, 0)
    read = options(tmp_path, maxRecordsPerPartition="250")
    tasks = plan_segments(read)
    for name in SEGMENTS[:2]:
        (directory / name).rename(directory / f"{name}.deleted")
    write_segment(directory, history()[:3] + history()[35:40], base=0)
    gone = range(30, 350)
    assert offsets(read, tasks) == [each for each in range(600) if each not in gone]


def test_a_topic_recreated_after_planning_is_not_read_from_its_files(tmp_path: Path) -> None:
    disk = Disk.made(tmp_path / "broker-1", 1)
    directory = disk.replica(history())
    read = options(tmp_path)
    tasks = plan_segments(read)
    directory.rename(disk.path / "flights-0.0123456789abcdef0123456789abcdef-delete")
    disk.replica(history(), topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    with pytest.raises(DataLossError, match="deleted and recreated while it was read"):
        offsets(read, tasks)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    directory = Disk.made(tmp_path / "broker-1", 1).replica(history())
    read = options(tmp_path)
    tasks = plan_segments(read)
    (directory / SEGMENTS[0]).unlink()
    (directory / SEGMENTS[0]).mkdir()
    with pytest.raises(UnreadableFileError, match=r"0000\.log cannot be read: Is a directory"):
        offsets(read, tasks)


def test_a_lost_or_lying_index_costs_time_only(tmp_path: Path) -> None:
    directory = Disk.made(tmp_path / "broker-1", 1).replica(history())
    (directory / f"{200:020d}.index").unlink()
    flip(directory / f"{0:020d}.index", 8 + 6, 2)
    starting = '{"flights": {"0": 150}}'
    assert offsets(options(tmp_path, startingOffsets=starting)) == list(range(150, 600))


def test_filters_leave_the_ranges_that_may_have_their_rows(tmp_path: Path) -> None:
    three_brokers(tmp_path)
    narrowing, left = take_filters(
        [GreaterThanOrEqual(("offset",), 350), LessThan(("offset",), 410)]
    )
    assert left == []
    read = options(tmp_path)
    tasks = plan_segments(read, narrowing)
    assert sum(len(each.files) for each in tasks) == 2
    assert offsets(read, tasks) == list(range(350, 410))
