"""Which partitions of `__consumer_offsets` this broker coordinates, each under its leader epoch.

Rules G1 and G2: a partition is loaded for no older leadership than before, and unloaded only in the
name of the leadership it was loaded for; so late news of an old one does no harm. Does not know
when a partition changes its leader: it is told.
"""

from __future__ import annotations

from tidelog.core.string_hash import coordinating_partition
from tidelog.core.types import NO_EPOCH
from tidelog.group.effects import Effects
from tidelog.group.partition import GroupPartition
from tidelog.group.settings import GroupSettings


class GroupPartitions:
    """The coordinators of one broker, by partition."""

    def __init__(self, settings: GroupSettings, partition_count: int = 0) -> None:
        self.settings = settings
        #: Of the topic as it is, never as it would be made; 0 while that is not known: then nobody
        #: is coordinated, for who counts otherwise than others takes their groups.
        self.partition_count = partition_count
        self._loaded: dict[int, GroupPartition] = {}
        self._epochs: dict[int, int] = {}

    def partition_of(self, group_id: str) -> int:
        """The partition that owns a group (G2); the number of partitions must be known."""
        return coordinating_partition(group_id, self.partition_count)

    def coordinator_of(self, group_id: str) -> GroupPartition | None:
        """Who decides for a group; None: NOT_COORDINATOR."""
        if not self.partition_count:
            return None
        return self._loaded.get(self.partition_of(group_id))

    def load(self, partition: int, leader_epoch: int) -> tuple[GroupPartition | None, Effects]:
        """This broker leads a partition: replay its log into the coordinator returned. None for a
        leadership that is older than the last one, or is loaded already. A coordinator of an older
        leadership ends; the effects are its last.

        A leadership may be taken up again after it was let go, if no other began in between: then
        nobody else has written under its epoch.
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
        """The leadership under `leader_epoch` is over; None, and nothing happens, where what is
        loaded is not of that epoch (G1)."""
        coordinator = self._loaded.get(partition)
        if coordinator is None or coordinator.leader_epoch != leader_epoch:
            return None
        assert leader_epoch == self._epochs[partition], "the newest leadership is loaded (G1)"
        del self._loaded[partition]
        return coordinator.unload()

    def forget(self, partition: int) -> None:
        """The partition is gone; one of a new topic of its name counts its epochs anew. It must
        not be loaded."""
        assert partition not in self._loaded, "a partition is unloaded before it goes"
        self._epochs.pop(partition, None)

    def loaded(self) -> tuple[GroupPartition, ...]:
        """All coordinators, by partition."""
        return tuple(self._loaded[partition] for partition in sorted(self._loaded))
