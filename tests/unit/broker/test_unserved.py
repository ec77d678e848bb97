"""APIs behind which brokers have nothing are answered at every version, with final errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.requests.answers import errors_in
from tests.support.requests.unserved import UNSERVED_REQUESTS
from tests.unit.broker.test_administration_apis import request

from tidelog.broker.apis import cards, handlers, modules
from tidelog.core.errors import ErrorCode as E
from tidelog.core.types import TopicPartition
from tidelog.log.producer_state import BatchMetadata, ProducerEntry
from tidelog.wire import registry
from tidelog.wire.codec import encode_response

NOT_ALLOWED = E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NO_ID = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
#: The errors of each answer, NONE left out; Kafka's without an authorizer where Kafka has one.
ERRORS = {
    registry.SASL_HANDSHAKE: [E.ILLEGAL_SASL_STATE],
    registry.SASL_AUTHENTICATE: [E.ILLEGAL_SASL_STATE],
    registry.ADD_PARTITIONS_TO_TXN: [NO_ID],
    registry.ADD_OFFSETS_TO_TXN: [NO_ID],
    registry.END_TXN: [NO_ID],
    registry.TXN_OFFSET_COMMIT: [NO_ID],
    registry.DESCRIBE_ACLS: [E.SECURITY_DISABLED],
    registry.CREATE_ACLS: [E.SECURITY_DISABLED, E.SECURITY_DISABLED],
    registry.DELETE_ACLS: [E.SECURITY_DISABLED],
    registry.CREATE_DELEGATION_TOKEN: [NOT_ALLOWED],
    registry.RENEW_DELEGATION_TOKEN: [NOT_ALLOWED],
    registry.EXPIRE_DELEGATION_TOKEN: [NOT_ALLOWED],
    registry.DESCRIBE_DELEGATION_TOKEN: [NOT_ALLOWED],
    registry.DESCRIBE_CLIENT_QUOTAS: [],
    registry.ALTER_CLIENT_QUOTAS: [E.UNSUPPORTED_VERSION],
    registry.DESCRIBE_USER_SCRAM_CREDENTIALS: [
        E.RESOURCE_NOT_FOUND,
        E.DUPLICATE_RESOURCE,
        E.RESOURCE_NOT_FOUND,
    ],
    registry.ALTER_USER_SCRAM_CREDENTIALS: [E.RESOURCE_NOT_FOUND, E.UNSUPPORTED_SASL_MECHANISM],
    registry.UPDATE_FEATURES: [E.INVALID_REQUEST, E.INVALID_REQUEST],
    registry.DESCRIBE_PRODUCERS: [E.UNKNOWN_TOPIC_OR_PARTITION],
    registry.DESCRIBE_TRANSACTIONS: [E.TRANSACTIONAL_ID_NOT_FOUND],
    registry.LIST_TRANSACTIONS: [],
    registry.CONSUMER_GROUP_HEARTBEAT: [E.UNSUPPORTED_VERSION],
    registry.CONSUMER_GROUP_DESCRIBE: [E.UNSUPPORTED_VERSION],
}
SERVED = cards()
CASES = [
    (key, version)
    for key in UNSERVED_REQUESTS
    for version in range(SERVED[key].min_version, SERVED[key].max_version + 1)
]
TP = TopicPartition("topic", 0)


def a_broker(**replicas: Any) -> Any:
    return SimpleNamespace(
        replicas=SimpleNamespace(
            get=lambda tp: replicas.get(tp.topic),
            directories=[],
            missing_replica_error=lambda tp: E.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    )


def test_every_request_has_its_errors() -> None:
    assert list(ERRORS) == list(UNSERVED_REQUESTS)


@pytest.mark.parametrize(("api_key", "version"), CASES)
def test_the_answer_is_final_and_can_be_encoded(api_key: int, version: int) -> None:
    message = UNSERVED_REQUESTS[api_key](version, TP.topic)
    answer = handlers(a_broker())[api_key].handle(request(message, api_key, version))
    encode_response(api_key, version, 1, answer)
    assert [error for error in errors_in(answer) if error != E.NONE] == ERRORS[api_key]


def test_unknown_names_of_states_are_returned() -> None:
    message = UNSERVED_REQUESTS[registry.LIST_TRANSACTIONS](1, TP.topic)
    answer = modules()[registry.LIST_TRANSACTIONS].handle(a_broker(), request(message, 66, 1))
    assert answer.unknown_state_filters == ["Odd"]


def test_the_producers_of_a_replica_are_described() -> None:
    entry = ProducerEntry(3, (BatchMetadata(9, 20, 4, 1_000),), 1_000)
    producers = SimpleNamespace(entries=lambda: {7: entry})
    broker = a_broker(topic=SimpleNamespace(log=SimpleNamespace(producers=producers)))
    message = UNSERVED_REQUESTS[registry.DESCRIBE_PRODUCERS](0, TP.topic)
    answer = modules()[registry.DESCRIBE_PRODUCERS].handle(broker, request(message, 61, 0))
    [[partition]] = [topic.partitions for topic in answer.topics]
    [producer] = partition.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (7, 3)
    assert (producer.last_sequence, producer.last_timestamp) == (9, 1_000)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
