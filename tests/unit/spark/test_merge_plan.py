"""Which files of a table are merged: small neighbours of one partition."""

from __future__ import annotations

from dataclasses import replace

from tidelog.spark.lake.state import LakeFile
from tidelog.spark.pipelines.compact import plan_merges


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


def test_files_of_one_partition_value_are_merged_and_overlapping_files_stay() -> None:
    def split(value: str | None, start: int) -> LakeFile:
        return replace(file(0, start, 10), path=f"{value}-{start}", values={"c": value})

    files = [split("a", 0), split("b", 10), split(None, 20), split("a", 30), split(None, 40)]
    assert planned([*files, split("b", 15)]) == [["None-20", "None-40"], ["a-0", "a-30"]]


def test_a_file_alone_is_not_written_again() -> None:
    assert planned([file(0, 0, 10), file(0, 10, 90), file(1, 0, 10)]) == []
    assert planned([]) == []
