"""The admin port of real brokers: scrapes and probes, beside clients that mean no good."""

from __future__ import annotations

import json
import socket
from functools import partial
from http.client import HTTPConnection

from tests.cluster.conftest import MakeCluster, eventually, tidelog

from tidelog.local import LocalCluster
from tidelog.local.layout import BrokerPlace
from tidelog.runtime.blocking import BlockingClient


def fetched(place: BrokerPlace, path: str) -> tuple[int, str]:
    """Status and body of a page of a broker's admin port."""
    assert place.admin is not None
    connection = HTTPConnection(place.admin, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def is_ready(place: BrokerPlace) -> bool:
    return fetched(place, "/readyz") == (200, "ready\n")


def has_history(place: BrokerPlace) -> bool:
    status, text = fetched(place, "/history?series=memory_bytes,replicas")
    document = json.loads(text)
    memory, replicas = document["series"].values()
    known = [each for each in memory if each is not None]
    return status == 200 and bool(known) and min(known) > 1e6 and replicas[-1] is not None


def test_each_broker_has_metrics_and_probes(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    for place in cluster.places().values():
        assert fetched(place, "/healthz") == (200, "ok\n")
        eventually(partial(is_ready, place), "ready")
        status, text = fetched(place, "/metrics")
        assert status == 200 and "\ntidelog_controller_isr_expands_total 0\n" in text
        assert place.admin is not None and place.admin.startswith("127.0.0.1:")
        names = "process_cpu_seconds_total,tidelog_loop_turn_ms"
        status, text = fetched(place, f"/metrics?names={names}")
        heads = [line for line in text.splitlines() if line.startswith("# TYPE ")]
        assert (status, len(heads)) == (200, 2) and "tidelog_loop_turn_ms_count " in text
        status, text = fetched(place, "/metrics?names=no_such_metric")
        assert status == 400 and "'no_such_metric': no metric has this name" in text
        eventually(partial(has_history, place), "a first look at the metrics")
    _is_unready_while_behind(cluster)
    _lives_on(cluster)
    _needs_a_free_port(cluster)


def _is_unready_while_behind(cluster: LocalCluster) -> None:
    """A broker is ready once the replicas that it follows are in sync."""
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic("flights", 4, 2)
        client.await_topic("flights", 2)
    cluster.restart(2)
    place = cluster.place(2)
    eventually(lambda: is_ready(place), "ready again")
    with BlockingClient(cluster.bootstrap) as client:
        metadata = client.metadata(["flights"])
        assert all(2 in each.isr for _, each in metadata.all_partitions())


def _lives_on(cluster: LocalCluster) -> None:
    """Bytes that are no HTTP and connections that say nothing do not harm a broker."""
    place = cluster.place(1)
    assert place.admin is not None
    host, _, port = place.admin.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(40)]
    for each in silent[:20]:
        each.sendall(b"\x00\x00\x00\x10" * 10_000)
    with BlockingClient(cluster.bootstrap) as client:
        assert len(client.metadata().brokers) == 2
    for each in silent:
        each.close()
    eventually(lambda: fetched(place, "/healthz")[0] == 200, "a free connection")


def _needs_a_free_port(cluster: LocalCluster) -> None:
    """A broker whose admin port is taken does not start, and says why."""
    cluster.stop(1)
    place, other = cluster.place(1), cluster.place(2)
    done = tidelog(
        "broker", "--config", place.properties_path, "--override", f"admin.listener={other.admin}"
    )
    assert done.returncode == 1
    assert f"admin.listener: cannot listen on {other.admin}: " in done.stderr
