"""Sensible requests of APIs behind which brokers have nothing, and of the views beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.describe_acls import DescribeAclsRequest
from tidelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tidelog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from tidelog.wire.messages.list_transactions import ListTransactionsRequest
from tidelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidelog.wire.registry import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    END_TXN,
    EXPIRE_DELEGATION_TOKEN,
    LIST_TRANSACTIONS,
    RENEW_DELEGATION_TOKEN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    TXN_OFFSET_COMMIT,
    UPDATE_FEATURES,
)

TXN, GROUP = "a transaction", "a group"
#: Kafka's codes: resource TOPIC, pattern LITERAL, operation READ, permission ALLOW; 1 is ANY.
_TOPIC, _LITERAL, _READ, _ALLOW, _ANY = 2, 3, 3, 3, 1
#: Kafka's code of SCRAM-SHA-256.
_SHA_256 = 1


def _add_partitions(version: int, topic: str) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(topic, [0])]
    if version < 4:
        return AddPartitionsToTxnRequest([], TXN, 7, 0, topics)
    return AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(TXN, 7, 0, topics=topics)])


def _commit_offsets(version: int, topic: str) -> TxnOffsetCommitRequest:
    offset = TxnOffsetCommitRequestPartition(0, 7, committed_metadata="")
    topics = [TxnOffsetCommitRequestTopic(topic, [offset])]
    return TxnOffsetCommitRequest(TXN, GROUP, 7, 0, topics=topics)


def _describe_acls(version: int, topic: str) -> DescribeAclsRequest:
    return DescribeAclsRequest(_TOPIC, topic, _LITERAL, operation=_ANY, permission_type=_ANY)


def _create_acls(version: int, topic: str) -> CreateAclsRequest:
    acl = AclCreation(_TOPIC, topic, _LITERAL, "User:a", "*", _READ, _ALLOW)
    return CreateAclsRequest([acl, acl])


def _delete_acls(version: int, topic: str) -> DeleteAclsRequest:
    wanted = DeleteAclsFilter(_TOPIC, topic, _LITERAL, operation=_ANY, permission_type=_ANY)
    return DeleteAclsRequest([wanted])


def _alter_quotas(version: int, topic: str) -> AlterClientQuotasRequest:
    entry = EntryData([EntityData("user", None)], [OpData("producer_byte_rate", 1024.0)])
    return AlterClientQuotasRequest([entry])


def _alter_scram(version: int, topic: str) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion("a", _SHA_256)],
        [ScramCredentialUpsertion("b", _SHA_256, 4096, b"salt", b"password")],
    )


UNSERVED_REQUESTS: dict[int, Callable[[int, str], Any]] = {
    SASL_HANDSHAKE: lambda version, topic: SaslHandshakeRequest("PLAIN"),
    SASL_AUTHENTICATE: lambda version, topic: SaslAuthenticateRequest(b"\0user\0password"),
    ADD_PARTITIONS_TO_TXN: _add_partitions,
    ADD_OFFSETS_TO_TXN: lambda version, topic: AddOffsetsToTxnRequest(TXN, 7, 0, GROUP),
    END_TXN: lambda version, topic: EndTxnRequest(TXN, 7, 0, True),
    TXN_OFFSET_COMMIT: _commit_offsets,
    DESCRIBE_ACLS: _describe_acls,
    CREATE_ACLS: _create_acls,
    DELETE_ACLS: _delete_acls,
    CREATE_DELEGATION_TOKEN: lambda version, topic: CreateDelegationTokenRequest(),
    RENEW_DELEGATION_TOKEN: lambda version, topic: RenewDelegationTokenRequest(b"hmac", 1000),
    EXPIRE_DELEGATION_TOKEN: lambda version, topic: ExpireDelegationTokenRequest(b"hmac", -1),
    DESCRIBE_DELEGATION_TOKEN: lambda version, topic: DescribeDelegationTokenRequest(None),
    DESCRIBE_CLIENT_QUOTAS: lambda version, topic: DescribeClientQuotasRequest(
        [ComponentData("user", 2, None)]
    ),
    ALTER_CLIENT_QUOTAS: _alter_quotas,
    DESCRIBE_USER_SCRAM_CREDENTIALS: lambda version, topic: DescribeUserScramCredentialsRequest(
        [UserName("a"), UserName("b"), UserName("b"), UserName("")]
    ),
    ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    UPDATE_FEATURES: lambda version, topic: UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey("metadata.version", 20), FeatureUpdateKey("odd", 0)]
    ),
    DESCRIBE_PRODUCERS: lambda version, topic: DescribeProducersRequest([TopicRequest(topic, [0])]),
    DESCRIBE_TRANSACTIONS: lambda version, topic: DescribeTransactionsRequest([TXN]),
    LIST_TRANSACTIONS: lambda version, topic: ListTransactionsRequest(["Ongoing", "Odd"]),
    CONSUMER_GROUP_HEARTBEAT: lambda version, topic: ConsumerGroupHeartbeatRequest(GROUP, "m"),
    CONSUMER_GROUP_DESCRIBE: lambda version, topic: ConsumerGroupDescribeRequest([GROUP]),
}
