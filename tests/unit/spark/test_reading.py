"""Reading a range: to its end, past holes, and the errors where the log does not have it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.client.fake_logs import FakeLogs
from tests.support.client.fake_logs import batch as transactional
from tests.support.spark import CONTROL, Row, batch, rewritten

from tidelog.client import retries
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MIB
from tidelog.core.types import TopicPartition
from tidelog.records.control import ABORT, build_end_marker
from tidelog.spark.decode import CorruptBatchError
from tidelog.spark.options import parse_options
from tidelog.spark.planning import DataLossError, OffsetRange
from tidelog.spark.reading import RecreatedTopicError, read_range
from tidelog.wire.registry import FETCH

TP = TopicPartition("t", 0)


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    fake = FakeLogs()
    fake.create("t", 1)
    yield fake
    fake.close()


def offsets(logs: FakeLogs, start: int, end: int, **options: str) -> list[int]:
    return list(read(logs, OffsetRange(TP, start, end), **options))


def read(logs: FakeLogs, wanted: OffsetRange, **options: str) -> Iterator[int]:
    given = {"kafka.bootstrap.servers": logs.bootstrap, "subscribe": "t", **options}
    for each in read_range(parse_options(given), wanted):
        yield from each["offset"].to_pylist()


def test_a_range_over_many_answers_is_read_to_its_end(logs: FakeLogs) -> None:
    logs.append(TP, *(batch([Row()] * 10, base) for base in range(0, 100, 10)))
    assert offsets(logs, 7, 93) == list(range(7, 93))


def test_later_requests_ask_for_the_rest_of_the_range_only(logs: FakeLogs) -> None:
    one = batch([Row()] * 10, 0)
    logs.append(TP, *(batch([Row()] * 10, base) for base in range(0, 100, 10)))
    assert offsets(logs, 7, 53) == list(range(7, 53))
    asked = [each.topics[0].partitions[0].partition_max_bytes for each in logs[1].asked(FETCH)]
    batches_left = [4, 2]
    assert asked == [8 * MIB, *(count * len(one) * 5 // 4 for count in batches_left)]
    least = {"kafka.fetch.min.bytes": "2000"}
    assert offsets(logs, 7, 53, **least) == list(range(7, 53))
    *_, last = logs[1].asked(FETCH)
    assert last.topics[0].partitions[0].partition_max_bytes == 2000, "no less than it waits for"


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


def test_a_part_whose_records_compaction_removed_ends_where_later_ones_are(
    logs: FakeLogs,
) -> None:
    logs.append(TP, batch([Row()] * 2, 0), batch([Row()] * 2, 50))
    assert offsets(logs, 1, 20) == [1]
    assert offsets(logs, 10, 20) == []
    assert offsets(logs, 10, 51) == [50]


def test_aborted_transactions_are_left_out_where_that_is_asked_for(logs: FakeLogs) -> None:
    logs.append(
        TP,
        transactional(0, b"a", b"b", producer=7),
        transactional(2, b"c", producer=8),
        rewritten(bytes(build_end_marker(ABORT, 7, 0, 0, 1)), base_offset=3),
        transactional(4, b"d", producer=7),
        transactional(5, b"e", producer=7),
    )
    logs.aborted[TP] = [(7, 0)]
    logs.last_stable[TP] = 5
    committed = {"kafka.isolation.level": "read_committed"}
    assert offsets(logs, 0, 5, **committed) == [2, 4]
    assert offsets(logs, 0, 6) == [0, 1, 2, 4, 5]


def test_a_leader_whose_stable_offset_stays_behind_is_an_error(logs: FakeLogs) -> None:
    logs.append(TP, batch([Row()] * 2, 0), batch([Row()] * 2, 2))
    logs.last_stable[TP] = 2
    options = {"kafka.isolation.level": "read_committed", "kafka.request.timeout.ms": "400"}
    with pytest.raises(KafkaError, match="up to 4, but its leader shows nothing above 2"):
        offsets(logs, 0, 4, **options)


def test_another_incarnation_of_the_topic_is_not_read(logs: FakeLogs) -> None:
    logs.append(TP, *(batch([Row()] * 2, base) for base in range(0, 20, 2)))
    planned = OffsetRange(TP, 0, 20, logs.topic_id("t"))
    rows = read(logs, planned)
    assert [next(rows) for _ in range(4)] == [0, 1, 2, 3]
    logs.incarnations["t"] = 1
    with pytest.raises(RecreatedTopicError, match="'t' was deleted and created again after the"):
        list(rows)
    del logs.batches[TP][2:]
    beyond = OffsetRange(TP, 10, 20, planned.topic_id)
    with pytest.raises(RecreatedTopicError, match="Run the query again"):
        list(read(logs, beyond, failOnDataLoss="false"))


def test_a_topic_deleted_meanwhile_is_loss(
    logs: FakeLogs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "UNKNOWN_TOPIC_PATIENCE_MS", 300)
    logs.append(TP, *(batch([Row()] * 2, base) for base in range(0, 20, 2)))
    for allowed in (False, True):
        logs.topics["t"] = [1]
        rows = read(logs, OffsetRange(TP, 0, 20), failOnDataLoss=str(not allowed))
        assert [next(rows) for _ in range(4)] == [0, 1, 2, 3]
        del logs.topics["t"]
        if allowed:
            assert list(rows) == []
        else:
            with pytest.raises(DataLossError, match="t-0 was deleted.*offsets 4 to 19 are lost"):
                list(rows)
    assert "t-0 was deleted before it was read: offsets 4 to 19 are lost" in caplog.text


def test_a_response_without_a_whole_batch_is_an_error_not_a_loop(logs: FakeLogs) -> None:
    logs.append(TP, batch([Row()] * 2, 0)[:-1])
    with pytest.raises(CorruptBatchError, match="fetched from offset 0 hold no whole batch"):
        offsets(logs, 0, 2)


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
