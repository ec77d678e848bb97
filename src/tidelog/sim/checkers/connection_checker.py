"""Invariants of connections (L1) and of responses that clients do not read (L2).

Clients must neither prevent a broker from connecting nor exceed `max.connections`. The checker
follows the connections that each broker accepted, and counts them independently of the broker. It
regards a connection as a broker's if it comes from a broker's host, or has carried a request that
only brokers send. A connection that is accepted at the limit is on trial until its first request
other than ApiVersions shows whether it is a broker's. At the limit, a broker must not close a
connection of another broker while a client is connected. To make room, the broker closes the
client connection that has been idle for longest. While a client is connected, the number of
connections, without those on trial (see above), must not exceed the limit.

On every broker, the bytes of responses that clients do not read are bounded. For each broker,
`UnreadChecker` sums up the bytes that the kernel has not taken, over all connections that the
broker accepted, and does not use the broker's own count. Unread bytes may briefly exceed twice the
broker's budget, by one response for each connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ProtocolError
from tidelog.core.limits import MIB
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.process import Process
from tidelog.sim.sim_connections import ConnectionEnd
from tidelog.wire.codec import decode_request
from tidelog.wire.registry import API_VERSIONS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH

if TYPE_CHECKING:
    from tidelog.sim.network import SimNetwork
    from tidelog.sim.process import Process

#: APIs that followers and clients use, and whose requests have a field for the sending replica.
_OF_REPLICAS: Final = (FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH)
#: Beginning of the reason that a broker gives when it closes a connection because of the limit.
_AT_LIMIT: Final = "max.connections"
_FOR_BROKER: Final = "is a broker"
#: Maximum time in ns until a broker notices that a connection has ended.
_SLACK_NS: Final = 50 * NS_PER_MS
#: Allowance for responses that a broker builds between two checks of its unread bytes.
_SLACK_BYTES: Final = MIB


@dataclass(slots=True)
class _Known:
    """One open connection that a broker accepted."""

    is_broker: bool
    on_trial: bool
    #: Virtual time of the last request on the connection; `seen_ns` is the time of the last bytes
    #: in either direction.
    heard_ns: int
    seen_ns: int


class ConnectionChecker(Checker):
    """Checker of the connections of one run; observes them as a
    `sim_connections.ConnectionWatch`.
    """

    def __init__(
        self, run: CheckedRun, hosts: Collection[str], limit: int, precision_ms: int
    ) -> None:
        """Begin to check.

        `hosts` are the hosts of brokers. `precision_ms` is the precision with which brokers measure
        how long a connection has been idle.
        """
        super().__init__(run)
        self._hosts = hosts
        self._limit = limit
        self._precision_ns = precision_ms * NS_PER_MS + _SLACK_NS
        self._known: dict[Process, dict[ConnectionEnd, _Known]] = {}
        #: By broker process: the time since which the broker has too many connections.
        self._above_ns: dict[Process, int] = {}
        #: Number of client connections that were closed to make room for brokers; `refused` is the
        #: number of refused connections.
        self.made_room = self.refused = 0

    def opened(self, endpoint: ConnectionEnd) -> None:
        """Note a connection that a broker is about to accept."""
        known = self._known.setdefault(endpoint.process, {})
        settled = sum(not each.on_trial for each in known.values())
        host = endpoint.peer_name.rpartition(":")[0]
        now_ns = self._now_ns()
        known[endpoint] = _Known(host in self._hosts, settled >= self._limit, now_ns, now_ns)

    def received(self, endpoint: ConnectionEnd, frames: Sequence[memoryview]) -> None:
        """Note requests that arrived; the broker has not seen them yet."""
        known = self._known.get(endpoint.process, {}).get(endpoint)
        if known is None:
            return
        known.heard_ns = known.seen_ns = self._now_ns()
        for frame in frames:
            key = int.from_bytes(frame[:2], "big")
            if key != API_VERSIONS:
                known.on_trial = False
            if key in _OF_REPLICAS and not known.is_broker:
                known.is_broker = _replica_of(frame) in self._brokers

    def sent(self, endpoint: ConnectionEnd, _: bytes) -> None:
        """Note that the broker sends a response."""
        known = self._known.get(endpoint.process, {}).get(endpoint)
        if known is not None:
            known.seen_ns = self._now_ns()

    def lost(self, endpoint: ConnectionEnd, reason: str) -> None:
        """Check a connection that has ended on the broker's side."""
        connections = self._known.get(endpoint.process, {})
        ended = connections.pop(endpoint, None)
        if ended is None or not reason.startswith(_AT_LIMIT):
            return
        broker_id = endpoint.process.node_id
        clients = [each for each in connections.values() if not each.is_broker]
        if ended.is_broker:
            if clients:
                self._violate(
                    f"broker {broker_id} ends a connection of the broker at {endpoint.peer_name}"
                    f" ({reason}), and {len(clients)} clients have one (L1)"
                )
        elif _FOR_BROKER not in reason:
            self.refused += 1
        else:
            self.made_room += 1
            self._check_victim(broker_id, endpoint, ended, clients)

    def _check_victim(
        self, broker_id: int, endpoint: ConnectionEnd, ended: _Known, clients: Sequence[_Known]
    ) -> None:
        settled = [each.seen_ns for each in clients if not each.on_trial]
        if settled and min(settled) + self._precision_ns < ended.heard_ns:
            longer_ms = (ended.heard_ns - min(settled)) // NS_PER_MS
            self._violate(
                f"broker {broker_id} ends the connection of {endpoint.peer_name} for a broker;"
                f" another client was idle for {longer_ms} ms longer (L1)"
            )

    def look(self) -> None:
        """Check that no broker has too many connections for longer than `_SLACK_NS`."""
        now_ns = self._now_ns()
        alive = [broker.life for broker in self._brokers.values() if broker.life is not None]
        self._known = {process: self._known.get(process, {}) for process in alive}
        for process, connections in self._known.items():
            settled = [each for each in connections.values() if not each.on_trial]
            clients = sum(not each.is_broker for each in settled)
            if len(settled) <= self._limit or not clients:
                self._above_ns.pop(process, None)
            elif now_ns - self._above_ns.setdefault(process, now_ns) > _SLACK_NS:
                self._violate(
                    f"broker {process.node_id} has {len(settled)} connections, {clients} of them of"
                    f" clients, and max.connections={self._limit} (L1)"
                )


def _replica_of(frame: memoryview) -> int:
    """Return the id of the replica that sent a request; below 0 for a client."""
    try:
        _, message = decode_request(frame)
    except ProtocolError:
        return -1
    state = getattr(message, "replica_state", None)
    return max(int(message.replica_id), -1 if state is None else int(state.replica_id))


class UnreadChecker:
    """Checker of the unread bytes of each broker."""

    def __init__(self, network: SimNetwork, max_bytes: int, violate: Callable[[str], None]) -> None:
        """Begin to check; `max_bytes` is each broker's budget for unread responses."""
        self._network = network
        self._max_bytes = max_bytes
        self._violate = violate

    def look(self, brokers: Iterable[tuple[int, Process]]) -> None:
        """Check the sum of unread bytes of each broker."""
        for broker_id, process in brokers:
            unread = sum(
                endpoint.queued_bytes
                for endpoint in self._network.connections_of(process)
                if endpoint.is_accepted
            )
            if unread > 2 * self._max_bytes + _SLACK_BYTES:
                self._violate(
                    f"broker {broker_id} holds {unread:,} bytes of responses that no client reads;"
                    f" its budget is {self._max_bytes:,} (L2)"
                )
