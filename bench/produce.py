"""Produce at 1 KiB and at 100 bytes, beside the brokers of another checkout, in short turns.

For changes of the append path: `python -m bench produce --against CHECKOUT`. Both clusters run at
the same time and each short run is followed by one of the other, so that a busy machine slows both
alike. The CPU time of the brokers per MiB is the steadier figure; compare medians.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig import (
    CLIENT_BYTES,
    MIB,
    PRODUCER_OPTIONS,
    Driver,
    cpu_seconds,
    spread,
    table,
    warm_pages,
)
from bench.systems import TIDELOG, Running
from tidelog.runtime.blocking import BlockingClient

PARTITIONS = 6
#: Rounds after which new clusters are made: two of the same sources differ by up to 10 % as long as
#: they live, by where their memory and files happen to lie.
SITTING_ROUNDS = 4
RECORD_BYTES = (1024, 100)
#: Replicas and acks.
_KINDS = ((1, 1), (3, -1))
#: Not measured, before each run: a broker at rest has given its buffers back to the system, and one
#: cluster rests while the other has its turn.
_WARM_BYTES = 32 * MIB
#: Of the run of each size: librdkafka sends small records at half of the speed.
_SHARE = {1024: 1.0, 100: 0.5}


@dataclass
class Figure:
    """Speeds in MiB/s and CPU times of the brokers in microseconds per MiB, of several runs."""

    speeds: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)


def check_walks(against: str) -> tuple[bool | None, bool | None]:
    """Refuse a comparison in which one checkout only lacks its compiled walk over records.

    Returns for this checkout and the other whether the walk is compiled; None where there is none.
    """
    here, there = _has_compiled_walk(None), _has_compiled_walk(against)
    if False in (here, there) and True in (here, there):
        without = against if here else "this checkout"
        raise SystemExit(
            f"{without} has not compiled src/tidelog/records/_walk.c, the other checkout has: the"
            " figures would show that alone. `make check` there installs it, with a C compiler."
        )
    return here, there


def _has_compiled_walk(checkout: str | None) -> bool | None:
    """Whether brokers of the checkout walk with the extension; None when its sources have none."""
    code = (
        "import importlib.util, sys; find = importlib.util.find_spec;"
        " walk = find('tidelog.records.walk'), find('tidelog.records._walk');"
        " sys.stdout.write('none' if walk[0] is None else str(walk[1] is not None))"
    )
    path = {} if checkout is None else {"PYTHONPATH": str(Path(checkout) / "src")}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=True,
    )
    return None if result.stdout == "none" else result.stdout == "True"


@contextmanager
def _brokers_of(checkout: str | None, directory: Path) -> Iterator[Running]:
    """Three brokers that run the sources of a checkout, or these."""
    before = os.environ.get("PYTHONPATH")
    if checkout is not None:
        os.environ["PYTHONPATH"] = str(Path(checkout) / "src")
    running = TIDELOG.lay_out(directory, {})
    try:
        try:
            running.up()
        finally:
            if before is None:
                os.environ.pop("PYTHONPATH", None)
            else:
                os.environ["PYTHONPATH"] = before
        yield running
    finally:
        running.down()


def run(rounds: int, run_bytes: int, against: str | None) -> list[str]:
    """The table: a line for each kind of produce and each figure, a column for each checkout."""
    checkouts = [None, against] if against is not None else [None]
    if against is not None:
        check_walks(against)
    figures: dict[tuple[int, int, int], Figure] = {}
    with tempfile.TemporaryDirectory() as work:
        driver = Driver(work)
        for first in range(1, rounds + 1, SITTING_ROUNDS):
            with ExitStack() as stack:
                clusters = [
                    stack.enter_context(
                        _brokers_of(checkout, Path(stack.enter_context(_directory())))
                    )
                    for checkout in checkouts
                ]
                _round(driver, clusters, 0, run_bytes, {})
                for number in range(first, min(first + SITTING_ROUNDS, rounds + 1)):
                    _round(driver, clusters, number, run_bytes, figures)
    return [_table(figures, rounds, run_bytes, against)]


def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tidelog-bench-")


def _round(
    driver: Driver,
    clusters: list[Running],
    number: int,
    run_bytes: int,
    figures: dict[tuple[int, int, int], Figure],
) -> None:
    """Each kind of produce once on each cluster, the clusters in an order drawn for it."""
    draw = random.Random(number)
    for record_bytes in RECORD_BYTES:
        for replicas, acks in _KINDS:
            for which in draw.sample(range(len(clusters)), len(clusters)):
                figure = figures.setdefault((record_bytes, replicas, which), Figure())
                topic = f"t{number}-{record_bytes}-{replicas}"
                size = int(run_bytes * _SHARE[record_bytes])
                running = clusters[which]
                produce(driver, running, topic, replicas, acks, record_bytes, size, figure)


def produce(
    driver: Driver,
    running: Running,
    topic: str,
    replicas: int,
    acks: int,
    record_bytes: int,
    size: int,
    figure: Figure,
) -> None:
    """Produce once to a new topic, and add to the figure."""
    with BlockingClient(running.bootstrap) as client:
        if replicas == 1:
            client.create_topic(topic, assignment={number: [1] for number in range(PARTITIONS)})
        else:
            client.create_topic(topic, PARTITIONS, replicas, {"min.insync.replicas": "2"})
        client.await_topic(topic, replicas)
        warm_pages(driver.directory, size * replicas + CLIENT_BYTES)
        result = {}
        for run_bytes in (_WARM_BYTES, size):
            before = cpu_seconds(running.pids())
            words = (topic, PARTITIONS, record_bytes, run_bytes, acks)
            result = driver.run("produce", running.bootstrap, *words, options=PRODUCER_OPTIONS)
        mib = result["bytes"] / MIB
        figure.speeds.append(mib / result["seconds"])
        figure.costs.append((cpu_seconds(running.pids()) - before) * 1e6 / mib)
        client.delete_topic(topic)


def _table(
    figures: dict[tuple[int, int, int], Figure], rounds: int, run_bytes: int, against: str | None
) -> str:
    rows = []
    for record_bytes in RECORD_BYTES:
        for replicas, acks in _KINDS:
            both = [figures[record_bytes, replicas, which] for which in range(2 if against else 1)]
            what = f"produce {record_bytes} B, RF {replicas}, acks={acks}"
            for name, values in (
                (f"{what}, MiB/s", [each.speeds for each in both]),
                ("its brokers' CPU µs per MiB", [each.costs for each in both]),
            ):
                change = ""
                if against:
                    here, there = map(statistics.median, values)
                    change = f"{(here / there - 1) * 100:+.1f} %"
                rows.append((name, *map(spread, values), change))
    runs = (
        f"{rounds} runs of {run_bytes // MIB} MiB, half of that at 100 B, each after "
        f"{_WARM_BYTES // MIB} MiB that warm up, new brokers after {SITTING_ROUNDS}"
    )
    columns = ("", "this checkout", *(("the other",) if against else ()), "change of medians")
    return table(f"Produce ({runs}; {PARTITIONS} partitions, in drawn order)", rows, columns)
