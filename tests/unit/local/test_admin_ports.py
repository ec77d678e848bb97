"""Reads of admin ports from brokers, and from programs that are something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tidelog.client.cluster import BrokerNode, ClusterMetadata
from tidelog.client.configs import ConfigResource, ConfigValue
from tidelog.core.errors import RequestTimeout
from tidelog.local import admin_ports
from tidelog.local.admin_ports import (
    INFO,
    AdminPlaces,
    AdminPortError,
    ExpectedBroker,
    find_admin_ports,
    parse_metrics,
    read_admin_port,
    read_history,
    read_metrics,
    read_readiness,
)

Serve = Callable[[bytes], str]
HISTORY = b'{"step_s": 10, "times": [100, 110], "series": {"cpu_cores": [0.5, null]}}'


def response(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve one connection with bytes, whatever it asks; return the address."""
    threads: list[threading.Thread] = []

    def begin(data: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))

        def run() -> None:
            with listener, listener.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(data)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield begin
    for each in threads:
        each.join(10)


def test_metrics_have_their_labels_and_values() -> None:
    text = rb"""# HELP sent_total records
# TYPE sent_total counter
sent_total{topic="a\"b\\c\nd,e=}",partition="0"} 3
sent_total{topic="",partition="1"} 2.5e3
idle 0.25
other{x="1"} NaN
"""
    found = parse_metrics(text, "here", ["sent_total", "idle", "absent"])
    assert found.by_name == {
        "sent_total": [
            ({"topic": 'a"b\\c\nd,e=}', "partition": "0"}, 3.0),
            ({"topic": "", "partition": "1"}, 2500.0),
        ],
        "idle": [({}, 0.25)],
    }
    assert found.value("sent_total", partition="1") == 2500
    assert found.value("sent_total", partition="2") is found.value("absent") is None


@pytest.mark.parametrize("sign", list("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))
def test_the_name_of_a_group_may_contain_any_separator_of_lines(sign: str) -> None:
    found = parse_metrics(f'lag{{group="a{sign}b"}} 3\nidle 1\n'.encode(), "here", ["lag", "idle"])
    assert found.by_name == {"lag": [({"group": f"a{sign}b"}, 3.0)], "idle": [({}, 1.0)]}


def test_values_that_are_no_counts_are_left_out() -> None:
    text = b"a NaN\na +Inf\na -Inf\na 1e308\na 1e999\na 7\n"
    assert parse_metrics(text, "here", ["a"]).by_name == {"a": [({}, 7.0)]}


@pytest.mark.parametrize(
    "line",
    ["<html>", "metric", 'm{a="1" 3', "m{} three", "\x00\x01", "a{%s} 1" % ("b" * 200_000),
     'a{b="1"c} 1'],
)  # fmt: skip
def test_a_line_that_is_no_metric_is_named(line: str) -> None:
    with pytest.raises(AdminPortError, match="here: line 2 of /metrics is no sample"):
        parse_metrics(f"a 1\n{line}\n".encode(), "here", ["a"])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is no admin port: it responds with b''"),
        (b"\x00\x00\x00\x10" * 100, "is no admin port"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is no admin port"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "sent 3 of 9 bytes of /metrics"),
        (response(b"nothing is here", "404 Not Found"), "refused /metrics: nothing is here"),
        (response(b"<html>\x1b[31m</html>"), "line 1 of /metrics is no sample"),
    ],
)
def test_a_program_that_is_no_broker_gets_a_sentence(
    serve: Serve, data: bytes, reason: str
) -> None:
    with pytest.raises(AdminPortError) as raised:
        read_metrics(serve(data), ["a"], 10.0)
    assert reason in str(raised.value) and str(raised.value).isprintable()


EXPECTED = ExpectedBroker("ours", 1)


def info(cluster_id: str, node_id: int) -> bytes:
    labels = f'{{cluster_id="{cluster_id}",node_id="{node_id}",version="0.9.0"}}'
    return f"tidelog_broker_info{labels} 1\na 7\n".encode()


def history_of(cluster_id: str, node_id: int) -> bytes:
    return HISTORY.replace(b"{", b'{"cluster_id": "%s", "node_id": %d, ' % (
        cluster_id.encode(), node_id), 1)  # fmt: skip


@pytest.mark.parametrize(
    ("cluster_id", "node_id"), [("theirs", 1), ("ours", 2), ("theirs\x1b[2J", 2)]
)
def test_the_port_of_another_clusters_broker_is_refused(
    serve: Serve, cluster_id: str, node_id: int
) -> None:
    answers: list[Callable[[], object]] = [
        lambda: read_metrics(
            serve(response(info(cluster_id, node_id))), [INFO, "a"], 10.0, EXPECTED
        ),
        lambda: read_history(
            serve(response(history_of("theirs", node_id))), ["cpu_cores"], 90, 120, 10.0, EXPECTED
        ),
    ]
    for read in answers:
        with pytest.raises(AdminPortError) as raised:
            read()
        assert f"is the admin port of broker {node_id} of cluster" in str(raised.value)
        assert "but broker 1 of cluster ours was expected there" in str(raised.value)
        assert str(raised.value).isprintable()


def test_the_expected_broker_is_read_and_so_is_one_that_has_no_session_yet(serve: Serve) -> None:
    for cluster_id in ("ours", ""):
        found = read_metrics(serve(response(info(cluster_id, 1))), [INFO, "a"], 10.0, EXPECTED)
        assert found.value("a") == 7
    found_history = read_history(
        serve(response(history_of("ours", 1))), ["cpu_cores"], 90, 120, 10.0, EXPECTED
    )
    assert found_history.times_s == (100, 110)


def test_metrics_that_an_older_broker_does_not_know_are_left_out() -> None:
    known = {"idle", "old"}
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection:
                    head = connection.recv(65_536).decode()
                    asked.append(head.split()[1])
                    names = asked[-1].partition("=")[2].split(",")
                    unknown = sorted(set(names) - known)
                    if unknown:
                        text = f"names='{unknown[0]}': no metric has this name; see the list\n"
                        connection.sendall(response(text.encode(), "400 Bad Request"))
                    else:
                        connection.sendall(response(b"idle 1\nold 2\n"))

        thread = threading.Thread(target=run)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        try:
            found = read_metrics(address, ["idle", "new", INFO, "old"], 10.0, EXPECTED)
            with pytest.raises(AdminPortError, match="refused /metrics: names='new'"):
                read_metrics(address, ["new"], 10.0)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
    assert found.unknown == {"new", INFO} and found.value("old") == 2
    assert asked[2] == "/metrics?names=idle,old"


def test_an_address_where_nothing_listens_gets_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(AdminPortError, match=f"{address} does not respond: .*refused"):
        read_readiness(address, 10.0)


def test_a_port_that_never_ends_its_response_costs_the_time_limit_once() -> None:
    """The port sends a byte whenever the client has taken the last one."""
    ends = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            with listener.accept()[0] as connection:
                while not ends.wait(0.01):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(AdminPortError, match=r"no response within 0\.2 s"):
                read_admin_port(f"127.0.0.1:{listener.getsockname()[1]}", "/metrics", 0.2)
        finally:
            ends.set()
            thread.join(10)


def test_a_response_without_end_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_ports, "MAX_RESPONSE_BYTES", 1_000)
    with pytest.raises(AdminPortError, match="sent more than 1000 bytes"):
        read_metrics(serve(response(b"a 1\n" * 1_000)), ["a"], 10.0)


def test_a_history_has_a_value_or_none_at_each_time(serve: Serve) -> None:
    found = read_history(serve(response(HISTORY)), ["cpu_cores"], 90, 120, 10.0)
    assert (found.step_s, found.times_s) == (10, (100, 110))
    assert found.series == {"cpu_cores": (0.5, None)}


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"{}",
        b"[1, 2]",
        HISTORY.replace(b"null", b'"many"'),
        HISTORY.replace(b"null", b"NaN"),
        HISTORY.replace(b"null", b"true"),
        HISTORY.replace(b", null", b""),
        HISTORY.replace(b"110", b"90"),
        HISTORY.replace(b"cpu_cores", b"other"),
        HISTORY.replace(b"[100, 110]", b"7"),
        HISTORY.replace(b"100", b"110"),
        HISTORY.replace(b"100", b"89"),
        HISTORY.replace(b"110", b"121"),
        HISTORY.replace(b"110", b"Infinity"),
        HISTORY.replace(b"null", b"1" + b"0" * 400),
        HISTORY.replace(b"null", b"1e308"),
        HISTORY.replace(b'"step_s": 10', b'"step_s": 0'),
        HISTORY.replace(b'"step_s": 10', b'"step_s": Infinity'),
    ],
)
def test_a_document_that_is_no_history_gets_a_sentence(serve: Serve, body: bytes) -> None:
    with pytest.raises(AdminPortError, match="is no history of metrics"):
        read_history(serve(response(body)), ["cpu_cores"], 90, 120, 10.0)


def test_a_broker_that_is_not_ready_says_why(serve: Serve) -> None:
    assert read_readiness(serve(response(b"ready\n")), 10.0) == ""
    unready = response(b"not ready: the broker is stopping\n", "503 Service Unavailable")
    assert read_readiness(serve(unready), 10.0) == "the broker is stopping"


#: In the place of a value: the broker does not know the key.
NO_KEY = "no key"


class Configured:
    """A client of brokers with these values of `admin.listener`; None does not respond."""

    def __init__(self, listeners: dict[int, str | None]) -> None:
        self._listeners = listeners

    def describe_configs(self, resource: ConfigResource, keys: list[str]) -> list[ConfigValue]:
        value = self._listeners[int(resource.name)]
        if value is None:
            raise RequestTimeout("no response")
        if value == NO_KEY:
            return []
        return [ConfigValue(keys[0], value, "static", True, False)]


def places(host: str, *listeners: str | None, **given: str) -> AdminPlaces:
    numbered = dict(enumerate(listeners, 1))
    brokers = {each: BrokerNode(each, host, 9092) for each in numbered}
    client = Configured(numbered)
    metadata = ClusterMetadata(brokers, 1, "c", {})
    chosen = {int(key.removeprefix("b")): address for key, address in given.items()}
    return find_admin_ports(client, metadata, chosen)  # type: ignore[arg-type]  # only what is called


def test_addresses_are_those_of_the_brokers_configurations() -> None:
    found = places("127.0.0.1", "127.0.0.1:9644", "0.0.0.0:9645", "http://[::1]:9646", ":9647")
    assert found.addresses == {
        1: "127.0.0.1:9644",
        2: "127.0.0.1:9645",
        3: "[::1]:9646",
        4: "127.0.0.1:9647",
    }
    assert found.missing == {}


def test_a_broker_whose_host_name_is_invalid_has_a_reason() -> None:
    assert "only its own machine reaches" in places("a..b", "127.0.0.1:9644").missing[1]


def test_a_missing_admin_port_has_its_reason() -> None:
    found = places("127.0.0.1", "", None, "127.0.0.1:0", None, b4="127.0.0.1:1")
    assert found.addresses == {4: "127.0.0.1:1"}
    assert found.missing == {
        1: "broker 1 has no admin port: admin.listener is not set",
        2: "broker 2 does not report its admin.listener: no response",
        3: "broker 3 has an admin port, but its number is not known: admin.listener=127.0.0.1:0"
        " takes any free port",
    }


def test_a_broker_of_apache_kafkas_has_no_admin_port() -> None:
    assert places("127.0.0.1", NO_KEY).missing == {
        1: "broker 1 has no admin.listener: only tidelog's brokers have an admin port"
    }


def test_a_loopback_port_of_another_machine_is_not_asked() -> None:
    """192.0.2.1 is reserved for documentation (RFC 5737), so it is not of this machine."""
    found = places("192.0.2.1", "127.0.0.1:9644", "0.0.0.0:9644")
    assert found.addresses == {2: "192.0.2.1:9644"}
    assert "only its own machine reaches" in found.missing[1]
