"""No answer of a broker that was stopped beyond its session, before the store's word (V47).

The checker reads what passes over the connections that a broker accepted: which request each answer
belongs to, and whether the broker may know already that its session lives. It knows nothing of how
the broker finds that out: an answer of the store counts to a request that the broker sent after it
was resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.sim_connections import Endpoint
from tidelog.wire.registry import (
    API,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUPS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SYNC_GROUP,
)

#: What only a leader, a coordinator or a broker of the cluster may answer.
_GUARDED: Final = (
    PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DELETE_RECORDS,
    METADATA, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, FIND_COORDINATOR,
    OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP,
    DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS,
)  # fmt: skip
_KEY: Final = slice(0, 2)
_CORRELATION: Final = slice(4, 8)


class AnswerChecker:
    """Follows the pauses of brokers and the answers that they send; `connections.FrameWatch`."""

    def __init__(
        self,
        violate: Callable[[str], None],
        now_ns: Callable[[], int],
        heard_ms: Callable[[int], int | None],
        clock_ms: Callable[[int], int],
        session_timeout_ms: int,
    ) -> None:
        """`heard_ms`: when a broker sent the request that the store answered last, `clock_ms`: what
        its clock shows, both by node id and on the broker's own clock; None for no broker."""
        self._violate = violate
        self._now_ns = now_ns
        self._heard_ms = heard_ms
        self._clock_ms = clock_ms
        self._timeout_ns = session_timeout_ms * NS_PER_MS
        self._paused_ns: dict[int, int] = {}
        #: Own time of each broker when it was resumed after a pause beyond its session.
        self._resumed_ms: dict[int, int] = {}

    def noted(self, node_id: int, kind: str, _: str) -> None:
        """A line of the trace."""
        if kind == "pause":
            self._paused_ns[node_id] = self._now_ns()
        elif kind == "resume":
            pause_ns = self._now_ns() - self._paused_ns.pop(node_id)
            if pause_ns >= self._timeout_ns and self._heard_ms(node_id) is not None:
                self._resumed_ms[node_id] = self._clock_ms(node_id)
        elif kind == "death":
            self._paused_ns.pop(node_id, None)
            self._resumed_ms.pop(node_id, None)

    def received(self, endpoint: Endpoint, frames: Sequence[memoryview]) -> None:
        """Requests have come."""
        for frame in frames:
            endpoint.asked[bytes(frame[_CORRELATION])] = int.from_bytes(frame[_KEY], "big")

    def sent(self, endpoint: Endpoint, frame: bytes) -> None:
        """An answer leaves, with its size before it."""
        key = endpoint.asked.pop(frame[_CORRELATION], None)
        node_id = endpoint.process.node_id
        resumed_ms = self._resumed_ms.get(node_id)
        if resumed_ms is None:
            return
        heard_ms = self._heard_ms(node_id)
        if heard_ms is not None and heard_ms >= resumed_ms:
            del self._resumed_ms[node_id]
        elif key in _GUARDED:
            name = API[key].name
            self._violate(
                f"broker {node_id} answered {name} after a pause beyond its session, before the"
                " store had confirmed that (V47)"
            )
