"""What metrics cost: producing beside scrapes, and a scrape of 10,000 partitions.

Two clusters run at the same time, one without admin ports and one whose brokers are scraped each
second. Short runs of produce are on the one and on the other, in a drawn order. For the cost of
counting itself, `python -m bench produce --against CHECKOUT` compares with an older checkout.

The second table has the CPU of a scrape of a broker with few partitions, measured without
producers: on a noisy machine the first table shows less than that.

The scrape of the third table is of one broker with 10,000 partitions. Meanwhile a client asks the
same broker for its versions, one request after the other: the longest response shows how long the
loop was busy.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from bench.produce import PARTITIONS, Figure, produce
from bench.rig import MIB, Driver, cpu_seconds, spread, table
from bench.systems import TIDELOG
from tidelog.local.cluster import LocalCluster
from tidelog.runtime.blocking import BlockingClient

_SCRAPED_PARTITIONS = 10_000
#: Topics, scrapes, and seconds without them, of the table of a usual broker.
_FEW_TOPICS = 5
_SCRAPES = 200
_WATCHED_S = 5.0
_PER_TOPIC = 1_000
_RECORD_BYTES = 1024
_SCRAPE_S = 1.0
_LIMIT_S = 120.0
#: Replicas and acks.
_KINDS = ((1, 1), (3, -1))


def run(rounds: int, run_bytes: int) -> list[str]:
    """Return all tables."""
    return [_produces(rounds, run_bytes), _usual_scrapes(rounds), _scrapes(rounds)]


def _fetch(address: str) -> bytes:
    connection = HTTPConnection(address, timeout=_LIMIT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    finally:
        connection.close()


@contextmanager
def _scraping(addresses: list[str]) -> Iterator[None]:
    """Scrape every address each second, on a thread."""
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.wait(_SCRAPE_S):
            for address in addresses:
                _fetch(address)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _produces(rounds: int, run_bytes: int) -> str:
    figures: dict[tuple[int, bool], Figure] = {}
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work, ExitStack() as stack:
        driver = Driver(work)
        clusters = {}
        for has_port in (False, True):
            directory = Path(work) / f"admin-{has_port}"
            running = TIDELOG.lay_out(directory, {} if has_port else {"admin.listener": ""})
            stack.callback(running.down)
            running.up()
            clusters[has_port] = running
        ports = LocalCluster(str(Path(work) / "admin-True" / "cluster")).places().values()
        addresses = [place.admin for place in ports if place.admin is not None]
        for number in range(rounds + 1):  # the first one warms up
            draw = random.Random(number)
            for replicas, acks in _KINDS:
                for has_port in draw.sample((False, True), 2):
                    figure = (
                        Figure()
                        if number == 0
                        else figures.setdefault((replicas, has_port), Figure())
                    )
                    topic = f"t{number}-{replicas}"
                    with _scraping(addresses if has_port else []):
                        produce(
                            driver, clusters[has_port], topic, replicas, acks, _RECORD_BYTES,
                            run_bytes, figure,
                        )  # fmt: skip
    rows = []
    for replicas, acks in _KINDS:
        pair = [figures[replicas, has_port] for has_port in (False, True)]
        for name, values in (
            (f"produce 1 KiB, RF {replicas}, acks={acks}, MiB/s", [each.speeds for each in pair]),
            ("its brokers' CPU µs per MiB", [each.costs for each in pair]),
        ):
            off, on = map(statistics.median, values)
            rows.append((name, *map(spread, values), f"{(on / off - 1) * 100:+.1f} %"))
    title = f"Metrics: produce beside a scrape of each broker every second ({rounds} runs of"
    title += f" {run_bytes // MIB} MiB; {PARTITIONS} partitions, in drawn order)"
    return table(title, rows, ("", "no admin port", "scraped", "change of medians"))


def _usual_scrapes(rounds: int) -> str:
    """Return what a scrape costs a broker with few partitions, without the noise of producers."""
    costs, sizes = [], []
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        cluster = LocalCluster(f"{work}/cluster", 3)
        try:
            cluster.up(_LIMIT_S)
            with BlockingClient(cluster.bootstrap) as client:
                for number in range(_FEW_TOPICS):
                    client.create_topic(f"scraped-{number}", PARTITIONS, 3)
                    client.await_topic(f"scraped-{number}", 3)
            process, address = cluster.process(1), cluster.place(1).admin
            assert process is not None and address is not None
            for _ in range(rounds):
                begun, before = time.perf_counter(), cpu_seconds([process.pid])
                time.sleep(_WATCHED_S)
                rest = (cpu_seconds([process.pid]) - before) / (time.perf_counter() - begun)
                begun, before = time.perf_counter(), cpu_seconds([process.pid])
                sizes += [len(_fetch(address)) for _ in range(_SCRAPES)]
                used = cpu_seconds([process.pid]) - before
                used -= rest * (time.perf_counter() - begun)
                costs.append(used * 1e3 / _SCRAPES)
        finally:
            cluster.down()
    rows = [
        ("size of the text, KiB", f"{statistics.median(sizes) / 1024:.0f}"),
        ("CPU of a scrape, ms", spread(costs, 2)),
        ("of one core, with a scrape every second", f"{statistics.median(costs) / 10:.2f} %"),
    ]
    title = f"Metrics: a scrape of a broker with {_FEW_TOPICS * PARTITIONS} partitions"
    title += f" ({rounds} runs of {_SCRAPES} scrapes)"
    return table(title, rows, ("of", "tidelog"))


def _scrapes(rounds: int) -> str:
    took, cpu, pauses, rest = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as work:
        cluster = LocalCluster(f"{work}/cluster", 1)
        try:
            cluster.up(_LIMIT_S)
            place = cluster.place(1)
            process = cluster.process(1)
            assert place.admin is not None and process is not None
            with BlockingClient(cluster.bootstrap, timeout_ms=int(_LIMIT_S * 1000)) as client:
                for number in range(_SCRAPED_PARTITIONS // _PER_TOPIC):
                    client.create_topic(f"scraped-{number}", _PER_TOPIC, 1)
                    client.await_topic(f"scraped-{number}", 1)
                text = _fetch(place.admin)
                assert text.count(b"kafka_log_log_size{") >= _SCRAPED_PARTITIONS
                for _ in range(rounds):
                    rest.append(_longest_ms(client, 1.0))
                    before = cpu_seconds([process.pid])
                    longest = threading.Thread(
                        target=lambda: pauses.append(_longest_ms(client, 1.0))
                    )
                    longest.start()
                    time.sleep(0.2)  # the client is at work when the scrape begins
                    begun = time.perf_counter()
                    text = _fetch(place.admin)
                    took.append(time.perf_counter() - begun)
                    longest.join()
                    cpu.append(cpu_seconds([process.pid]) - before)
        finally:
            cluster.down()
    rows = [
        ("size of the text, MiB", f"{len(text) / MIB:.1f}"),
        ("a scrape takes, s", spread(took, 2)),
        ("CPU of the broker in that second, with the client's requests, s", spread(cpu, 2)),
        ("longest response to a client in that second, ms", spread(pauses, 1)),
        ("longest response in a second without a scrape, ms", spread(rest, 1)),
    ]
    title = f"Metrics: a scrape of {_SCRAPED_PARTITIONS:,} partitions ({rounds} runs)"
    return table(title, rows, ("of", "tidelog"))


def _longest_ms(client: BlockingClient, seconds: float) -> float:
    """Ask for the metadata of no topic again and again; return the longest time in ms."""
    longest, until = 0.0, time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        client.metadata([])
        longest = max(longest, time.perf_counter() - begun)
    return longest * 1e3
