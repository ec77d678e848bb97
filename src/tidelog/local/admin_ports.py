"""A client of brokers' admin ports: their addresses, and their metrics and histories.

Brokers return their `admin.listener` with DescribeConfigs, so a client that knows the address of
one broker can find the admin ports of all brokers. The client checks every response, because
another program may listen on the port. A request has a time limit and a size limit for the whole
response. The time limit also ends a request to a port that sends one byte at a time.
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
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n"}


class AdminPortError(TidelogError):
    """The error of an admin port that does not respond, or sends an unexpected response."""


@dataclass(frozen=True, slots=True)
class AdminPlaces:
    """The admin ports of a cluster's brokers."""

    #: Address (`host:port`) of each broker's admin port, by broker id.
    addresses: Mapping[int, str]
    #: The reason why the admin port of a broker is not known, by broker id.
    missing: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class MetricSamples:
    """The samples of a broker's metrics: (labels, value) by the name of the metric."""

    by_name: Mapping[str, Sequence[tuple[Mapping[str, str], float]]]

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
        if endpoint is None:
            missing[broker] = f"broker {broker} has no admin port: {LISTENER_KEY} is not set"
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
    values = client.describe_configs(ConfigResource(BROKER, str(broker)), [LISTENER_KEY])
    return next((each.value for each in values if each.name == LISTENER_KEY), None)


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


def read_metrics(address: str, names: Sequence[str], timeout_s: float) -> MetricSamples:
    """Return these metrics of a broker. Raises AdminPortError."""
    status, body = read_admin_port(address, f"/metrics?names={','.join(names)}", timeout_s)
    if status != 200:
        raise AdminPortError(f"the admin port {address} refused /metrics: {_shown(body)}")
    return parse_metrics(body, address, names)


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
    address: str, series: Sequence[str], since_s: int, until_s: int, timeout_s: float
) -> HistoryWindow:
    """Return the history of a broker's metrics `series` between two times, in s since 1970.

    Raises AdminPortError.
    """
    path = f"/history?series={','.join(series)}&since={since_s}&until={until_s}"
    status, body = read_admin_port(address, path, timeout_s)
    if status != 200:
        raise AdminPortError(f"the admin port {address} refused /history: {_shown(body)}")
    try:
        return _window(json.loads(body), series, since_s, until_s)
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
    text = body[:200].decode("utf-8", "replace").strip()
    return "".join(sign if sign.isprintable() else " " for sign in text)
