"""Faults on requests, built step by step; the last step puts the fault in force.

    cluster.on_request("Produce").where(topic="orders").nth(3).after().disconnect()

The brokers inject the faults (`broker.server.interception`); they read the rules from a directory
(`runtime.interception`). The counters of a fault are sums over all brokers. When the last step
returns, the fault is in force for every request that a broker begins afterwards. A fault ends with
`remove` or with its `with` block; in a shared cluster it also ends with the test.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tidelog.broker.server.interception import PARTITION_FIELDS, Action, Rule
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.runtime.interception import InterceptionControl
from tidelog.testing.loops import refuse_in_loop
from tidelog.testing.waiting import WaitTimeout
from tidelog.wire.named_fields import with_fields
from tidelog.wire.registry import API
from tidelog.wire.schema import fields_of

_POLL_S = 0.01


class Fault:
    """A fault in force; `count` is how often it has struck."""

    def __init__(self, control: InterceptionControl, rule: Rule, text: str) -> None:
        self._control = control
        self._number = rule.number
        self._text = text
        self._ended = False
        control.add(rule)

    def __repr__(self) -> str:
        return f"<{self._text}: {self.count} of {self.matched} requests>"

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def count(self) -> int:
        """Number of requests that the fault has struck."""
        return len(self.requests)

    @property
    def matched(self) -> int:
        """Number of requests that matched, whether the fault struck them or not."""
        return self._control.matched(self._number)

    @property
    def requests(self) -> list[str]:
        """The requests that the fault has struck, a line for each: broker, API, client, address."""
        return self._control.struck(self._number)

    def wait(self, count: int = 1, timeout: float = 30.0) -> None:
        """Wait until the fault struck `count` times; raise WaitTimeout after `timeout` seconds.

        Raises BlockedLoopError in a running event loop, whose clients would send no request.
        """
        refuse_in_loop("fault.wait", f"`await fault.struck({'' if count == 1 else count})`")
        deadline = time.monotonic() + timeout
        while not self._has_struck(count, deadline, timeout):
            time.sleep(_POLL_S)

    async def struck(self, count: int = 1, timeout: float = 30.0) -> None:
        """Wait like `wait`, without blocking the event loop."""
        deadline = time.monotonic() + timeout
        while not self._has_struck(count, deadline, timeout):
            await asyncio.sleep(_POLL_S)

    def _has_struck(self, count: int, deadline: float, timeout_s: float) -> bool:
        if self.count >= count:
            return True
        if time.monotonic() > deadline:
            raise WaitTimeout(f"after {timeout_s:g} s not struck {count} times: {self!r}")
        return False

    @property
    def is_in_force(self) -> bool:
        """Whether the fault has not been ended yet, even if it cannot strike again."""
        return not self._ended

    def remove(self) -> None:
        """End the fault for later requests; held or lost requests stay held or lost."""
        if not self._ended:
            self._ended = True
            self._control.end(self._number)


class Isolation:
    """Two sides of a cluster that cannot reach each other until `heal` or the end of `with`."""

    def __init__(self, faults: tuple[Fault, ...], healed: Callable[[], None]) -> None:
        self.faults = faults
        self._healed = healed

    def __enter__(self) -> Isolation:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()

    def heal(self) -> None:
        """Let both sides connect again; repeated calls do nothing."""
        for fault in self.faults:
            fault.remove()
        self._healed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests of one or several APIs, narrowed step by step; every step returns a new Requests.

    Without `nth`, `once`, `times` or `every`, all requests are selected. Only requests of clients
    are selected, or with `from_brokers()` only requests of brokers.
    """

    make: Callable[[Rule, str], Fault]
    rule: Rule
    text: str
    #: The cluster's faults without an action (`drop`, `delay`, ...).
    unfinished: Unfinished

    @classmethod
    def of(
        cls, make: Callable[[Rule, str], Fault], names: tuple[str, ...], unfinished: Unfinished
    ) -> Requests:
        """Return a selection of all requests of APIs such as `Produce`; `*` means all APIs.

        Raises ValueError for an unknown API name, and if no API is named.
        """
        keys = tuple(API) if names == ("*",) else tuple(_api_key(name) for name in names)
        if not keys:
            raise ValueError("no API is named: on_request('Produce')")
        rule = Rule(number=0, api_keys=keys, action=Action.DROP)
        text = f"on_request({', '.join(map(repr, names))})"
        made = cls(make=make, rule=rule, text=text, unfinished=unfinished)
        unfinished.add(made)
        return made

    # selection

    def on(self, *brokers: int) -> Requests:
        """Select requests at the given brokers only."""
        if not brokers:
            raise ValueError("on() names no broker: on(1) or on(1, 2) expected")
        return self._with(f"on({', '.join(map(str, brokers))})", brokers=brokers)

    def where(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        group_id: str | None = None,
    ) -> Requests:
        """Select only requests for a topic, for one of its partitions, for a group, or of a client.

        A request for several partitions is selected if it names the partition among them.
        """
        wanted = {
            "topic": topic,
            "partition": partition,
            "client_id": client_id,
            "group_id": group_id,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        if not given:
            raise ValueError(f"where() names nothing: {', '.join(wanted)} expected")
        if partition is not None and topic is None and self.rule.topic is None:
            raise ValueError(f"where(partition={partition}) names no topic: topic=... expected")
        self._can_name(given)
        words = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return self._with(f"where({words})", **given)

    def from_brokers(self, *brokers: int) -> Requests:
        """Select requests among brokers: followers' fetches, the controller's commands.

        With `brokers`, select only the requests that these brokers send.
        """
        words = f"from_brokers({', '.join(map(str, brokers))})"
        return self._with(words, from_brokers=True, senders=brokers)

    def once(self) -> Requests:
        """Select the first request only."""
        return self._with("once()", first=1, step=1, times=1)

    def nth(self, number: int) -> Requests:
        """Select the `number`-th request only, counted from 1."""
        return self._with(f"nth({_positive(number)})", first=number, step=1, times=1)

    def times(self, number: int) -> Requests:
        """Select the first `number` requests."""
        return self._with(f"times({_positive(number)})", first=1, step=1, times=number)

    def every(self, number: int = 1) -> Requests:
        """Select each `number`-th request."""
        text = f"every({_positive(number)})"
        return self._with(text, first=number, step=number, times=None)

    def after(self) -> Requests:
        """Let requests take effect first: the fault then strikes the response, not the request."""
        return self._with("after()", after=True)

    # action

    def drop(self) -> Fault:
        """Lose the request, and all later requests on its connection, which stays open.

        The client waits for the response until its own timeout. With `after()`, the fault loses the
        response and all later responses instead of the request.
        """
        return self._put("drop()", action=Action.DROP)

    def disconnect(self) -> Fault:
        """Close the connection instead of responding."""
        return self._put("disconnect()", action=Action.DISCONNECT)

    def delay(self, seconds: float) -> Fault:
        """Hold the request, and all later requests on its connection.

        With `after()`, the fault holds the response instead of the request.
        """
        if seconds <= 0:
            raise ValueError(f"delay({seconds}): more than 0 seconds expected")
        delay_ms = max(1, round(seconds * 1000))
        return self._put(f"delay({seconds:g})", action=Action.DELAY, delay_ms=delay_ms)

    def answer(self, error: ErrorCode | str | int | None = None, **fields: object) -> Fault:
        """Respond with Kafka's error of this name or number, or with these fields.

        The error applies to every part of the request. With `after()`, the request takes effect in
        spite of the error. The response to a Metadata request for all topics has no field for the
        error.

        Fields have the names of Kafka's messages in lower case, as in `throttle_time_ms=500`;
        structs are dicts. Unnamed fields have their defaults. With `after()`, the broker makes the
        response, and the named fields replace the broker's values. Raises ValueError for a field
        that no version of the response has.
        """
        if (error is None) is not bool(fields):
            raise ValueError("answer() needs an error, or else the fields of a response")
        if error is not None:
            code = _error_code(error)
            return self._put(f"answer({code.name!r})", action=Action.ANSWER, error=code)
        for key in self.rule.api_keys:
            try:
                with_fields(API[key].response(), fields)
            except ValueError as wrong:
                raise ValueError(f"answer() to {API[key].name}: {wrong}") from None
        words = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        return self._put(f"answer({words})", action=Action.ANSWER, fields=_as_json(fields))

    def watch(self) -> Fault:
        """Change nothing, so that `matched` only counts requests."""
        return self._put("watch()", times=0)

    def _can_name(self, given: Mapping[str, object]) -> None:
        """Raise ValueError if requests of these APIs lack a field that `where` selects by."""
        for what, attributes in _NAMED_BY.items():
            if what in given and not any(_names(key, attributes) for key in self.rule.api_keys):
                apis = " and ".join(API[key].name for key in self.rule.api_keys)
                fitting = [api.name for key, api in API.items() if _names(key, attributes)]
                raise ValueError(
                    f"where({what}=...) can never match: {apis} requests name no"
                    f" {what.removesuffix('_id')}; those of {', '.join(sorted(fitting))} do"
                )

    def _with(self, text: str, **changed: object) -> Requests:
        rule = dataclasses.replace(self.rule, **changed)  # type: ignore[arg-type]
        following = dataclasses.replace(self, rule=rule, text=f"{self.text}.{text}")
        self.unfinished.follow(self, following)
        return following

    def _put(self, text: str, **changed: object) -> Fault:
        complete = self._with(text, **changed)
        self.unfinished.follow(complete, None)
        apis = [API[key] for key in self.rule.api_keys]
        if not self.rule.from_brokers and all(each.inter_broker for each in apis):
            names = " and ".join(each.name for each in apis)
            raise ValueError(
                f"{complete.text} can never match: only brokers send {names}; from_brokers()"
                " must come before the action"
            )
        return self.make(complete.rule, complete.text)


class Unfinished:
    """Faults without an action (`drop`, `delay`, ...), which are therefore not in force."""

    def __init__(self) -> None:
        self._steps: list[Requests] = []

    def add(self, step: Requests) -> None:
        """Add the first step of a fault that is being built."""
        self._steps.append(step)

    def follow(self, step: Requests, following: Requests | None) -> None:
        """Replace a fault's last step by `following`; only remove it if `following` is None."""
        self._steps = [each for each in self._steps if each is not step]
        if following is not None:
            self._steps.append(following)

    def clear(self) -> None:
        """Forget all faults without an action, at the beginning of a test."""
        self._steps.clear()

    def problem(self) -> str | None:
        """Return a message about the first fault without an action; None if every fault has one."""
        if not self._steps:
            return None
        return (
            f"{self._steps[0].text} names no action for its requests, so it had no effect:"
            " drop(), disconnect(), delay(seconds), answer(error) or watch() must follow"
        )


#: For each argument of `where`, the request attributes that the broker compares with the argument's
#: value (`broker.server.interception`).
_NAMED_BY: Final = {
    "topic": ("topics", "topic_data", "topic_partitions", "topic_names"),
    "partition": PARTITION_FIELDS,
    "group_id": ("group_id", "groups", "groups_names"),
}


def _names(api_key: int, attributes: tuple[str, ...]) -> bool:
    """Return whether requests of an API have one of the given attributes."""
    if attributes is PARTITION_FIELDS:
        return any(field in attributes for field in _all_fields(API[api_key].request))
    fields = {each.name for each in dataclasses.fields(API[api_key].request)}
    if "topics" in attributes and "groups" in fields:
        return True  # OffsetFetch from version 8 on: topics lie inside of groups
    return not fields.isdisjoint(attributes)


def _all_fields(struct: type) -> Iterator[str]:
    """Yield the names of the fields of a struct and of its nested structs."""
    for each in fields_of(struct):
        yield "partition_index" if each.name == "partition_indexes" else each.name
        if isinstance(each.spec.element, type):
            yield from _all_fields(each.spec.element)


def _as_json(value: object) -> Any:
    """Return fields of a response, with bytes as hexadecimal text."""
    if isinstance(value, Mapping):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    return value.hex() if isinstance(value, bytes | bytearray | memoryview) else value


def _positive(number: int) -> int:
    if type(number) is not int or number < 1:
        raise ValueError(f"{number!r}: an integer of at least 1 expected")
    return number


def _api_key(name: str) -> int:
    names = {api.name: key for key, api in API.items()}
    if name not in names:
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f": {' or '.join(close)} perhaps" if close else ""
        raise ValueError(f"there is no request {name!r}{hint}")
    return names[name]


def _error_code(error: ErrorCode | str | int) -> ErrorCode:
    try:
        code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        close = difflib.get_close_matches(str(error), ErrorCode.__members__, n=3, cutoff=0.5)
        hint = f": {' or '.join(close)} perhaps" if close else ""
        raise ValueError(f"{error!r} is no error of Kafka's{hint}") from None
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error; `drop`, `disconnect` and `delay` need none")
    return code
