"""Recognition of connections from brokers, by their requests and their hosts.

Without authentication a request proves nothing about its sender. A request names a broker as its
sender by the client id, or by the replica id of a follower; Kafka's followers send replica ids even
before their first Fetch. Only brokers send inter-broker requests. A connection counts as a broker's
if its requests name a registered broker or are inter-broker requests. An inter-broker request
counts even if this broker does not know its sender, because the sender may be the next controller.
The host does not matter, because a broker may connect from an address that it does not advertise.
But a connection from the named broker's own host has a stronger claim, because a client on any
other host can claim to be that broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.core.errors import ProtocolError
from tidelog.wire.codec import UnsupportedVersion, decode_header, decode_request
from tidelog.wire.registry import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH

#: The value instead of a broker id if a broker's request names no broker.
UNNAMED: Final = -1
#: APIs that followers and clients use; the replica id in a request shows which of them sent it.
_OF_REPLICAS: Final = (FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
#: The form of the client ids of brokers, in tidelog and in Kafka.
_CLIENT_ID: Final = re.compile(r"broker-(\d{1,10})-")


class Standing(IntEnum):
    """How strongly a connection claims to be from a broker; the weakest claim is closed first."""

    CLIENT = 0
    CLAIMED = 1
    BROKER = 2


class Members(NamedTuple):
    """Functions by which this module finds which brokers belong to the cluster, and which APIs only
    brokers use.
    """

    is_registered: Callable[[int], bool]
    #: Whether a broker has an address on a host; `UNNAMED` means any broker.
    is_host_of: Callable[[int, str], bool]
    #: Whether only brokers use an API.
    is_inter_broker: Callable[[int], bool]


def host_of(peer: str) -> str:
    """Return the host in `host:port`."""
    return peer.rpartition(":")[0]


def replica_id_of(message: object) -> int:
    """Return the replica id in a follower's request; below 0 in a client's request."""
    state = getattr(message, "replica_state", None)
    replica_id = int(getattr(message, "replica_id", UNNAMED))
    return replica_id if state is None or replica_id >= 0 else int(state.replica_id)


def of_frame(frame: memoryview, members: Members) -> int | None:
    """Return the broker that a request names as its sender, or `UNNAMED`.

    Returns None for the request of a client.
    """
    try:
        header, _ = decode_header(frame)
    except UnsupportedVersion as error:
        header = error.header
    except ProtocolError:
        return None
    named = _of_client_id(header.client_id)
    if named is None and header.api_key in _OF_REPLICAS:
        try:
            replica_id = replica_id_of(decode_request(frame)[1])
        except ProtocolError:
            return None
        named = replica_id if replica_id >= 0 else None
    if named is not None and members.is_registered(named):
        return named
    return UNNAMED if members.is_inter_broker(header.api_key) else None


def standing(peer: str, claimed: int | None, client_id: str | None, members: Members) -> Standing:
    """Return the strength of a connection's claim to be from a broker, by its requests so far.

    `claimed` is the broker named by a request that only brokers send, `UNNAMED` if it named none,
    or None without such a request. `client_id` is the client id of the last request.
    """
    named = UNNAMED if claimed is None else claimed
    if named == UNNAMED:
        said = _of_client_id(client_id)
        if said is not None and members.is_registered(said):
            named = said
    if named == UNNAMED and claimed is None:
        return Standing.CLIENT
    is_from_there = members.is_host_of(named, host_of(peer))
    return Standing.BROKER if is_from_there else Standing.CLAIMED


def _of_client_id(client_id: str | None) -> int | None:
    found = None if client_id is None else _CLIENT_ID.match(client_id)
    return None if found is None else int(found[1])
