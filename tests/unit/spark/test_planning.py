"""Planning: which offsets each task reads, resolved once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidelog.client.cluster import ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.client.fetching import ListedOffset
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.spark.options import EARLIEST, OptionError, parse_options
from tidelog.spark.planning import DataLossError, OffsetRange, plan_ranges, split_ranges

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Logs:
    """A cluster whose partitions hold the offsets given."""

    def __init__(self, held: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.held = held

    def metadata(self, topics: list[str] | None) -> ClusterMetadata:
        found: dict[str, TopicMetadata] = {}
        for name in topics or ():
            numbers = [tp.partition for tp in self.held if tp.topic == name]
            error = ErrorCode.NONE if numbers else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = {n: PartitionMetadata(n, 1, 0, (1,), (1,)) for n in numbers}
            found[name] = TopicMetadata(name, partitions=partitions, error=error)
        return ClusterMetadata({}, 1, "c", found)

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset]:
        return {
            tp: ListedOffset(self.held[tp][0 if which == EARLIEST else 1], -1, 0)
            for tp, which in timestamps.items()
        }


def plan(held: Mapping[TopicPartition, tuple[int, int]], **options: str) -> list[OffsetRange]:
    given = {"kafka.bootstrap.servers": "h:1", **options}
    return plan_ranges(Logs(held), parse_options(given))


def test_everything_held_is_read_where_nothing_else_is_said() -> None:
    ranges = plan({A0: (5, 10), A1: (0, 3), B0: (7, 8)}, subscribe="b,a")
    assert ranges == [OffsetRange(B0, 7, 8), OffsetRange(A0, 5, 10), OffsetRange(A1, 0, 3)]


def test_an_empty_partition_is_no_task() -> None:
    assert plan({A0: (5, 5), A1: (0, 3)}, subscribe="a") == [OffsetRange(A1, 0, 3)]


def test_assigned_partitions_alone_are_read() -> None:
    assert plan({A0: (0, 5), A1: (0, 3)}, assign='{"a":[1]}') == [OffsetRange(A1, 0, 3)]


def test_given_offsets_bound_the_range() -> None:
    ranges = plan(
        {A0: (0, 100), A1: (10, 20)},
        subscribe="a",
        startingOffsets='{"a":{"0":7,"1":-2}}',
        endingOffsets='{"a":{"0":9,"1":-1}}',
    )
    assert ranges == [OffsetRange(A0, 7, 9), OffsetRange(A1, 10, 20)]


@pytest.mark.parametrize(
    ("start", "end", "kept"), [(2, 10, (5, 10)), (5, 99, (5, 10)), (50, 60, None)]
)
def test_offsets_that_are_gone_are_an_error_unless_loss_is_allowed(
    start: int, end: int, kept: tuple[int, int] | None
) -> None:
    options = {
        "subscribe": "a",
        "startingOffsets": f'{{"a":{{"0":{start}}}}}',
        "endingOffsets": f'{{"a":{{"0":{end}}}}}',
    }
    with pytest.raises(DataLossError, match=f"a-0.*from {start} to {end}.*holds 5 to 10"):
        plan({A0: (5, 10)}, **options)
    ranges = plan({A0: (5, 10)}, **options, failOnDataLoss="false")
    assert ranges == ([OffsetRange(A0, *kept)] if kept else [])


def test_a_start_above_the_end_of_the_log_is_loss() -> None:
    with pytest.raises(DataLossError):
        plan({A0: (0, 10)}, subscribe="a", startingOffsets='{"a":{"0":11}}')


def test_a_start_at_the_end_of_the_log_reads_nothing() -> None:
    assert plan({A0: (0, 10)}, subscribe="a", startingOffsets='{"a":{"0":10}}') == []


def test_a_range_backwards_is_refused() -> None:
    with pytest.raises(OptionError, match="has 7 for a-0, which is after 3"):
        plan(
            {A0: (0, 10)},
            subscribe="a",
            startingOffsets='{"a":{"0":7}}',
            endingOffsets='{"a":{"0":3}}',
        )


def test_offsets_must_be_given_for_exactly_the_partitions_read() -> None:
    with pytest.raises(OptionError, match="missing are a-1, too many are b-0"):
        plan({A0: (0, 10), A1: (0, 10)}, subscribe="a", startingOffsets='{"a":{"0":7},"b":{"0":1}}')


def test_an_unknown_topic_or_partition_is_named() -> None:
    with pytest.raises(KafkaError, match="topic 'nope' at h:1"):
        plan({A0: (0, 10)}, subscribe="nope")
    with pytest.raises(KafkaError, match="a-9; topic 'a' has partitions 0 to 0"):
        plan({A0: (0, 10)}, assign='{"a":[9]}')


class TestSplitting:
    def test_without_a_minimum_each_partition_is_one_task(self) -> None:
        ranges = [OffsetRange(A0, 0, 1000), OffsetRange(A1, 0, 1)]
        assert split_ranges(ranges, None) == ranges
        assert split_ranges(ranges, 2) == ranges

    def test_large_ranges_are_cut_into_similar_parts(self) -> None:
        split = split_ranges([OffsetRange(A0, 10, 910), OffsetRange(A1, 0, 100)], 4)
        assert split == [
            OffsetRange(A0, 10, 310),
            OffsetRange(A0, 310, 610),
            OffsetRange(A0, 610, 910),
            OffsetRange(A1, 0, 100),
        ]

    def test_nothing_is_lost_or_doubled_by_a_cut(self) -> None:
        split = split_ranges([OffsetRange(A0, 3, 20), OffsetRange(A1, 0, 7)], 11)
        read = [(each.tp, n) for each in split for n in range(each.start, each.end)]
        assert len(split) == 11
        assert sorted(read) == [(A0, n) for n in range(3, 20)] + [(A1, n) for n in range(7)]

    def test_there_are_no_empty_tasks(self) -> None:
        split = split_ranges([OffsetRange(A0, 0, 3)], 10)
        assert [each.size for each in split] == [1, 1, 1]
