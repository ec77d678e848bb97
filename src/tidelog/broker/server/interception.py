"""The interception of requests in tests: rules drop, delay or refuse them, or disconnect.

A broker that starts with `tidelog.test.interception.directory` puts an `Interceptor` before its
handlers. If `tidelog.test.interception.directory` is not set, requests do not pass through this
module. An `Interceptions` object has the rules and counts the matches; `runtime.interception`
stores both in files. All brokers of a cluster share the counts, so a rule for the third request
applies to the third matching request in the cluster. Requests of one connection stay in order, as
on a real network. When a request is lost, all later requests on its connection are lost, too. When
a request is held, later requests on its connection wait, as they would behind a slow request. A
rule applies to requests of other brokers only if it says so (`from_brokers`), and never to requests
of the test kit.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.requests import Pending, Request, RequestConnection
from tidelog.broker.server.served import Handler, Served
from tidelog.broker.server.steps import then
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.ports import Clock
from tidelog.core.types import TopicPartition
from tidelog.wire.named_fields import with_fields
from tidelog.wire.registry import API, FETCH

#: The client id of the test kit's own requests.
KIT_CLIENT_ID = "tidelog-testing"
#: Names of message fields that hold a partition number.
PARTITION_FIELDS = ("partition_index", "partition", "index")
#: The client ids of brokers (`broker.peers`).
_BROKER_CLIENT_ID = re.compile(r"broker-(\d+)-")


class Action(StrEnum):
    """The ways in which a rule of the test kit treats a request."""

    #: The request and all later requests on its connection are lost; the connection stays open.
    DROP = "drop"
    #: The request's connection is closed.
    DISCONNECT = "disconnect"
    #: The request is held for `delay_ms`.
    DELAY = "delay"
    #: The response carries `error` for every part of the request, or has `fields` that the test
    #: defines.
    ANSWER = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: the requests to which it applies ("strikes"), and what happens to them.

    The rule counts the requests that match it. The rule strikes the match numbered `first`, and
    every `step`-th match after that. The rule stops after `times` strikes; None means no limit.
    """

    number: int
    api_keys: tuple[int, ...]
    action: Action
    brokers: tuple[int, ...] = ()
    topic: str | None = None
    #: A partition of `topic`; None stands for any of its partitions.
    partition: int | None = None
    client_id: str | None = None
    group_id: str | None = None
    from_brokers: bool = False
    #: If `from_brokers` is set, the brokers whose requests the rule strikes; empty for all brokers.
    senders: tuple[int, ...] = ()
    first: int = 1
    step: int = 1
    times: int | None = None
    #: Whether the broker handles the request first, so that the rule applies to the response.
    after: bool = False
    delay_ms: int = 0
    error: ErrorCode = ErrorCode.NONE
    #: Fields of a response that the test defines (`wire.named_fields`); None with an `error`.
    fields: Mapping[str, Any] | None = None

    def strikes(self, ordinal: int) -> bool:
        """Whether the rule strikes its `ordinal`-th match, counted from 1."""
        beyond = ordinal - self.first
        if beyond < 0 or beyond % self.step:
            return False
        return self.times is None or beyond // self.step < self.times

    def to_json(self) -> str:
        """Return the rule as one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Rule:
        """Return the rule in a `to_json` text; raises KeyError, TypeError or ValueError."""
        values = json.loads(text)
        for name in ("api_keys", "brokers", "senders"):
            values[name] = tuple(values[name])
        values["action"] = Action(values["action"])
        values["error"] = ErrorCode(values["error"])
        return cls(**values)


class Interceptions(Protocol):
    """The rules, and the counts of the requests that matched them."""

    def rules(self) -> Sequence[Rule]:
        """Return the rules that are currently in force."""

    def matched(self, rule: Rule) -> int:
        """Count a request that matches a rule; return the count over all brokers, from 1 on."""

    def struck(self, rule: Rule, description: str) -> None:
        """Note that a rule applied to a request, which `description` describes in one line."""


@dataclass(frozen=True, slots=True)
class Intercepted:
    """The functions of a broker that its interceptor of requests uses."""

    broker_id: int
    clock: Clock
    dispatcher: Dispatcher
    #: Submit the appends that requests planned.
    submit_appends: Callable[[], bool]
    #: Returns the name of a topic id, None if the id is unknown.
    topic_name: Callable[[bytes], str | None]
    #: Returns the partitions of a fetch session, by the session's id.
    partitions_of_session: Callable[[int], Sequence[TopicPartition]]


class Interceptor:
    """The interceptor of one broker's requests, which applies the test kit's rules before the
    handlers.
    """

    def __init__(self, intercepted: Intercepted, interceptions: Interceptions) -> None:
        self._intercepted = intercepted
        self._interceptions = interceptions
        #: By connection, the requests that wait behind a delayed request; None if all later
        #: requests of the connection are lost.
        self._lines: dict[RequestConnection, deque[_Waiting] | None] = {}

    def around(self, served: Served) -> Served:
        """Return the same API with this interceptor around its handler (a `Step`)."""
        return Served(served.card, partial(self._begin, served.handle))

    def _begin(self, handle: Handler, request: Request[Any]) -> Any:
        connection = request.connection
        if connection in self._lines:
            pending = Pending()
            line = self._lines[connection]
            if line is not None:
                connection.keep_frames()
                line.append(_Waiting(handle, request, pending))
            return pending
        rule = self._strikes(request)
        if rule is None:
            return handle(request)
        return self._after(rule, handle, request) if rule.after else self._at(rule, handle, request)

    def _strikes(self, request: Request[Any]) -> Rule | None:
        """Return the oldest rule that strikes the request; all matching rules count the request."""
        found = None
        for rule in self._interceptions.rules():
            if self._fits(rule, request):
                ordinal = self._interceptions.matched(rule)
                if found is None and rule.strikes(ordinal):
                    found = rule
        return found

    def _fits(self, rule: Rule, request: Request[Any]) -> bool:
        client_id = request.header.client_id or ""
        if request.header.api_key not in rule.api_keys or client_id == KIT_CLIENT_ID:
            return False
        sender = _BROKER_CLIENT_ID.match(client_id)
        if (sender is not None) is not rule.from_brokers:
            return False
        if rule.senders and (sender is None or int(sender[1]) not in rule.senders):
            return False
        if rule.brokers and self._intercepted.broker_id not in rule.brokers:
            return False
        if rule.client_id is not None and rule.client_id != client_id:
            return False
        if rule.group_id is not None and rule.group_id not in _groups_of(request.message):
            return False
        return rule.topic is None or (rule.topic, rule.partition) in named_partitions(
            self._intercepted, request
        )

    # treatment of the request

    def _at(self, rule: Rule, handle: Handler, request: Request[Any]) -> Any:
        connection = request.connection
        self._report(rule, request)
        if rule.action is Action.ANSWER:
            return self._answer(rule, request, API[request.header.api_key].response())
        pending = Pending()
        pending.on_cancel(lambda: self._forget(connection))
        if rule.action is not Action.DELAY:
            self._lines[connection] = None
            if rule.action is Action.DISCONNECT:
                connection.close(f"intercepted by rule {rule.number}")
            return pending
        connection.keep_frames()
        self._lines[connection] = deque()
        timer = self._intercepted.clock.call_later(
            rule.delay_ms, lambda: self._go_on(_Waiting(handle, request, pending))
        )
        pending.on_cancel(timer.cancel)
        return pending

    def _forget(self, connection: RequestConnection) -> None:
        self._lines.pop(connection, None)

    def _go_on(self, held: _Waiting) -> None:
        """Handle a held request, then the requests behind it up to the next held request."""
        connection = held.request.connection
        line = self._lines.pop(connection, None) or deque()
        self._run(held.handle, held)
        while line and connection not in self._lines:
            behind = line.popleft()
            if not behind.pending.done:
                self._run(self._begin_with(behind.handle), behind)
        if line:
            self._lines[connection] = line if self._lines[connection] is not None else None

    def _begin_with(self, handle: Handler) -> Handler:
        return partial(self._begin, handle)

    def _run(self, handle: Handler, held: _Waiting) -> None:
        """Handle a held request as its connection does in a read event."""
        request, pending = held.request, held.pending
        try:
            answer = handle(request)
        except AssertionError:
            raise
        except Exception as error:
            answer = self._intercepted.dispatcher.request_failed(request, error)
        self._intercepted.submit_appends()
        if type(answer) is Pending:
            pending.on_cancel(answer.cancel)
            answer.deliver_to(pending.complete)
        else:
            pending.complete(answer)

    # treatment of the response

    def _after(self, rule: Rule, handle: Handler, request: Request[Any]) -> Any:
        """Handle the request; then drop, delay or replace its response, or close its connection."""

        def strike(response: Any) -> Any:
            if response is None:  # a Produce with acks=0 has no response
                return None
            self._report(rule, request)
            if rule.action is Action.ANSWER:
                return self._answer(rule, request, response)
            if rule.action is Action.DISCONNECT:
                request.connection.close(f"intercepted by rule {rule.number}")
                return None
            held = Pending()
            if rule.action is Action.DELAY:
                timer = self._intercepted.clock.call_later(
                    rule.delay_ms, lambda: held.complete(response)
                )
                held.on_cancel(timer.cancel)
            return held

        return then(handle(request), strike)

    def _answer(self, rule: Rule, request: Request[Any], response: Any) -> Any:
        """Return an error response, or `response` with the rule's fields."""
        if rule.fields is None:
            return self._intercepted.dispatcher.error_response(request, rule.error)
        return with_fields(response, rule.fields)

    def _report(self, rule: Rule, request: Request[Any]) -> None:
        header = request.header
        description = (
            f"broker {self._intercepted.broker_id}: {API[header.api_key].name}"
            f" {header.correlation_id} of {header.client_id!r} at {request.connection.peer}"
        )
        self._interceptions.struck(rule, description)


@dataclass(slots=True)
class _Waiting:
    """A request that is handled later, with the `Pending` for its response."""

    handle: Handler
    request: Request[Any]
    pending: Pending


def _groups_of(message: Any) -> list[str]:
    """Return the consumer groups that a request names."""
    listed = (*getattr(message, "groups", ()), *getattr(message, "groups_names", ()))
    named = [getattr(each, "group_id", each) for each in listed]
    return [*named, getattr(message, "group_id", "")]


def named_partitions(
    intercepted: Intercepted, request: Request[Any]
) -> Iterator[tuple[str, int | None]]:
    """Yield the topics that a request or its fetch session names, and each of their partitions.

    Each topic comes first with None, then with the number of each named partition.
    """
    message = request.message
    for name in getattr(message, "topic_names", None) or ():
        yield name, None
    holders = [message, *(getattr(message, "groups", None) or ())]
    for attribute in ("topics", "topic_data", "topic_partitions"):
        for holder in holders:
            for entry in getattr(holder, attribute, None) or ():
                name = _topic_of(intercepted.topic_name, entry)
                if name:
                    yield name, None
                    yield from ((name, number) for number in _partitions_of(entry))
    if request.header.api_key == FETCH:
        for tp in intercepted.partitions_of_session(message.session_id):
            yield tp.topic, None
            yield tp.topic, tp.partition


def _partitions_of(entry: Any) -> Iterator[int]:
    """Yield the partition numbers in a topic's entry, whose fields depend on the message."""
    for attribute in ("partitions", "partition_data", "partition_indexes"):
        for each in getattr(entry, attribute, None) or ():
            if isinstance(each, int):
                yield each
                continue
            for field in PARTITION_FIELDS:
                if (number := getattr(each, field, None)) is not None:
                    yield number


def _topic_of(topic_name: Callable[[bytes], str | None], entry: Any) -> str | None:
    """Return the topic of an entry, from one of several name fields or from its topic id."""
    if isinstance(entry, str):
        return entry
    name = getattr(entry, "name", None) or getattr(entry, "topic", None)
    if name:
        return str(name)
    topic_id = getattr(entry, "topic_id", None)
    return topic_name(topic_id) if topic_id else None
