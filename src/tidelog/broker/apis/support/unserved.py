"""Refusals of APIs behind which brokers have nothing: transactions, ACLs, SASL, tokens, quotas.

Such an API is answered all the same, with the error that a Kafka 3.9 broker without an authorizer
and with PLAINTEXT listeners gives, or with a final one. A client shows it and stops, where a closed
connection makes it connect and ask again. Cards name the reason (`Card.refused`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.broker.server.requests import Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidelog.wire.messages.alter_client_quotas import AlterClientQuotasResponse, EntryResult
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from tidelog.wire.messages.create_acls import AclCreationResult, CreateAclsResponse
from tidelog.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from tidelog.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from tidelog.wire.messages.describe_client_quotas import DescribeClientQuotasResponse
from tidelog.wire.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TransactionState,
)
from tidelog.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from tidelog.wire.messages.renew_delegation_token import RenewDelegationTokenResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.wire.registry import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    ALTER_REPLICA_LOG_DIRS,
    ALTER_USER_SCRAM_CREDENTIALS,
    API,
    CONSUMER_GROUP_DESCRIBE,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    DELETE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    TXN_OFFSET_COMMIT,
)

NO_AUTHORIZER: Final = "brokers have no authorizer: there are no access control lists"
NO_QUOTAS: Final = "brokers enforce no quotas of users, clients or addresses, and keep none"
PLAINTEXT_LISTENER: Final = "the listener is PLAINTEXT: brokers have no authentication"
CLASSIC_GROUPS: Final = "groups have the classic protocol only: set group.protocol=classic"
NO_TRANSACTIONS: Final = "brokers have no transaction coordinator: transactions are not served"

#: From this version on AddPartitionsToTxn has an error of the whole request.
_TRANSACTIONS_VERSION: Final = 4
#: From this version on CreateDelegationToken answers who asked.
_REQUESTER_VERSION: Final = 3
#: A time that there is none of.
_NO_TIME: Final = -1
#: The principal of clients on PLAINTEXT listeners, as Kafka names it.
_PRINCIPAL: Final = ("User", "ANONYMOUS")


def refuse(request: Request, error: ErrorCode, message: str | None = None) -> Any:
    """Return the answer that gives `error`, and `message` where it has room, to all it asked."""
    api_key = request.header.api_key
    special = BY_ENTRY.get(api_key)
    if special is not None:
        return special(request, error, message)
    answer = API[api_key].response(error_code=error)
    if message is not None and hasattr(answer, "error_message"):
        answer.error_message = message
    return answer


def _add_partitions(
    request: Request, error: ErrorCode, message: str | None
) -> AddPartitionsToTxnResponse:
    if request.header.api_version >= _TRANSACTIONS_VERSION:
        return AddPartitionsToTxnResponse(error_code=error)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [AddPartitionsToTxnPartitionResult(number, error) for number in topic.partitions],
            )
            for topic in request.message.v3_and_below_topics
        ]
    )


def _commit_offsets(
    request: Request, error: ErrorCode, message: str | None
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(one.partition_index, error)
                    for one in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
    )


def _create_acls(request: Request, error: ErrorCode, message: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error, message) for _ in request.message.creations]
    )


def _delete_acls(request: Request, error: ErrorCode, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error, message) for _ in request.message.filters]
    )


def _create_token(
    request: Request, error: ErrorCode, message: str | None
) -> CreateDelegationTokenResponse:
    requester = _PRINCIPAL if request.header.api_version >= _REQUESTER_VERSION else ("", "")
    return CreateDelegationTokenResponse(
        error, *_PRINCIPAL, *requester, _NO_TIME, _NO_TIME, _NO_TIME
    )


def _renew_token(
    request: Request, error: ErrorCode, message: str | None
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error, _NO_TIME)


def _expire_token(
    request: Request, error: ErrorCode, message: str | None
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error, _NO_TIME)


def _describe_quotas(
    request: Request, error: ErrorCode, message: str | None
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)


def _alter_quotas(
    request: Request, error: ErrorCode, message: str | None
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[EntryResult(error, message, entry.entity) for entry in request.message.entries]
    )


def _alter_scram(
    request: Request, error: ErrorCode, message: str | None
) -> AlterUserScramCredentialsResponse:
    asked = (*request.message.deletions, *request.message.upsertions)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(name, error, message)
            for name in dict.fromkeys(one.name for one in asked)
        ]
    )


def _describe_producers(
    request: Request, error: ErrorCode, message: str | None
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                topic.name,
                [PartitionResponse(number, error, message) for number in topic.partition_indexes],
            )
            for topic in request.message.topics
        ]
    )


def _describe_transactions(
    request: Request, error: ErrorCode, message: str | None
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=error, transactional_id=transactional_id)
            for transactional_id in request.message.transactional_ids
        ]
    )


def _describe_groups(
    request: Request, error: ErrorCode, message: str | None
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(error_code=error, error_message=message, group_id=group_id)
            for group_id in request.message.group_ids
        ]
    )


def _alter_log_dirs(
    request: Request, error: ErrorCode, message: str | None
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic.name,
                [AlterReplicaLogDirPartitionResult(number, error) for number in topic.partitions],
            )
            for directory in request.message.dirs
            for topic in directory.topics
        ]
    )


#: Answers of these APIs have an error for each entry, or fields that an error must set.
BY_ENTRY: Final[Mapping[int, Callable[[Request, ErrorCode, str | None], Any]]] = {
    ADD_PARTITIONS_TO_TXN: _add_partitions,
    TXN_OFFSET_COMMIT: _commit_offsets,
    CREATE_ACLS: _create_acls,
    DELETE_ACLS: _delete_acls,
    ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    CREATE_DELEGATION_TOKEN: _create_token,
    RENEW_DELEGATION_TOKEN: _renew_token,
    EXPIRE_DELEGATION_TOKEN: _expire_token,
    DESCRIBE_CLIENT_QUOTAS: _describe_quotas,
    ALTER_CLIENT_QUOTAS: _alter_quotas,
    ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    DESCRIBE_PRODUCERS: _describe_producers,
    DESCRIBE_TRANSACTIONS: _describe_transactions,
    CONSUMER_GROUP_DESCRIBE: _describe_groups,
}
