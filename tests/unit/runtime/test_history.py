"""The history of a broker's metrics: its ring, its series, its file and its page."""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import Awaitable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.services import Identity
from tidelog.core.metrics import Metrics, counter, gauge, histogram, reading
from tidelog.runtime.admin.admin_port import PUBLISHED
from tidelog.runtime.admin.history import History
from tidelog.runtime.admin.history_ring import GRAINS, HistoryError, HistoryRing
from tidelog.runtime.admin.history_series import SERIES, quantile, values_of
from tidelog.runtime.admin.history_series import read as read_series
from tidelog.runtime.admin.http_messages import BadRequest, HttpRequest

DAY_S = 86_400
NOW_S = 1_800_000_000


def filled(seconds: int, step_s: int = 10) -> HistoryRing:
    """A ring of two series: the time since its begin, and a constant."""
    ring = HistoryRing(["age", "one"])
    for passed in range(0, seconds, step_s):
        ring.put(NOW_S + passed, [float(passed), 1.0])
    return ring


def run(awaited: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await awaited

    return asyncio.run(main())


def test_two_hours_are_there_in_steps_of_ten_seconds_and_a_day_in_minutes() -> None:
    ring = filled(DAY_S + 7_200)
    until_s = NOW_S + DAY_S + 7_190
    step_s, rows = ring.rows(until_s - 7_190, until_s)
    assert (step_s, len(rows)) == (10, 720)
    assert [row[1][0] for row in rows] == [DAY_S + passed for passed in range(0, 7_200, 10)]
    step_s, rows = ring.rows(0, until_s)
    assert (step_s, len(rows)) == (60, 1_440)
    assert rows[-1][0] - rows[0][0] == DAY_S - 60
    assert [row[1][0] for row in rows[:2]] == [7_225.0, 7_285.0], "means of minutes"


def test_a_time_in_which_the_broker_was_down_has_no_rows() -> None:
    ring = filled(600)
    ring.put(NOW_S + 3_000, [1.0, math.nan])
    _, rows = ring.rows(NOW_S, NOW_S + 3_000)
    assert [time_s - NOW_S for time_s, _ in rows] == [*range(0, 600, 10), 3_000]
    assert math.isnan(rows[-1][1][1])


def test_slots_of_an_earlier_round_are_not_taken_for_present_ones() -> None:
    ring = filled(10)
    fine_s = GRAINS[0][0] * GRAINS[0][1]
    _, rows = ring.rows(NOW_S + fine_s - 100, NOW_S + fine_s)
    assert rows == []


@given(st.lists(st.integers(0, DAY_S * 2), min_size=1, max_size=60))
def test_what_was_put_last_is_there_whatever_the_clock_did(times: list[int]) -> None:
    ring = HistoryRing(["a"])
    for number, passed in enumerate(times):
        ring.put(NOW_S + passed, [float(number)])
    last_s = (NOW_S + times[-1]) // 10 * 10
    assert next(row for _, row in ring.rows(last_s, last_s)[1])[0] == len(times) - 1


def test_a_ring_comes_back_from_its_bytes_and_series_may_have_come_and_gone() -> None:
    data = filled(7_200).to_bytes()
    assert len(data) < 1 << 20
    same = HistoryRing(["age", "one"])
    same.take(data)
    assert same.to_bytes() == data
    other = HistoryRing(["new", "age"])
    other.take(data)
    _, rows = other.rows(NOW_S, NOW_S + 20)
    assert [row[1][1] for row in rows] == [0.0, 10.0, 20.0]
    assert all(math.isnan(row[1][0]) for row in rows)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "begins with"),
        (lambda data: b"{}" + data, "begins with"),
        (lambda data: data[:-1], "checksum"),
        (lambda data: data[:6], "checksum"),
        (lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:], "checksum"),
    ],
)
def test_damaged_bytes_change_nothing_and_have_a_reason(damage: Any, reason: str) -> None:
    ring = filled(600)
    before = ring.to_bytes()
    with pytest.raises(HistoryError, match=reason):
        ring.take(damage(filled(7_200).to_bytes()))
    assert ring.to_bytes() == before


@pytest.mark.parametrize("header", [b"[]", b"{}", b"no", b'{"names": ["a"], "grains": [[1, 2]]}'])
def test_a_header_of_another_form_is_refused(header: bytes) -> None:
    body = len(header).to_bytes(4, "little") + header
    with pytest.raises(HistoryError, match="header is of another form|it has the grains"):
        HistoryRing(["a"]).take(b"TLH1" + zlib.crc32(body).to_bytes(4, "little") + body)


def test_every_series_is_of_a_metric_that_brokers_publish() -> None:
    published = {each.name: each for each in PUBLISHED}
    for series in SERIES:
        assert len(series.labels) == len(published[series.metric].labels), series.name
        assert (series.kind == "quantile") is bool(published[series.metric].bounds), series.name
    assert len({each.name for each in SERIES}) == len(SERIES)


def test_rates_quantiles_and_gauges_are_those_between_two_readings() -> None:
    metrics, times = Metrics(), iter((0, 5_000_000_000))
    made = counter("kafka_server_brokertopicmetrics_bytesin_total", "bytes", "topic")
    turn = histogram("tidelog_loop_turn_ms", "turns", bounds=(1_000, 2_000), scale=1_000)
    led = gauge("kafka_server_replicamanager_leadercount", "leaders")
    metrics.collect(lambda: iter([reading(led, 7)]))
    metrics.add(made, 1_000, "")
    metrics.observe(turn, 1_500)

    def looked() -> Any:
        return run(read_series(metrics, [made, turn, led], lambda: next(times)))

    first = looked()
    metrics.add(made, 500, "")
    metrics.add(made, 9_999, "flights")
    for _ in range(100):
        metrics.observe(turn, 500)
    found = dict(zip([each.name for each in SERIES], values_of(first, looked()), strict=True))
    assert found["bytes_in_per_s"] == 100.0
    assert found["leaders"] == 7.0
    assert found["loop_turn_p99_ms"] == pytest.approx(0.99)
    assert math.isnan(found["memory_bytes"])
    alone = dict(zip([each.name for each in SERIES], values_of(None, first), strict=True))
    assert math.isnan(alone["bytes_in_per_s"]) and alone["leaders"] == 7.0


def test_a_quantile_without_observations_is_none_and_one_beyond_all_bounds_is_the_last() -> None:
    assert math.isnan(quantile((1.0, 2.0), [0, 0, 0], 0.5))
    assert quantile((1.0, 2.0), [0, 0, 5], 0.5) == 2.0
    assert quantile((1.0, 2.0), [0, 4, 0], 0.5) == 1.5


def page(history: History, **query: str) -> dict[str, Any]:
    response = run(history.respond(HttpRequest("GET", "/history", query, {})))
    assert response.status is HTTPStatus.OK
    document: dict[str, Any] = json.loads(b"".join(response.parts))
    return document


def test_the_page_has_the_chosen_series_and_refuses_others() -> None:
    history = History(Metrics(), PUBLISHED, Identity(1), "", lambda: (NOW_S + 60) * 10**9)
    run(history.look())
    document = page(history, series="leaders,cpu_cores", since=str(NOW_S))
    assert document == {
        "cluster_id": "",
        "node_id": 1,
        "step_s": 10,
        "times": [NOW_S + 60],
        "series": {"leaders": [None], "cpu_cores": [None]},
    }
    for query in ({"series": "leader"}, {"since": "yesterday"}, {"until": "-1"}):
        with pytest.raises(BadRequest, match=r"expected"):
            page(history, **query)


def test_a_long_answer_lets_the_loop_turn_and_has_each_series_once() -> None:
    history = History(Metrics(), PUBLISHED, Identity(1), "", lambda: NOW_S * 10**9)
    turns = 0

    async def respond(series: str) -> bytes:
        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.get_running_loop().create_task(turn())
        request = HttpRequest("GET", "/history", {"since": "0", "series": series}, {})
        response = await history.respond(request)
        turning.cancel()
        return b"".join(response.parts)

    assert len(json.loads(run(respond("")))["series"]) == len(SERIES) <= turns
    assert run(respond("leaders," * 2_000 + "leaders")).count(b"leaders") == 1


def test_a_reading_that_fails_is_a_line_of_the_log_and_not_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing() -> Any:
        raise RuntimeError("dictionary changed size")

    metrics = Metrics()
    metrics.collect(failing)

    async def life() -> None:
        history = History(metrics, PUBLISHED, Identity(1), "", lambda: NOW_S * 10**9)
        history.start()
        while "has no values of now" not in caplog.text:
            await asyncio.sleep(0)
        assert history._task is not None and not history._task.done()
        await history.close()

    run(life())
    assert "dictionary changed size" in caplog.text


def test_the_next_process_takes_the_file_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.history"

    async def life(now_s: int) -> History:
        history = History(Metrics(), PUBLISHED, Identity(1), str(path), lambda: now_s * 10**9)
        history.start()
        await history.look()
        await history.close()
        return history

    run(life(NOW_S))
    assert list(tmp_path.iterdir()) == [path]
    again = run(life(NOW_S + 30))
    assert page(again, since=str(NOW_S), series="leaders")["times"] == [NOW_S, NOW_S + 30]


def test_a_file_that_cannot_be_read_or_written_is_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.history"
    path.write_text("no history")

    async def life(where: Path) -> None:
        history = History(Metrics(), PUBLISHED, Identity(1), str(where), lambda: NOW_S * 10**9)
        history.start()
        await history.look()
        await history.close()

    run(life(path))
    assert f"{path}: no history of metrics is taken over: begins with" in caplog.text
    run(life(tmp_path / "nowhere" / "metrics.history"))
    assert "the history of metrics is not written: [Errno 2]" in caplog.text
