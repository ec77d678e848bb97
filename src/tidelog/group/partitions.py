"""Partitions of `__consumer_offsets` that this broker coordinates, each under its leader epoch.

Rules G1 and G2: a partition is loaded for no older leadership than before. It is unloaded only on
behalf of the leadership for which it was loaded, so late news of an old leadership does no harm.
The module does not detect leader changes: its caller reports them.
"""

from __future__ import annotations

from tidelog.core.string_hash import coordinating_partition
from tidelog.core.types import NO_EPOCH
from tidelog.group.effects import Effects
from tidelog.group.partition import GroupPartition
from tidelog.group.settings import GroupSettings


class GroupPartitions:
    """Group coordinators of one broker, by partition."""

    def __init__(self, settings: GroupSettings, partition_count: int = 0) -> None:
        self.settings = settings
        #: Partition count of the existing topic, never a count from configuration; 0 while it is
        #: unknown. The broker then coordinates no group: with another count than its peers it would
        #: take over their groups.
        self.partition_count = partition_count
        self._loaded: dict[int, GroupPartition] = {}
        self._epochs: dict[int, int] = {}

    def partition_of(self, group_id: str) -> int:
        """Return the partition that owns a group (G2); the number of partitions must be known."""
        return coordinating_partition(group_id, self.partition_count)

    def coordinator_of(self, group_id: str) -> GroupPartition | None:
        """Return the coordinator of a group; None means NOT_COORDINATOR."""
        if not self.partition_count:
            return None
        return self._loaded.get(self.partition_of(group_id))

    def load(self, partition: int, leader_epoch: int) -> tuple[GroupPartition | None, Effects]:
        """Begin a leadership: return a coordinator, into which the caller replays the log.

        Returns None for a leadership that is older than the last one, or is loaded already. A
        coordinator of an older leadership ends; the effects are its last. A leadership may be
        loaded again after it was unloaded, if no other began in between: then no other broker has
        written under its epoch.
        """
        former = self._loaded.get(partition)
        latest = self._epochs.get(partition, NO_EPOCH)
        if leader_epoch < latest or (former is not None and leader_epoch == latest):
            return None, ()
        effects = () if former is None else former.unload()
        coordinator = GroupPartition(partition, leader_epoch, self.settings)
        self._loaded[partition] = coordinator
        self._epochs[partition] = leader_epoch
        return coordinator, effects

    def unload(self, partition: int, leader_epoch: int) -> Effects | None:
        """End the leadership under `leader_epoch`; return the coordinator's last effects.

        Returns None, and does nothing, where the loaded coordinator is not of that epoch (G1).
        """
        coordinator = self._loaded.get(partition)
        if coordinator is None or coordinator.leader_epoch != leader_epoch:
            return None
        assert leader_epoch == self._epochs[partition], "the newest leadership is loaded (G1)"
        del self._loaded[partition]
        return coordinator.unload()

    def forget(self, partition: int) -> None:
        """Drop the epoch of a partition that is gone.

        The same partition of a new topic counts its epochs from the start. It must not be loaded.
        """
        assert partition not in self._loaded, "a partition is unloaded before it goes"
        self._epochs.pop(partition, None)

    def loaded(self) -> tuple[GroupPartition, ...]:
        """Return all coordinators, by partition."""
        return tuple(self._loaded[partition] for partition in sorted(self._loaded))
