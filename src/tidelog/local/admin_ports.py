"""A client of brokers' admin ports: their addresses, and their metrics and histories.

Brokers return their `admin.listener` with DescribeConfigs, so a client that knows the address of
one broker can find the admin ports of all brokers. The client checks every response, because
another program, or a broker of another cluster, may listen on the port. A request has a time limit
and a size limit for the whole response. The time limit also ends a request to a port that sends one
byte at a time.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.client.cluster import ClusterMetadata
from tidelog.client.configs import BROKER, ConfigResource
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.listeners import admin_endpoint
from tidelog.runtime.blocking import BlockingClient

LISTENER_KEY: Final = "admin.listener"
#: Last words of the reason in `AdminPlaces.missing` for a broker that does not set the key.
NOT_SET: Final = f"{LISTENER_KEY} is not set"
#: The metric whose labels name the broker and its cluster; older brokers lack it.
INFO: Final = "tidelog_broker_info"
#: Maximum size of one response. A broker with 20,000 replicas has 30 MiB of metrics.
MAX_RESPONSE_BYTES: Final = 64 << 20
_CHUNK_BYTES: Final = 1 << 16
_WILDCARDS: Final = ("0.0.0.0", "::", "*")
_LOOPBACKS: Final = ("127.0.0.1", "::1", "localhost")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[^\r\n]*\r\n")
_SAMPLE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: [0-9.]+)?")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')
#: Samples of this value or more are ignored: no counter or gauge of a broker grows so large, so
#: another program sent them. Sums and rates of smaller numbers are finite.
_LEAST_UNLIKELY: Final = 2.0**64
_UNKNOWN_METRIC: Final = re.compile(rb"names='([A-Za-z0-9_:]+)': no metric has this name")
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n"}


class AdminPortError(TidelogError):
    """The error for an admin port that does not respond, or sends an unexpected response."""


@dataclass(frozen=True, slots=True)
class AdminPlaces:
    """The admin ports of a cluster's brokers."""

    #: Address (`host:port`) of each broker's admin port, by broker id.
    addresses: Mapping[int, str]
    #: The reason why the admin port of a broker is not known, by broker id.
    missing: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class ExpectedBroker:
    """The broker that a reader expects at an admin port; the cluster's id None matches any id."""

    cluster_id: str | None
    broker: int

    def check(self, address: str, cluster_id: object, broker: object) -> None:
        """Raise AdminPortError if the port at `address` belongs to another broker.

        `cluster_id` and `broker` are what the port reports. An older broker reports neither (None),
        and a broker without a session reports an empty cluster id: such a broker is accepted.
        """
        is_its_id = broker is None or str(broker) == str(self.broker)
        is_its_cluster = not cluster_id or not self.cluster_id or cluster_id == self.cluster_id
        if is_its_id and is_its_cluster:
            return
        expected = f"broker {self.broker} of cluster {self.cluster_id}"
        raise AdminPortError(
            f"{address} is the admin port of broker {_named(broker)} of cluster"
            f" {_named(cluster_id)}, but {expected} was expected there: give each broker a port"
            f" of its own in {LISTENER_KEY}"
        )


@dataclass(frozen=True, slots=True)
class MetricSamples:
    """The samples of a broker's metrics: (labels, value) by the name of the metric.

    `unknown` has the requested metrics that the broker does not know, because it is older.
    """

    by_name: Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
    unknown: frozenset[str] = frozenset()

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a sample that has these labels; None without such a sample."""
        for found, value in self.by_name.get(name, ()):
            if all(found.get(key) == wanted for key, wanted in labels.items()):
                return value
        return None


@dataclass(frozen=True, slots=True)
class HistoryWindow:
    """The history of a broker's metrics in a period.

    Each series has a value for each time in `times_s`; None means that the broker has no value for
    this time.
    """

    step_s: int
    times_s: tuple[int, ...]
    series: Mapping[str, tuple[float | None, ...]]


def find_admin_ports(
    client: BlockingClient, metadata: ClusterMetadata, given: Mapping[int, str] | None = None
) -> AdminPlaces:
    """Return the admin ports of all live brokers.

    A broker in `given` has the given address, whatever address the broker itself reports.
    """
    addresses, missing = dict(given or {}), {}
    for broker, node in metadata.brokers.items():
        if broker in addresses:
            continue
        try:
            text = _configured(client, broker)
        except TidelogError as error:
            missing[broker] = f"broker {broker} does not report its {LISTENER_KEY}: {error}"
            continue
        endpoint = admin_endpoint(text or "")
        if text is None:
            missing[broker] = (
                f"broker {broker} has no {LISTENER_KEY}: only tidelog's brokers have an admin port"
            )
        elif endpoint is None:
            missing[broker] = f"broker {broker} has no admin port: {NOT_SET}"
        elif endpoint.port == 0:
            missing[broker] = (
                f"broker {broker} has an admin port, but its number is not known:"
                f" {LISTENER_KEY}={text} takes any free port"
            )
        elif endpoint.host in _LOOPBACKS and not _is_here(node.host):
            missing[broker] = (
                f"broker {broker} has an admin port that only its own machine reaches:"
                f" {LISTENER_KEY}={text}"
            )
        else:
            host = node.host if endpoint.host in _WILDCARDS else endpoint.host
            addresses[broker] = _joined(host, endpoint.port)
    return AdminPlaces(addresses, missing)


def _configured(client: BlockingClient, broker: int) -> str | None:
    """Return a broker's admin.listener, empty if it is not set; None if the broker lacks the key.

    Brokers leave a key that they do not know out of the response.
    """
    values = client.describe_configs(ConfigResource(BROKER, str(broker)), [LISTENER_KEY])
    return next((each.value or "" for each in values if each.name == LISTENER_KEY), None)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_here(host: str) -> bool:
    """Return whether a host is this machine: only then can a socket be bound to its address."""
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM):
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind(address)
                return True
    except (OSError, UnicodeError):  # UnicodeError: an invalid host name
        return False
    return False


def read_admin_port(address: str, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Return the status and the body of a GET request. Raises AdminPortError."""
    host, _, port = address.rpartition(":")
    deadline_s = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as connection:
            # HTTP/1.0 has no chunks: the body ends with the connection.
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode("latin-1"))
            data = _received(connection, deadline_s, address, timeout_s)
    except (OSError, ValueError) as error:
        reason = f"no response within {timeout_s:g} s" if isinstance(error, TimeoutError) else error
        raise AdminPortError(f"the admin port {address} does not respond: {reason}") from error
    head, separator, body = data.partition(b"\r\n\r\n")
    status = _STATUS.match(head + b"\r\n")
    if status is None or not separator:
        raise AdminPortError(f"{address} is no admin port: it responds with {data[:40]!r}")
    length = re.search(rb"\r\ncontent-length: *([0-9]{1,12})", head.lower())
    if length is not None and int(length[1]) != len(body):
        raise AdminPortError(
            f"the admin port {address} sent {len(body)} of {int(length[1])} bytes of {path}"
        )
    return int(status[1]), body


def _received(
    connection: socket.socket, deadline_s: float, address: str, timeout_s: float
) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(timeout_s)
        connection.settimeout(left_s)
        part = connection.recv(_CHUNK_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MAX_RESPONSE_BYTES:
            raise AdminPortError(f"{address} sent more than {MAX_RESPONSE_BYTES} bytes")


def read_metrics(
    address: str,
    names: Sequence[str],
    timeout_s: float,
    expected: ExpectedBroker | None = None,
) -> MetricSamples:
    """Return these metrics of a broker. Raises AdminPortError, also for another broker's port.

    A broker refuses a request with a metric that it does not know. The request is therefore
    repeated without the metrics that the broker has refused, all within `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    wanted, unknown = list(names), set[str]()
    while True:
        left_s = max(0.001, deadline_s - time.monotonic())
        status, body = read_admin_port(address, f"/metrics?names={','.join(wanted)}", left_s)
        if status == 200:
            break
        refused = _UNKNOWN_METRIC.match(body)
        name = "" if refused is None else refused[1].decode()
        if status != 400 or name not in wanted or len(wanted) == 1:
            raise AdminPortError(f"the admin port {address} refused /metrics: {_shown(body)}")
        wanted.remove(name)
        unknown.add(name)
    found = parse_metrics(body, address, names)
    if expected is not None:
        labels = next((each for each, _ in found.by_name.get(INFO, ())), {})
        expected.check(address, labels.get("cluster_id"), labels.get("node_id"))
    return MetricSamples(found.by_name, frozenset(unknown))


def parse_metrics(body: bytes, address: str, names: Sequence[str]) -> MetricSamples:
    """Return the wanted samples of a text in Prometheus' format. Raises AdminPortError.

    Samples whose value is NaN, infinite or improbably large are left out.
    """
    wanted = frozenset(names)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    # Only a line feed ends a line: the name of a group may contain any other separator of lines.
    for number, line in enumerate(body.decode("utf-8", "replace").split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        try:
            if match is None:
                raise ValueError
            value = float(match[3])
            if match[1] not in wanted or not abs(value) < _LEAST_UNLIKELY:
                continue
            found.setdefault(match[1], []).append((_labels(match[2] or ""), value))
        except ValueError:
            raise AdminPortError(
                f"{address}: line {number} of /metrics is no sample of a metric: {line[:60]!r}"
            ) from None
    return MetricSamples(found)


def _labels(text: str) -> dict[str, str]:
    """Return the labels between the braces of a sample; raise ValueError for any other text."""
    labels: dict[str, str] = {}
    place = 0
    while place < len(text):
        # Match at `place` only: a search for the next label would take quadratic time in a long
        # text that has no label.
        match = _LABEL.match(text, place)
        if match is None:
            raise ValueError
        labels[match[1]] = _ESCAPED.sub(lambda sign: _ESCAPES.get(sign[1], sign[1]), match[2])
        place = match.end()
    return labels


def read_history(
    address: str,
    series: Sequence[str],
    since_s: int,
    until_s: int,
    timeout_s: float,
    expected: ExpectedBroker | None = None,
) -> HistoryWindow:
    """Return the history of a broker's metrics `series` between two times, in s since 1970.

    Raises AdminPortError, also if another broker than `expected` responds.
    """
    path = f"/history?series={','.join(series)}&since={since_s}&until={until_s}"
    status, body = read_admin_port(address, path, timeout_s)
    if status != 200:
        raise AdminPortError(f"the admin port {address} refused /history: {_shown(body)}")
    try:
        document = json.loads(body)
        window = _window(document, series, since_s, until_s)
    except (
        ValueError,
        OverflowError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise AdminPortError(
            f"{address}: /history is no history of metrics: {_shown(body)}"
        ) from error
    if expected is not None:
        expected.check(address, document.get("cluster_id"), document.get("node_id"))
    return window


def _window(document: Any, series: Sequence[str], since_s: int, until_s: int) -> HistoryWindow:
    step_s, times = int(document["step_s"]), tuple(int(each) for each in document["times"])
    if step_s < 1:
        raise ValueError(f"a step of {step_s} s")
    if list(times) != sorted(set(times)):
        raise ValueError("times out of order")
    if times and not since_s <= times[0] <= times[-1] <= until_s:
        raise ValueError("times that were not requested")
    values = {}
    for name in series:
        column = tuple(_number(each) for each in document["series"][name])
        if len(column) != len(times):
            raise ValueError(f"{len(column)} values at {len(times)} times")
        values[name] = column
    return HistoryWindow(step_s, times, values)


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    if not abs(value) < _LEAST_UNLIKELY:
        raise ValueError(f"{value!r} is no number")
    return float(value)


def read_readiness(address: str, timeout_s: float) -> str:
    """Return why a broker is not ready; an empty text if it is. Raises AdminPortError."""
    status, body = read_admin_port(address, "/readyz", timeout_s)
    if status == 200:
        return ""
    return _shown(body).removeprefix("not ready: ") or f"/readyz has the status {status}"


def _shown(body: bytes) -> str:
    return _named(body[:200].decode("utf-8", "replace").strip())


def _named(value: object) -> str:
    """Return the text of a value from an admin port: short, and without control characters."""
    return "".join(sign if sign.isprintable() else " " for sign in str(value)[:200])
