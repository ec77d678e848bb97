"""Replica ids in requests: a follower's replica id shows that a broker sent the request (L1).

Fetch, ListOffsets and OffsetForLeaderEpoch carry a replica id. This module checks that the named
broker is registered, but not that the peer is the named broker: without authentication no request
proves that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.server.requests import Request

if TYPE_CHECKING:
    from tidelog.broker.services import Services


def note_replica(services: Services, request: Request[Any], replica_id: int) -> None:
    """Count a connection as a broker's if its request names a registered follower.

    Any client can name a broker, but a name that is not registered belongs to no broker.
    """
    connection = request.connection
    if replica_id >= 0 and not connection.is_broker and services.view.is_registered(replica_id):
        connection.prove_broker(replica_id)
