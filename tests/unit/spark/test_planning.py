"""Planning: the offsets that each task reads, resolved once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from tidelog.client.cluster import ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.client.fetching import ListedOffset
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import READ_UNCOMMITTED, TopicPartition
from tidelog.spark.options import EARLIEST, LATEST, OptionError, parse_options
from tidelog.spark.planning import DataLossError, OffsetRange, plan_ranges
from tidelog.spark.splitting import split_ranges

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Logs:
    """A cluster whose partitions hold the offsets given.

    The timestamp of each record is ten times its offset.
    """

    def __init__(self, held: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.held = held
        #: Ends for read_committed, where a transaction is open.
        self.stable: dict[TopicPartition, int] = {}
        self.internal: set[str] = set()

    def metadata(self, topics: list[str] | None) -> ClusterMetadata:
        found: dict[str, TopicMetadata] = {}
        for name in {tp.topic for tp in self.held} if topics is None else topics:
            numbers = [tp.partition for tp in self.held if tp.topic == name]
            error = ErrorCode.NONE if numbers else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = {n: PartitionMetadata(n, 1, 0, (1,), (1,)) for n in numbers}
            found[name] = TopicMetadata(
                name, name.encode().ljust(16), partitions, name in self.internal, error
            )
        return ClusterMetadata({}, 1, "c", found)

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        return {
            tp: ListedOffset(self._offset(tp, asked, isolation_level), -1, 0)
            for tp, asked in timestamps.items()
        }

    def _offset(self, tp: TopicPartition, asked: int, isolation_level: int) -> int:
        first, last = self.held[tp]
        if isolation_level:
            last = self.stable.get(tp, last)
        if asked == EARLIEST:
            return first
        if asked == LATEST:
            return last
        offset = max(first, -(-asked // 10))
        return offset if offset < last else -1


def plan(
    held: Mapping[TopicPartition, tuple[int, int]] | Logs, **options: str
) -> list[OffsetRange]:
    given = {"kafka.bootstrap.servers": "h:1", **options}
    return plan_ranges(held if isinstance(held, Logs) else Logs(held), parse_options(given))


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
    with pytest.raises(KafkaError, match="a-9; topic 'a' has partition 0 only"):
        plan({A0: (0, 10)}, assign='{"a":[9]}')


def test_a_range_carries_the_id_of_its_topic() -> None:
    (only,) = plan({B0: (0, 3)}, subscribe="b")
    assert only.topic_id == b"b".ljust(16)


class TestPatterns:
    def test_topics_with_the_pattern_in_their_name_are_read_in_order(self) -> None:
        held = {TopicPartition(name, 0): (0, 1) for name in ("b2", "a", "b1", "ab1")}
        ranges = plan(held, subscribePattern="b[0-9]")
        assert [each.tp.topic for each in ranges] == ["ab1", "b1", "b2"]

    def test_internal_topics_are_left_out(self) -> None:
        logs = Logs({A0: (0, 1), B0: (0, 1)})
        logs.internal = {"b"}
        assert plan(logs, subscribePattern=".*") == [OffsetRange(A0, 0, 1)]

    def test_a_pattern_without_topics_reads_nothing_and_says_so(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert plan({A0: (0, 1), B0: (0, 1)}, subscribePattern="x+") == []
        assert "subscribePattern 'x+' matches none of the 2 topics at h:1" in caplog.text

    def test_offsets_may_be_given_for_matching_partitions(self) -> None:
        ranges = plan(
            {A0: (0, 9), B0: (0, 9)}, subscribePattern="a", startingOffsets='{"a":{"0":4}}'
        )
        assert ranges == [OffsetRange(A0, 4, 9)]


class TestTimestamps:
    HELD: ClassVar = {A0: (0, 100), A1: (10, 20)}

    def test_a_timestamp_for_all_bounds_every_partition(self) -> None:
        ranges = plan(self.HELD, subscribe="a", startingTimestamp="111", endingTimestamp="150")
        assert ranges == [OffsetRange(A0, 12, 15), OffsetRange(A1, 12, 15)]

    def test_timestamps_by_partition_bound_each(self) -> None:
        ranges = plan(
            self.HELD,
            subscribe="a",
            startingOffsetsByTimestamp='{"a":{"0":500,"1":0}}',
            endingOffsetsByTimestamp='{"a":{"0":700,"1":160}}',
        )
        assert ranges == [OffsetRange(A0, 50, 70), OffsetRange(A1, 10, 16)]

    def test_an_end_after_all_records_is_the_end_of_the_log(self) -> None:
        ranges = plan(self.HELD, subscribe="a", endingTimestamp="99999")
        assert ranges == [OffsetRange(A0, 0, 100), OffsetRange(A1, 10, 20)]

    def test_a_start_after_all_records_is_an_error_unless_the_end_will_do(self) -> None:
        with pytest.raises(OptionError, match="startingTimestamp: a-1 has no record from 300 on"):
            plan(self.HELD, subscribe="a", startingTimestamp="300")
        ranges = plan(
            self.HELD,
            subscribe="a",
            startingTimestamp="300",
            startingOffsetsByTimestampStrategy="latest",
        )
        assert ranges == [OffsetRange(A0, 30, 100)]

    def test_timestamps_must_be_given_for_exactly_the_partitions_read(self) -> None:
        with pytest.raises(OptionError, match="give a timestamp for each.*missing are a-1, too"):
            plan(self.HELD, subscribe="a", endingOffsetsByTimestamp='{"a":{"0":700}}')

    def test_records_that_come_while_planning_are_not_read(self) -> None:
        class Growing(Logs):
            def list_offsets(
                self,
                timestamps: Mapping[TopicPartition, int],
                isolation_level: int = READ_UNCOMMITTED,
            ) -> dict[TopicPartition, ListedOffset]:
                found = super().list_offsets(timestamps, isolation_level)
                self.held = {tp: (first, last + 10) for tp, (first, last) in self.held.items()}
                return found

        ranges = plan(Growing({A0: (0, 10)}), subscribe="a", endingTimestamp="250")
        assert ranges == [OffsetRange(A0, 0, 20)]  # the end that the second call listed

    def test_mixed_forms_backwards_are_refused(self) -> None:
        with pytest.raises(OptionError, match="a-0 would be read from 90 to 70, which is backw"):
            plan(
                {A0: (0, 100)},
                subscribe="a",
                startingOffsets='{"a":{"0":90}}',
                endingTimestamp="700",
            )


class TestReadCommitted:
    COMMITTED: ClassVar = {"subscribe": "a", "kafka.isolation.level": "read_committed"}

    @pytest.fixture
    def logs(self) -> Logs:
        logs = Logs({A0: (0, 100), A1: (0, 10)})
        logs.stable = {A0: 60}
        return logs

    def test_the_end_is_the_last_stable_offset(self, logs: Logs) -> None:
        assert plan(logs, **self.COMMITTED) == [OffsetRange(A0, 0, 60), OffsetRange(A1, 0, 10)]
        assert plan(logs, subscribe="a")[0] == OffsetRange(A0, 0, 100)

    def test_a_timestamp_in_an_open_transaction_is_later_than_all(self, logs: Logs) -> None:
        with pytest.raises(OptionError, match="a-0 has no record from 700 on"):
            plan(logs, **self.COMMITTED, startingTimestamp="700")

    @pytest.mark.parametrize("fail", ["true", "false"])
    def test_offsets_in_an_open_transaction_are_not_lost_but_early(
        self, logs: Logs, fail: str
    ) -> None:
        with pytest.raises(KafkaError, match="a transaction is open at 60 .the log goes on to 100"):
            plan(
                logs,
                **self.COMMITTED,
                endingOffsets='{"a":{"0":80,"1":-1}}',
                failOnDataLoss=fail,
            )

    def test_a_start_in_an_open_transaction_has_nothing_yet(self, logs: Logs) -> None:
        ranges = plan(logs, **self.COMMITTED, startingOffsets='{"a":{"0":80,"1":-2}}')
        assert ranges == [OffsetRange(A1, 0, 10)]

    def test_offsets_above_the_log_are_lost_all_the_same(self, logs: Logs) -> None:
        with pytest.raises(DataLossError, match="from 0 to 101, but it holds 0 to 60"):
            plan(logs, **self.COMMITTED, endingOffsets='{"a":{"0":101,"1":-1}}')


def test_loss_that_is_allowed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    start = '{"a":{"0":2}}'
    plan({A0: (5, 10)}, subscribe="a", startingOffsets=start, failOnDataLoss="false")
    assert "a-0 should be read from 2 to 10, but it holds 5 to 10" in caplog.text


def test_an_end_below_the_log_start_is_loss(caplog: pytest.LogCaptureFixture) -> None:
    asked: dict[str, str] = {"subscribe": "a", "endingOffsets": '{"a":{"0":3,"1":4}}'}
    held = {A0: (5, 10), A1: (2, 10)}
    with pytest.raises(DataLossError, match="a-0 should be read to 3, but it holds 5 to 10"):
        plan(held, **asked)
    assert plan(held, **asked, failOnDataLoss="false") == [OffsetRange(A1, 2, 4)]
    assert "a-0 should be read to 3, but it holds 5 to 10: the rest is lost" in caplog.text


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

    def test_a_limit_of_records_splits_into_even_parts(self) -> None:
        split = split_ranges([OffsetRange(A0, 0, 25), OffsetRange(A1, 5, 10)], None, 10)
        assert split == [
            OffsetRange(A0, 0, 8),
            OffsetRange(A0, 8, 16),
            OffsetRange(A0, 16, 25),
            OffsetRange(A1, 5, 10),
        ]
        assert max(each.size for each in split) <= 10

    def test_a_minimum_splits_further_where_the_limit_left_too_few(self) -> None:
        ranges = [OffsetRange(A0, 0, 20), OffsetRange(A1, 0, 10)]
        assert len(split_ranges(ranges, 2, 10)) == 3
        assert len(split_ranges(ranges, 3, 10)) == 3
        assert [each.size for each in split_ranges(ranges, 5, 10)] == [5, 5, 5, 5, 10]

    def test_parts_keep_the_id_of_the_topic(self) -> None:
        split = split_ranges([OffsetRange(A0, 0, 20, b"i" * 16)], 3, 10)
        assert [each.topic_id for each in split] == [b"i" * 16] * 3

    def test_nothing_to_read_is_no_task(self) -> None:
        assert split_ranges([], 4, 10) == []

    def test_there_are_no_empty_tasks(self) -> None:
        split = split_ranges([OffsetRange(A0, 0, 3)], 10)
        assert [each.size for each in split] == [1, 1, 1]
