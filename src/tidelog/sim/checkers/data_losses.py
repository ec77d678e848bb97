"""Which replicas have lost data, and since which broker epoch each broker has lost none.

A broker whose process ends without a loss stays intact. A power loss affects all replicas of a
broker; the loss of one disk affects only the replicas in its log directory. A broker that
re-registers counts as intact under its new broker epoch, because the controller notices the loss by
the change of the broker epoch (V10).
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.sim.observed.replica_logs import LogKey


class DataLosses:
    """The data losses of all brokers of a run."""

    def __init__(self) -> None:
        #: Broker epoch since which each broker is intact; removed when the broker loses all its
        #: data.
        self._intact: dict[int, int] = {}
        #: Newest broker epoch under which each broker, or one of its replicas, has lost data.
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

        `is_dead` means that the process died while its registration request was in flight; this
        request may still claim that the broker is intact, as it was before the death.

        """
        self._intact[broker_id] = broker_epoch
        if is_dead:
            self._record(broker_id, broker_epoch, self._struck.get(broker_id, ()))

    def store_put_back(self) -> None:
        """Forget all broker epochs, because a restored store gives the same epochs again."""
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
        """Return whether `broker_epoch` is the broker's latest, and the replica has lost no data
        under it.
        """
        return (
            self._intact.get(broker_id) == broker_epoch
            and self._lost_replicas.get((broker_id, key), -1) < broker_epoch
        )

    def has_lost(self, key: LogKey, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a replica has lost data under the given or a later broker epoch."""
        lost = max(self._lost.get(broker_id, -1), self._lost_replicas.get((broker_id, key), -1))
        return broker_epoch <= lost
