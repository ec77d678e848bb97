"""Checks of the controller's commands and their order, by published state and replicas.

Before a broker becomes follower of a leader, UpdateMetadata must have given it the leader's address
(V17). Before the controller deletes a topic's node in the metadata store, every broker that stayed
registered must have deleted its replicas of the topic (V22). Before the controller removes a
replica from the assignment, its broker must have deleted the replica, if it stayed registered
(V52). At the end of a run, brokers hold only assigned replicas; a broker that was down during a
deletion finds its stray replica after its restart (V45). The controller's response to a controlled
shutdown lists the partitions that still need the stopping broker (V43).

After this response, the stopping broker may lead only the listed partitions, and partitions without
another live member in the ISR. The stopping broker must not be in the ISR of a partition that
another broker leads. If the list is empty, the stopping broker must not be elected leader, and must
join no ISR, until its registration ends. An exception: a new controller does not know of the
shutdown, so it may elect the stopping broker if this broker is an eligible replica (E2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidelog.core.types import NO_LEADER
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.observed.published_state import PublishedPartition, PublishedTopic
from tidelog.sim.observed.replica_logs import LogKey


class CommandChecker(Checker):
    """Checker of the controller's commands to all brokers of a cluster."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        #: For each broker, by its (broker id, incarnation): the live brokers that it has learned
        #: from UpdateMetadata requests.
        self._known: dict[tuple[int, int], set[int]] = {}
        #: For each broker: its latest broker epoch, and the store's zxid when the broker first got
        #: UpdateMetadata under this broker epoch.
        self._known_since: dict[int, tuple[int, int]] = {}
        #: Names of topics whose node in the metadata store the controller could not read.
        self._unread: set[str] = set()
        run.published.on_left.append(self._left)
        run.published.on_topic_gone.append(self._topic_gone)

    def metadata_applied(self, node_id: int, brokers: Iterable[int]) -> None:
        """Record that a broker has applied UpdateMetadata with the given live brokers."""
        self._known_to(node_id).update(brokers)
        registered = self._brokers[node_id].broker_epoch
        if self._known_since.get(node_id, (-1, 0))[0] != registered:
            self._known_since[node_id] = registered, self._published.zxid

    def role_taken(self, node_id: int, partition: str, leader: int) -> None:
        """Check that a broker which takes a role has got the leader in UpdateMetadata; -1 means no
        leader.
        """
        if leader >= 0 and leader not in self._known_to(node_id):
            self._violate(
                f"{partition}: node {node_id} takes a role under leader {leader}, and never got"
                " that broker in UpdateMetadata (V17)"
            )

    def unread_deleted(self, name: str) -> None:
        """Record that a controller deletes a topic whose node it could not read.

        The controller cannot know the topic's replicas, so it does not wait until brokers have
        deleted them. Brokers set these replicas aside when a full LeaderAndIsr omits them.
        """
        self._unread.add(name)

    def _known_to(self, node_id: int) -> set[int]:
        return self._known.setdefault((node_id, self._brokers[node_id].incarnation), set())

    def unassigned(self) -> str:
        """Describe a replica that a broker hosts although it is not assigned to the broker; empty
        if none.
        """
        for node_id, broker in self._brokers.items():
            for topic_partition, topic_id in broker.hosted():
                topic = self._published.all_topics.get(topic_id)
                if (
                    topic is None
                    or topic.deleted_zxid >= 0
                    or node_id not in topic.assignment.get(topic_partition.partition, ())
                ):
                    return f"broker {node_id} holds {topic_partition}, which is not assigned to it"
        return ""

    def _left(self, key: LogKey, node_id: int, since_zxid: int) -> None:
        """Check that a broker has deleted a replica that the assignment no longer contains.

        Only a broker that stayed registered since the replica was listed for removal is checked: it
        must have obeyed the command to delete the replica (V52). A broker that registered later may
        still have the replica as a stray.
        """
        if not self._was_there(node_id, since_zxid):
            return
        for topic_partition, topic_id in self._brokers[node_id].hosted():
            if LogKey(topic_id, topic_partition.partition) == key:
                self._violate(
                    f"{topic_partition}: the topic's node was written before broker {node_id} had"
                    " deleted its replica (V52)"
                )

    def _topic_gone(self, topic: PublishedTopic, since_zxid: int) -> None:
        """Check that brokers have deleted the replicas of a topic whose nodes are gone.

        `since_zxid` is the transaction id of the deletion request. The controller does not wait for
        a broker that registered after this request; such a broker sets its replicas of the topic
        aside as strays at its first full LeaderAndIsr.
        """
        if topic.name in self._unread:
            self._unread.remove(topic.name)
            return
        for node_id, broker in self._brokers.items():
            if not self._was_there(node_id, since_zxid):
                continue
            epoch, since = self._known_since.get(node_id, (-1, 0))
            if epoch != broker.broker_epoch or since >= since_zxid:
                continue
            for topic_partition, topic_id in broker.hosted():
                if topic_id == topic.topic_id:
                    self._violate(
                        f"{topic_partition}: the topic's nodes were removed before broker {node_id}"
                        " had deleted its replica (V22)"
                    )

    def _was_there(self, node_id: int, since_zxid: int) -> bool:
        """Return whether a broker is up, and has not re-registered since the transaction
        `since_zxid`.
        """
        broker = self._brokers[node_id]
        registered = self._published.brokers.get(node_id)
        return (
            registered is not None
            and registered <= since_zxid
            and broker.is_up
            and broker.broker_epoch == registered
        )


class ControlledShutdownChecker(Checker):
    """Checker of every controlled shutdown of a cluster."""

    def __init__(self, run: CheckedRun) -> None:
        super().__init__(run)
        #: Each broker that no partition needs after its controlled shutdown: its broker epoch, and
        #: the controller epoch at that time.
        self._gone: dict[int, tuple[int, int]] = {}
        self.shutdowns = 0
        run.published.on_state.append(self._changed)

    def answered(self, broker_id: int, controller_epoch: int, remaining: Collection[str]) -> None:
        """Check a controller's response to a controlled shutdown; `remaining` are the partitions in
        it.
        """
        published = self._published
        if controller_epoch != published.controller_epoch:
            return  # skip: a deposed controller does not know the current state
        self.shutdowns += 1
        for key, state in published.partitions.items():
            if published.promises_nothing(key.topic_id):
                continue
            name = str(published.name(key))
            if state.leader == broker_id:
                heirs = [
                    each for each in state.isr if each != broker_id and self._stays(state, each)
                ]
                if heirs and name not in remaining:
                    self._violate(
                        f"{name}: broker {broker_id} was allowed to shut down, and leads although"
                        f" {heirs} are in sync (V43)"
                    )
            elif state.leader != NO_LEADER and broker_id in state.isr:
                self._violate(
                    f"{name}: broker {broker_id} was allowed to shut down, and is in the ISR"
                    f" {state.isr} of leader {state.leader} (V43)"
                )

    def may_stop(self, broker_id: int) -> None:
        """Record that a broker may stop: the controller responded that no partition remains."""
        published = self._published
        if broker_id in published.brokers:
            self._gone[broker_id] = published.brokers[broker_id], published.controller_epoch

    def _stays(self, state: PublishedPartition, member: int) -> bool:
        """Return whether an ISR member runs and is not shutting down.

        The member must also be registered under the broker epoch in the partition's state node.
        """
        epoch, broker = self._published.brokers.get(member), self._brokers[member]
        is_leaving = broker.is_stopping or broker.life is None
        return epoch is not None and epoch == state.epoch_of(member) and not is_leaving

    def _changed(self, before: PublishedPartition | None, now: PublishedPartition) -> None:
        if before is None:
            return
        for broker_id, (epoch, controller_epoch) in self._gone.items():
            if self._published.brokers.get(broker_id) != epoch:
                continue
            if controller_epoch != self._published.controller_epoch and broker_id in before.elr:
                continue
            is_elected = now.leader == broker_id != before.leader != NO_LEADER
            joins = broker_id in now.isr and broker_id not in before.isr
            if is_elected or joins:
                self._violate(
                    f"{now.key}: broker {broker_id} shut down in a controlled way and"
                    f" {'leads again' if is_elected else f'joins the ISR {now.isr}'} (V43)"
                )
