"""Steps around handlers, and the rights that the cards of APIs declare."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker import apis
from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.broker.server.served import Served
from tidelog.broker.server.steps import GO_ON, Step, after, before, proving_broker
from tidelog.core.authorization import ANONYMOUS, Principal, ResourceType, Right
from tidelog.core.errors import ErrorCode
from tidelog.wire.codec import RequestHeader
from tidelog.wire.registry import (
    API,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    ELECT_LEADERS,
    LEADER_AND_ISR,
    METADATA,
)

ALICE = Principal("User", "alice")

#: The rights of Kafka's handlers, by API key (`KafkaApis`); ours above 20,000 by their likes.
RIGHTS = {
    0: "WRITE X, WRITE T",
    1: "READ T, CLUSTER_ACTION C",
    2: "DESCRIBE T",
    3: "DESCRIBE T, CREATE C, CREATE T, DESCRIBE C",
    4: "CLUSTER_ACTION C",
    5: "CLUSTER_ACTION C",
    6: "CLUSTER_ACTION C",
    7: "CLUSTER_ACTION C",
    8: "READ G, READ T",
    9: "DESCRIBE G, DESCRIBE T",
    10: "DESCRIBE G, DESCRIBE X",
    11: "READ G",
    12: "READ G",
    13: "READ G",
    14: "READ G",
    15: "DESCRIBE G",
    16: "DESCRIBE C, DESCRIBE G",
    17: "",
    18: "",
    19: "CREATE C, CREATE T, DESCRIBE_CONFIGS T",
    20: "DESCRIBE T, DELETE T",
    21: "DELETE T",
    22: "WRITE X, IDEMPOTENT_WRITE C, WRITE T",
    23: "CLUSTER_ACTION C, DESCRIBE T",
    24: "WRITE X, WRITE T, CLUSTER_ACTION C",
    25: "WRITE X, READ G",
    26: "WRITE X",
    28: "WRITE X, READ G, READ T",
    29: "DESCRIBE C",
    30: "ALTER C",
    31: "ALTER C",
    32: "DESCRIBE_CONFIGS T, DESCRIBE_CONFIGS C",
    33: "ALTER_CONFIGS T, ALTER_CONFIGS C",
    34: "ALTER C",
    35: "DESCRIBE C",
    36: "",
    37: "ALTER T",
    38: "CREATE_TOKENS U",
    39: "",
    40: "",
    41: "DESCRIBE D, DESCRIBE_TOKENS U",
    42: "DELETE G",
    43: "ALTER C",
    44: "ALTER_CONFIGS T, ALTER_CONFIGS C",
    45: "ALTER C",
    46: "DESCRIBE C",
    47: "DELETE G, READ T",
    48: "DESCRIBE_CONFIGS C",
    49: "ALTER_CONFIGS C",
    50: "DESCRIBE C",
    51: "ALTER C",
    56: "CLUSTER_ACTION C",
    57: "ALTER C",
    60: "DESCRIBE C",
    61: "READ T",
    65: "DESCRIBE X, DESCRIBE T",
    66: "DESCRIBE X",
    67: "CLUSTER_ACTION C",
    68: "READ G",
    69: "DESCRIBE G",
    75: "DESCRIBE T",
    93: "CLUSTER_ACTION C",
    20_000: "DELETE T",
    20_001: "DESCRIBE C",
    20_002: "ALTER C",
    20_003: "CLUSTER_ACTION C",
    20_004: "DESCRIBE T",
    20_005: "CLUSTER_ACTION C",
    20_006: "ALTER C",
    20_007: "DESCRIBE C",
    20_008: "DESCRIBE C",
}
LETTERS = {
    "T": ResourceType.TOPIC,
    "G": ResourceType.GROUP,
    "C": ResourceType.CLUSTER,
    "X": ResourceType.TRANSACTIONAL_ID,
    "D": ResourceType.DELEGATION_TOKEN,
    "U": ResourceType.USER,
}


class _Broker:
    """A dispatcher with handlers that note what they are asked, and steps around them."""

    def __init__(self, *steps: Step) -> None:
        self.handled: list[int] = []
        self.pending: Pending | None = None
        tasks: Any = None
        self.dispatcher = Dispatcher(tasks, apis.error_response, lambda where, error: None)
        cards = apis.cards()
        served = {key: Served(card, self._handle) for key, card in cards.items()}
        self.dispatcher.serve(served, steps)

    def _handle(self, request: Request[Any]) -> Any:
        self.handled.append(request.header.api_key)
        return self.pending or SimpleNamespace(throttle_time_ms=0)

    def ask(self, key: int, principal: Principal = ANONYMOUS) -> Any:
        version = API[key].max_version
        handler = self.dispatcher.handler(key, version)
        assert handler is not None
        self.connection = SimpleNamespace(principal=principal, is_broker=False, proved=0)
        self.connection.prove_broker = self._prove
        connection: Any = self.connection
        message = API[key].request()
        return handler(Request(RequestHeader(key, version, 0, None), message, connection, 0))

    def _prove(self) -> None:
        self.connection.proved += 1


def only_of_alice(card: Card, request: Request[Any]) -> Any:
    """An authorizer as small as one can be: only Alice may do what needs a right on the cluster."""
    needed = [right for right in card.rights if right.resource_type is ResourceType.CLUSTER]
    if not needed or request.principal == ALICE:
        return GO_ON
    return apis.error_response(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def test_every_card_declares_the_rights_of_kafkas_handler() -> None:
    declared = {key: card.rights for key, card in apis.cards().items()}
    assert declared.keys() == RIGHTS.keys()
    for key, text in RIGHTS.items():
        words = [word.split() for word in text.split(", ") if word]
        expected = {(operation, LETTERS[letter]) for operation, letter in words}
        assert {(each.operation.name, each.resource_type) for each in declared[key]} == expected, (
            key
        )


def test_a_right_is_of_the_codes_on_the_wire() -> None:
    [right] = apis.cards()[ELECT_LEADERS].rights
    assert right == Right(right.operation, ResourceType.CLUSTER)
    assert (right.operation, right.resource_type) == (7, 4)
    assert (str(ANONYMOUS), str(ALICE)) == ("User:ANONYMOUS", "User:alice")


def test_a_step_before_refuses_by_principal_and_card() -> None:
    broker = _Broker(before(only_of_alice))
    refused = broker.ask(ELECT_LEADERS)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.handled == []
    broker.ask(ELECT_LEADERS, ALICE)
    broker.ask(API_VERSIONS)
    assert broker.handled == [ELECT_LEADERS, API_VERSIONS]


def test_a_step_before_may_delay_its_response() -> None:
    held = Pending()
    broker = _Broker(before(lambda card, request: held))
    assert broker.ask(METADATA) is held
    assert broker.handled == []


@pytest.mark.parametrize("delayed", [False, True])
def test_a_step_after_gets_each_response_once(delayed: bool) -> None:
    counted: list[int] = []

    def throttled(card: Card, request: Request[Any], response: Any) -> Any:
        counted.append(card.api_key)
        response.throttle_time_ms = 7
        return response

    broker = _Broker(after(throttled))
    if delayed:
        broker.pending = Pending()
    sent: list[Any] = []
    response = broker.ask(DESCRIBE_CLUSTER)
    if delayed:
        assert counted == []
        response.deliver_to(sent.append)
        broker.pending.complete(SimpleNamespace(throttle_time_ms=0))  # type: ignore[union-attr]  # set above
        broker.pending.complete(None)  # type: ignore[union-attr]  # too late: it has its response
        [response] = sent
    assert (counted, response.throttle_time_ms) == ([DESCRIBE_CLUSTER], 7)


def test_a_step_after_may_delay_the_response_and_ends_with_the_connection() -> None:
    held = Pending()
    cancelled: list[str] = []
    held.on_cancel(lambda: cancelled.append("held"))
    broker = _Broker(after(lambda card, request, response: held))
    broker.pending = Pending()
    waiting = broker.ask(METADATA)
    broker.pending.complete(SimpleNamespace())
    assert not waiting.done
    waiting.cancel()
    assert cancelled == ["held"]


def test_a_response_whose_connection_is_lost_reaches_no_step() -> None:
    counted: list[Any] = []
    broker = _Broker(after(lambda card, request, response: counted.append(response)))
    broker.pending = Pending()
    cancelled: list[str] = []
    broker.pending.on_cancel(lambda: cancelled.append("handler"))
    broker.ask(METADATA).cancel()
    broker.pending.complete(SimpleNamespace())
    assert (counted, cancelled) == ([], ["handler"])


def test_the_last_step_is_outermost() -> None:
    order: list[str] = []

    def named(name: str) -> Step:
        def note(card: Card, request: Request[Any]) -> Any:
            order.append(name)
            return GO_ON

        return before(note)

    broker = _Broker(named("inner"), named("outer"))
    broker.dispatcher.put_around(named("test"))
    broker.ask(METADATA)
    assert order == ["test", "outer", "inner"]


def test_a_refused_request_is_seen_by_the_steps_outside() -> None:
    counted: list[int] = []

    def count(card: Card, request: Request[Any], response: Any) -> Any:
        counted.append(response.error_code)
        return response

    broker = _Broker(before(only_of_alice), after(count))
    broker.ask(ELECT_LEADERS)
    assert counted == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


@pytest.mark.parametrize(("key", "times"), [(LEADER_AND_ISR, 1), (METADATA, 0)])
def test_a_request_between_brokers_proves_its_connection(key: int, times: int) -> None:
    broker = _Broker(proving_broker)
    broker.ask(key)
    assert broker.connection.proved == times
