"""Which files of a table are merged: small neighbours of one partition."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from tidelog.spark.lake.state import LakeFile, TableError
from tidelog.spark.pipelines.compact import merge_rows, plan_merges, plan_tiers


def file(partition: int, start: int, rows: int) -> LakeFile:
    return LakeFile(f"p{partition}-{start}", partition, start, start + rows, rows, 10 * rows)


def planned(files: list[LakeFile]) -> list[list[str]]:
    return [[each.path for each in group] for group in plan_merges(files, 1_000)]


def test_small_neighbours_are_merged_up_to_the_size_of_a_file() -> None:
    files = [file(0, start, 30) for start in (0, 30, 60, 90, 120)]
    assert planned(files) == [["p0-0", "p0-30", "p0-60"], ["p0-90", "p0-120"]]


def test_partitions_are_not_mixed_and_order_does_not_matter() -> None:
    files = [file(1, 0, 10), file(0, 10, 10), file(0, 0, 10), file(1, 10, 10)]
    assert planned(files) == [["p0-0", "p0-10"], ["p1-0", "p1-10"]]


def test_a_large_file_ends_a_group_and_stays() -> None:
    files = [file(0, 0, 10), file(0, 10, 10), file(0, 20, 51), file(0, 71, 10), file(0, 81, 10)]
    assert planned(files) == [["p0-0", "p0-10"], ["p0-71", "p0-81"]]


def test_files_of_one_partition_value_are_merged() -> None:
    def split(value: str | None, start: int) -> LakeFile:
        return replace(file(0, start, 10), path=f"{value}-{start}", values={"c": value})

    files = [split("a", 0), split("b", 10), split(None, 20), split("a", 30), split(None, 40)]
    assert planned(files) == [["None-20", "None-40"], ["a-0", "a-30"]]


def test_a_file_alone_is_not_written_again() -> None:
    assert planned([file(0, 0, 10), file(0, 10, 90), file(1, 0, 10)]) == []
    assert planned([]) == []


def test_tiers_write_a_record_again_a_few_times_only() -> None:
    """Files that come one after the other are merged whenever there are eight more."""
    files: list[LakeFile] = []
    written = most = 0
    for number in range(4_000):
        files.append(file(0, number, 1))
        if number % 8:
            continue
        for group in plan_tiers(files, 1_000_000):
            rows = sum(each.rows for each in group)
            written += rows
            place = files.index(group[0])
            files[place : place + len(group)] = [file(0, group[0].start, rows)]
        most = max(most, len(files))
    assert [each.start for each in files] == sorted(each.start for each in files)
    assert sum(each.rows for each in files) == 4_000
    assert most <= 14, "in the order of the logarithm, and the newest ones"
    assert written <= 4_000 * 10


def test_tiers_stop_at_the_target_and_at_large_files() -> None:
    files = [file(0, 0, 40), file(0, 40, 40), file(0, 80, 40), file(0, 120, 60), file(0, 180, 5)]
    groups = plan_tiers([*files, file(0, 185, 5)], 1_000)
    assert [[each.start for each in group] for group in groups] == [[0, 40], [180, 185]]


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_overlapping_files_come_in_order(seed: int) -> None:
    chance = random.Random(seed)
    owners = [chance.randrange(4) for _ in range(300)]
    streams = []
    schema = pa.schema([("offset", pa.int64()), ("owner", pa.int64())])
    for owner in range(5):  # the last one is empty
        offsets = [place for place, each in enumerate(owners) if each == owner]
        cuts = [0, *sorted(chance.choices(range(len(offsets) + 1), k=4)), len(offsets)]
        batches = [
            pa.RecordBatch.from_pylist(
                [{"offset": offset, "owner": owner} for offset in offsets[a:b]], schema
            )
            for a, b in pairwise(cuts)
        ]
        streams.append(iter(batches))
    rows = pa.Table.from_batches(list(merge_rows(streams)))
    assert rows["offset"].to_pylist() == list(range(300))
    assert rows["owner"].to_pylist() == owners


def test_rows_in_another_order_are_refused() -> None:
    rows = pa.record_batch({"offset": [*range(10, 20), 0, 1]})
    with pytest.raises(TableError, match="not in order of offset"):
        list(merge_rows([iter([rows])]))
