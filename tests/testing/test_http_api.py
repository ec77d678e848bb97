"""Faults by HTTP, as programs in other languages use them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.clients.librdkafka import produce
from tests.support.cluster.values import read_values

import tidelog
from tidelog.core.types import TopicPartition
from tidelog.local.processes import ProcessIdentity
from tidelog.testing import Cluster, FaultServer

PATIENCE_S = 60.0


def call(
    url: str, method: str = "GET", body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """The status and the JSON of a response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            text = response.read()
            return response.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def url(tidelog_cluster_module: Cluster) -> Iterator[str]:
    with FaultServer(tidelog_cluster_module) as server:
        yield server.url


@pytest.fixture
def cluster(tidelog_cluster_module: Cluster) -> Cluster:
    return tidelog_cluster_module


def test_a_producer_outlives_what_another_program_does(url: str, cluster: Cluster) -> None:
    status, made = call(f"{url}/topics", "POST", {"name": "orders", "unique": True})
    topic = made["name"]
    assert (status, topic.startswith("orders-")) == (201, True)
    status, found = call(f"{url}/topics/{topic}/partitions/0/leader")
    assert (status, found["address"]) == (200, cluster.address(found["leader"]))
    toxic = {
        "name": "lost",
        "type": "reset_peer",
        "attributes": {"apis": ["Produce"], "topic": topic, "nth": 1},
    }
    status, shown = call(f"{url}/proxies/cluster/toxics", "POST", toxic)
    assert (status, shown["stream"], shown["count"]) == (200, "downstream", 0)
    assert produce(cluster.bootstrap, topic, ["paid"], enable_idempotence=True) == []
    status, shown = call(f"{url}/proxies/cluster/toxics/lost?struck=1&timeout=5")
    assert (status, shown["count"], shown["matched"]) == (200, 1, 2)
    assert ": Produce " in shown["requests"][0]
    assert call(f"{url}/proxies/cluster/toxics/lost", "DELETE") == (204, None)
    assert call(f"{url}/proxies/cluster/toxics") == (200, [])
    assert read_values(cluster.bootstrap, TopicPartition(topic, 0)) == [b"paid"]
    assert call(f"{url}/topics/{topic}", "DELETE") == (204, None)


def test_brokers_go_and_come_back(url: str, cluster: Cluster) -> None:
    status, proxy = call(f"{url}/proxies/broker-2", "PATCH", {"enabled": False})
    assert (status, proxy["enabled"], proxy["listen"]) == (200, False, cluster.address(2))
    status, seen = call(f"{url}/cluster?running=2&leaderless=0")
    assert (status, [each["state"] for each in seen["brokers"]][1]) == (200, "stopped")
    assert call(f"{url}/brokers/2/start", "POST") == (204, None)
    assert call(f"{url}/brokers/1/pause", "POST") == (204, None)
    status, error = call(f"{url}/cluster?running=3&timeout=0")
    assert (status, error["status"]) == (504, 504)
    assert "after 0 s not running=3; last seen:\nbrokers: 1 paused" in error["error"]
    assert call(f"{url}/proxies/broker-3/toxics", "POST", {"type": "timeout"})[0] == 200
    assert call(f"{url}/reset", "POST") == (204, None)
    status, proxies = call(f"{url}/proxies")
    assert [each["enabled"] for each in proxies.values()] == [True] * 4
    assert [each["toxics"] for each in proxies.values()] == [[]] * 4
    assert cluster.faults == ()


def test_log_directories_break_and_heal(url: str, cluster: Cluster) -> None:
    status, found = call(f"{url}/brokers/1/log-dirs/0/slow", "POST", {"seconds": 0.01})
    assert (status, list(cluster.local.log_dir_faults(1))) == (200, [found["path"]])
    assert call(f"{url}/brokers/1/log-dirs/0/heal", "POST") == (200, found)
    assert cluster.local.log_dir_faults(1) == {}


def test_faults_that_a_reset_of_the_test_ended_are_gone(url: str, cluster: Cluster) -> None:
    for _ in range(2):
        assert call(f"{url}/proxies/broker-1/toxics", "POST", {"type": "watch"})[0] == 200
        cluster.reset()
    assert call(f"{url}/version") == (200, {"version": tidelog.__version__})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "/nothing", None, 404, "there is no /nothing"),
        ("DELETE", "/cluster", None, 405, "DELETE /cluster: GET expected"),
        ("GET", "/cluster?runing=3", None, 400, "runing: one of under_replicated, leaderless,"),
        ("GET", "/cluster?running=x", None, 400, "running 'x': an integer expected"),
        ("GET", "/cluster?running=4", None, 400, "can never hold: this cluster has 3 brokers"),
        ("POST", "/topics", {"partitions": 1}, 400, "the name of the topic is missing"),
        ("POST", "/topics", {"nam": "t"}, 400, "nam: one of name, partitions"),
        ("DELETE", "/topics/none", None, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("POST", "/brokers/4/kill", None, 400, "no broker 4: this cluster has 1, 2, 3"),
        ("POST", "/brokers/1/explode", None, 404, "explode: one of kill, stop, start"),
        ("POST", "/brokers/1/log-dirs/0/fail", {"error": "E"}, 400, "one of EIO"),
        ("POST", "/brokers/1/log-dirs/7/fill", None, 400, "no log directory 7"),
        ("GET", "/proxies/broker-9", None, 404, "proxy not found: broker-9; there are cluster, b"),
        ("PATCH", "/proxies/broker-1", {"enabled": 1}, 400, "enabled 1: true or false expected"),
        ("GET", "/proxies/cluster/toxics/x", None, 404, "toxic not found: x of cluster"),
        ("POST", "/proxies/cluster/toxics", {"type": "slicer"}, 400, "put Toxiproxy before the"),
        ("POST", "/proxies/cluster/toxics", {"typ": "watch"}, 400, "did you mean type?"),
        ("POST", "/proxies/cluster/toxics", {"type": "watch", "toxicity": 0.5}, 400, "1 expected"),
        ("POST", "/proxies/cluster/toxics", {"type": "watch", "stream": "up"}, 400, "upstream or"),
        (
            "POST",
            "/proxies/cluster/toxics",
            {"type": "latency", "attributes": {"latency": 5, "jitter": 3}},
            400,
            "jitter 3: 0 expected",
        ),
        (
            "POST",
            "/proxies/cluster/toxics",
            {"type": "answer", "attributes": {"apis": ["Produse"], "error": 3}},
            400,
            "no request 'Produse': Produce",
        ),
        (
            "POST",
            "/proxies/cluster/toxics",
            {"type": "answer", "attributes": {"apis": ["Fetch"], "fields": {"nope": 3}}},
            400,
            "answer() to Fetch: nope: no field",
        ),
    ],
)
def test_nonsense_is_named(
    url: str, cluster: Cluster, method: str, path: str, body: object, status: int, reason: str
) -> None:
    found, error = call(url + path, method, body)
    assert (found, error["status"]) == (status, status)
    assert reason in error["error"]
    assert (cluster.faults, cluster.unfinished_fault()) == ((), None)


def test_names_of_toxics_are_unique(url: str) -> None:
    path = f"{url}/proxies/cluster/toxics"
    assert call(path, "POST", {"type": "watch"})[1]["name"] == "watch_downstream"
    assert call(path, "POST", {"type": "watch"})[0] == 409
    assert call(path, "POST", {"type": "watch", "name": "watch_downstream"})[0] == 409
    assert call(path, "POST", {"type": "watch", "name": "other"})[0] == 200


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Origin": "https://page.example"}, "browsers may not use this API"),
        ({"Host": "page.example"}, "Host page.example: 127.0.0.1 expected"),
    ],
)
def test_pages_of_the_web_do_not_reach_it(url: str, headers: dict[str, str], reason: str) -> None:
    status, error = call(f"{url}/cluster", headers=headers)
    assert (status, error["error"]) == (403, reason)


def test_what_is_no_json_is_refused(url: str) -> None:
    request = urllib.request.Request(f"{url}/topics", b"{", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE_S)
    assert "the request has no JSON" in refused.value.read().decode()


def test_a_program_in_another_language_has_a_cluster_until_it_ends() -> None:
    words = [sys.executable, "-m", "tidelog.testing", "-n", "1", "--config", "num.partitions=3"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        shown = json.loads(process.stdout.readline())
        assert shown["bootstrap_servers"] == [shown["bootstrap"]]
        _, seen = call(f"{shown['url']}/cluster")
        broker = ProcessIdentity.of(seen["brokers"][0]["pid"])
        assert broker is not None and broker.is_alive
        process.stdin.close()  # as by the end of the program, however it ends
        assert process.wait(PATIENCE_S) == 0
    assert not broker.is_alive


def test_a_cluster_that_cannot_be_is_an_error_in_one_line() -> None:
    words = [sys.executable, "-m", "tidelog.testing", "--config", "num.partitons=3"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "did you mean num.partitions?" in ended.stderr
