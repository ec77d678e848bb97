"""The reference of the small world of controllers: what every write and command must keep.

The reference sees each transaction that the store applies, each command that a controller sends,
and all logs of the scripted brokers. It states rules by their definitions, without the code of
`tidelog.controller`. Only the newest elected controller writes (V3). A leader epoch has one leader,
and its ISR changes only by the leader's own request (V6, A1). A leader and every ISR member have
all committed records, unless an election may be unclean (V10, V12, V13, E1, E6). A reassignment
removes replicas only after the target is in sync (V51, V52). A topic is deleted only on request
(V22, V23). Commands show published states alone, never an older one after a newer one (V1, V17).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.core import eligible_replicas
from tidelog.core.errors import ErrorCode
from tidelog.core.types import (
    NO_LEADER,
    RECOVERING,
    BrokerInfo,
    PartitionState,
    TopicId,
    TopicPartition,
)
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError, TopicAssignment
from tidelog.metadata.store import Op
from tidelog.metadata.tree import MADE, REMOVED, Change
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

if TYPE_CHECKING:
    from tidelog.sim.small.controller_broker import SmallRecordId
    from tidelog.sim.small.controller_host import CommandFrame, ControllerHost
    from tidelog.sim.small.controller_world import ControllerWorld

_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
_DELETION: Final = re.compile(r"/admin/delete_topics/([^/]+)")

#: A partition of one topic id.
PartitionKey = tuple[TopicId, int]


#: Kinds of steps by which a leader may change although it is alive.
_MOVES_LEADERS: Final = frozenset(
    (
        "cancel",
        "elect",
        "fail_directory",
        "lose_replica",
        "reassign",
        "relinquish",
        "shut_down",
        "store_cancel",
        "store_election",
        "store_move",
    )
)


def _known_brokers(host: ControllerHost) -> Mapping[int, BrokerInfo]:
    """Return the live brokers, as a controller has read them; empty without a term."""
    term = host.controller._term
    return {} if term is None else term.controller.image.brokers


class AskedIsr(NamedTuple):
    """An ISR that a leader has asked for, as a request names it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: frozenset[tuple[int, int]]


class ControllerReference:
    """The rules that a history of controllers must keep, and its first violation of a rule."""

    def __init__(self, world: ControllerWorld) -> None:
        self._world = world
        #: The first violation of a rule in this history; "" if there was none.
        self.violation = ""
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        #: All states that were ever published, by partition and partition epoch.
        self.published: dict[PartitionKey, dict[int, PartitionState]] = {}
        self.committed: dict[PartitionKey, list[SmallRecordId]] = {}
        #: Leader epoch of the last unclean election; records of earlier epochs do not count.
        self.unclean_epoch: dict[PartitionKey, int] = {}
        #: Process that was elected for the newest controller epoch, and this epoch.
        self.elected: ControllerHost | None = None
        self.controller_epoch = 0
        self.asked: dict[PartitionKey, set[AskedIsr]] = {}
        #: Targets that administrators asked for, by partition.
        self.targets: dict[TopicPartition, set[tuple[int, ...]]] = {}
        #: Topics whose name, or id, a request to delete has named.
        self.deleted_names: set[str] = set()
        self.deleted_ids: set[TopicId] = set()
        #: Topic ids that a stored deletion concerns.
        self.queued: dict[str, TopicId] = {}
        #: By topic: the broker epochs that the controller knew when the deletion was stored.
        self._queued_with: dict[str, dict[int, int]] = {}
        #: Partitions for which an unclean election was asked for.
        self.forced: set[TopicPartition] = set()
        self._sent: dict[tuple[int, int, int, PartitionKey], tuple[int, int]] = {}

    def violate(self, text: str) -> None:
        """Note the first violation of the history."""
        if not self.violation:
            self.violation = text

    def key(self, topic_partition: TopicPartition) -> PartitionKey:
        """Return the partition of the present topic id."""
        return self.topics[topic_partition.topic].topic_id, topic_partition.partition

    # transactions

    def committed_write(
        self, host: ControllerHost | None, ops: Sequence[Op], changes: Sequence[Change]
    ) -> None:
        """Check a transaction of a controller, or note one of a script."""
        by_path = {change[1:]: change[0] for change in changes}
        if layout.CONTROLLER_EPOCH in by_path and host is not None:
            self._elected(host)
        elif host is not None and (host is not self.elected) and layout.CONTROLLER not in by_path:
            self.violate(f"V3: deposed controller {host.broker_id} writes {sorted(by_path)[:3]}")
        for path, mark in by_path.items():
            found = _DELETION.fullmatch(path)
            if found is not None and mark != REMOVED:
                self._deletion_stored(found[1], host)
        for path, mark in by_path.items():
            found = _TOPIC.fullmatch(path)
            if found is not None:
                self._topic_written(found[1], path, mark)
        for path, mark in by_path.items():
            found = _STATE.fullmatch(path)
            if found is not None:
                topic_partition = TopicPartition(found[1], int(found[2]))
                self._state_written(topic_partition, path, mark, host)
            found = _DELETION.fullmatch(path)
            if found is not None and mark == REMOVED:
                self.queued.pop(found[1], None)

    def _elected(self, host: ControllerHost) -> None:
        self.elected = host
        node = self._world.store.tree.get(layout.CONTROLLER_EPOCH)
        assert node is not None, "the epoch was just written"
        epoch = layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, node.data)
        if epoch <= self.controller_epoch:
            self.violate(f"V3: controller epoch {epoch} after {self.controller_epoch}")
        self.controller_epoch = epoch

    def _deletion_stored(self, name: str, host: ControllerHost | None) -> None:
        topic = self.topics.get(name)
        if topic is None:
            return
        self.queued[name] = topic.topic_id
        known = {} if self.elected is None else _known_brokers(self.elected)
        self._queued_with[name] = {each: known[each].broker_epoch for each in known}
        if host is not None and not (
            name in self.deleted_names or topic.topic_id in self.deleted_ids
        ):
            self.violate(f"V22: the deletion of topic {name} is stored without a request")

    def _topic_written(self, name: str, path: str, mark: str) -> None:
        before = self.topics.get(name)
        if mark == REMOVED:
            assert before is not None, "a removed topic existed"
            self._topic_removed(name, before)
            return
        node = self._world.store.tree.get(path)
        assert node is not None, "the topic was just written"
        after = layout.decode_topic(path, node.data)
        self.topics[name] = after
        for partition, replicas in after.partitions.items():
            if len(set(replicas)) != len(replicas):
                self.violate(f"V5: {name}-{partition} has the replicas {list(replicas)}")
        if mark == MADE or before is None:
            return
        if before.topic_id != after.topic_id:
            self.violate(f"V23: topic {name} changes its id")
        for partition, replicas in after.partitions.items():
            topic_partition = TopicPartition(name, partition)
            self._assigned(topic_partition, before.partitions.get(partition), replicas)
        for partition in before.partitions:
            if partition not in after.partitions:
                self.violate(f"{name}-{partition} disappears from the topic")

    def _topic_removed(self, name: str, topic: TopicAssignment) -> None:
        del self.topics[name]
        if self.queued.get(name) != topic.topic_id:
            self.violate(f"V22: topic {name} is removed although its deletion was not asked for")
        queued_with = self._queued_with.get(name, {})
        for partition in topic.partitions:
            topic_partition = TopicPartition(name, partition)
            self.states.pop(topic_partition, None)
            for broker in self._world.registered():
                replica = broker.replicas.get(topic_partition)
                if (
                    replica is not None
                    and replica.topic_id == topic.topic_id
                    and broker.broker_id in topic.partitions[partition]
                    # A broker that registered later drops the replica by a full command (V35).
                    and broker.broker_epoch == queued_with.get(broker.broker_id)
                ):
                    self.violate(
                        f"V22: topic {name} is removed before broker {broker.broker_id} deleted it"
                    )

    def _assigned(
        self,
        topic_partition: TopicPartition,
        before: Sequence[int] | None,
        replicas: Sequence[int],
    ) -> None:
        """Check the replicas of a partition in a topic's node (V50 to V52)."""
        if before is None or tuple(before) == tuple(replicas):
            return
        wanted = {each for target in self.targets.get(topic_partition, ()) for each in target}
        stranger = [each for each in replicas if each not in before and each not in wanted]
        if stranger:
            self.violate(f"V50: {topic_partition} gets replicas {stranger} without a request")
        state = self.states.get(topic_partition)
        if state is None:
            return
        members = eligible_replicas.members(state)
        lost = [each for each in before if each not in replicas and each in members]
        if lost:
            self.violate(f"V52: {topic_partition} loses replicas {lost} that may lead")

    def _state_written(
        self, topic_partition: TopicPartition, path: str, mark: str, host: ControllerHost | None
    ) -> None:
        if mark == REMOVED:
            self.states.pop(topic_partition, None)
            return
        node = self._world.store.tree.get(path)
        topic = self.topics.get(topic_partition.topic)
        if node is None:
            return
        if topic is None:
            self.violate(f"V20: a state of {topic_partition}, which has no topic")
            return
        try:
            after = layout.decode_partition_state(path, node.data, node.stat)
        except LayoutError as error:
            self.violate(f"V6: {error}")
            return
        before = self.states.get(topic_partition)
        self.states[topic_partition] = after
        key = self.key(topic_partition)
        self.published.setdefault(key, {})[after.partition_epoch] = after
        if host is not None and after.controller_epoch != self.controller_epoch:
            self.violate(f"V6: {topic_partition} has controller epoch {after.controller_epoch}")
        self._well_formed(topic_partition, after, topic.partitions[topic_partition.partition])
        if before is not None:
            self._succeeds(topic_partition, before, after)
        elif host is not None:
            self._first(topic_partition, after, host)
        if after.leader_recovery_state == RECOVERING and (
            before is None or before.leader_epoch != after.leader_epoch
        ):
            self._elected_uncleanly(topic_partition, before, after)
        self.check_members(topic_partition)

    def _well_formed(
        self, topic_partition: TopicPartition, state: PartitionState, replicas: Sequence[int]
    ) -> None:
        isr = state.isr
        if not isr or len(set(isr)) != len(isr):
            self.violate(f"V6: {topic_partition} has the ISR {list(isr)}")
        if state.leader != NO_LEADER and state.leader not in isr:
            self.violate(f"V12: leader {state.leader} of {topic_partition} is not in {list(isr)}")
        strangers = [each for each in (*isr, *state.elr) if each not in replicas]
        if strangers:
            self.violate(f"V6: {strangers} are no replicas of {topic_partition}: {list(replicas)}")
        if state.isr_epochs is None or len(state.isr_epochs) != len(isr):
            self.violate(f"V10: {topic_partition} records no broker epochs")
        for member, epoch in eligible_replicas.members(state).items():
            if epoch > 0 and epoch not in self._world.epochs[member]:
                self.violate(f"V10: {topic_partition}: broker {member} never had epoch {epoch}")

    def _succeeds(
        self, topic_partition: TopicPartition, before: PartitionState, after: PartitionState
    ) -> None:
        """Check a state against the state that it replaces."""
        if after.leader_epoch < before.leader_epoch:
            self.violate(f"V14: leader epoch of {topic_partition} falls to {after.leader_epoch}")
        if after.leader_epoch == before.leader_epoch:
            if after.leader != before.leader:
                self.violate(f"V14: {topic_partition} has two leaders in {after.leader_epoch}")
            if set(after.isr) != set(before.isr):
                self._asked_by_leader(topic_partition, before, after)
        elif after.leader_epoch > before.leader_epoch + 1:
            self.violate(f"V14: leader epoch of {topic_partition} skips to {after.leader_epoch}")
        joined = [each for each in after.isr if each not in before.isr]
        if after.leader_epoch != before.leader_epoch and joined not in ([], [after.leader]):
            self.violate(f"A1: {joined} join the ISR of {topic_partition} without the leader")
        if after.reassigned_to and after.reassigned_to != before.reassigned_to:
            self._completed(topic_partition, before, after)

        if after.leader not in (before.leader, NO_LEADER):
            self._leader_stays(topic_partition, after)
        if after.leader != before.leader and not self._world.done & _MOVES_LEADERS:
            self._elected_leader(topic_partition, before, after)

    def _first(
        self, topic_partition: TopicPartition, state: PartitionState, host: ControllerHost
    ) -> None:
        """Check the first state of a partition: all live replicas are in sync (V20)."""
        known = _known_brokers(host)
        replicas = self.topics[topic_partition.topic].partitions[topic_partition.partition]
        live = [each for each in replicas if each in known]
        staying = [each for each in live if not known[each].is_leaving] or live
        if list(state.isr) != staying or state.leader != staying[0]:
            self.violate(
                f"V20: {topic_partition} begins with leader {state.leader}, ISR {list(state.isr)},"
                f" with live replicas {staying}"
            )

    def _leader_stays(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        """Check that no leaving broker is elected while another member may lead (V43)."""
        known = {} if self.elected is None else _known_brokers(self.elected)
        leaving = [each for each in state.isr if each in known and known[each].is_leaving]
        staying = [each for each in state.isr if each in known and each not in leaving]
        if state.leader in leaving and staying:
            self.violate(f"V43: leaving broker {state.leader} is to lead {topic_partition}")

    def check_shutdown(self, broker_id: int, remaining: Sequence[tuple[str, int]]) -> None:
        """Check that a leaving broker leads only the `remaining` partitions, and new ones (V43)."""
        known = {} if self.elected is None else _known_brokers(self.elected)
        if broker_id not in known or not known[broker_id].is_leaving:
            return  # another controller has been elected, which does not know of the shutdown
        for topic_partition, state in self.states.items():
            heirs = [
                each
                for each in state.isr
                if each in known
                and not known[each].is_leaving
                and topic_partition in self._world.brokers[each].replicas
            ]
            if (
                state.leader == broker_id
                and heirs
                and topic_partition not in remaining
                and topic_partition.topic not in self.queued
            ):
                self.violate(f"V43: broker {broker_id} still leads {topic_partition}, not {heirs}")

    def _elected_leader(
        self, topic_partition: TopicPartition, before: PartitionState, after: PartitionState
    ) -> None:
        """Check an election that no request and no failed directory has caused (V11, V12)."""
        recorded = dict(zip(before.isr, before.isr_epochs or (), strict=True))
        host = self.elected
        known = {} if host is None else _known_brokers(host)
        leader = known.get(before.leader)
        has_replica = topic_partition in self._world.brokers[max(before.leader, 1)].replicas
        if (
            leader is not None
            and has_replica
            and leader.broker_epoch == recorded.get(before.leader)
        ):
            self.violate(f"V12: live leader {before.leader} of {topic_partition} is replaced")
        replicas = self.topics[topic_partition.topic].partitions[topic_partition.partition]
        candidates = [each for each in replicas if each in after.isr]
        if after.leader != NO_LEADER and len(after.isr) > 1 and after.leader != candidates[0]:
            self.violate(f"V12: {after.leader} leads {topic_partition}, not {candidates[0]}")

    def check_preferred(self, topic_partition: TopicPartition, since: int) -> None:
        """Check a successful election of the preferred leader (V46).

        Since leader epoch `since`, a replica that was the first of an assignment must have led.
        """
        topic = self.topics.get(topic_partition.topic)
        if topic is None or "reassign" in self._world.done or "store_move" in self._world.done:
            return
        published = self.published.get(self.key(topic_partition), {})
        leaders = [each.leader for each in published.values() if each.leader_epoch > since]
        preferred = topic.partitions[topic_partition.partition][0]
        if preferred not in leaders:
            self.violate(f"V46: {topic_partition} has no preferred leader {preferred}: {leaders}")

    def _asked_by_leader(
        self, topic_partition: TopicPartition, before: PartitionState, after: PartitionState
    ) -> None:
        asked = self.asked.get(self.key(topic_partition), set())
        epochs = eligible_replicas.members(after)
        for wanted in asked:
            if (
                wanted.leader == before.leader
                and wanted.leader_epoch == before.leader_epoch
                and wanted.partition_epoch == before.partition_epoch
                and {member for member, _ in wanted.isr} == set(after.isr)
                and all(epoch in (-1, epochs[member]) for member, epoch in wanted.isr)
            ):
                return
        self.violate(
            f"A1: the ISR of {topic_partition} becomes {list(after.isr)} in leader epoch"
            f" {after.leader_epoch}, which leader {before.leader} did not ask for"
        )

    def _completed(
        self, topic_partition: TopicPartition, before: PartitionState, after: PartitionState
    ) -> None:
        """Check the state with which a reassignment loses its old replicas (V51, V52, R3)."""
        topic = self.topics[topic_partition.topic]
        partition = topic_partition.partition
        removing = topic.removing.get(partition, ())
        target = tuple(each for each in topic.partitions[partition] if each not in removing)
        if after.reassigned_to != target:
            self.violate(f"V52: {topic_partition} ends at {after.reassigned_to}, not {target}")
        goes_back = target == topic.original.get(partition) and not topic.adding.get(partition)
        if not goes_back and any(each not in before.isr for each in target):
            self.violate(f"V51: {topic_partition} ends at {target} with ISR {list(before.isr)}")
        if any(each not in target for each in after.isr):
            self.violate(f"V52: {topic_partition} ends with ISR {list(after.isr)}")

    def _elected_uncleanly(
        self, topic_partition: TopicPartition, before: PartitionState | None, after: PartitionState
    ) -> None:
        if after.leader == NO_LEADER or (
            before is not None
            and before.leader_recovery_state == RECOVERING
            and after.leader in eligible_replicas.members(before)
        ):
            return  # a clean election of a partition that still recovers from an unclean one
        name = topic_partition.topic
        if name not in self._world.unclean_topics and topic_partition not in self.forced:
            self.violate(f"V13: unclean election of {topic_partition}, which nothing allows")
        key = self.key(topic_partition)
        log = self._world.log(after.leader, topic_partition, key[0])
        kept = 0
        committed = self.committed.get(key, [])
        while kept < min(len(log), len(committed)) and log[kept] == committed[kept]:
            kept += 1
        self.committed[key] = committed[:kept]
        self.unclean_epoch[key] = after.leader_epoch

    # records

    def check_members(self, topic_partition: TopicPartition) -> None:
        """Check that each ISR member and eligible replica has all committed records.

        The leader is one of the ISR members. A member that has lost records since its recorded
        broker epoch does not count: an election removes it when its broker registers again (V10).
        """
        state = self.states[topic_partition]
        key = self.key(topic_partition)
        committed = self.committed.get(key)
        if not committed or self.queued.get(topic_partition.topic) == key[0]:
            return
        for member, epoch in eligible_replicas.members(state).items():
            broker = self._world.brokers[member]
            if epoch > broker.lost_since and self._lacks(member, topic_partition, key):
                self.violate(
                    f"V10: member {member} of {topic_partition}, recorded with epoch {epoch}, lacks"
                    " committed records"
                )

    def is_whole(self, name: str) -> bool:
        """Return whether each ISR member and eligible replica of a topic has all committed records.

        Only then may `min.insync.replicas` be lowered: E6 permits as many members with lost records
        as the value at the time of the loss allows.
        """
        return not any(
            self._lacks(member, topic_partition, self.key(topic_partition))
            for topic_partition, state in self.states.items()
            if topic_partition.topic == name
            for member in eligible_replicas.members(state)
        )

    def _lacks(self, broker_id: int, topic_partition: TopicPartition, key: PartitionKey) -> bool:
        committed = self.committed.get(key, [])
        log = self._world.log(broker_id, topic_partition, key[0])
        return log[: len(committed)] != committed

    def commit(
        self, key: PartitionKey, leader_epoch: int, records: Sequence[SmallRecordId]
    ) -> None:
        """Note that a leader's high watermark covers `records`."""
        if leader_epoch < self.unclean_epoch.get(key, -1):
            return
        committed = self.committed.setdefault(key, [])
        if list(records[: len(committed)]) != committed[: len(records)]:
            self.violate(f"E1: leader epoch {leader_epoch} commits other records than before")
        elif len(records) > len(committed):
            self.committed[key] = list(records)

    # commands and responses

    def check_command(self, frame: CommandFrame) -> None:
        """Check a command that a controller sends."""
        message, broker_id = frame.message, frame.link.broker_id
        if isinstance(message, LeaderAndIsrRequest):
            shown: list[tuple[TopicId, Any, int]] = [
                (topic.topic_id, state, state.partition_epoch)
                for topic in message.topic_states
                for state in topic.partition_states
            ]
        elif isinstance(message, UpdateMetadataRequest):
            shown = [
                (topic.topic_id, state, state.zk_version)
                for topic in message.topic_states
                for state in topic.partition_states
            ]
        elif isinstance(message, StopReplicaRequest):
            self._check_stops(broker_id, message)
            return
        else:
            return
        if message.controller_epoch != frame.controller_epoch:
            self.violate(f"V30: a command of controller epoch {message.controller_epoch}")
        for topic_id, state, partition_epoch in shown:
            if state.leader_epoch < 0:
                continue
            key = (topic_id, state.partition_index)
            known = self.published.get(key, {}).get(partition_epoch)
            if (
                known is None
                or (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch)
                or tuple(known.isr) != tuple(state.isr)
            ):
                self.violate(
                    f"V1: broker {broker_id} is sent leader {state.leader} in epochs"
                    f" {state.leader_epoch} and {partition_epoch}, which is not published"
                )
                continue
            kind = int(isinstance(message, LeaderAndIsrRequest))
            self._in_order(frame, kind, key, (state.leader_epoch, partition_epoch))
            if kind and state.leader == broker_id:
                recorded = eligible_replicas.members(known)[broker_id]
                if recorded != message.broker_epoch:
                    self.violate(f"V10: broker {broker_id} is to lead in another incarnation")

    def _check_stops(self, broker_id: int, message: StopReplicaRequest) -> None:
        """Check that only replicas that must go are deleted (V22, V43, V52)."""
        for topic in message.topic_states:
            known = self.topics.get(topic.topic_name)
            if known is None or self.queued.get(topic.topic_name) == known.topic_id:
                continue
            for stop in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, stop.partition_index)
                state = self.states.get(topic_partition)
                if not stop.delete_partition or state is None:
                    continue
                if broker_id in eligible_replicas.members(state):
                    self.violate(f"V52: member {broker_id} is to delete {topic_partition}")

    def _in_order(
        self, frame: CommandFrame, kind: int, key: PartitionKey, epochs: tuple[int, int]
    ) -> None:
        message = frame.message
        place = (message.controller_epoch, message.broker_epoch, kind, key)
        if self._sent.get(place, (-1, -1)) > epochs:
            self.violate(f"V17: broker {frame.link.broker_id} is sent an older state")
        self._sent[place] = epochs

    def check_isr_response(self, topic_id: TopicId, data: Any) -> None:
        """Check a successful response to AlterPartition: the state must be published (A1)."""
        if data.error_code != ErrorCode.NONE:
            return
        known = self.published.get((topic_id, data.partition_index), {}).get(data.partition_epoch)
        if known is None or tuple(known.isr) != tuple(data.isr):
            self.violate(f"A1: a leader gets the ISR {list(data.isr)}, which is not published")

    def replica_created(
        self, broker_id: int, topic_id: TopicId, state: Any, names: Mapping[TopicId, str]
    ) -> None:
        """Check that no broker creates an empty replica in place of one with committed records."""
        key = (topic_id, state.partition_index)
        name = names.get(topic_id)
        if name is None or not self.committed.get(key):
            return
        newest = self.states.get(TopicPartition(name, state.partition_index))
        if newest is None or newest.leader_epoch != state.leader_epoch:
            return
        if broker_id in newest.isr and newest.leader_recovery_state != RECOVERING:
            self.violate(f"D3: member {broker_id} of {name} gets an empty replica")
