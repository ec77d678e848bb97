"""Data losses of brokers: replicas that are intact since a broker epoch, and replicas that are not.

A process that ends without a loss keeps its replicas intact. A power loss strikes all replicas of a
broker, the loss of one disk only the replicas in that log directory. A broker that registers again
counts as intact: the controller judges its replicas by the new broker epoch (V10).
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.sim.observed.replica_logs import LogKey


class DataLosses:
    """The losses of all brokers of a run."""

    def __init__(self) -> None:
        #: Broker epoch since which each broker is intact; removed when the broker loses all its
        #: data.
        self._intact: dict[int, int] = {}
        #: Newest broker epoch under which each broker, or one replica of it, has lost data.
        self._lost: dict[int, int] = {}
        self._lost_replicas: dict[tuple[int, LogKey], int] = {}
        #: Replicas that lost data at the last death of each broker; None means all replicas.
        self._struck: dict[int, Collection[LogKey] | None] = {}

    def died(self, broker_id: int, struck: Collection[LogKey] | None) -> None:
        """Record a broker's death, and the replicas that lost data; None means all replicas."""
        self._struck[broker_id] = struck
        epoch = self._intact.get(broker_id)
        if epoch is not None:
            self._record(broker_id, epoch, struck)

    def registered(self, broker_id: int, broker_epoch: int, *, is_dead: bool) -> None:
        """Record a registration.

        `is_dead` means that the process died while its registration request was in flight.

        The registration request of a dead process may claim intact replicas, which was true before
        its death.
        """
        self._intact[broker_id] = broker_epoch
        if is_dead:
            self._record(broker_id, broker_epoch, self._struck.get(broker_id, ()))

    def store_put_back(self) -> None:
        """Forget all broker epochs, because a restored store assigns the same numbers again."""
        self._intact.clear()
        self._lost.clear()
        self._lost_replicas.clear()

    def _record(self, broker_id: int, epoch: int, struck: Collection[LogKey] | None) -> None:
        if struck is None:
            del self._intact[broker_id]
            self._lost[broker_id] = epoch
            return
        for key in struck:
            self._lost_replicas[broker_id, key] = epoch

    def is_intact(self, key: LogKey, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a broker epoch is the latest, and the replica has lost no data in it."""
        return (
            self._intact.get(broker_id) == broker_epoch
            and self._lost_replicas.get((broker_id, key), -1) < broker_epoch
        )

    def has_lost(self, key: LogKey, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a replica has lost data under the given or a later broker epoch."""
        lost = max(self._lost.get(broker_id, -1), self._lost_replicas.get((broker_id, key), -1))
        return broker_epoch <= lost
