"""Charts that begin a day ago: from the rings of brokers, and from the log of a topic."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from tests.console.conftest import PATIENCE_S, PHONE, Browser
from tests.console.test_pages import violations

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.admin.history_ring import HistoryRing
from tidelog.runtime.admin.history_series import SERIES
from tidelog.runtime.blocking import BlockingClient

TOPIC = "flights"
HOUR_S = 3_600
#: Most points of a line: every five minutes of a day, every ten seconds of the last minutes.
MOST_POINTS = 24 * 12 + 15 * 6 + 4


def day_of(broker: int, now_s: int) -> bytes:
    """A ring with a day of waves; broker 2 was down for two hours."""
    ring = HistoryRing([each.name for each in SERIES])
    for at_s in range(now_s - 24 * HOUR_S, now_s, 60):
        if broker == 2 and 10 * HOUR_S < now_s - at_s < 12 * HOUR_S:
            continue
        wave = 1 + math.sin(at_s / HOUR_S)
        values = {"bytes_in_per_s": 1e6 * wave, "cpu_cores": wave / 4, "under_replicated": 0.0}
        ring.put(at_s, [values.get(each.name, wave) for each in SERIES])
    return ring.to_bytes()


@pytest.fixture(scope="module")
def aged(driver: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The console of two brokers that have run for a day, and of one without an admin port."""
    directory = tmp_path_factory.mktemp("history") / "cluster"
    cluster = LocalCluster(str(directory), 3)
    console = None
    try:
        cluster.up()
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topic(TOPIC, 1, 3)
            client.await_topic(TOPIC)
            now_ms = time.time_ns() // 1_000_000
            for hours in (20, 10, 1):
                at_ms = now_ms - hours * HOUR_S * 1000
                batch = build_batch([NewRecord(None, b"x", at_ms)] * 1_800)
                client.produce(TopicPartition(TOPIC, 0), batch)
        for broker in (1, 2, 3):
            cluster.stop(broker)
            place = cluster.place(broker)
            if broker == 3:
                properties = Path(place.properties_path)
                lines = properties.read_text().splitlines()
                kept = [each for each in lines if not each.startswith("admin.")]
                properties.write_text("\n".join(kept) + "\n")
            else:
                Path(f"{place.directory}/metrics.history").write_bytes(
                    day_of(broker, int(time.time()))
                )
            cluster.start(broker)
        words = [sys.executable, "-m", "tidelog", "console", "-b", cluster.bootstrap, "--port", "0"]
        console = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        alarm = threading.Timer(PATIENCE_S, console.kill)
        alarm.start()
        assert console.stdout is not None
        line = console.stdout.readline()
        alarm.cancel()
        browser = Browser(driver, line.removeprefix("console: ").strip().rstrip("/"))
        browser.complaints()
        yield browser
        assert browser.complaints() == []
    finally:
        driver.get("about:blank")
        if console is not None:
            console.terminate()
            console.communicate(timeout=PATIENCE_S)
        cluster.down(timeout_s=5.0)


def lines_of(browser: Browser, title: str) -> list[list[float]]:
    """The numbers of the lines of a chart, as x, y, x, y."""
    script = """
        const panel = document.querySelector(`section[aria-label="${arguments[0]}"]`);
        return JSON.stringify([...panel?.querySelectorAll("polyline") ?? []].map((line) =>
            line.getAttribute("points").split(/[ ,]/).map(Number)));
    """
    found: list[list[float]] = json.loads(browser.driver.execute_script(script, title))
    return found


def span_of(browser: Browser, title: str) -> str:
    script = """
        return document.querySelector(`section[aria-label="${arguments[0]}"] svg`)
            ?.getAttribute("aria-label") ?? "";
    """
    return str(browser.driver.execute_script(script, title))


def is_a_day(text: str) -> bool:
    return any(f"the last {each}" in text for each in ("23 h", "24 h", "1 d 0 h"))


def test_the_cluster_begins_with_a_day_of_all_brokers(aged: Browser) -> None:
    aged.open("/")
    aged.until(lambda: is_a_day(span_of(aged, "Traffic")), "a day of traffic")
    assert len(aged.texts('section[aria-label="Traffic"] .times span')) in range(3, 7)
    assert all(":" in each for each in aged.texts('section[aria-label="Traffic"] .times span'))
    for title in ("Traffic", "Records", "Under-replicated partitions", "Processors"):
        lines = lines_of(aged, title)
        assert lines and max(len(each) // 2 for each in lines) <= MOST_POINTS
    aged.until_text("The charts lack a broker: broker 3 has no admin port")
    aged.shoot("cluster-with-a-day")
    assert violations(aged) == []


def test_a_broker_has_a_page_with_the_gap_of_its_absence(aged: Browser) -> None:
    aged.open("/")
    aged.until(lambda: "2" in aged.texts("tbody tr a.row"), "the brokers")
    next(each for each in aged.all("tbody tr a.row") if each.text == "2").click()
    aged.until(lambda: aged.texts("h1") == ["Broker 2"], "the page of the broker")
    aged.until(lambda: is_a_day(span_of(aged, "Processors")), "a day of processors")
    ends = [(line[0], line[-2]) for line in lines_of(aged, "Processors")]
    width = ends[-1][1]
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(ends)]
    assert any(0.07 < gap / width < 0.1 for gap in gaps), "two of 24 hours are missing"
    aged.shoot("broker-with-a-gap")
    assert violations(aged) == []
    aged.open("/broker?id=2", PHONE, dark=True)
    aged.until(lambda: lines_of(aged, "Memory"), "charts on a phone")
    assert aged.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    aged.shoot("broker-phone-dark")
    assert violations(aged) == []


def test_a_broker_without_admin_port_has_a_sentence(aged: Browser) -> None:
    aged.open("/broker?id=3")
    aged.until_text("broker 3 has no admin port: admin.listener is not set")
    assert lines_of(aged, "Memory") == []
    aged.open("/broker?id=9")
    aged.until_text("There is no broker 9 in this cluster now.")


def test_a_topic_begins_with_the_day_that_is_in_its_log(aged: Browser) -> None:
    aged.open(f"/topic?name={TOPIC}")
    aged.until(
        lambda: "the last 20 h" in span_of(aged, "Records in over time"), "since the first record"
    )

    def bursts() -> bool:
        (line,) = lines_of(aged, "Records in over time")
        ys = line[1::2]
        peaks = [y for y in ys if y < (min(ys) + max(ys)) / 2]
        return len(peaks) == 3

    aged.until(bursts, "three half hours with records")
    aged.shoot("topic-with-a-day")


def test_charts_span_the_time_that_the_viewer_chooses(aged: Browser) -> None:
    aged.open("/")
    aged.until(lambda: is_a_day(span_of(aged, "Traffic")), "a day of traffic")
    buttons = aged.all('[aria-label="Time span of the charts"] button')
    next(each for each in buttons if each.text == "1 h").click()
    # Points are five minutes apart where the hour begins.
    hour = re.compile("the last (5[5-9] min|1 h 0 min)")
    aged.until(lambda: hour.search(span_of(aged, "Traffic")), "an hour")
    assert "span=1h" in aged.driver.current_url
    aged.shoot("cluster-with-an-hour")
    assert violations(aged) == []
