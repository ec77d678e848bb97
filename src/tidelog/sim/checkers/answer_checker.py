"""Check of a broker that resumes after a pause beyond its session timeout (V47).

Such a broker must not respond to clients before the store has confirmed its session. The checker
reads the frames on connections that a broker accepted, and matches each response with its request.
It does not know how the broker learns that its session is alive. A response of the store counts if
the broker sent the request after it was resumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.sim.checkers.checker import Checked, Checker
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.sim_connections import ConnectionEnd
from tidelog.wire import registry as apis

#: APIs to which only a leader, a coordinator or a broker of the cluster may respond.
_GUARDED: Final = (
    apis.PRODUCE, apis.FETCH, apis.LIST_OFFSETS, apis.OFFSET_FOR_LEADER_EPOCH, apis.DELETE_RECORDS,
    apis.METADATA, apis.DESCRIBE_CLUSTER, apis.DESCRIBE_TOPIC_PARTITIONS, apis.FIND_COORDINATOR,
    apis.OFFSET_COMMIT, apis.OFFSET_FETCH, apis.OFFSET_DELETE, apis.JOIN_GROUP, apis.HEARTBEAT,
    apis.LEAVE_GROUP, apis.SYNC_GROUP, apis.DESCRIBE_GROUPS, apis.LIST_GROUPS, apis.DELETE_GROUPS,
)  # fmt: skip
_KEY: Final = slice(0, 2)
_CORRELATION: Final = slice(4, 8)


class AnswerChecker(Checker):
    """Checker of brokers' pauses and responses; a `sim_connections.FrameWatch`."""

    def __init__(self, run: Checked, session_timeout_ms: int) -> None:
        """Begin without pauses."""
        super().__init__(run)
        self._timeout_ns = session_timeout_ms * NS_PER_MS
        self._paused_ns: dict[int, int] = {}
        #: Time on each broker's own clock when it resumed after a pause beyond its session timeout.
        self._resumed_ms: dict[int, int] = {}

    def _heard_ms(self, node_id: int) -> int | None:
        """Return when a broker sent the last request to which the store responded.

        The time is that of the broker's own clock. Return None for a node that is no broker.
        """
        broker = self._brokers.get(node_id)
        return None if broker is None or broker.store is None else broker.store.heard_ms

    def noted(self, node_id: int, kind: str, _: str) -> None:
        """Follow a line of the trace."""
        if kind == "pause":
            self._paused_ns[node_id] = self._now_ns()
        elif kind == "resume":
            pause_ns = self._now_ns() - self._paused_ns.pop(node_id)
            if pause_ns >= self._timeout_ns and self._heard_ms(node_id) is not None:
                self._resumed_ms[node_id] = self._clock_ms(node_id)
        elif kind == "death":
            self._paused_ns.pop(node_id, None)
            self._resumed_ms.pop(node_id, None)

    def received(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Note the API of each request that arrived."""
        for frame in frames:
            endpoint.asked[bytes(frame[_CORRELATION])] = int.from_bytes(frame[_KEY], "big")

    def sent(self, endpoint: ConnectionEnd, frame: bytes) -> None:
        """Check a response that leaves; `frame` begins with its size."""
        key = endpoint.asked.pop(frame[_CORRELATION], None)
        node_id = endpoint.process.node_id
        resumed_ms = self._resumed_ms.get(node_id)
        if resumed_ms is None:
            return
        heard_ms = self._heard_ms(node_id)
        if heard_ms is not None and heard_ms >= resumed_ms:
            del self._resumed_ms[node_id]
        elif key in _GUARDED:
            name = apis.API[key].name
            self._violate(
                f"broker {node_id} responded to {name} after a pause beyond its session, before the"
                " store had confirmed that (V47)"
            )
