"""One task's write, from Arrow batches to scripted leaders."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.support.client.fake_leaders import FakeLeaders, answer_all

from tidelog.client.partitioning import partition_of
from tidelog.core.errors import ErrorCode
from tidelog.spark.sink.batch_marks import AttemptMark
from tidelog.spark.sink.settings import parse_sink_options
from tidelog.spark.sink.write_task import WriteError, WriteTask
from tidelog.wire.messages.produce import BatchIndexAndErrorMessage


@pytest.fixture
def leaders() -> Iterator[FakeLeaders]:
    fake = FakeLeaders(2)
    fake.create("t", [1, 2, 1])
    fake.create("u", [2])
    yield fake
    fake.close()


def write(
    leaders: FakeLeaders,
    *batches: dict[str, Any],
    mark: AttemptMark | None = None,
    **options: str,
) -> WriteTask:
    given = {"kafka.bootstrap.servers": leaders.bootstrap, "topic": "t"}
    given.update({name.replace("__", "."): value for name, value in options.items()})
    if given["topic"] == "none":
        del given["topic"]
    task = WriteTask(parse_sink_options(given), mark)
    assert task.write(pa.RecordBatch.from_pydict(each) for each in batches) == sum(
        len(each["value"]) for each in batches
    )
    return task


def test_strings_and_large_columns_are_written_as_bytes(leaders: FakeLeaders) -> None:
    values = [f"v{n}" for n in range(50)]
    keys = [f"k{n}" for n in range(50)]
    write(
        leaders,
        {"value": pa.array(values, pa.large_string()), "key": pa.array(keys, pa.string())},
        {"value": pa.array(["last"], pa.large_string()), "key": pa.array(["k"], pa.string())},
    )
    for partition in range(3):
        mine = [f"v{n}".encode() for n in range(50) if partition_of(b"k%d" % n, 3) == partition]
        mine += [b"last"] if partition_of(b"k", 3) == partition else []
        assert leaders.values("t", partition) == mine
        assert all(r.key for r in leaders.records("t", partition))


def test_each_row_names_its_topic_and_partition(leaders: FakeLeaders) -> None:
    write(
        leaders,
        {
            "value": ["a", "b", "c", "d"],
            "topic": ["u", "t", "u", "t"],
            "partition": pa.array([0, 2, None, 1], pa.int32()),
        },
        topic="none",
    )
    assert leaders.values("u", 0) == [b"a", b"c"]
    assert [leaders.values("t", n) for n in range(3)] == [[], [b"d"], [b"b"]]


def test_no_rows_are_no_records(leaders: FakeLeaders) -> None:
    task = write(leaders)
    assert task.acknowledged == {}
    write(leaders, {"value": pa.array([], pa.binary())})
    assert all(leaders.values("t", n) == [] for n in range(3))


def test_timestamps_come_from_the_clock_or_the_column(leaders: FakeLeaders) -> None:
    at = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    times = pa.array([at, None], pa.timestamp("us", tz="UTC"))
    rows = {"value": ["a", "b"], "timestamp": times, "partition": pa.array([0, 0], pa.int32())}
    write(leaders, rows, tidelog__timestamps="column")
    write(leaders, rows)
    found = [record.timestamp_ms for record in leaders.records("t", 0)]
    assert found[0] == at.timestamp() * 1000
    assert found[1] == pytest.approx(found[2], abs=60_000)
    assert found[2] == found[3]


def test_a_time_before_1970_is_refused_and_that_of_no_time_stays(leaders: FakeLeaders) -> None:
    rows = {"value": ["a", "b"], "partition": pa.array([0, 0], pa.int32())}
    kind = pa.timestamp("us", tz="UTC")
    write(
        leaders,
        {**rows, "timestamp": pa.array([0, -1000], kind)},
        tidelog__timestamps="column",
    )
    assert [record.timestamp_ms for record in leaders.records("t", 0)] == [0, -1]
    with pytest.raises(WriteError, match="row 1: column timestamp is 2 ms before 1970"):
        write(
            leaders,
            {**rows, "timestamp": pa.array([0, -1001], kind)},
            tidelog__timestamps="column",
        )


def test_the_last_row_of_the_task_is_marked_as_such(leaders: FakeLeaders) -> None:
    mark = AttemptMark("q", "1", "r", 0, 9)
    batches = [{"value": [b"x" * 100_000] * 30} for _ in range(4)]
    write(leaders, *batches, mark=mark, kafka__batch__size="100")
    marks = sorted(
        record.headers[-1][1] or b"" for n in range(3) for record in leaders.records("t", n)
    )
    assert [each.split(b"/")[5] for each in marks] == [b"%010d" % n for n in range(120)]
    assert [each[-1:] for each in marks] == [b"0"] * 119 + [b"1"]


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        ({"value": ["a", "b"], "topic": ["t", None]}, {"topic": "none"}, "row 1: column topic is"),
        ({"value": ["a"], "topic": [""]}, {"topic": "none"}, "column topic is empty"),
        (
            {"value": ["a", "b" * 500]},
            {"kafka__max__request__size": "400"},
            r"row 1: a record of 5\d\d bytes; .*kafka.max.request.size \(400\)",
        ),
    ],
)
def test_a_row_that_cannot_be_written_is_named(
    leaders: FakeLeaders, rows: dict[str, Any], options: Any, sentence: str
) -> None:
    with pytest.raises(WriteError, match=sentence + ".*; 0 records of this task were ack"):
        write(leaders, rows, **options)


def test_an_error_names_the_row_and_what_was_acknowledged(leaders: FakeLeaders) -> None:
    """Rows are sorted by partition before they are sent: the row named is the frame's."""

    def before(node: int, request: Any) -> Any:
        if node == 2:
            bad = [BatchIndexAndErrorMessage(1, "no key")]
            return answer_all(request, ErrorCode.INVALID_RECORD, record_errors=bad)
        return None

    leaders.before = before
    rows = {"value": list("abcdef"), "partition": pa.array([1, 0, 0, 2, 1, 2], pa.int32())}
    with pytest.raises(WriteError, match="t-1: row 4 was not written: INVALID_RECORD: no key; "):
        write(leaders, rows)
