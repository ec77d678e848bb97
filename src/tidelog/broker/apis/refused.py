"""The APIs that brokers refuse, with the versions and the error of each.

A broker responds to a request of a refused API with an error. Each error either makes clients stop,
or is the error of a Kafka 3.9 broker with PLAINTEXT listeners and without an authorizer. The broker
responds with an error instead of closing the connection, because the client would reconnect and
repeat the request.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.broker.apis.support.errors import error_response
from tidelog.broker.server.requests import Card, Request
from tidelog.broker.server.served import Served
from tidelog.core.authorization import (
    ALTER_CLUSTER,
    ALTER_CONFIGS_CLUSTER,
    CLUSTER_ACTION,
    CREATE_TOKENS,
    DESCRIBE_CLUSTER,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_GROUP,
    DESCRIBE_TOKENS,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Right,
)
from tidelog.core.errors import ErrorCode
from tidelog.wire import registry

PLAINTEXT_LISTENER: Final = "the listener is PLAINTEXT: brokers have no authentication"
_NO_AUTHORIZER: Final = "brokers have no authorizer: there are no access control lists"
_NO_QUOTAS: Final = "brokers enforce no quotas of users, clients or addresses, and keep none"
_CLASSIC_GROUPS: Final = "groups have the classic protocol only: set group.protocol=classic"
#: Reasons why brokers refuse APIs, for the table in docs/compatibility.md: the four values from
#: here on.
NO_LOGIN: Final = "no authentication: listeners are PLAINTEXT"
_NO_TRANSACTIONS: Final = "no transactions"
_NO_ACLS: Final = "no access control"
_CLASSIC: Final = "groups of the classic protocol only (KIP-848)"
#: The error for a transactional id; FindCoordinator also refuses transactional ids with this error.
_NO_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
#: Clients on PLAINTEXT listeners are not authenticated, so they get no delegation token.
_NO_TOKEN: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_ILLEGAL: Final = ErrorCode.ILLEGAL_SASL_STATE
_DISABLED: Final = ErrorCode.SECURITY_DISABLED
#: UNSUPPORTED_VERSION is also the error of a Kafka 3.9 broker whose consumer group protocol is
#: disabled, as it is by default.
_UNSUPPORTED: Final = ErrorCode.UNSUPPORTED_VERSION


def _refused(
    api_key: int,
    first: int,
    last: int,
    why: str,
    error: ErrorCode,
    message: str | None = None,
    *,
    rights: tuple[Right, ...] = (),
) -> Served:
    """Return a refused API: in versions `first` to `last`, every part of a request gets `error`.

    `why` is the reason for the documentation, and `rights` are rights that some requests would
    need.
    """

    def handle(request: Request[Any]) -> Any:
        return error_response(request, error, message)

    return Served(Card(api_key, first, last, refused=why, rights=rights), handle)


#: The refused APIs by key, except `alter_user_scram_credentials` and `update_features`, which are
#: modules because their parts get different errors.
REFUSED: Final[dict[int, Served]] = {
    served.card.api_key: served
    for served in (
        _refused(registry.SASL_HANDSHAKE, 0, 1, NO_LOGIN, _ILLEGAL),
        _refused(
            registry.ADD_PARTITIONS_TO_TXN,
            0,
            5,
            _NO_TRANSACTIONS,
            _NO_ID,
            rights=(WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CLUSTER_ACTION),
        ),
        _refused(
            registry.ADD_OFFSETS_TO_TXN,
            0,
            4,
            _NO_TRANSACTIONS,
            _NO_ID,
            rights=(WRITE_TRANSACTIONAL_ID, READ_GROUP),
        ),
        _refused(
            registry.END_TXN, 0, 4, _NO_TRANSACTIONS, _NO_ID, rights=(WRITE_TRANSACTIONAL_ID,)
        ),
        _refused(
            registry.TXN_OFFSET_COMMIT,
            0,
            4,
            _NO_TRANSACTIONS,
            _NO_ID,
            rights=(WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC),
        ),
        _refused(
            registry.DESCRIBE_ACLS,
            1,
            3,
            _NO_ACLS,
            _DISABLED,
            _NO_AUTHORIZER,
            rights=(DESCRIBE_CLUSTER,),
        ),
        _refused(
            registry.CREATE_ACLS, 1, 3, _NO_ACLS, _DISABLED, _NO_AUTHORIZER, rights=(ALTER_CLUSTER,)
        ),
        _refused(
            registry.DELETE_ACLS, 1, 3, _NO_ACLS, _DISABLED, _NO_AUTHORIZER, rights=(ALTER_CLUSTER,)
        ),
        _refused(registry.SASL_AUTHENTICATE, 0, 2, NO_LOGIN, _ILLEGAL, PLAINTEXT_LISTENER),
        _refused(
            registry.CREATE_DELEGATION_TOKEN, 1, 3, NO_LOGIN, _NO_TOKEN, rights=(CREATE_TOKENS,)
        ),
        _refused(registry.RENEW_DELEGATION_TOKEN, 1, 2, NO_LOGIN, _NO_TOKEN),
        _refused(registry.EXPIRE_DELEGATION_TOKEN, 1, 2, NO_LOGIN, _NO_TOKEN),
        _refused(
            registry.DESCRIBE_DELEGATION_TOKEN,
            1,
            3,
            NO_LOGIN,
            _NO_TOKEN,
            rights=(DESCRIBE_DELEGATION_TOKEN, DESCRIBE_TOKENS),
        ),
        _refused(
            registry.ALTER_CLIENT_QUOTAS,
            0,
            1,
            "no quotas",
            _UNSUPPORTED,
            _NO_QUOTAS,
            rights=(ALTER_CONFIGS_CLUSTER,),
        ),
        _refused(
            registry.CONSUMER_GROUP_HEARTBEAT,
            0,
            0,
            _CLASSIC,
            _UNSUPPORTED,
            _CLASSIC_GROUPS,
            rights=(READ_GROUP,),
        ),
        _refused(
            registry.CONSUMER_GROUP_DESCRIBE,
            0,
            0,
            _CLASSIC,
            _UNSUPPORTED,
            _CLASSIC_GROUPS,
            rights=(DESCRIBE_GROUP,),
        ),
    )
}
