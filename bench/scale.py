"""Ten thousand partitions on three brokers: made, one broker killed, started again, at rest.

Brokers are processes, on the embedded store or on a ZooKeeper server of their own; all figures are
seen from outside, by a client's Metadata and by `/proc`, but for the phases of a failover, which
are from the controller's log (V80). On the embedded store a kill is timed from the signal itself:
detection is in it. ZooKeeper has to wait for the session's end, so there it is timed from the
moment when the broker's node is gone, as a watch of the bench's own sees it.

The clusters' directories stay until the last one is measured. For five minutes after files were
deleted, ext4 without a journal looks past their inodes, one by one, at each file that it makes:
10,000 partitions after 10,000 deleted ones took five times as long as without a deletion before.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from bench.rig import MIB, cpu_seconds, pss_bytes, spread, table, warm_pages
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.metadata import layout
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

STORES = ("embedded", "zookeeper")
SIZES = (1_000, 10_000)
_BROKERS = (1, 2, 3)
_PER_TOPIC = 1_000
_POLL_S = 0.005
_IDLE_S = 10.0
_LIMIT_S = 120.0
_REQUEST_TIMEOUT_MS = 60_000
_FILLED = "filled"
_FILLED_PARTITIONS = 6
#: On each broker, right before it is killed a second time.
_UNFLUSHED_BYTES = 1024 * MIB
_FAILOVER = re.compile(r"failover from brokers \[(\d+)\] \(\w+\): \d+ partitions, ([^;]*);")
_PHASE = re.compile(r"(\w+) (\d+) ms")
#: Of the phases, what the controller does once it has decided.
_WRITTEN_AND_COMMANDED = ("write", "command")

#: What is measured, in the order of the table: key, words, digits, the aim for 1,000 and for 10,000
#: partitions by store ("" for none), and Kafka's figures of another day for both.
_ROWS = (
    ("made", "made, logs on disk, s", 2, ("", ""), ("<= 10", "<= 10"), ("10.3 cold", "40 to 60")),
    ("in_sync", "to the full ISR seen by a client, s", 2, ("", ""), ("", ""), ("", "")),
    ("led_from_kill", "SIGKILL of a broker to a leader for each, seen by a client, s", 2,
     ("<= 0.3", ""), ("<= 1.5", ""), ("", "")),
    ("led_from_notice", "the end of its registration to a leader for each, s", 2,
     ("", ""), ("", "<= 1.5"), ("0.8", "4.3")),
    ("phases", "of it store write and commands, by the controller's log, s", 3,
     ("", ""), ("<= 0.3", "<= 0.3"), ("", "")),
    ("killed_registered", "its start after that to registered, s", 2, ("", ""), ("", ""),
     ("", "15.5")),
    ("killed_in_sync", "to the full ISR, s", 2, ("", ""), ("", ""), ("", "21.2")),
    ("stopped", "SIGTERM to its end, s", 2, ("", ""), ("", ""), ("", "")),
    ("clean_registered", "its start after that to registered, s", 2, ("", ""), ("<= 5", "<= 5"),
     ("", "11.8")),
    ("clean_in_sync", "to the full ISR, s", 2, ("", ""), ("<= 8", "<= 8"), ("", "17.7")),
    ("unflushed_in_sync", "SIGKILL with 1 GiB unflushed: its start to the full ISR, s", 2,
     ("", ""), ("<= 15", "<= 15"), ("", "")),
    ("bare_mib", "PSS of a broker before, MiB", 1, ("", ""), ("", ""), ("", "")),
    ("added_mib", "more with them, MiB", 1, ("", ""), ("<= 60", "<= 60"), ("", "")),
    ("full_mib", "PSS of a broker with them, MiB", 1, ("", ""), ("", ""), ("", "670 to 775")),
    ("idle_percent", "CPU of a broker at rest, % of a core", 2, ("", ""), ("", ""), ("", "")),
)  # fmt: skip


def run(rounds: int, stores: Sequence[str] = STORES) -> list[str]:
    """A table per store; each round is a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        return [_table(store, rounds, directory) for store in stores]


def _table(store: str, rounds: int, directory: str) -> str:
    measured: dict[int, dict[str, list[float]]] = {size: {} for size in SIZES}
    # The stores' sizes take turns, so that what else the machine does falls on both.
    for _ in range(rounds):
        for partitions in SIZES:
            for key, value in _measure(store, partitions, directory).items():
                measured[partitions].setdefault(key, []).append(value)
    rows: list[tuple[str, ...]] = []
    for place, partitions in enumerate(SIZES):
        rows.append((f"**{partitions:,} partitions**", "", "", ""))
        for key, words, digits, *aims, kafka in _ROWS:
            if key in measured[partitions]:
                values = spread(measured[partitions][key], digits)
                aim = aims[place][STORES.index(store)]
                rows.append((words, values, aim, kafka[place]))
    title = f"Many partitions, RF {len(_BROKERS)}, three brokers, {store} store ({rounds} runs)"
    return table(title, rows, ("", "tidelog", "aim", "Kafka 3.9.2 (another day)"))


def _measure(store: str, partitions: int, directory: str) -> dict[str, float]:
    own = Path(tempfile.mkdtemp(prefix=f"{store}-", dir=directory))
    cluster = LocalCluster(str(own / "cluster"), len(_BROKERS), store=store)
    cluster.up()
    try:
        return _lifetime(cluster, partitions)
    finally:
        cluster.down(timeout_s=_LIMIT_S)
        for log in own.glob(f"**/{_FILLED}-*/*.log"):
            os.truncate(log, 0)


def _lifetime(cluster: LocalCluster, partitions: int) -> dict[str, float]:
    names = [f"many-{number}" for number in range(partitions // _PER_TOPIC)]
    figures, controller = _make(cluster, names)
    victim = next(one for one in _BROKERS if one != controller)
    places = cluster.places()
    survivors = ",".join(places[one].address for one in _BROKERS if one != victim)
    with BlockingClient(survivors, timeout_ms=_REQUEST_TIMEOUT_MS) as client:
        client.metadata([])
        with _registration(cluster, victim) as notice:
            begin = time.monotonic()
            cluster.kill(victim)
            _await_topics(client, names, lambda leader, isr: leader not in (-1, victim))
            led = time.monotonic()
            if notice is None:
                figures["led_from_kill"] = led - begin
            else:
                figures["led_from_notice"] = led - notice()
        figures["phases"] = _written_and_commanded(Path(places[controller].log_path), victim)
        registered, in_sync = _back(cluster, client, victim, names)
        figures |= {"killed_registered": registered, "killed_in_sync": in_sync}
        begin = time.monotonic()
        process = cluster.process(victim)
        assert process is not None
        process.send(signal.SIGTERM)
        assert process.await_end(_LIMIT_S)
        figures["stopped"] = time.monotonic() - begin
        registered, in_sync = _back(cluster, client, victim, names)
        figures |= {"clean_registered": registered, "clean_in_sync": in_sync}
        if partitions == SIZES[-1]:
            _fill(cluster, client)
            cluster.kill(victim)
            # A start earlier than this would wait for the session's end, too.
            _await_topics(client, names, lambda leader, isr: leader not in (-1, victim))
            _, figures["unflushed_in_sync"] = _back(cluster, client, victim, [*names, _FILLED])
    return figures


def _make(cluster: LocalCluster, names: list[str]) -> tuple[dict[str, float], int]:
    """Make the topics and let them rest; also returns the controller."""
    figures = {"bare_mib": _pss_mib(cluster)}
    with BlockingClient(cluster.bootstrap, timeout_ms=_REQUEST_TIMEOUT_MS) as client:
        begin = time.monotonic()
        for name in names:
            client.create_topic(name, _PER_TOPIC, len(_BROKERS))
        figures["made"] = time.monotonic() - begin
        _await_topics(client, names, _in_sync)
        figures["in_sync"] = time.monotonic() - begin
        figures["full_mib"] = _pss_mib(cluster)
        figures["added_mib"] = figures["full_mib"] - figures["bare_mib"]
        before = cpu_seconds(_pids(cluster))
        time.sleep(_IDLE_S)
        used = cpu_seconds(_pids(cluster)) - before
        figures["idle_percent"] = used / _IDLE_S / len(_BROKERS) * 100
        return figures, client.metadata([]).controller_id


@contextmanager
def _registration(cluster: LocalCluster, broker_id: int) -> Iterator[Callable[[], float] | None]:
    """Tells when the broker's node went; None on the embedded store, where a death is seen."""
    server = cluster.zookeeper
    if server is None:
        yield None
        return
    gone_at: list[float] = []
    is_gone = threading.Event()

    def changed(_: object) -> None:
        gone_at.append(time.monotonic())
        is_gone.set()

    def notice() -> float:
        if not is_gone.wait(_LIMIT_S):
            raise SystemExit(f"bench: broker {broker_id} is registered {_LIMIT_S:.0f} s on")
        return gone_at[0]

    client = KazooClient(server.address)
    client.start()
    try:
        assert client.exists(layout.broker_path(broker_id), watch=changed) is not None
        yield notice
    finally:
        client.stop()
        client.close()


def _written_and_commanded(log: Path, broker_id: int) -> float:
    """Seconds of the failover from a broker that its controller told."""
    limit = time.monotonic() + _LIMIT_S
    while time.monotonic() < limit:
        for gone, phases in _FAILOVER.findall(log.read_text(encoding="utf-8")):
            if int(gone) == broker_id:
                took_ms = {name: int(ms) for name, ms in _PHASE.findall(phases)}
                return sum(took_ms[name] for name in _WRITTEN_AND_COMMANDED) / 1e3
        time.sleep(_POLL_S)
    raise SystemExit(f"bench: no failover from broker {broker_id} is told in {log}")


def _back(
    cluster: LocalCluster, client: BlockingClient, victim: int, names: list[str]
) -> tuple[float, float]:
    """Seconds from a broker's start until survivors know it, and until all its replicas are in."""
    begin = time.monotonic()
    cluster.start(victim, _LIMIT_S)
    while victim not in client.metadata([]).brokers:
        time.sleep(_POLL_S)
    registered = time.monotonic() - begin
    _await_topics(client, names, _in_sync)
    return registered, time.monotonic() - begin


def _fill(cluster: LocalCluster, client: BlockingClient) -> None:
    """A GiB in every broker's log, none of it flushed."""
    warm_pages(cluster.directory, _UNFLUSHED_BYTES * len(_BROKERS))
    client.create_topic(_FILLED, _FILLED_PARTITIONS, len(_BROKERS))
    _await_topics(client, [_FILLED], _in_sync)
    records = [NewRecord(b"", bytes(1000), timestamp_ms=0) for _ in range(900)]
    batch = bytes(build_batch(records))
    for number in range(_UNFLUSHED_BYTES // len(batch)):
        client.produce(TopicPartition(_FILLED, number % _FILLED_PARTITIONS), batch)


def _in_sync(leader: int, isr: int) -> bool:
    return leader >= 0 and isr == len(_BROKERS)


def _await_topics(
    client: BlockingClient, names: list[str], is_right: Callable[[int, int], bool]
) -> None:
    """Wait until each partition of each topic is as it should be, by leader and size of the ISR."""
    limit = time.monotonic() + _LIMIT_S
    for name in names:
        while not _is_right(client, name, is_right):
            if time.monotonic() > limit:
                raise SystemExit(f"bench: topic {name} is not as it should be in {_LIMIT_S:.0f} s")
            time.sleep(_POLL_S)


def _is_right(client: BlockingClient, name: str, is_right: Callable[[int, int], bool]) -> bool:
    try:
        topic = client.metadata([name]).topics[name]
    except TidelogError:
        return False
    partitions = topic.partitions.values()
    wanted = _FILLED_PARTITIONS if name == _FILLED else _PER_TOPIC
    return len(partitions) == wanted and all(
        is_right(partition.leader, len(partition.isr)) for partition in partitions
    )


def _pids(cluster: LocalCluster) -> list[int]:
    processes = [cluster.process(number) for number in _BROKERS]
    return [process.pid for process in processes if process is not None]


def _pss_mib(cluster: LocalCluster) -> float:
    return pss_bytes(_pids(cluster)) / len(_BROKERS) / MIB
