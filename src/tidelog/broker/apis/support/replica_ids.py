"""Replica ids in requests: a follower's replica id shows that a broker sent the request (L1).

Fetch, ListOffsets and OffsetForLeaderEpoch carry a replica id. This module checks that a broker
with this id is registered. The module cannot check that the sender is that broker, because
connections have no authentication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.server.requests import Request

if TYPE_CHECKING:
    from tidelog.broker.services import Services


def note_replica(services: Services, request: Request[Any], replica_id: int) -> None:
    """Mark the connection as a broker's connection if `replica_id` is a registered broker's id.

    Any client could send the id of a registered broker, but no broker sends an unregistered id.
    """
    connection = request.connection
    if replica_id >= 0 and not connection.is_broker and services.view.is_registered(replica_id):
        connection.prove_broker(replica_id)
