"""Reading a range: to its end, past holes, and what happens when the log does not have it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.support.spark import CONTROL, Row, batch, rewritten

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.spark.options import parse_options
from tidelog.spark.planning import DataLossError, OffsetRange
from tidelog.spark.reading import read_range

TP = TopicPartition("t", 0)


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    fake = FakeLogs()
    fake.create("t", 1)
    yield fake
    fake.close()


def offsets(logs: FakeLogs, start: int, end: int, **options: str) -> list[int]:
    given = {"kafka.bootstrap.servers": logs.bootstrap, "subscribe": "t", **options}
    batches = read_range(parse_options(given), OffsetRange(TP, start, end))
    return [offset for each in batches for offset in each["offset"].to_pylist()]


def test_a_range_over_many_answers_is_read_to_its_end(logs: FakeLogs) -> None:
    logs.append(TP, *(batch([Row()] * 10, base) for base in range(0, 100, 10)))
    assert offsets(logs, 7, 93) == list(range(7, 93))


def test_markers_and_holes_at_the_end_are_passed(logs: FakeLogs) -> None:
    logs.append(TP, batch([Row()], 0), rewritten(batch([Row()], 1), attributes=CONTROL))
    logs.append(TP, rewritten(batch([Row()], 2), last_offset_delta=3))
    assert offsets(logs, 0, 6) == [0, 2]


def test_a_range_whose_rest_is_gone_by_compaction_ends(
    logs: FakeLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.append(TP, batch([Row()] * 2, 0))
    monkeypatch.setattr(logs, "end", lambda tp: 10)  # the log goes on, without records
    assert offsets(logs, 0, 9) == [0, 1]


def test_a_leader_that_stays_behind_is_an_error(logs: FakeLogs) -> None:
    logs.append(TP, batch([Row()] * 2, 0))
    with pytest.raises(KafkaError, match="up to 9, but its leader shows nothing above 2") as info:
        offsets(logs, 0, 9, **{"kafka.request.timeout.ms": "400"})
    assert info.value.code is ErrorCode.OFFSET_NOT_AVAILABLE


def test_records_deleted_meanwhile_are_an_error_unless_that_is_allowed(
    logs: FakeLogs, caplog: pytest.LogCaptureFixture
) -> None:
    logs.append(TP, batch([Row()] * 5, 0), batch([Row()] * 5, 5))
    logs.log_starts[TP] = 5
    with pytest.raises(DataLossError, match="t-0 has no offset 2 any more; its log holds 5 to 10"):
        offsets(logs, 2, 8)
    assert offsets(logs, 2, 8, failOnDataLoss="false") == [5, 6, 7]
    assert "offsets 2 to 4 were deleted" in caplog.text


def test_a_log_that_ends_before_the_range_is_an_error_in_any_case(logs: FakeLogs) -> None:
    logs.append(TP, batch([Row()] * 5, 0))
    with pytest.raises(DataLossError, match="its log holds 0 to 5"):
        offsets(logs, 7, 9, failOnDataLoss="false")


def test_the_module_that_spark_loads_everywhere_loads_nothing() -> None:
    check = (
        "import sys, pyspark_tidelog;"
        "loaded = [n for n in ('tidelog', 'pyspark', 'numpy', 'pyarrow') if n in sys.modules];"
        "assert not loaded, loaded;"
        "assert pyspark_tidelog.DefaultSource.name() == 'tidelog';"
        "heavy = [n for n in ('pyarrow', 'crc32c', 'cramjam', 'rich') if n in sys.modules];"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
