"""The requests of the HTTP API of a test cluster, without HTTP.

A request has a method, a path, a query and a JSON value; the response is a status and a JSON value.
Several threads may send requests at the same time. A request that waits for a state delays no other
request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import tidelog
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.local import ClusterStatus
from tidelog.testing.cluster import Cluster
from tidelog.testing.toxics import CLUSTER, ApiError, Toxic, broker_of, proxy_name
from tidelog.testing.waiting import WaitTimeout

Answer = tuple[int, Any]
Handler = Callable[..., Answer]

_OK: Final = 200
_NO_CONTENT: Final = 204
#: HTTP status of the response if a state was not reached in time.
_TIMEOUT: Final = 504
_CONDITIONS: Final = ("under_replicated", "leaderless", "running", "controller")
_ACTS: Final = ("kill", "stop", "start", "restart", "pause", "resume", "expire_session")
_DISK_ACTS: Final = ("fail", "fill", "slow", "heal")
_DEFAULT_TIMEOUT_S: Final = 30.0
_STATUS_OF: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
}


class Control:
    """The HTTP API of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        #: The toxics (faults on requests, as Toxiproxy calls them) of each proxy, by name.
        self._toxics: dict[str, dict[str, Toxic]] = {CLUSTER: {}}
        self._toxics |= {proxy_name(broker): {} for broker in cluster.brokers}
        self._routes: tuple[tuple[str, re.Pattern[str], Handler], ...] = tuple(
            (method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + "/?"), handler)
            for methods, path, handler in (
                ("GET", "/version", self._version),
                ("GET", "/cluster", self._status),
                ("GET", "/topics/{topic}/partitions/{partition}/leader", self._leader),
                ("POST", "/topics", self._create_topic),
                ("DELETE", "/topics/{topic}", self._delete_topic),
                ("POST", "/brokers/{broker}/{act}", self._act),
                ("POST", "/brokers/{broker}/log-dirs/{log_dir}/{act}", self._act_on_disk),
                ("GET", "/proxies", self._proxies),
                ("GET", "/proxies/{proxy}", self._proxy),
                ("POST PATCH", "/proxies/{proxy}", self._change_proxy),
                ("GET", "/proxies/{proxy}/toxics", self._toxics_of),
                ("POST", "/proxies/{proxy}/toxics", self._add_toxic),
                ("GET", "/proxies/{proxy}/toxics/{toxic}", self._toxic),
                ("DELETE", "/proxies/{proxy}/toxics/{toxic}", self._remove_toxic),
                ("POST", "/reset", self._reset),
            )
            for method in methods.split()
        )

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        """Return the status and the JSON value of a response; an error has `error` and `status`."""
        try:
            return self._answer(method, path, query, body)
        except ApiError as error:
            return error.status, {"error": str(error), "status": error.status}
        except WaitTimeout as error:
            return _TIMEOUT, {"error": str(error), "status": _TIMEOUT}
        except (TidelogError, ValueError, TypeError) as error:
            status = _STATUS_OF.get(error.code, 400) if isinstance(error, KafkaError) else 400
            return status, {"error": str(error), "status": status}

    def _answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        allowed = []
        for known, pattern, handler in self._routes:
            if (match := pattern.fullmatch(path)) is None:
                continue
            allowed.append(known)
            if known == method:
                return handler(query=query, given=_json(body), **match.groupdict())
        if allowed:
            raise ApiError(405, f"{method} {path}: {' or '.join(allowed)} expected")
        raise ApiError(404, f"there is no {path}: docs/guide/testing.md lists the paths")

    # the cluster

    def _version(self, **_: Any) -> Answer:
        return _OK, {"version": tidelog.__version__}

    def _status(self, query: Mapping[str, str], **_: Any) -> Answer:
        """Return the status; if the query has conditions, wait for them first."""
        known = (*_CONDITIONS, "timeout")
        for name in query:
            if name not in known:
                raise ApiError(400, f"{name}: one of {', '.join(known)} expected")
        wanted: dict[str, Any] = {
            name: _integer(name, query[name]) for name in _CONDITIONS if name in query
        }
        if not wanted:
            return _OK, status_json(self._cluster.status())
        return _OK, status_json(self._cluster.wait_for(**wanted, timeout=_timeout_s(query)))

    def _leader(self, topic: str, partition: str, query: Mapping[str, str], **_: Any) -> Answer:
        number = _integer("partition", partition)
        leader = self._cluster.leader(topic, number, timeout=_timeout_s(query))
        return _OK, {"leader": leader, "address": self._cluster.address(leader)}

    def _create_topic(self, given: Mapping[str, Any], **_: Any) -> Answer:
        """Create a topic; with `unique`, its name begins with the given name."""
        unique = given.get("unique", False)
        known = ("name", "partitions", "replication_factor", "config")
        wanted = {name: value for name, value in given.items() if name != "unique"}
        for name in wanted:
            if name not in known:
                raise ApiError(400, f"{name}: one of {', '.join(known)}, unique expected")
        if "name" not in wanted:
            raise ApiError(400, "name: the name of the topic is missing")
        create = self._cluster.topic if unique else self._cluster.create_topic
        return 201, {"name": create(**wanted)}

    def _delete_topic(self, topic: str, **_: Any) -> Answer:
        self._cluster.delete_topic(topic)
        return _NO_CONTENT, None

    # brokers

    def _act(self, broker: str, act: str, **_: Any) -> Answer:
        if act not in _ACTS:
            raise ApiError(404, f"{act}: one of {', '.join(_ACTS)} expected")
        with self._lock:
            getattr(self._cluster, act)(_integer("broker", broker))
        return _NO_CONTENT, None

    def _act_on_disk(
        self, broker: str, log_dir: str, act: str, given: Mapping[str, Any], **_: Any
    ) -> Answer:
        if act not in _DISK_ACTS:
            raise ApiError(404, f"{act}: one of {', '.join(_DISK_ACTS)} expected")
        with self._lock:
            method = getattr(self._cluster, f"{act}_log_dir")
            path = method(_integer("broker", broker), _integer("log dir", log_dir), **given)
        return _OK, {"path": path}

    # proxies, as Toxiproxy has them

    def _proxies(self, **_: Any) -> Answer:
        return _OK, {name: self._shown(name) for name in self._toxics}

    def _proxy(self, proxy: str, **_: Any) -> Answer:
        self._brokers_of(proxy)
        return _OK, self._shown(proxy)

    def _change_proxy(self, proxy: str, given: Mapping[str, Any], **_: Any) -> Answer:
        """Stop the broker (SIGKILL) if `enabled` is false, and start it if `enabled` is true."""
        brokers = self._brokers_of(proxy)
        enabled = given.get("enabled")
        if not isinstance(enabled, bool):
            raise ApiError(400, f"enabled {enabled!r}: true or false expected")
        with self._lock:
            for broker in brokers or self._cluster.brokers:
                if enabled:
                    self._cluster.start(broker)
                elif self._is_running(broker):
                    self._cluster.kill(broker)
        return _OK, self._shown(proxy)

    def _toxics_of(self, proxy: str, **_: Any) -> Answer:
        self._brokers_of(proxy)
        return _OK, [toxic.as_json() for toxic in self._in_force(proxy).values()]

    def _add_toxic(self, proxy: str, given: Mapping[str, Any], **_: Any) -> Answer:
        brokers = self._brokers_of(proxy)
        with self._lock, self._whole_faults():
            if given.get("name") in self._in_force(proxy):
                raise ApiError(409, f"toxic already exists: {given['name']}")
            toxic = Toxic(self._cluster, brokers, given)
            if toxic.name in self._toxics[proxy]:
                toxic.fault.remove()
                raise ApiError(409, f"toxic already exists: {toxic.name}; give it a name")
            self._toxics[proxy][toxic.name] = toxic
        return _OK, toxic.as_json()

    def _toxic(self, proxy: str, toxic: str, query: Mapping[str, str], **_: Any) -> Answer:
        """Return a toxic; with `struck=N` in the query, wait until the toxic has struck N times."""
        found = self._found(proxy, toxic)
        if "struck" in query:
            found.fault.wait(_integer("struck", query["struck"]), _timeout_s(query))
        return _OK, found.as_json()

    def _remove_toxic(self, proxy: str, toxic: str, **_: Any) -> Answer:
        found = self._found(proxy, toxic)
        with self._lock:
            found.fault.remove()
            self._toxics[proxy].pop(toxic, None)
        return _NO_CONTENT, None

    def _reset(self, **_: Any) -> Answer:
        """End all faults, start all brokers, and wait until all replicas are in sync."""
        with self._lock:
            for toxics in self._toxics.values():
                toxics.clear()
            self._cluster.reset()
        return _NO_CONTENT, None

    # inside

    @contextlib.contextmanager
    def _whole_faults(self) -> Iterator[None]:
        """Build faults in a `with` block; after an error, forget faults that have no action yet."""
        try:
            yield
        except Exception:
            self._cluster.forget_unfinished_faults()
            raise

    def _brokers_of(self, proxy: str) -> tuple[int, ...]:
        """Return the broker of a proxy; no broker for the proxy of the whole cluster.

        Raises ApiError for an unknown proxy.
        """
        return () if proxy == CLUSTER else (broker_of(proxy, self._cluster.brokers),)

    def _found(self, proxy: str, toxic: str) -> Toxic:
        self._brokers_of(proxy)
        found = self._in_force(proxy).get(toxic)
        if found is None:
            raise ApiError(404, f"toxic not found: {toxic} of {proxy}")
        return found

    def _in_force(self, proxy: str) -> dict[str, Toxic]:
        """Return the toxics of a proxy, without toxics that the cluster's own `reset` has ended."""
        live = {name: each for name, each in self._toxics[proxy].items() if each.fault.is_in_force}
        self._toxics[proxy] = live
        return live

    def _shown(self, proxy: str) -> dict[str, Any]:
        brokers = self._brokers_of(proxy)
        address = self._cluster.address(brokers[0]) if brokers else self._cluster.bootstrap
        return {
            "name": proxy,
            "listen": address,
            "upstream": address,
            "enabled": all(map(self._is_running, brokers or self._cluster.brokers)),
            "toxics": [toxic.as_json() for toxic in self._in_force(proxy).values()],
        }

    def _is_running(self, broker: int) -> bool:
        return self._cluster.local.process(broker) is not None


def status_json(status: ClusterStatus) -> dict[str, Any]:
    """Return a status as a JSON value, with the numbers of partitions in trouble."""
    numbers = {"under_replicated": status.under_replicated, "leaderless": status.leaderless}
    return {**dataclasses.asdict(status), **numbers}


def _json(body: bytes) -> Mapping[str, Any]:
    if not body:
        return {}
    try:
        given = json.loads(body)
    except ValueError as error:
        raise ApiError(400, f"the request has no JSON: {error}") from None
    if not isinstance(given, dict):
        raise ApiError(400, f"{given!r}: an object expected")
    return given


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ApiError(400, f"{name} {text!r}: an integer expected") from None


def _timeout_s(query: Mapping[str, str]) -> float:
    text = query.get("timeout", str(_DEFAULT_TIMEOUT_S))
    try:
        return float(text)
    except ValueError:
        raise ApiError(400, f"timeout {text!r}: seconds expected") from None
