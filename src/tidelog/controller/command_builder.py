"""Derivation of commands to brokers from the image, after a decision was applied (V17, V30, V35).

`build` returns the `Commands` of each broker that needs any. The commands to all brokers share one
map of metadata, and all replicas of a partition share one role object. The cost of a failover thus
grows only with the partitions that it changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller import incarnations, lifecycle, records
from tidelog.controller.commands import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    UNREADABLE,
    BrokerRole,
    Commands,
    SharedShown,
    Shown,
    ShownKey,
    Stop,
    as_new,
)
from tidelog.controller.image import Image
from tidelog.controller.records import Move
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState
from tidelog.wire.messages.update_metadata import UpdateMetadataPartitionState


class CommandBuilder:
    """Collector of the commands of one decision, which was already applied to the image."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._brokers = tuple(image.brokers[broker_id] for broker_id in sorted(image.brokers))
        self._commands: dict[int, Commands] = {}
        #: Metadata of partitions, one map for the commands to all brokers.
        self._shown: dict[ShownKey, UpdateMetadataPartitionState] = {}
        self._full: list[int] = []
        self._brokers_changed = False
        #: By partition, the role that its replicas share. A role in this map does not permit a
        #: broker to create a missing replica.
        self._roles: dict[TopicPartition, BrokerRole] = {}
        #: Replicas of the partitions that are in full commands; each replica gets a role.
        self._placed: dict[TopicPartition, Sequence[int]] = {}
        #: By partition: the published leader that has restarted since its election, and so must not
        #: lead (V10).
        self._barred: dict[TopicPartition, int] = {}

    def send_brokers(self) -> None:
        """Send every broker the list of live brokers."""
        self._brokers_changed = True

    def send_role(
        self, topic_partition: TopicPartition, is_new: bool, new_replicas: tuple[int, ...] = ()
    ) -> None:
        """Send all live replicas of a partition their roles.

        If the partition has no state or is to be deleted, no roles are sent, because a role sent
        after the deletion would create the replica again (V22, V71). Only the brokers of
        `new_replicas` may create their replicas, because the partition's other replicas exist
        already (D3).
        """
        if not self._has_roles(topic_partition):
            return
        role = self._role(topic_partition, is_new)
        for replica in self._image.replicas(topic_partition):
            if replica in self._image.brokers and not self._may_not_lead(replica, topic_partition):
                made = replica in new_replicas and not is_new
                self._of(replica).roles[topic_partition] = as_new(role) if made else role

    def resend_role(self, broker_id: int, topic_partition: TopicPartition) -> None:
        """Send a live broker its role in a partition, unless this decision already sends it."""
        if broker_id in self._image.brokers and self._has_roles(topic_partition):
            roles = self._of(broker_id).roles
            if topic_partition not in roles and not self._may_not_lead(broker_id, topic_partition):
                roles[topic_partition] = self._role(topic_partition, False)

    def stop_following(self, broker_id: int, topic_partition: TopicPartition) -> None:
        """Command a leaving broker to stop following a partition and keep the log (V43).

        The StopReplica replaces any role in the partition. A broker that leads the partition gets
        no StopReplica.
        """
        image = self._image
        if broker_id not in image.brokers or not self._has_roles(topic_partition):
            return
        state = image.states[topic_partition]
        if state.leader != broker_id and broker_id in image.replicas(topic_partition):
            commands = self._of(broker_id)
            commands.roles.pop(topic_partition, None)
            commands.stops[topic_partition] = Stop(state.leader_epoch, False)

    def _may_not_lead(self, broker_id: int, topic_partition: TopicPartition) -> bool:
        """Return whether the broker leads, but has restarted since it was elected (V10).

        If `inter.broker.protocol.version` is below 2.7, a leader may write the state itself right
        before its session ends. The controller's write of another leader then conflicts, and the
        controller elects another leader only in its next decision (A12).
        """
        state = self._image.states[topic_partition]
        return state.leader == broker_id and incarnations.is_leader_restarted(
            state, self._image.brokers
        )

    def _has_roles(self, topic_partition: TopicPartition) -> bool:
        image = self._image
        state = image.states.get(topic_partition)
        return (
            state is not None
            and not lifecycle.is_tombstone(state)
            and not image.is_deleting(topic_partition.topic)
        )

    def send_metadata(self, topic_partition: TopicPartition) -> None:
        """Send every broker the published state of a partition, if the partition has a state."""
        self._show(topic_partition, self._shown)

    def _show(
        self,
        topic_partition: TopicPartition,
        shown: dict[ShownKey, UpdateMetadataPartitionState],
    ) -> None:
        state = self._image.states.get(topic_partition)
        if state is None:
            self._show_unreadable(topic_partition, shown)
            return
        key = (self._image.topics[topic_partition.topic].topic_id, topic_partition)
        if key in shown:
            return  # the command already has this state
        replicas = self._image.replicas(topic_partition)
        deleting = self._image.is_deleting(topic_partition.topic) or lifecycle.is_tombstone(state)
        offline = self._offline(topic_partition, replicas)
        shown[key] = UpdateMetadataPartitionState(
            partition_index=topic_partition.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=EPOCH_DURING_DELETE if deleting else state.leader_epoch,
            isr=state.isr,
            zk_version=state.partition_epoch,
            replicas=replicas,
            offline_replicas=offline,
            first_leader_epoch=state.first_epochs[0],
            eligible=state.elr,
            last_leader=state.last_leader,
        )
        wait = self._image.waits.get(topic_partition)
        if wait is not None and state.leader == NO_LEADER:
            partition = shown[key]
            partition.awaited = [member for member, _ in wait.members]
            partition.statuses = [status for _, status in wait.members]
            partition.quorum, partition.is_waiting = wait.quorum, wait.is_waiting
        causes = self._image.shrinks.get(topic_partition)
        if causes:
            out = [each for each in causes if each in replicas and each not in state.isr]
            shown[key].shrunk, shown[key].causes = out, [causes[each] for each in out]

    def _offline(self, topic_partition: TopicPartition, replicas: Sequence[int]) -> list[int]:
        """Return replicas of dead brokers and of failed log directories (D7)."""
        brokers = self._image.brokers
        failed = self._image.offline(topic_partition) if self._image.presences else ()
        return [each for each in replicas if each not in brokers or each in failed]

    def _show_unreadable(
        self,
        topic_partition: TopicPartition,
        shown: dict[ShownKey, UpdateMetadataPartitionState],
    ) -> None:
        """Add metadata of a partition whose state node cannot be read, to full commands.

        From the metadata in a full command, a broker learns that the partition exists. Partial
        commands omit the partition until its topic is deleted.
        """
        deleting = self._image.is_deleting(topic_partition.topic)
        if topic_partition not in self._image.unreadable_states or (
            shown is self._shown and not deleting
        ):
            return
        replicas = self._image.replicas(topic_partition)
        key = (self._image.topics[topic_partition.topic].topic_id, topic_partition)
        shown[key] = UpdateMetadataPartitionState(
            partition_index=topic_partition.partition,
            leader=LEADER_DURING_DELETE if deleting else UNREADABLE,
            leader_epoch=EPOCH_DURING_DELETE if deleting else UNREADABLE,
            zk_version=UNREADABLE,
            replicas=replicas,
            offline_replicas=self._offline(topic_partition, replicas),
        )

    def _unreadable(self) -> dict[TopicPartition, BrokerRole]:
        """Return roles that make brokers keep replicas with unreadable partition states (V35)."""
        return {
            topic_partition: self._kept(topic_partition)
            for topic_partition in self._image.unreadable_states
            if not self._image.is_deleting(topic_partition.topic)
        }

    def _kept(self, topic_partition: TopicPartition) -> BrokerRole:
        """Return the role of a replica that keeps its log and follows no leader."""
        image = self._image
        return BrokerRole(
            image.topics[topic_partition.topic].topic_id,
            LeaderAndIsrPartitionState(
                partition_index=topic_partition.partition,
                leader=UNREADABLE,
                leader_epoch=UNREADABLE,
                isr=image.assigned(topic_partition),
                partition_epoch=UNREADABLE,
                replicas=image.assigned(topic_partition),
            ),
        )

    def delete_replica(
        self, broker_id: int, topic_partition: TopicPartition, leader_epoch: int
    ) -> None:
        """Command a live broker to delete its replica, under `leader_epoch` (V22, V52, V71)."""
        assert broker_id in self._image.brokers, f"broker {broker_id} is not alive"
        self._of(broker_id).stops[topic_partition] = Stop(leader_epoch, True)

    def ask_for_log_end(self, broker_id: int, topic_partition: TopicPartition) -> None:
        """Request a broker's log end of a partition; the request is sent after the role (E6)."""
        topic = self._image.topics.get(topic_partition.topic)
        if topic is not None and broker_id in self._image.brokers:
            key = (topic.topic_id, topic_partition.partition)
            self._of(broker_id).log_ends[key] = topic_partition

    def send_everything(self, broker_id: int) -> None:
        """Send a live broker all its roles and all metadata (V35, V41)."""
        if broker_id in self._image.brokers:
            self._full.append(broker_id)

    def send_everything_to_all(self) -> None:
        """Send every live broker all its roles and all metadata."""
        self._full.extend(self._image.brokers)

    def build(self) -> dict[int, Commands]:
        """Return the commands by broker id, for brokers that have any commands."""
        everything = self._everything() if self._full else {}
        for broker_id in self._full:
            self._make_full(self._of(broker_id), broker_id, everything)
        if self._shown or self._brokers_changed:
            shown = SharedShown(self._shown)
            for broker in self._brokers:
                commands = self._of(broker.broker_id)
                if not commands.full:
                    commands.shown = shown
        for commands in self._commands.values():
            commands.brokers_changed = self._brokers_changed or commands.full
        return dict(sorted(self._commands.items()))

    def _make_full(self, commands: Commands, broker_id: int, everything: Shown) -> None:
        image = self._image
        own_roles = commands.roles
        roles: dict[TopicPartition, BrokerRole] = {}
        placed, known, barred = self._placed, self._roles, self._barred
        for topic_partition in image.hosted_by(broker_id):
            if topic_partition in own_roles:
                roles[topic_partition] = own_roles[topic_partition]
            elif broker_id in placed.get(topic_partition, ()):
                if barred and barred.get(topic_partition) == broker_id:
                    roles[topic_partition] = self._kept(topic_partition)
                    continue
                role = known.get(topic_partition)
                roles[topic_partition] = role or self._role(topic_partition, False)
            # A full command has no role for a replica that the broker is to delete, or whose
            # partition gets no roles. If a broker finds such a replica again later, the replica is
            # a stray (V45).
        roles.update(self._unreadable())
        commands.roles = roles
        commands.shown = everything
        commands.full = commands.shows_all = True
        commands.keep = tuple(
            name for name in sorted(image.unreadable) if not image.is_deleting(name)
        )

    def _everything(self) -> Shown:
        everything: dict[ShownKey, UpdateMetadataPartitionState] = {}
        states, brokers = self._image.states, self._image.brokers
        for topic in self._image.topics.values():
            if self._image.is_deleting(topic.name):
                continue
            for topic_partition in topic.partitions:
                if not self._has_roles(topic_partition):
                    self._show_unreadable(topic_partition, everything)
                    continue
                key = (topic.topic_id, topic_partition)
                if key in self._shown:
                    everything[key] = self._shown[key]
                else:
                    self._show(topic_partition, everything)
                self._placed[topic_partition] = everything[key].replicas
                state = states[topic_partition]
                if incarnations.is_leader_restarted(state, brokers):
                    self._barred[topic_partition] = state.leader
        return SharedShown(everything)

    def _role(self, topic_partition: TopicPartition, is_new: bool) -> BrokerRole:
        role = None if is_new else self._roles.get(topic_partition)
        if role is None:
            role = self._new_role(topic_partition, is_new)
            if not is_new:
                self._roles[topic_partition] = role
        return role

    def _new_role(self, topic_partition: TopicPartition, is_new: bool) -> BrokerRole:
        state = self._image.states[topic_partition]
        replicas = self._placed.get(topic_partition)
        if replicas is None:
            replicas = self._image.replicas(topic_partition)
        move = self._image.move(topic_partition)
        if move is not None and self._image.is_completing(topic_partition):
            move = None
        removing = () if move is None else move.removing
        adding = (
            ()
            if move is None
            else tuple(replica for replica in move.adding if replica not in removing)
        )
        return BrokerRole(
            self._image.topics[topic_partition.topic].topic_id,
            LeaderAndIsrPartitionState(
                partition_index=topic_partition.partition,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                partition_epoch=state.partition_epoch,
                replicas=replicas,
                adding_replicas=adding,
                removing_replicas=removing,
                is_new=is_new,
                leader_recovery_state=state.leader_recovery_state,
                first_leader_epoch=state.first_epochs[0],
                eligible=state.elr,
                is_closing=topic_partition.partition in self._image.closing(topic_partition.topic),
                throttle=0 if move is None else move.throttle,
                idle=() if move is None else self._idle(topic_partition, move),
            ),
        )

    def _idle(self, topic_partition: TopicPartition, move: Move) -> tuple[int, ...]:
        image = self._image
        return records.idle(
            image.assigned(topic_partition),
            move,
            image.states[topic_partition],
            topic_partition in image.paused,
        )

    def _of(self, broker_id: int) -> Commands:
        commands = self._commands.get(broker_id)
        if commands is None:
            mark = self._image.went_back
            commands = self._commands[broker_id] = Commands(
                self._brokers,
                partition_count=len(self._image.states),
                store_mark="" if mark is None else mark.name,
            )
        return commands
