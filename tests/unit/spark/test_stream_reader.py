"""The driver's side of a stream over scripted logs: no Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.client import retries
from tidelog.core.errors import KafkaError
from tidelog.core.limits import MIB
from tidelog.core.types import TopicPartition
from tidelog.spark.options import OptionError, ReadOptions, parse_options
from tidelog.spark.planning import DataLossError
from tidelog.spark.source import TidelogDataSource
from tidelog.spark.streaming import stream_cluster
from tidelog.spark.streaming.arrivals import Arrivals
from tidelog.spark.streaming.offset_json import CheckpointError, is_pinned
from tidelog.spark.streaming.stream_reader import (
    IDLE_MS,
    BatchPlanner,
    PackedPartition,
    TidelogStreamReader,
)
from tidelog.spark.streaming.stream_tasks import read_ranges
from tidelog.wire.registry import FETCH, LIST_OFFSETS, METADATA

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = ReadAllAvailable()


class Logs(FakeLogs):
    """Fake logs whose topics can be recreated."""

    def __init__(self) -> None:
        super().__init__()
        self.incarnations: dict[str, int] = {}

    def topic_id(self, name: str) -> bytes:
        return name.encode().ljust(16, bytes([1 + self.incarnations.get(name, 0)]))[:16]

    def fill(self, tp: TopicPartition, count: int) -> None:
        for _ in range(count):
            self.append(tp, batch(self.end(tp), b"v%d" % self.end(tp)))

    def recreate(self, topic: str, partitions: int) -> None:
        self.incarnations[topic] = self.incarnations.get(topic, 0) + 1
        self.create(topic, partitions)


@pytest.fixture
def logs() -> Iterator[Logs]:
    fake = Logs()
    fake.create("t", 2)
    fake.fill(A, 10)
    fake.fill(B, 4)
    yield fake
    fake.close()


class Stream:
    """A planner over the fake cluster, and what Spark would do with it."""

    def __init__(self, logs: FakeLogs, **options: str) -> None:
        given = {"kafka.bootstrap.servers": logs.bootstrap, **options}
        if not any(name in options for name in ("assign", "subscribePattern")):
            given.setdefault("subscribe", "t")
        self.options = parse_options(given, is_stream=True)
        self.planner = BatchPlanner(self.options, loss_patience_ms=1)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.planner.close()

    def latest(self, start: Any, limit: Any = ALL) -> Any:
        return self.planner.latest(start, limit)

    def read(self, start: Any, end: Any) -> list[tuple[int, int]]:
        """The partition and offset of each row of a batch, in order."""
        tasks = self.planner.tasks(start, end)
        return sorted(place for task in tasks for place in places(self.options, task))


def places(options: ReadOptions, task: PackedPartition) -> list[tuple[int, int]]:
    """The partition and offset of each row of a task, in order."""
    found: list[tuple[int, int]] = []
    for each in read_ranges(options, task.ranges):
        columns = (each.column(name).to_pylist() for name in ("partition", "offset"))
        found += zip(*columns, strict=True)
    return found


def rows(partition: int, first: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, end)]


def test_a_stream_reads_all_and_then_what_comes(logs: Logs) -> None:
    with Stream(logs, startingOffsets="earliest") as stream:
        start = stream.planner.initial()
        assert start == {"t": {"0": 0, "1": 0}}
        first = stream.latest(start)
        assert first == {"t": {"0": 10, "1": 4}}
        assert stream.read(start, first) == rows(0, 0, 10) + rows(1, 0, 4)
        assert stream.latest(first) is first
        logs.fill(B, 3)
        second = stream.latest(first)
        assert second == {"t": {"0": 10, "1": 7}}
        assert stream.read(first, second) == rows(1, 4, 7)
        assert stream.planner.log_ends() == second


def test_small_ranges_of_several_partitions_are_one_task(logs: Logs) -> None:
    start, end = {"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 4}}
    with Stream(logs) as stream:
        assert [len(task.ranges) for task in stream.planner.tasks(start, end)] == [2]
    with Stream(logs, minPartitions="3") as stream:
        assert [len(task.ranges) for task in stream.planner.tasks(start, end)] == [1, 1, 1]


def test_ranges_of_one_task_share_a_fetch_request(logs: Logs) -> None:
    logs.batches_per_answer = 10
    start, end = {"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 4}}
    with Stream(logs) as stream:
        assert stream.read(start, end) == rows(0, 0, 10) + rows(1, 0, 4)
    (request,) = logs[1].asked(FETCH)
    assert _limits(request) == {0: 4 * MIB, 1: 4 * MIB}, "an equal share for each"


def test_a_worker_fetches_no_more_than_the_ranges_of_its_next_task_need(logs: Logs) -> None:
    logs.batches_per_answer = 10
    one = len(batch(0, b"v0"))
    with Stream(logs) as stream:
        assert stream.read({"t": {"0": 0, "1": 0}}, {"t": {"0": 2, "1": 2}})
        start, end = {"t": {"0": 2, "1": 2}}, {"t": {"0": 10, "1": 4}}
        assert stream.read(start, end) == rows(0, 2, 10) + rows(1, 2, 4)
    assert _limits(logs[1].asked(FETCH)[-1]) == {0: 8 * one * 5 // 4, 1: 2 * one * 5 // 4}


def _limits(request: Any) -> dict[int, int]:
    """The limit in bytes that a fetch request has for each partition of its topic."""
    (topic,) = request.topics
    return {each.partition: each.partition_max_bytes for each in topic.partitions}


def test_a_range_with_lost_records_concerns_no_other_range_of_its_task(logs: Logs) -> None:
    with Stream(logs, startingOffsets="earliest") as stream:
        start = stream.planner.initial()
        (task,) = stream.planner.tasks(start, stream.latest(start))
    logs.log_starts[A] = 5
    with pytest.raises(DataLossError, match="t-0 has no offset 0 any more"):
        places(stream.options, task)
    lenient = Stream(logs, failOnDataLoss="false").options
    assert places(lenient, task) == rows(0, 5, 10) + rows(1, 0, 4)


def test_a_topic_deleted_before_its_task_concerns_no_other_topic(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "UNKNOWN_TOPIC_PATIENCE_MS", 1)
    logs.create("u", 1)
    logs.fill(TopicPartition("u", 0), 3)
    options = {"subscribe": "t,u", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    with Stream(logs, **options) as stream:
        start = stream.planner.initial()
        (task,) = stream.planner.tasks(start, stream.latest(start))
        del logs.topics["u"]
        assert places(stream.options, task) == rows(0, 0, 10) + rows(1, 0, 4)


def test_a_batch_is_planned_with_one_request_for_offsets_and_one_for_topics(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_cluster, "METADATA_AGE_MS", 0)
    with Stream(logs, startingOffsets="earliest") as stream:
        first = stream.latest(stream.planner.initial())
        logs.fill(A, 1)
        before = [len(logs[1].asked(key)) for key in (LIST_OFFSETS, METADATA)]
        assert stream.planner.tasks(first, stream.latest(first))
        after = [len(logs[1].asked(key)) for key in (LIST_OFFSETS, METADATA)]
        assert after == [count + 1 for count in before]


def test_the_limit_of_the_engine_is_split(logs: Logs) -> None:
    with Stream(logs, startingOffsets="earliest") as stream:
        start = stream.planner.initial()
        end = stream.latest(start, ReadMaxRows(7))
        assert end == {"t": {"0": 5, "1": 2}}
        assert stream.latest(end, ReadMaxRows(7)) == {"t": {"0": 10, "1": 4}}


def test_options_make_the_default_limit(logs: Logs) -> None:
    given = {"kafka.bootstrap.servers": logs.bootstrap, "subscribe": "t"}

    def limit(**options: str) -> Any:
        parsed = parse_options({**given, **options}, is_stream=True)
        return TidelogStreamReader(parsed).getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxOffsetsPerTrigger="5") == ReadMaxRows(5)
    assert limit(minOffsetsPerTrigger="3") == ReadMinRows(3)
    assert limit(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="5") == ReadMaxRows(5)


def test_unusable_options_are_the_first_error_of_the_reader(logs: Logs) -> None:
    source = TidelogDataSource(
        {"kafka.bootstrap.servers": logs.bootstrap, "subscribe": "t", "endingOffsets": "latest"}
    )
    reader = source.streamReader(StructType())
    for call in (reader.initialOffset, lambda: reader.latestOffset({}, ALL)):
        with pytest.raises(OptionError, match="endingOffsets is not valid in a stream"):
            call()


def test_the_minimum_holds_a_batch_back_but_not_the_first(logs: Logs) -> None:
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "20"}
    with Stream(logs, **options) as stream:
        end = stream.latest(stream.planner.initial(), ReadMinRows(20))
        assert end == {"t": {"0": 10, "1": 4}}
        logs.fill(A, 19)
        assert stream.latest(end, ReadMinRows(20)) is end
        logs.fill(B, 1)
        assert stream.latest(end, ReadMinRows(20)) == {"t": {"0": 29, "1": 5}}
        logs.fill(A, 1)
        assert stream.latest({"t": {"0": 29, "1": 5}}, ALL) == {"t": {"0": 30, "1": 5}}


def test_available_now_reads_up_to_the_ends_it_found_first_whatever_comes(logs: Logs) -> None:
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "1000"}
    with Stream(logs, **options) as stream:
        stream.planner.stop_at_next_ends()
        at = stream.planner.initial()
        seen: list[tuple[int, int]] = []
        for _ in range(5):
            end = stream.latest(at, ReadMaxRows(6))
            if end is at:
                break
            seen += stream.read(at, end)
            at = end
            logs.fill(A, 5)
        assert at == {"t": {"0": 10, "1": 4}}
        assert sorted(seen) == rows(0, 0, 10) + rows(1, 0, 4)
        assert stream.latest(at) is at


def test_an_idle_stream_looks_once_and_waits_at_the_leaders(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[tuple[Any, int]] = []

    def wait(_: Arrivals, by_leader: Any, wait_ms: int) -> bool:
        waits.append((by_leader, wait_ms))
        if len(waits) == 2:
            logs.fill(A, 1)
        return len(waits) == 2

    monkeypatch.setattr(Arrivals, "wait", wait)
    with Stream(logs, startingOffsets="earliest") as stream:
        end = stream.latest(stream.planner.initial())
        before = len(logs[1].asked(LIST_OFFSETS))
        assert stream.latest(end) is end
        assert len(logs[1].asked(LIST_OFFSETS)) == before + 1
        assert waits[0][0] == {1: {A: 10, B: 4}}
        assert 0 < waits[0][1] <= IDLE_MS
        assert stream.latest(end) == {"t": {"0": 11, "1": 4}}


# -- the first batch ------------------------------------------------------------------------------


def test_from_latest_the_first_batch_only_fixes_the_start(logs: Logs) -> None:
    with Stream(logs) as stream:
        start = stream.planner.initial()
        logs.fill(A, 2)
        first = stream.latest(start)
        assert is_pinned(first)
        assert stream.read(start, first) == []
        second = stream.latest(first)
        assert not is_pinned(second)
        assert stream.read(first, second) == rows(0, 10, 12)


def test_a_first_batch_from_latest_that_dies_loses_nothing(logs: Logs) -> None:
    with Stream(logs) as stream:
        first = stream.latest(stream.planner.initial())
    logs.fill(A, 3)
    with Stream(logs) as restarted:
        again = restarted.planner.initial()
        assert again == {"t": {"0": 13, "1": 4}}
        assert restarted.read(again, first) == []
        assert restarted.read(first, restarted.latest(first)) == rows(0, 10, 13)


def test_a_first_batch_from_latest_of_the_connector_that_died_is_an_error(logs: Logs) -> None:
    end = {"t": {"0": 10, "1": 4}}
    logs.fill(A, 3)
    with Stream(logs) as stream:
        start = stream.planner.initial()
        with pytest.raises(CheckpointError, match=r"was planned by another connector.*Run the"):
            stream.planner.tasks(start, end)
    with Stream(logs, failOnDataLoss="false") as stream:
        start = stream.planner.initial()
        assert stream.read(start, end) == []


def test_a_first_batch_from_earliest_is_repeated(logs: Logs) -> None:
    with Stream(logs, startingOffsets="earliest") as stream:
        start = stream.planner.initial()
        assert stream.read(start, {"t": {"0": 3, "1": 0}}) == rows(0, 0, 3)


def test_mixed_starts_pin_only_the_partitions_at_the_end(logs: Logs) -> None:
    with Stream(logs, startingOffsets='{"t": {"0": 8, "1": -1}}') as stream:
        start = stream.planner.initial()
        assert start == {"t": {"0": 8, "1": 4}}
        logs.fill(B, 1)
        first = stream.latest(start)
        assert stream.read(start, first) == rows(0, 8, 10)
        assert stream.read(first, stream.latest(first)) == rows(1, 4, 5)


# -- starts that cannot be ------------------------------------------------------------------------


def test_offsets_that_the_log_does_not_have(logs: Logs) -> None:
    options = {"startingOffsets": '{"t": {"0": 11, "1": 0}}'}
    with Stream(logs, **options) as stream, pytest.raises(DataLossError) as raised:
        stream.planner.initial()
    assert str(raised.value) == (
        "option startingOffsets is 11 for t-0, whose log holds 0 to 10: records were deleted, or"
        " the topic was recreated. Set failOnDataLoss to false to start at 10"
    )
    with Stream(logs, failOnDataLoss="false", **options) as stream:
        assert stream.planner.initial() == {"t": {"0": 10, "1": 0}}


def test_offsets_for_other_partitions(logs: Logs) -> None:
    options = {"startingOffsets": '{"t": {"0": 1, "7": 0}}'}
    with Stream(logs, **options) as stream, pytest.raises(OptionError) as raised:
        stream.planner.initial()
    assert "missing are t-1, too many are t-7" in str(raised.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "t,nope"}, "topic 'nope' at"),
        ({"assign": '{"t": [0, 5]}'}, "option assign names t-5; topic 't' has partitions 0 to 1"),
    ],
)
def test_what_does_not_exist(logs: Logs, options: dict[str, str], sentence: str) -> None:
    with Stream(logs, **options) as stream, pytest.raises(KafkaError, match=sentence):
        stream.planner.initial()


# -- topics that change ---------------------------------------------------------------------------


def test_new_partitions_and_new_topics_of_a_pattern_are_read_from_their_beginning(
    logs: Logs,
) -> None:
    with Stream(logs, subscribePattern="^t.*", startingOffsets="earliest") as stream:
        end = stream.latest(stream.planner.initial())
        logs.topics["t"] = [1, 1, 1]
        logs.batches[TopicPartition("t", 2)] = []
        logs.fill(TopicPartition("t", 2), 2)
        logs.create("t-two", 1)
        logs.create("other", 1)
        logs.fill(TopicPartition("t-two", 0), 1)
        logs.fill(A, 1)
        after = stream.latest(end)
        assert after == {"t": {"0": 11, "1": 4, "2": 2}, "t-two": {"0": 1}}
        assert stream.read(end, after) == [(0, 0), (0, 10), (2, 0), (2, 1)]


def test_assigned_partitions_stay_the_same(logs: Logs) -> None:
    with Stream(logs, assign='{"t": [1]}', startingOffsets="earliest") as stream:
        start = stream.planner.initial()
        assert start == {"t": {"1": 0}}
        assert stream.latest(start) == {"t": {"1": 4}}


@pytest.mark.parametrize("count", [3, 60])
def test_a_recreated_topic_fails_the_stream_or_is_read_from_its_beginning(
    logs: Logs, count: int
) -> None:
    options = {"startingOffsets": "earliest"}
    with (
        Stream(logs, **options) as strict,
        Stream(logs, failOnDataLoss="false", **options) as lenient,
    ):
        end = strict.latest(strict.planner.initial())
        assert lenient.latest(lenient.planner.initial()) == end
        logs.recreate("t", 2)
        logs.fill(A, count)
        with pytest.raises(DataLossError, match="topic 't' was deleted and recreated while the"):
            strict.latest(end)
        back = lenient.latest(end)
        assert back == {"t": {"0": 0, "1": 0}}
        assert lenient.read(end, back) == []
        after = lenient.latest(back)
        assert lenient.read(back, after) == rows(0, 0, count)


def test_a_topic_recreated_between_plan_and_task_is_not_read(logs: Logs) -> None:
    options = {"startingOffsets": "earliest"}
    with Stream(logs, **options) as stream:
        start = stream.planner.initial()
        end = stream.latest(start)
        tasks = stream.planner.tasks(start, end)
        logs.recreate("t", 2)
        logs.fill(A, 30)
        with pytest.raises(DataLossError, match="recreated while a batch read t-0 from 0 to 10"):
            list(read_ranges(stream.options, tasks[0].ranges))
    lenient = Stream(logs, failOnDataLoss="false", **options).options
    assert list(read_ranges(lenient, tasks[0].ranges)) == []


def test_a_topic_recreated_while_the_stream_was_down_is_noticed_by_its_end(logs: Logs) -> None:
    logs.recreate("t", 2)
    logs.fill(A, 3)
    reached = {"t": {"0": 10, "1": 0}}
    with Stream(logs) as stream, pytest.raises(DataLossError) as raised:
        stream.latest(reached)
    assert str(raised.value) == (
        "the stream has read t-0 up to 10, but its log ends at 3: the topic was recreated, or its"
        " log was truncated. Set failOnDataLoss to false to go on without these records"
    )
    with Stream(logs, failOnDataLoss="false") as stream:
        assert stream.latest(reached) == {"t": {"0": 3, "1": 0}}


def test_a_batch_that_should_be_repeated_but_cannot_be(logs: Logs) -> None:
    start, end = {"t": {"0": 5, "1": 0}}, {"t": {"0": 12, "1": 4}}
    with Stream(logs) as stream, pytest.raises(DataLossError, match=r"t-0 again from 5 to 12.*10"):
        stream.planner.tasks(start, end)
    logs.log_starts[A] = 7
    with (
        Stream(logs) as stream,
        pytest.raises(DataLossError, match="t-0 again from 5 to 10, but its log holds 7 to 10"),
    ):
        stream.planner.tasks(start, {"t": {"0": 10, "1": 4}})
    with Stream(logs, failOnDataLoss="false") as stream:
        assert stream.read(start, end) == rows(0, 7, 10) + rows(1, 0, 4)


def test_deleted_records_are_noticed_after_a_restart(logs: Logs) -> None:
    logs.log_starts[A] = 7
    with Stream(logs) as stream, pytest.raises(DataLossError, match="up to 5, but its log begins"):
        stream.latest({"t": {"0": 5, "1": 4}})


def test_a_deleted_topic_fails_the_stream_or_leaves_it(logs: Logs) -> None:
    logs.create("u", 1)
    logs.fill(TopicPartition("u", 0), 5)
    options = {"subscribe": "t,u", "startingOffsets": "earliest"}
    with (
        Stream(logs, **options) as strict,
        Stream(logs, failOnDataLoss="false", **options) as lenient,
    ):
        end = strict.latest(strict.planner.initial())
        assert lenient.latest(lenient.planner.initial()) == end
        del logs.topics["t"]
        logs.fill(TopicPartition("u", 0), 1)
        assert until_without_t(lenient, end) == {"u": {"0": 6}}
        with pytest.raises(DataLossError, match="t-0 is gone: the topic was deleted after"):
            until_without_t(strict, end)


def test_a_removed_partition_leaves_the_stream_when_it_stays_away(logs: Logs) -> None:
    with Stream(logs, startingOffsets="earliest") as stream:
        end = stream.latest(stream.planner.initial())
        logs.topics["t"] = [1]
        logs.fill(A, 1)
        with pytest.raises(DataLossError, match="t-1 is gone: it was removed after the stream"):
            until_without_t(stream, end)


def until_without_t(stream: Stream, at: Any) -> Any:
    """Ask for batches, as Spark does, until the topic has left the stream."""
    for _ in range(30):
        at = stream.latest(at)
        if "t" not in at:
            return at
    raise AssertionError(f"the stream still has {at}")


def test_offsets_of_another_source_are_an_error(logs: Logs) -> None:
    with Stream(logs) as stream, pytest.raises(CheckpointError, match="expected JSON like"):
        stream.latest({"logOffset": 3})
