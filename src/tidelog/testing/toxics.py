"""Faults on requests as toxics, in the form of Toxiproxy's API.

A proxy is a broker, `broker-1`, or `cluster` for all brokers. A toxic of the stream `upstream`
strikes requests, which then have no effect; a toxic of `downstream` strikes responses. The types
`latency`, `timeout` and `reset_peer` are Toxiproxy's; `answer` responds with an error or with
fields that the test defines, and `watch` only counts. The attributes of a toxic select requests, as
the methods of `faults.Requests` do. Source of names, defaults and errors: Toxiproxy 2.x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tidelog.testing.faults import Fault, Requests
from tidelog.testing.spec import did_you_mean

CLUSTER: Final = "cluster"
_PREFIX: Final = "broker-"
_STREAMS: Final = ("upstream", "downstream")
_SELECTING: Final = ("topic", "partition", "client_id", "group_id")
_COUNTING: Final = ("nth", "times", "every")
#: The attributes of each type, besides the attributes that select requests.
_OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "latency": ("latency", "jitter"),
    "timeout": ("timeout",),
    "reset_peer": ("timeout",),
    "answer": ("error", "fields"),
    "watch": (),
}
_FIELDS: Final = ("name", "type", "stream", "toxicity", "attributes")


class ApiError(Exception):
    """An error response: its HTTP status, and a sentence for the program that sent the request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Faulty(Protocol):
    """A cluster with faults on requests."""

    def on_request(self, *names: str) -> Requests:
        """Return the first step of a fault."""


class Toxic:
    """A fault on requests with its name and its description as JSON."""

    def __init__(
        self, cluster: Faulty, brokers: tuple[int, ...], wanted: Mapping[str, Any]
    ) -> None:
        """Put a fault in force at `brokers`, or at all brokers if `brokers` is empty.

        Raises ApiError for an invalid toxic.
        """
        _check(wanted, _FIELDS, "a toxic")
        kind = str(wanted.get("type"))
        if kind not in _OF_TYPE:
            raise ApiError(
                400,
                f"type {kind!r}: one of {', '.join(_OF_TYPE)} expected. Faults strike whole"
                " requests; for bandwidth or slicing put Toxiproxy before the broker",
            )
        stream = wanted.get("stream") or "downstream"
        if stream not in _STREAMS:
            raise ApiError(400, f"stream {stream!r}: upstream or downstream expected")
        if wanted.get("toxicity", 1) != 1:
            raise ApiError(
                400, f"toxicity {wanted['toxicity']!r}: 1 expected; nth, times or every select"
            )
        attributes = wanted.get("attributes") or {}
        known = ("apis", *_SELECTING, *_COUNTING, "from_brokers", *_OF_TYPE[kind])
        _check(attributes, known, f"attributes of {kind}")
        self.name = wanted.get("name") or f"{kind}_{stream}"
        self._shown = {
            "name": self.name,
            "type": kind,
            "stream": stream,
            "toxicity": 1,
            "attributes": attributes,
        }
        requests = _selected(cluster, brokers, attributes)
        if stream == "downstream":
            requests = requests.after()
        self.fault = _act(requests, kind, attributes)

    def as_json(self) -> dict[str, Any]:
        """Return Toxiproxy's fields, and the numbers of struck and matched requests."""
        struck = self.fault.requests
        counts = {"count": len(struck), "matched": self.fault.matched, "requests": struck}
        return {**self._shown, **counts}


def proxy_name(broker: int) -> str:
    """Return the name of the proxy that stands for a broker."""
    return f"{_PREFIX}{broker}"


def broker_of(name: str, brokers: tuple[int, ...]) -> int:
    """Return the broker of a proxy; raise ApiError for an unknown proxy."""
    number = name.removeprefix(_PREFIX)
    if not name.startswith(_PREFIX) or not number.isdecimal() or int(number) not in brokers:
        known = ", ".join(proxy_name(broker) for broker in brokers)
        raise ApiError(404, f"proxy not found: {name}; there are {CLUSTER}, {known}")
    return int(number)


def _selected(cluster: Faulty, brokers: tuple[int, ...], attributes: Mapping[str, Any]) -> Requests:
    apis = attributes.get("apis", ["*"])
    if not isinstance(apis, list):
        raise ApiError(400, f"apis {apis!r}: a list of names expected")
    requests = cluster.on_request(*apis)
    if brokers:
        requests = requests.on(*brokers)
    if selecting := {name: attributes[name] for name in _SELECTING if name in attributes}:
        requests = requests.where(**selecting)
    if senders := attributes.get("from_brokers"):
        requests = requests.from_brokers(*(senders if isinstance(senders, list) else ()))
    for name in _COUNTING:
        if name in attributes:
            step: Callable[[Any], Requests] = getattr(requests, name)
            requests = step(attributes[name])
    return requests


def _act(requests: Requests, kind: str, attributes: Mapping[str, Any]) -> Fault:
    if kind == "answer":
        return requests.answer(attributes.get("error"), **attributes.get("fields", {}))
    if kind == "watch":
        return requests.watch()
    if kind == "latency":
        if attributes.get("jitter", 0) != 0:
            raise ApiError(400, f"jitter {attributes['jitter']!r}: 0 expected, for tests repeat")
        latency_ms = attributes.get("latency", 0)
        if type(latency_ms) not in (int, float):
            raise ApiError(400, f"latency {latency_ms!r}: milliseconds expected")
        return requests.delay(latency_ms / 1000)
    if attributes.get("timeout", 0) != 0:
        raise ApiError(400, f"timeout {attributes['timeout']!r}: 0 expected")
    return requests.drop() if kind == "timeout" else requests.disconnect()


def _check(given: Any, known: tuple[str, ...], what: str) -> None:
    if not isinstance(given, Mapping):
        raise ApiError(400, f"{what}: {given!r}: an object expected")
    for name in given:
        if name not in known:
            raise ApiError(
                400,
                f"{what}: {name!r} is none of {', '.join(known)}{did_you_mean(name, known)}",
            )
