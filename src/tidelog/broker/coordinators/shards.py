"""Partitions of an internal topic that this broker coordinates, each under its leader epoch.

A partition is never loaded for a leadership older than the last loaded leadership (G1, G2). A
partition is unloaded only for the leadership under which it was loaded, so a late report of an old
leadership does no harm. The module does not detect leader changes: its caller reports them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tidelog.core.coordinator_shard import CoordinatorShard, Effects
from tidelog.core.string_hash import coordinating_partition
from tidelog.core.types import NO_EPOCH

S = TypeVar("S", bound=CoordinatorShard)


class CoordinatorShards(Generic[S]):
    """The shards (coordinators of one partition each) of one internal topic on one broker."""

    def __init__(self, new_shard: Callable[[int, int], S], partition_count: int = 0) -> None:
        """`new_shard` makes the shard of a partition for a leader epoch."""
        self._new_shard = new_shard
        #: Partition count of the existing topic, not the configured count; 0 while it is unknown.
        #: Until the partition count is known, the broker coordinates nothing, because a wrong count
        #: would assign it keys of other brokers.
        self.partition_count = partition_count
        self._loaded: dict[int, S] = {}
        self._epochs: dict[int, int] = {}

    def partition_of(self, key: str) -> int:
        """Return the partition that owns a key, for example a group's id (G2).

        The caller ensures that the broker knows the partition count of the internal topic.
        """
        return coordinating_partition(key, self.partition_count)

    def coordinator_of(self, key: str) -> S | None:
        """Return the coordinator of a key, for example a group's id; None means NOT_COORDINATOR."""
        if not self.partition_count:
            return None
        return self._loaded.get(self.partition_of(key))

    def load(self, partition: int, leader_epoch: int) -> tuple[S | None, Effects]:
        """Begin a leadership: return a new shard, into which the caller replays the log.

        Returns None if the leadership is older than the last loaded leadership, or already loaded.
        If a shard of an older leadership is loaded, that shard ends, and its last effects are
        returned. A leadership may be loaded again after its unload if no other leadership began in
        between, because no other broker can have written to the partition.
        """
        former = self._loaded.get(partition)
        latest = self._epochs.get(partition, NO_EPOCH)
        if leader_epoch < latest or (former is not None and leader_epoch == latest):
            return None, ()
        effects = () if former is None else former.unload()
        shard = self._new_shard(partition, leader_epoch)
        self._loaded[partition] = shard
        self._epochs[partition] = leader_epoch
        return shard, effects

    def unload(self, partition: int, leader_epoch: int) -> Effects | None:
        """End the leadership under `leader_epoch`; return the last effects of its shard.

        Does nothing and returns None if the loaded shard is of another leader epoch (G1).
        """
        shard = self._loaded.get(partition)
        if shard is None or shard.leader_epoch != leader_epoch:
            return None
        assert leader_epoch == self._epochs[partition], "the newest leadership is loaded (G1)"
        del self._loaded[partition]
        return shard.unload()

    def forget(self, partition: int) -> None:
        """Forget the leader epoch of a removed partition.

        A partition of a recreated topic counts its leader epochs from 0 again. The caller must have
        unloaded the partition.
        """
        assert partition not in self._loaded, "a partition is unloaded before it goes"
        self._epochs.pop(partition, None)

    def loaded(self) -> tuple[S, ...]:
        """Return the shards that have finished loading, in the order of their partitions."""
        return tuple(self._loaded[partition] for partition in sorted(self._loaded))
