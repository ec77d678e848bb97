"""Administrators get an answer that names the store while the store is away."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.broker.fakes import CONNECTION, services_of

from tidelog.broker.apis import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    error_response,
    list_partition_reassignments,
    remove_partitions,
)
from tidelog.broker.membership.store_trouble import StoreTrouble
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.metadata.store import SessionEvent
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from tidelog.wire.messages.remove_partitions import RemovePartitionsRequest, RemovePartitionsTopic
from tidelog.wire.registry import (
    ALTER_PARTITION_REASSIGNMENTS,
    API,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    REMOVE_PARTITIONS,
)

SESSION_MS = 6_000
STORE = "zookeeper://zk1:2181,zk2:2181/tide"


class Stage:
    """A broker's store, clock and timers, and a controller that never answers, or is elsewhere."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.controls = True
        self.emit: Callable[[SessionEvent], None]
        self._timers: list[tuple[int, Callable[[], None]]] = []
        self.broker = cast(
            Any,
            SimpleNamespace(
                broker_id=1,
                config=SimpleNamespace(metadata_store=STORE),
                clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms),
                timers=SimpleNamespace(after=self._after),
                tracer=SimpleNamespace(event=lambda *_, **__: None),
                store=SimpleNamespace(session_timeout_ms=SESSION_MS, on_session=self._on_session),
                controller=SimpleNamespace(
                    create_topics=self._ask,
                    create_partitions=self._ask,
                    delete_topics=self._ask,
                    ask=self._ask,
                ),
            ),
        )
        self.broker.services = services_of(self.broker)
        self.broker.store_trouble = StoreTrouble(self.broker.services, error_response)

    def wait(self, until_ms: int) -> None:
        while due := [each for each in self._timers if each[0] <= until_ms]:
            first = min(due, key=lambda each: each[0])
            self._timers.remove(first)
            self.now_ms = first[0]
            first[1]()
        self.now_ms = until_ms

    def _on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self.emit = callback

    def _after(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._timers.append((self.now_ms + delay_ms, callback))

    def _ask(self, _: Any, refusal: Callable[[], Any]) -> Any:
        return Pending() if self.controls else refusal()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def creation(timeout_ms: int) -> Request[Any]:
    message = CreateTopicsRequest(topics=[CreatableTopic("flights", 1, 1)], timeout_ms=timeout_ms)
    return request(CREATE_TOPICS, message)


def request(key: int, message: Any) -> Request[Any]:
    return Request(RequestHeader(key, API[key].max_version, 0, None), message, CONNECTION, 0)


def answers(pending: Any) -> list[Any]:
    got: list[Any] = []
    if not pending.done:
        return got
    pending.deliver_to(got.append)
    return got


def test_a_client_gets_an_answer_after_a_session_timeout(stage: Stage) -> None:
    pending = create_topics.handle(stage.broker, creation(30_000))
    stage.wait(1_000)
    stage.emit(SessionEvent.SUSPENDED)
    stage.wait(SESSION_MS - 1)
    assert answers(pending) == []
    stage.wait(SESSION_MS)
    [answer] = answers(pending)
    [topic] = answer.topics
    assert (topic.name, topic.error_code) == ("flights", ErrorCode.REQUEST_TIMED_OUT)
    assert topic.error_message == (
        f"the metadata store {STORE} has not answered broker 1 for 5,000 ms: it has no quorum, or"
        " the broker cannot reach it; nothing can be changed until it is back"
    )


def test_a_client_in_a_hurry_gets_it_before_its_time_is_over(stage: Stage) -> None:
    stage.emit(SessionEvent.SUSPENDED)
    pending = create_topics.handle(stage.broker, creation(4_000))
    stage.wait(3_000)
    assert len(answers(pending)) == 1


def test_a_store_that_goes_later_is_noticed_too(stage: Stage) -> None:
    pending = create_topics.handle(stage.broker, creation(30_000))
    stage.wait(SESSION_MS + 1)
    stage.emit(SessionEvent.SUSPENDED)
    stage.wait(2 * SESSION_MS)
    assert len(answers(pending)) == 1


@pytest.mark.parametrize("timeout_ms", [0, 30_000])
def test_a_store_that_answers_is_not_blamed(stage: Stage, timeout_ms: int) -> None:
    stage.emit(SessionEvent.SUSPENDED)
    stage.emit(SessionEvent.CONNECTED)
    pending = create_topics.handle(stage.broker, creation(timeout_ms))
    stage.wait(100_000)
    assert answers(pending) == []


def test_a_broker_that_lost_the_office_with_its_session_names_the_store(stage: Stage) -> None:
    stage.controls = False
    answer = create_topics.handle(stage.broker, creation(30_000))
    assert isinstance(answer, CreateTopicsResponse) and isinstance(answer.topics, list)
    assert answer.topics[0].error_message == "this broker is not the controller"
    stage.emit(SessionEvent.EXPIRED)
    answer = create_topics.handle(stage.broker, creation(30_000))
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code is ErrorCode.NOT_CONTROLLER
    message = answer.topics[0].error_message
    assert message is not None and message.startswith(f"the metadata store {STORE} has not")


@pytest.mark.parametrize(
    ("handle", "asked"),
    [
        (
            delete_topics.handle,
            request(DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState("t")])),
        ),
        (
            create_partitions.handle,
            request(CREATE_PARTITIONS, CreatePartitionsRequest([CreatePartitionsTopic("t", 3)])),
        ),
        (
            remove_partitions.handle,
            request(REMOVE_PARTITIONS, RemovePartitionsRequest([RemovePartitionsTopic("t", 1)])),
        ),
        (
            elect_leaders.handle,
            request(ELECT_LEADERS, ElectLeadersRequest(0, [TopicPartitions("t", [0])])),
        ),
        (
            alter_partition_reassignments.handle,
            request(ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest()),
        ),
    ],
    ids=lambda each: getattr(each, "__module__", "request").rpartition(".")[2],
)
def test_every_change_of_an_administrator_is_answered(
    stage: Stage, handle: Any, asked: Request[Any]
) -> None:
    stage.emit(SessionEvent.SUSPENDED)
    pending = handle(stage.broker, asked)
    stage.wait(100_000)
    [answer] = answers(pending)
    assert STORE in repr(answer)


@pytest.mark.parametrize(("timeout_ms", "limit_ms"), [(60_000, SESSION_MS), (2_000, 1_500)])
def test_moves_are_not_listed_from_the_memory_of_a_controller_without_its_store(
    stage: Stage, timeout_ms: int, limit_ms: int
) -> None:
    asked = request(LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(timeout_ms))
    stage.wait(1_000)
    stage.emit(SessionEvent.SUSPENDED)
    stage.wait(1_000 + limit_ms - 1)
    assert isinstance(list_partition_reassignments.handle(stage.broker, asked), Pending)
    stage.wait(1_000 + limit_ms)
    answer = list_partition_reassignments.handle(stage.broker, asked)
    assert not isinstance(answer, Pending)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (answer.error_message or "").startswith(f"the metadata store {STORE} has not answered")
    stage.emit(SessionEvent.CONNECTED)
    assert isinstance(list_partition_reassignments.handle(stage.broker, asked), Pending)
