"""A request that fails as a whole is answered, whatever the API and version; only that one pays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.requests.answers import errors_in
from tests.support.requests.by_version import CLIENT_APIS, sensible_request

from tidelog.broker.apis import cards, error_response
from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.errors import ErrorCode, InvariantError, StorageError
from tidelog.core.tasks import Tasks
from tidelog.runtime.clock import SystemClock
from tidelog.wire.codec import RequestHeader, decode_response, encode_response
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirTopicResult,
)
from tidelog.wire.messages.create_acls import AclCreationResult
from tidelog.wire.messages.delete_topics import DeletableTopicResult
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.describe_configs import DescribeConfigsResult
from tidelog.wire.messages.elect_leaders import PartitionResult, ReplicaElectionResult
from tidelog.wire.messages.fetch import FetchableTopicResponse, PartitionData
from tidelog.wire.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoTopic,
)
from tidelog.wire.registry import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_REPLICA_LOG_DIRS,
    API,
    CREATE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    ELECT_LEADERS,
    FETCH,
    GET_REPLICA_LOG_INFO,
    PRODUCE,
)

FAILED = ErrorCode.UNKNOWN_SERVER_ERROR
TOPIC_ID = bytes(range(16))
SERVED = [
    (key, version)
    for key, card in cards().items()
    for version in range(card.min_version, card.max_version + 1)
]


def request_of(api_key: int, version: int, message: Any) -> Request[Any]:
    header = RequestHeader(api_key, version, 7, "a\nclient")
    return Request(header, message, cast(Any, SimpleNamespace(peer="host:1")), 0)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_every_answer_can_tell_the_error_and_be_encoded(api_key: int, version: int) -> None:
    if api_key in CLIENT_APIS:
        message = sensible_request(api_key, version, "topic", bytes(range(16)))
    elif api_key == GET_REPLICA_LOG_INFO:
        message = GetReplicaLogInfoRequest([GetReplicaLogInfoTopic(bytes(range(16)), [0])])
    else:
        message = API[api_key].request()
    answer = error_response(request_of(api_key, version, message), FAILED)
    frame = b"".join(bytes(part) for part in encode_response(api_key, version, 7, answer))
    correlation_id, decoded = decode_response(api_key, version, memoryview(frame)[4:])
    assert correlation_id == 7
    assert FAILED in list(errors_in(decoded))


UNREAD = PartitionData(3, FAILED, high_watermark=-1, records=b"")
#: An API, a version, an array of the response, and the first entry in it.
ENTRIES = [
    (FETCH, 13, "responses", FetchableTopicResponse("topic", TOPIC_ID, [UNREAD])),
    (DELETE_TOPICS, 6, "responses", DeletableTopicResult("made-at-6", error_code=FAILED)),
    (DESCRIBE_CONFIGS, 1, "results", DescribeConfigsResult(FAILED, None, 2, "topic")),
    (
        ELECT_LEADERS,
        1,
        "replica_election_results",
        ReplicaElectionResult("topic", [PartitionResult(3, FAILED), PartitionResult(99, FAILED)]),
    ),
    (
        ALTER_REPLICA_LOG_DIRS,
        1,
        "results",
        AlterReplicaLogDirTopicResult("topic", [AlterReplicaLogDirPartitionResult(3, FAILED)]),
    ),
    (
        ADD_PARTITIONS_TO_TXN,
        3,
        "results_by_topic_v3_and_below",
        AddPartitionsToTxnTopicResult("topic", [AddPartitionsToTxnPartitionResult(0, FAILED)]),
    ),
    (CREATE_ACLS, 1, "results", AclCreationResult(FAILED)),
]


@pytest.mark.parametrize(("api_key", "version", "entries", "entry"), ENTRIES)
def test_an_entry_names_its_part_of_the_request(
    api_key: int, version: int, entries: str, entry: Any
) -> None:
    message = sensible_request(api_key, version, "topic", TOPIC_ID, partition=3)
    answer = error_response(request_of(api_key, version, message), FAILED)
    assert getattr(answer, entries)[0] == entry


def test_a_produce_that_wants_no_answer_gets_none() -> None:
    message = sensible_request(PRODUCE, 9, "topic", bytes(16))
    message.acks = 0
    assert error_response(request_of(PRODUCE, 9, message), FAILED) is None


class _Broker:
    """A dispatcher, and what it reports."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.halted: list[BaseException] = []
        self.defects: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(loop, SystemClock(loop), lambda name, error: self.halted.append(error))
        self.dispatcher = Dispatcher(self.tasks, error_response, self.unexpected)

    def unexpected(self, where: str, error: BaseException) -> None:
        self.defects.append((where, error))


def answered(
    error: Exception | None, prepare: Callable[[_Broker], None] = lambda broker: None
) -> tuple[_Broker, list[Any]]:
    """What becomes of an async handler that raises `error`, or answers."""
    answers: list[Any] = []

    async def handle() -> DescribeClusterResponse:
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return DescribeClusterResponse(cluster_id="c")

    async def story() -> _Broker:
        broker = _Broker(asyncio.get_running_loop())
        prepare(broker)
        request = request_of(DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
        pending: Pending = broker.dispatcher.answer_from(handle(), request)
        pending.deliver_to(answers.append)
        for _ in range(5):
            await asyncio.sleep(0)
        return broker

    return asyncio.run(story()), answers


def test_an_async_handler_that_answers_answers() -> None:
    broker, (answer,) = answered(None)
    assert answer.cluster_id == "c" and not broker.defects and not broker.halted


def test_an_async_handler_that_fails_costs_its_request_and_tells_whose_it_was() -> None:
    error = KeyError("a defect")
    broker, (answer,) = answered(error)
    assert answer.error_code == FAILED
    assert broker.defects == [("DescribeCluster version 1 of client 'a\\nclient' at host:1", error)]
    assert broker.halted == []


@pytest.mark.parametrize("error", [InvariantError("cannot be"), AssertionError("cannot be")])
def test_a_broken_invariant_of_an_async_handler_ends_the_broker(error: AssertionError) -> None:
    broker, answers = answered(error)
    assert answers == [] and broker.defects == [] and broker.halted == [error]


def test_what_a_stopping_broker_takes_from_a_handler_is_no_defect() -> None:
    def stop(broker: _Broker) -> None:
        broker.dispatcher.is_stopping = True

    error = StorageError("/logs", "pwrite", "/logs/t", 5, 0)
    broker, (answer,) = answered(error, stop)
    assert answer.error_code == FAILED and broker.defects == [] and broker.halted == []
