"""The replica id in requests that followers and clients send: a follower's proves a broker (L1).

Fetch, ListOffsets and OffsetForLeaderEpoch carry one. Knows which brokers are registered, and not
whether the peer is the broker that it names: without authentication no request proves that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.server.requests import Request

if TYPE_CHECKING:
    from tidelog.broker.services import Services


def note_replica(services: Services, request: Request[Any], replica_id: int) -> None:
    """Count a connection as a broker's if its request names a registered one as the follower.

    Any client can name a broker, and one that is not registered is certainly none.
    """
    connection = request.connection
    if replica_id >= 0 and not connection.is_broker and services.view.is_registered(replica_id):
        connection.prove_broker(replica_id)
