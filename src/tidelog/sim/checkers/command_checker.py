"""Checks of the controller's commands and their order, against published state and replicas.

A broker gets UpdateMetadata with a leader before it takes a role under that leader (V17). Before
the controller deletes the node of a topic, every broker that stayed registered has deleted its
replicas (V22). The same holds before the controller removes a replica from the topic's assignment
(V52). In the end, brokers hold only replicas that are assigned to them. A broker that was down
during a deletion finds its stray replica when it is back (V45).
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.sim.checkers.checker import Checked, Checker
from tidelog.sim.observed.published_state import PublishedTopic
from tidelog.sim.observed.replica_logs import LogKey


class CommandChecker(Checker):
    """Checker of the commands to all brokers of a cluster."""

    def __init__(self, run: Checked) -> None:
        super().__init__(run)
        #: Brokers in the UpdateMetadata requests so far, by (broker id, incarnation).
        self._known: dict[tuple[int, int], set[int]] = {}
        #: Broker epoch in which each broker first got UpdateMetadata, and the transaction then.
        self._known_since: dict[int, tuple[int, int]] = {}
        #: Names of topics whose node the controller could not read.
        self._unread: set[str] = set()
        run.published.on_left.append(self._left)
        run.published.on_topic_gone.append(self._topic_gone)

    def metadata_applied(self, node_id: int, brokers: Iterable[int]) -> None:
        """Record that a broker has applied UpdateMetadata with these live brokers."""
        self._known_to(node_id).update(brokers)
        registered = self._brokers[node_id].broker_epoch
        if self._known_since.get(node_id, (-1, 0))[0] != registered:
            self._known_since[node_id] = registered, self._published.zxid

    def role_taken(self, node_id: int, partition: str, leader: int) -> None:
        """Check that a broker that takes a role knows its leader, which may be itself; -1: none."""
        if leader >= 0 and leader not in self._known_to(node_id):
            self._violate(
                f"{partition}: node {node_id} takes a role under leader {leader}, and never got"
                " that broker in UpdateMetadata (V17)"
            )

    def unread_deleted(self, name: str) -> None:
        """Record that a controller deletes a topic whose node it could not read.

        The controller does not wait for brokers with replicas of this topic. They set these
        replicas aside when a command names all others.
        """
        self._unread.add(name)

    def _known_to(self, node_id: int) -> set[int]:
        return self._known.setdefault((node_id, self._brokers[node_id].incarnation), set())

    def unassigned(self) -> str:
        """Return a replica that a broker holds without being assigned; empty for none."""
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
        """Check that the broker of a replica that is assigned no more has deleted it.

        This holds for a broker that has been registered since the replica was listed for removal.
        The broker got the command and responded that the replica is gone (V52). A broker that
        registers later finds a stray replica.
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

        `since_zxid` is the transaction of the deletion request. A controller that did not know a
        registration by then does not wait for that broker, whose full LeaderAndIsr lists its
        replicas.
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
        """Return whether a broker is up and still in the registration that it had then."""
        broker = self._brokers[node_id]
        registered = self._published.brokers.get(node_id)
        return (
            registered is not None
            and registered <= since_zxid
            and broker.is_up
            and broker.broker_epoch == registered
        )
