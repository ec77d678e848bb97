"""What brokers are told, and in which order, checked against published state and their replicas.

UpdateMetadata that names a broker comes before a role under it as leader (V17). The node of a topic
(V22), or of the assignment without a replica (V52), is written when every broker that was alive all
the while has given the replica up. And what brokers hold in the end is what is assigned to them:
whoever was away when a replica went finds that out when it is back (V45).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tidelog.core.types import TopicId, TopicPartition
from tidelog.sim.checkers.published_state import Published, PublishedTopic
from tidelog.sim.checkers.replica_logs import LogKey


class Commanded(Protocol):
    """A broker, as far as commands go."""

    @property
    def is_up(self) -> bool:
        """Whether it hosts its replicas now."""

    @property
    def incarnation(self) -> int:
        """Number of its present or last life."""

    @property
    def broker_epoch(self) -> int:
        """Of its present registration, as far as it knows; -1 for none."""

    def hosted(self) -> Iterable[tuple[TopicPartition, TopicId]]:
        """The replicas that it serves, or could be told to."""


class CommandChecker:
    """Looks at the brokers of a cluster."""

    def __init__(
        self,
        published: Published,
        brokers: Mapping[int, Commanded],
        violate: Callable[[str], None],
    ) -> None:
        self._published = published
        self._brokers = brokers
        self._violate = violate
        #: Brokers of which each process was told so far.
        self._told: dict[tuple[int, int], set[int]] = {}
        #: The registration in which each broker was told something, and the last transaction then.
        self._told_since: dict[int, tuple[int, int]] = {}
        #: Names of topics whose replicas nobody knows.
        self._unread: set[str] = set()
        published.on_left.append(self._left)
        published.on_topic_gone.append(self._topic_gone)

    def brokers_told(self, node_id: int, brokers: Iterable[int]) -> None:
        """A broker has taken UpdateMetadata over, with these live brokers."""
        self._told_to(node_id).update(brokers)
        registered = self._brokers[node_id].broker_epoch
        if self._told_since.get(node_id, (-1, 0))[0] != registered:
            self._told_since[node_id] = registered, self._published.zxid

    def role_taken(self, node_id: int, partition: str, leader: int) -> None:
        """A broker leads, or follows that leader; -1 for none."""
        if leader >= 0 and leader not in self._told_to(node_id):
            self._violate(
                f"{partition}: node {node_id} is told that {leader} leads, and was never told of"
                " that broker (V17)"
            )

    def unread_deleted(self, name: str) -> None:
        """A controller deletes a topic whose node it could not read: who holds replicas of it sets
        them aside when told of everything else, and is not waited for."""
        self._unread.add(name)

    def _told_to(self, node_id: int) -> set[int]:
        return self._told.setdefault((node_id, self._brokers[node_id].incarnation), set())

    def unassigned(self) -> str:
        """A replica that a broker holds and that is not assigned to it; empty for none."""
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
        """A replica is assigned no more. Where its broker has been registered since it was to go,
        it was told, and has answered that it is gone (V52); whoever comes later finds a stray."""
        if not self._was_there(node_id, since_zxid):
            return
        for topic_partition, topic_id in self._brokers[node_id].hosted():
            if LogKey(topic_id, topic_partition.partition) == key:
                self._violate(
                    f"{topic_partition}: the topic's node was written before broker {node_id} had"
                    " given its replica up (V52)"
                )

    def _topic_gone(self, topic: PublishedTopic, since_zxid: int) -> None:
        """A topic that was to be deleted since a transaction is gone. A controller that had not
        heard of a registration by then waits for nobody there: its full command will tell."""
        if topic.name in self._unread:
            self._unread.remove(topic.name)
            return
        for node_id, broker in self._brokers.items():
            if not self._was_there(node_id, since_zxid):
                continue
            told_in, told_since = self._told_since.get(node_id, (-1, 0))
            if told_in != broker.broker_epoch or told_since >= since_zxid:
                continue
            for topic_partition, topic_id in broker.hosted():
                if topic_id == topic.topic_id:
                    self._violate(
                        f"{topic_partition}: the topic's nodes were removed before broker {node_id}"
                        " had given its replica up (V22)"
                    )

    def _was_there(self, node_id: int, since_zxid: int) -> bool:
        """Whether a broker is in the registration that it had then."""
        broker = self._brokers[node_id]
        registered = self._published.brokers.get(node_id)
        return (
            registered is not None
            and registered <= since_zxid
            and broker.is_up
            and broker.broker_epoch == registered
        )
