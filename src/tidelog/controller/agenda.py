"""What a controller has still to look at, between its decisions.

Facts and outcomes put things here, `Controller.decide` takes them away. All is level-triggered:
what is done about an entry follows from the image, so that an entry too many costs a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.controller.balance import Balance
from tidelog.controller.events import AdditionsRead
from tidelog.controller.image import Image
from tidelog.controller.shutdowns import HandOver, ShutdownAnswer
from tidelog.core.types import BrokerInfo, TopicPartition


class Agenda:
    """Plain collections, in order of arrival."""

    __slots__ = (
        "additions",
        "arrived",
        "balance",
        "brokers_changed",
        "dirty",
        "election_requested",
        "forgotten",
        "full",
        "gone",
        "hand_overs",
        "has_read_brokers",
        "moves",
        "preferred",
        "refused",
        "reports",
        "requested",
        "shown",
        "shutdown_answers",
        "stopping",
        "vanished",
        "waiting",
    )

    def __init__(self) -> None:
        #: Partitions to look at.
        self.dirty: dict[TopicPartition, None] = {}
        #: Partitions whose metadata changed without a write.
        self.shown: dict[TopicPartition, None] = {}
        #: Brokers that are to be told everything.
        self.full: dict[int, None] = {}
        self.brokers_changed = False
        #: What registrations did since the last decision; who is there at first has not come.
        self.has_read_brokers = False
        self.gone: list[BrokerInfo] = []
        self.arrived: list[BrokerInfo] = []
        #: Requests to delete what cannot be deleted.
        self.forgotten: dict[str, None] = {}
        #: Partitions to give back to their preferred replicas, a few at a time (V46).
        self.preferred: dict[TopicPartition, None] = {}
        #: What is to go back without being asked for, step by step.
        self.balance = Balance()
        #: `/admin/preferred_replica_election` goes when none is left.
        self.election_requested = False
        #: Reassignments to look at, those whose replicas may have to be told to go, and whether
        #: `/admin/reassign_partitions` is to be looked at (V50).
        self.moves: dict[TopicPartition, None] = {}
        self.stopping: dict[TopicPartition, None] = {}
        self.requested = False
        #: Controlled shutdowns under way, by broker; and answers to those that are not.
        self.hand_overs: dict[int, HandOver] = {}
        self.shutdown_answers: list[ShutdownAnswer] = []
        #: Requests to add partitions that stand in the store, and a seed for their placement (V7).
        self.additions = AdditionsRead({}, 0)
        #: Requests in the store that cannot be done: (partition, is a removal) -> why.
        self.refused: dict[tuple[TopicPartition, bool], str] = {}
        self.reports: list[str] = []
        #: Topics whose nodes somebody has removed.
        self.vanished: list[str] = []
        #: Requests to add partitions that wait for lower numbers, by topic, as they were reported.
        self.waiting: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether a decision would find anything here."""
        return bool(
            self.dirty
            or self.shown
            or self.full
            or self.brokers_changed
            or self.forgotten
            or self.preferred
            or self.election_requested
            or self.hand_overs
            or self.shutdown_answers
            or self.moves
            or self.stopping
            or self.requested
        )

    def report_waiting(self, waiting: Mapping[str, str]) -> None:
        """Report requests to add partitions that wait for lower numbers, each state of a topic's
        requests once."""
        for name in [name for name in self.waiting if name not in self.additions.wanted]:
            del self.waiting[name]
        for name, report in waiting.items():
            if self.waiting.get(name) != report:
                self.waiting[name] = report
                self.reports.append(report)

    def look_at_requests(self, image: Image) -> None:
        """`/admin/reassign_partitions` may have something to begin, or have it done."""
        self.requested = self.requested or image.reassignments is not None

    def look_at_moves(self, topic_partitions: Iterable[TopicPartition], image: Image) -> None:
        """Those of them that are being reassigned."""
        moving = image.moving
        self.moves.update(dict.fromkeys(one for one in topic_partitions if one in moving))

    def copy(self) -> Agenda:
        """An independent copy."""
        other = Agenda()
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, dict | list) else value)
        other.balance = self.balance.copy()
        other.hand_overs = {key: one.copy() for key, one in self.hand_overs.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """Equal for those after which a controller goes on alike; tickets are not told apart."""
        return (
            tuple(self.dirty),
            tuple(self.full),
            tuple(self.preferred),
            self.balance.key(),
            self.election_requested,
            tuple((key, len(one.led), len(one.followed)) for key, one in self.hand_overs.items()),
            tuple(self.moves),
            tuple(self.stopping),
        )
