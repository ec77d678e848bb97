"""Rules about requests: which ones they strike, and what a connection sees of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.broker.connections import FakeBroker, FakeTransport, answers, frame

from tidelog.broker.server.connections import Connection
from tidelog.broker.server.interception import (
    KIT_CLIENT_ID,
    Action,
    Intercepted,
    Interceptor,
    Rule,
    named_partitions,
)
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.broker.server.served import Served
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.wire.codec import RequestHeader, decode_response, encode_request
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.registry import (
    DELETE_GROUPS,
    DESCRIBE_CLUSTER,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
)

SESSION = {9: TopicPartition("t", 4)}
CARD = Card(DESCRIBE_CLUSTER, 0, 1)


class Rules:
    """Rules in memory, with what they met."""

    def __init__(self, *rules: Rule) -> None:
        self.all = rules
        self.fitted: dict[int, int] = {}
        self.told: list[str] = []

    def rules(self) -> Sequence[Rule]:
        return self.all

    def matched(self, rule: Rule) -> int:
        self.fitted[rule.number] = self.fitted.get(rule.number, 0) + 1
        return self.fitted[rule.number]

    def struck(self, rule: Rule, told: str) -> None:
        self.told.append(told)


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    def __init__(self) -> None:
        self.timers: list[tuple[float, Timer]] = []

    def monotonic_ns(self) -> int:
        return 7_000_000

    def monotonic_ms(self) -> int:
        return 7

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        self.timers.append((delay_ms, timer))
        return timer

    def fire(self) -> None:
        """The oldest timer."""
        _, timer = self.timers.pop(0)
        if timer.callback is not None:
            timer.callback()


def around(broker: Any, ids: dict[bytes, str] | None = None) -> Intercepted:
    """What an interceptor sees of a fake broker that knows topics by id."""
    return Intercepted(
        broker_id=1,
        clock=broker.clock,
        dispatcher=broker,
        submit_appends=broker.submit_appends,
        topic_name=lambda topic_id: (ids or {}).get(bytes(topic_id)),
        partitions_of_session=lambda session_id: [SESSION[session_id]],
    )


class InterceptionHarness:
    """A broker with rules, and one connection to it."""

    def __init__(self, *rules: Rule, handle: Callable[[Request[Any]], Any] | None = None) -> None:
        self.handled: list[int] = []
        self.answer: Callable[[], Any] = lambda: DescribeClusterResponse(cluster_id="c")

        def intercepted(request: Any) -> Any:
            return self.wrapped.handle(request)  # which is made below

        self.broker = FakeBroker(intercepted)
        self.clock = Clock()
        self.broker.clock = self.clock  # type: ignore[assignment]  # a fake stands in
        self.rules = Rules(*rules)
        interceptor = Interceptor(around(self.broker), self.rules)
        self.wrapped = interceptor.around(Served(CARD, handle or self._handle))
        self.interceptor = interceptor
        self.transport = FakeTransport()
        self.connection = Connection(self.broker, self.transport)  # type: ignore[arg-type]  # a fake stands in

    def _handle(self, request: Request[Any]) -> Any:
        self.handled.append(request.header.correlation_id)
        return self.answer()

    def send(self, *correlation_ids: int) -> None:
        self.connection.frames_received([frame(number) for number in correlation_ids])

    @property
    def answered(self) -> list[int]:
        return answers(self.transport)


def rule(action: Action, number: int = 1, **more: Any) -> Rule:
    return Rule(number=number, api_keys=(DESCRIBE_CLUSTER,), action=action, **more)


def error_of(transport: FakeTransport, place: int) -> int:
    data = transport.sent[place]
    response: Any = decode_response(DESCRIBE_CLUSTER, 0, memoryview(data)[4:])[1]
    return int(response.error_code)


@pytest.mark.parametrize(
    ("words", "struck"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"times": 1}, [1]),
        ({"times": 2}, [1, 2]),
        ({"first": 3, "times": 1}, [3]),
        ({"first": 2, "step": 2}, [2, 4, 6]),
        ({"times": 0}, []),
    ],
)
def test_a_rule_strikes_by_number(words: dict[str, int], struck: list[int]) -> None:
    made = rule(Action.DROP, **words)
    assert [number for number in range(1, 7) if made.strikes(number)] == struck


def test_a_rule_survives_its_way_through_text() -> None:
    made = rule(Action.ANSWER, brokers=(1, 2), topic="t", error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert Rule.from_json(made.to_json()) == made


def test_without_a_rule_that_fits_requests_are_answered() -> None:
    harness = InterceptionHarness(
        rule(Action.DROP, brokers=(2,)), rule(Action.DROP, 2, client_id="other")
    )
    harness.send(1, 2)
    assert harness.answered == [1, 2]
    assert harness.rules.told == []


def test_a_lost_request_takes_what_follows_on_its_connection_with_it() -> None:
    harness = InterceptionHarness(rule(Action.DROP, first=2, times=1))
    harness.send(1, 2, 3)
    harness.send(4)
    assert harness.answered == harness.handled == [1]
    assert harness.transport.closed is None
    harness.connection.connection_lost("the client gave up")
    other = Connection(harness.broker, harness.transport)  # type: ignore[arg-type]  # a fake stands in
    other.frames_received([frame(5)])
    assert harness.answered == [1, 5]


def test_a_disconnected_request_is_not_handled_nor_what_follows() -> None:
    harness = InterceptionHarness(rule(Action.DISCONNECT, first=2, times=1))
    harness.send(1, 2, 3)
    assert harness.handled == [1]
    assert harness.transport.closed == "intercepted by rule 1"


def test_an_answer_is_an_error_in_place_of_the_request() -> None:
    harness = InterceptionHarness(rule(Action.ANSWER, times=1, error=ErrorCode.REQUEST_TIMED_OUT))
    harness.send(1, 2)
    assert (harness.answered, harness.handled) == ([1, 2], [2])
    assert error_of(harness.transport, 0) == ErrorCode.REQUEST_TIMED_OUT


def test_a_held_request_keeps_its_place_before_those_behind_it() -> None:
    harness = InterceptionHarness(rule(Action.DELAY, times=1, delay_ms=500))
    harness.send(1, 2)
    harness.send(3)
    assert (harness.handled, harness.answered) == ([], [])
    assert harness.transport.kept > 0
    assert [delay_ms for delay_ms, _ in harness.clock.timers] == [500]
    submitted = harness.broker.submitted
    harness.clock.fire()
    assert harness.handled == harness.answered == [1, 2, 3]
    assert harness.broker.submitted == submitted + 3


def test_behind_a_held_request_another_may_be_held() -> None:
    harness = InterceptionHarness(rule(Action.DELAY, times=2, delay_ms=500))
    harness.send(1, 2, 3)
    harness.clock.fire()
    assert harness.handled == [1]
    harness.clock.fire()
    assert harness.handled == harness.answered == [1, 2, 3]


def test_a_loss_behind_a_held_request_loses_the_rest() -> None:
    harness = InterceptionHarness(
        rule(Action.DELAY, times=1, delay_ms=5), rule(Action.DROP, 2, first=2, times=1)
    )
    harness.send(1, 2, 3)
    harness.clock.fire()
    harness.send(4)
    assert harness.handled == harness.answered == [1]


def test_a_held_request_whose_client_has_gone_is_not_handled() -> None:
    harness = InterceptionHarness(rule(Action.DELAY, times=1, delay_ms=500))
    harness.send(1)
    harness.connection.connection_lost("gone")
    harness.clock.fire()
    assert harness.handled == []


def test_a_held_request_that_fails_is_answered_so() -> None:
    harness = InterceptionHarness(rule(Action.DELAY, times=1, delay_ms=5), handle=lambda *_: 1 // 0)
    harness.send(1)
    harness.clock.fire()
    assert error_of(harness.transport, 0) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_after_it_took_effect_the_answer_is_lost_and_those_behind_it() -> None:
    harness = InterceptionHarness(rule(Action.DROP, times=1, after=True))
    harness.send(1, 2)
    assert (harness.handled, harness.answered) == ([1, 2], [])
    assert harness.rules.told == ["broker 1: DescribeCluster 1 of 'tester' at client:1"]


def test_after_it_took_effect_the_connection_is_closed() -> None:
    harness = InterceptionHarness(rule(Action.DISCONNECT, times=1, after=True))
    pending = Pending()
    harness.answer = lambda: pending
    harness.send(1)
    assert (harness.handled, harness.transport.closed, harness.rules.told) == ([1], None, [])
    pending.complete(DescribeClusterResponse())
    assert harness.transport.closed == "intercepted by rule 1"
    assert (harness.answered, len(harness.rules.told)) == ([], 1)


def test_after_it_took_effect_another_answer_is_told() -> None:
    harness = InterceptionHarness(
        rule(Action.ANSWER, after=True, error=ErrorCode.REQUEST_TIMED_OUT)
    )
    harness.send(1)
    assert harness.handled == [1]
    assert error_of(harness.transport, 0) == ErrorCode.REQUEST_TIMED_OUT


def test_after_it_took_effect_the_answer_is_held() -> None:
    harness = InterceptionHarness(rule(Action.DELAY, times=1, after=True, delay_ms=50))
    harness.send(1, 2)
    assert (harness.handled, harness.answered) == ([1, 2], [])
    harness.clock.fire()
    assert harness.answered == [1, 2]


def test_a_request_that_wants_no_answer_has_none_to_lose() -> None:
    harness = InterceptionHarness(rule(Action.DROP, after=True))
    harness.answer = lambda: None
    harness.send(1)
    harness.answer = DescribeClusterResponse
    assert (harness.handled, harness.rules.told) == ([1], [])


def test_the_wait_of_a_request_ends_with_its_connection() -> None:
    harness = InterceptionHarness(rule(Action.DROP, after=True))
    pending = Pending()
    harness.answer = lambda: pending
    harness.send(1)
    harness.connection.connection_lost("gone")
    assert pending.done


def test_all_rules_that_fit_count_and_the_oldest_strikes() -> None:
    harness = InterceptionHarness(
        rule(Action.ANSWER, first=2, times=1, error=ErrorCode.NOT_CONTROLLER),
        rule(Action.ANSWER, 2, error=ErrorCode.REQUEST_TIMED_OUT),
    )
    harness.send(1, 2)
    assert harness.rules.fitted == {1: 2, 2: 2}
    assert error_of(harness.transport, 0) == ErrorCode.REQUEST_TIMED_OUT
    assert error_of(harness.transport, 1) == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("client_id", "clients_rule", "brokers_rule"),
    [
        ("tester", True, False),
        ("broker-2-fetcher-0", False, True),
        ("broker-shop", True, False),
        (KIT_CLIENT_ID, False, False),
    ],
)
def test_brokers_are_left_alone_unless_asked_for_and_the_kit_always(
    client_id: str, clients_rule: bool, brokers_rule: bool
) -> None:
    harness = InterceptionHarness(
        rule(Action.DROP, times=0), rule(Action.DROP, 2, times=0, from_brokers=True)
    )
    parts = encode_request(DESCRIBE_CLUSTER, 0, 1, client_id, DescribeClusterRequest())
    harness.connection.frames_received([memoryview(b"".join(map(bytes, parts)))[4:]])
    assert (1 in harness.rules.fitted, 2 in harness.rules.fitted) == (clients_rule, brokers_rule)


def request_of(api_key: int, message: Any) -> Request[Any]:
    header = RequestHeader(api_key, 0, 1, "tester")
    return Request(header, message, InterceptionHarness().connection, 0)


def test_topics_are_found_by_name_and_by_id() -> None:
    intercepted = around(InterceptionHarness().broker, {b"i" * 16: "by-id"})
    named = MetadataRequestTopic(name="by-name")
    identified = MetadataRequestTopic(topic_id=b"i" * 16, name=None)
    request = request_of(METADATA, MetadataRequest(topics=[named, identified]))
    assert list(named_partitions(intercepted, request)) == [("by-name", None), ("by-id", None)]


@pytest.mark.parametrize(
    ("api_key", "message"),
    [
        (PRODUCE, ProduceRequest(topic_data=[TopicProduceData("t", [PartitionProduceData(4)])])),
        (
            LIST_OFFSETS,
            ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(4)])]),
        ),
        (OFFSET_FETCH, OffsetFetchRequest(topics=[OffsetFetchRequestTopic("t", [4])])),
        (FETCH, FetchRequest(session_id=9)),
    ],
)
def test_partitions_are_found_wherever_requests_have_them(api_key: int, message: Any) -> None:
    request = request_of(api_key, message)
    found = list(named_partitions(around(InterceptionHarness().broker), request))
    assert found == [("t", None), ("t", 4)]


def test_a_response_of_the_tests_making_replaces_the_brokers() -> None:
    harness = InterceptionHarness(
        rule(Action.ANSWER, fields={"cluster_id": "mine", "controller_id": 7}, times=1),
        rule(Action.ANSWER, 2, fields={"controller_id": 8}, after=True, first=2),
    )
    harness.send(1, 2)
    assert harness.handled == [2]
    read = [
        decode_response(DESCRIBE_CLUSTER, 0, memoryview(data)[4:])[1]
        for data in harness.transport.sent
    ]
    assert [(each.cluster_id, each.controller_id) for each in read] == [("mine", 7), ("c", 8)]


def test_a_rule_about_a_group_fits_requests_that_name_it() -> None:
    about = Rule(number=1, api_keys=(DELETE_GROUPS,), action=Action.DROP, group_id="g")
    interceptor = InterceptionHarness(about).interceptor
    assert interceptor._fits(about, request_of(DELETE_GROUPS, DeleteGroupsRequest(["f", "g"])))
    assert not interceptor._fits(about, request_of(DELETE_GROUPS, DeleteGroupsRequest(["f"])))
