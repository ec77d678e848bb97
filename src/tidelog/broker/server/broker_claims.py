"""Which connections are those of brokers, by what their requests say and where they come from.

Without authentication a request proves nothing. A broker names itself by its client id, or by the
replica id of a follower: Kafka's followers ask for offsets before they fetch. Only brokers send
requests between brokers. A claim counts if it names a registered broker, or comes with a request
between brokers: the next controller may be a broker that this one has not heard of yet. A claim
from a host of the named broker is worth more than another one, because a client elsewhere can make
the same claim. It is not necessary, because a broker may connect from an address that it does not
advertise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.core.errors import ProtocolError
from tidelog.wire.codec import UnsupportedVersion, decode_header, decode_request
from tidelog.wire.registry import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH

#: Stands for a broker that does not say which one it is.
UNNAMED: Final = -1
#: APIs of followers and of clients: a replica id distinguishes them.
_OF_REPLICAS: Final = (FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
#: The client ids of brokers, here and in Kafka.
_CLIENT_ID: Final = re.compile(r"broker-(\d{1,10})-")


class Standing(IntEnum):
    """How good a claim is; connections of lower standing make room first."""

    CLIENT = 0
    CLAIMED = 1
    BROKER = 2


class Members(NamedTuple):
    """What this broker knows of the others."""

    is_registered: Callable[[int], bool]
    #: Whether a broker, or any for `UNNAMED`, has an address on a host.
    is_host_of: Callable[[int, str], bool]
    #: Whether an API is one between brokers.
    is_inter_broker: Callable[[int], bool]


def host_of(peer: str) -> str:
    """Return the host in `host:port`."""
    return peer.rpartition(":")[0]


def replica_id_of(message: object) -> int:
    """Return the replica id in the request of a follower; below 0 in that of a client."""
    state = getattr(message, "replica_state", None)
    replica_id = int(getattr(message, "replica_id", UNNAMED))
    return replica_id if state is None or replica_id >= 0 else int(state.replica_id)


def of_frame(frame: memoryview, members: Members) -> int | None:
    """Return the broker that a request claims to come from, `UNNAMED` for one that it does not say.

    None for the request of a client.
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
    """Return how good the claim of a connection is that has sent requests.

    `claimed` is the broker that a request which only brokers send named, `UNNAMED` where it named
    none; None where no such request has come. `client_id` is that of the last request.
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
