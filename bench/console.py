"""What the console costs: its processor time with ten viewers, its memory, and its first paint.

The console is the process that `tidelog console` starts. Its viewers are connections that read live
pages as browsers do, from another process, so that only the console's own time is counted. One
cluster has three brokers, and producers that write to all partitions all the time. The other has
one broker with 3,000 topics and 10,000 partitions, of which a real Chromium paints the page.

The ring is the history of 24 hours that each broker with an admin port keeps in memory and in a
file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.rig import MIB, cpu_seconds, pss_bytes, spread, table
from tidelog.client.groups import FetchedOffset
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.admin.history_ring import HistoryRing
from tidelog.runtime.admin.history_series import SERIES
from tidelog.runtime.blocking import BlockingClient

TOPICS, PARTITIONS_PER_3_TOPICS = 3_000, 10
_LOADED = ("orders", "flights", "payments")
_LOADED_PARTITIONS = 6
_GROUPS = 10
_VIEWERS = (0, 1, 10)
#: Time in s over which processor time is counted, after the pages have been open for _SETTLE_S.
_WINDOW_S, _SETTLE_S = 10.0, 3.0
_LIMIT_S = 300.0
_DAY_S = 86_400
_PAGES = (
    "cluster",
    "topics",
    "topic?name=orders",
    "partition?topic=orders&partition=0",
    "groups",
    "group?name=readers-0",
    "moves",
    "disks",
    "events",
    "failovers",
)
#: Note when the first row of a table is on the page, in ms since the navigation began.
_WATCH = """
    new MutationObserver((_, watcher) => {
        if (!document.querySelector("tbody tr")) return;
        watcher.disconnect();
        requestAnimationFrame(() => { window.firstRows = performance.now(); });
    }).observe(document, {childList: true, subtree: true});
"""
_PAINTED = """
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    return window.firstRows && paint ? [paint.startTime, window.firstRows] : null;
"""


def run(rounds: int, topics: int = TOPICS) -> list[str]:
    """Return the tables; `topics` is the number of topics of the large cluster."""
    return [_under_load(rounds), _large(rounds, topics), _ring()]


@contextmanager
def _console(bootstrap: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a console; yield its process and its address."""
    words = [sys.executable, "-m", "tidelog", "console", "-b", bootstrap, "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    alarm = threading.Timer(_LIMIT_S, process.kill)
    alarm.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        alarm.cancel()
        if not line.startswith("console: "):
            raise SystemExit("bench: the console has not started; its reason is above")
        yield process, line.removeprefix("console: ").strip().rstrip("/")
    finally:
        alarm.cancel()
        process.terminate()
        process.communicate(timeout=_LIMIT_S)


class _Viewer:
    """A live page that is read until `close`."""

    def __init__(self, address: str, page: str) -> None:
        self.received_bytes = 0
        self._page = page
        self._ends = self._has_ended = False
        self._connection = HTTPConnection(urlsplit(address).netloc, timeout=_LIMIT_S)
        self._connection.request("GET", f"/api/live/{page}")
        self._response = self._connection.getresponse()
        if self._response.status != 200:
            raise SystemExit(f"bench: {page} answers {self._response.status}")
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._ends:
            try:
                data = self._response.read1(65_536)
            except (OSError, ValueError, HTTPException):
                data = b""
            if not data:
                self._has_ended = not self._ends
                return
            self.received_bytes += len(data)

    def check(self) -> None:
        """Raise when the console has ended the page."""
        if self._has_ended:
            raise SystemExit(f"bench: the live page {self._page} ended")

    def close(self) -> None:
        self._ends = True
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join(_LIMIT_S)
        self._connection.close()


@contextmanager
def _writing(bootstrap: str, partitions: Sequence[TopicPartition]) -> Iterator[None]:
    """Write ten records of 200 bytes to each partition in turn, some hundred times a second."""
    is_over = threading.Event()

    def write() -> None:
        with BlockingClient(bootstrap) as client:
            number = 0
            while not is_over.wait(0.005):
                now_ms = time.time_ns() // 1_000_000
                batch = build_batch([NewRecord(None, b"x" * 200, now_ms)] * 10)
                client.produce(partitions[number % len(partitions)], batch)
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(_LIMIT_S)


def _share(process: subprocess.Popen[str], address: str, pages: Sequence[str]) -> tuple[float, int]:
    """Return the console's use of one core with live pages open, and the bytes a second sent."""
    with ExitStack() as stack:
        viewers = [_Viewer(address, page) for page in pages]
        for viewer in viewers:
            stack.callback(viewer.close)
        time.sleep(_SETTLE_S)
        sent = sum(viewer.received_bytes for viewer in viewers)
        used_s, begun_s = cpu_seconds([process.pid]), time.perf_counter()
        time.sleep(_WINDOW_S)
        passed_s = time.perf_counter() - begun_s
        used_s = cpu_seconds([process.pid]) - used_s
        sent = sum(viewer.received_bytes for viewer in viewers) - sent
        for viewer in viewers:
            viewer.check()
    return 100 * used_s / passed_s, round(sent / passed_s)


def _shares(
    process: subprocess.Popen[str], address: str, pages: Sequence[str], rounds: int
) -> list[tuple[str, str]]:
    """Return rows of the console's processor time by the number of viewers, and of its memory."""
    found: dict[int, list[tuple[float, int]]] = {each: [] for each in _VIEWERS}
    memory: list[float] = []
    for _ in range(rounds):
        for viewers in _VIEWERS:
            chosen = [pages[number % len(pages)] for number in range(viewers)]
            found[viewers].append(_share(process, address, chosen))
        memory.append(pss_bytes([process.pid]) / MIB)
    rows = [
        (f"console with {viewers} viewers, % of a core", spread([cpu for cpu, _ in values], 1))
        for viewers, values in found.items()
    ]
    most = max(_VIEWERS)
    sent = [sent / 1024 for _, sent in found[most]]
    rows.append((f"sent to {most} viewers, KiB a second", spread(sent, 1)))
    rows.append(("memory of the console (PSS), MiB", spread(memory, 1)))
    return rows


def _under_load(rounds: int) -> str:
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        config = {"cluster.events.enable": "true"}
        cluster = LocalCluster(f"{work}/cluster", 3, config=config)
        try:
            cluster.up(_LIMIT_S)
            with BlockingClient(cluster.bootstrap) as client:
                for name in _LOADED:
                    client.create_topic(name, _LOADED_PARTITIONS, 3)
                    client.await_topic(name, 3)
                placed = [
                    TopicPartition(name, number)
                    for number in range(_LOADED_PARTITIONS)
                    for name in _LOADED
                ]
                for number in range(_GROUPS):
                    client.commit(f"readers-{number}", dict.fromkeys(placed, FetchedOffset(0)))
            with (
                _writing(cluster.bootstrap, placed),
                _console(cluster.bootstrap) as (process, address),
            ):
                rows = _shares(process, address, _PAGES, rounds)
        finally:
            cluster.down()
    title = (
        f"Console: three brokers with {len(placed)} partitions under load and {_GROUPS} groups"
        f" ({rounds} runs of {_WINDOW_S:.0f} s)"
    )
    return table(title, rows, ("of", "tidelog"))


def _large(rounds: int, topics: int) -> str:
    rows: list[tuple[str, str]] = []
    counts = [PARTITIONS_PER_3_TOPICS // 3 + (number % 3 == 0) for number in range(topics)]
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        cluster = LocalCluster(f"{work}/cluster", 1)
        try:
            cluster.up(_LIMIT_S)
            with BlockingClient(cluster.bootstrap, timeout_ms=int(_LIMIT_S * 1000)) as client:
                for number, count in enumerate(counts):
                    client.create_topic(f"topic-{number:04}", count, 1)
                client.await_topic(f"topic-{topics - 1:04}", 1)
            with _console(cluster.bootstrap) as (process, address):
                rows += _paints(Path(work), address, rounds)
                pages = ("topics", "cluster", "topic?name=topic-0000", "disks", "moves")
                rows += _shares(process, address, pages, rounds)
        finally:
            cluster.down()
    title = f"Console: {topics:,} topics and {sum(counts):,} partitions ({rounds} runs)"
    return table(title, rows, ("of", "tidelog"))


def _paints(work: Path, address: str, rounds: int) -> list[tuple[str, str]]:
    """Return rows of the page of topics in a Chromium; one row with the reason where there is none.

    The first load of each Chromium counts nothing: its own caches are empty then.
    """
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        return [("first paint", "not measured: no chromium and chromedriver on this machine")]
    paints, lists = [], []
    browser = _chromium(program, driver, work / "profile")
    try:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        for number in range(rounds + 1):
            browser.get(f"{address}/topics")
            until_s = time.monotonic() + _LIMIT_S
            while (found := browser.execute_script(_PAINTED)) is None:
                if time.monotonic() > until_s:
                    raise SystemExit("bench: the page of topics shows no row")
                time.sleep(0.05)
            if number:
                paints.append(float(found[0]))
                lists.append(float(found[1]))
    finally:
        browser.quit()
    return [
        ("first contentful paint of the page of topics, ms", spread(paints)),
        ("first rows of the page of topics, ms", spread(lists)),
    ]


def _chromium(program: str, driver: str, profile: Path) -> Any:
    from selenium import webdriver  # Loaded here alone: only this part needs it.
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.add_argument(f"--user-data-dir={profile}")
    return webdriver.Chrome(options=options, service=Service(driver))


def _ring() -> str:
    """Return the memory of a full ring, as tracemalloc counts it, and the size of its file."""
    tracemalloc.start()
    ring = HistoryRing([each.name for each in SERIES])
    values = [1.5] * len(SERIES)
    for time_s in range(1_800_000_000, 1_800_000_000 + _DAY_S, 10):
        ring.put(time_s, values)
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rows = [
        ("series", f"{len(SERIES)}"),
        ("memory of a broker's ring, MiB", f"{memory / MIB:.2f}"),
        ("size of its file, MiB", f"{len(ring.to_bytes()) / MIB:.2f}"),
    ]
    return table("Console: the history of 24 hours that a broker keeps", rows, ("of", "tidelog"))
