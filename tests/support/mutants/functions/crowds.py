"""Mutants of the limits that hold against crowds of clients (L1 to L3)."""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import mutant

from tidelog.core.errors import ProtocolError
from tidelog.wire.registry import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH

_PROFILE: Final = "crowded"
_LIMIT: Final = "tidelog.broker.server.connection_limit:ConnectionLimit"


@mutant("L1", f"{_LIMIT}.is_of_broker", profile=_PROFILE)
def followers_offsets_are_clients(is_of_broker: Any) -> Any:
    """A follower that begins by asking for offsets counts as a client, and is shut out."""

    def judged(self: Any, frame: Any) -> Any:
        key = int.from_bytes(frame[:2], "big")
        is_position = key in (LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
        return False if is_position else is_of_broker(self, frame)

    return judged


@mutant("L1", f"{_LIMIT}._is_broker", profile=_PROFILE)
def brokers_make_room(_: Any) -> Any:
    """Whichever connection is idle for longest makes room for a broker, a broker's too."""
    return lambda self, connection: False


@mutant("L1", f"{_LIMIT}.make_room", profile=_PROFILE)
def busiest_client_makes_room(make_room: Any) -> Any:
    """The client that was active last makes room for a broker."""

    def make(self: Any, newcomer: Any) -> None:
        present = list(self._connections)
        for each in present:
            each.active_tick = -each.active_tick
        make_room(self, newcomer)
        for each in present:
            each.active_tick = -each.active_tick

    return make


@mutant("L1", f"{_LIMIT}.is_reached", profile=_PROFILE)
def trials_let_clients_in(_: Any) -> Any:
    """A client above the limit stays, if it sends a request in time."""
    return property(lambda self: False)


@mutant("L2", "tidelog.core.response_budget:ResponseShare.hold", profile=_PROFILE)
def unread_responses_not_counted(_: Any) -> Any:
    """Responses that wait in a connection count in no budget."""
    return lambda self, size_bytes, has_progress: None


@mutant("L3", "tidelog.wire.codec:_Codec._decode_replacing", profile=_PROFILE)
def malformed_text_refused(_: Any) -> Any:
    """A string that is no UTF-8 is malformed, and closes the connection."""

    def decode(self: Any, buffer: Any, offset: int, end: int) -> Any:
        raise ProtocolError("text that is no UTF-8")

    return decode
