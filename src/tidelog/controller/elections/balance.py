"""Automatic election of preferred replicas: which leaderships return to them, and when (V46).

A broker is out of balance when other brokers lead more than a given share of the partitions that
prefer this broker. The controller then returns the leaderships of all partitions that prefer this
broker. These leaderships return in steps of bounded size, so that clients do not all refresh their
metadata at once. A broker that has restarted gets its leaderships only after it has caught up.
While the broker is outside the ISR of a partition with a live leader, it still has to catch up, and
is busy with fetching. A broker need not catch up on partitions that are being reassigned, removed
or deleted. The controller stops waiting for a broker that has joined no ISR between two rebalance
checks. An election that a client requests (V8) depends on the ISR, and on reports of full or slow
disks (D13, D14). The caller determines the times of checks and steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidelog.controller.elections import election
from tidelog.controller.image import Image
from tidelog.controller.records import Topic
from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MAX_AUTOMATIC_ELECTIONS_PER_STEP
from tidelog.core.types import TopicPartition

#: A broker that reported slow reads gets leaderships back at this rebalance check after its report,
#: so after one to two intervals (leader.imbalance.check.interval.seconds).
SLOW_LOOKS = 2


@dataclass(slots=True)
class _Registration:
    """The progress of a broker to which leaderships are to return, in its present incarnation."""

    broker_epoch: int
    #: Number of partitions in which the broker was not in the ISR at the last rebalance check,
    #: although it is their preferred replica.
    behind: int
    #: Whether the broker has caught up, or the controller does not wait for it.
    may_lead: bool
    #: A partition in which the broker still has to catch up. As long as the broker has not caught
    #: up in this partition, the other partitions need no check.
    witness: TopicPartition | None = None


class Balance:
    """Partitions whose leadership is to return, ordered by their preferred leaders."""

    __slots__ = ("_brokers", "_slow", "_unfit", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, None] = {}
        #: Brokers that reported slow reads, each with its broker epoch and the number of rebalance
        #: checks until it may lead again (F11).
        self._slow: dict[int, tuple[int, int]] = {}
        #: Replicas on full or slow disks, each with its broker epoch and the number of rebalance
        #: checks until it may lead again (D13, D14).
        self._unfit: dict[tuple[int, TopicPartition], tuple[int, int]] = {}
        self._brokers: dict[int, _Registration] = {}

    def __bool__(self) -> bool:
        """Return whether leaderships still have to return to preferred replicas."""
        return bool(self._waiting)

    def look(self, image: Image, percentage: int) -> None:
        """Find brokers that are out of balance.

        `percentage` is leader.imbalance.per.broker.percentage. A partition found by an earlier
        check stays due only if the present check finds it again.
        """
        self._slow = {
            broker_id: (epoch, looks - 1)
            for broker_id, (epoch, looks) in self._slow.items()
            if looks > 1
        }
        self._unfit = {
            replica: (epoch, looks - 1)
            for replica, (epoch, looks) in self._unfit.items()
            if looks > 1
        }
        self._waiting = {
            topic_partition: None
            for topic_partition in out_of_balance(image, percentage)
            if not self.is_avoided(image.replicas(topic_partition)[0], topic_partition, image)
        }
        known, self._brokers = self._brokers, {}
        for preferred in dict.fromkeys(image.replicas(partition)[0] for partition in self._waiting):
            epoch = image.brokers[preferred].broker_epoch
            before = known.get(preferred)
            count = sum(1 for _ in behind(image, preferred))
            makes_progress = before is None or before.broker_epoch != epoch or count < before.behind
            self._brokers[preferred] = _Registration(
                epoch, count, may_lead=count == 0 or not makes_progress
            )

    def step(self, image: Image) -> list[TopicPartition]:
        """Remove and return the partitions whose leaderships return in the next step."""
        due: list[TopicPartition] = []
        held: dict[int, bool] = {}
        for topic_partition in list(self._waiting):
            if len(due) == MAX_AUTOMATIC_ELECTIONS_PER_STEP:
                break
            preferred = _elsewhere(image, topic_partition)
            if (
                preferred is None
                or preferred not in image.brokers
                or self.is_avoided(preferred, topic_partition, image)
            ):
                del self._waiting[topic_partition]
                continue
            if preferred not in held:
                held[preferred] = not self._may_lead(image, preferred)
            if held[preferred]:
                continue
            del self._waiting[topic_partition]
            if preferred in image.states[topic_partition].isr:
                due.append(topic_partition)
        return due

    def note_slow(self, broker_id: int, image: Image) -> None:
        """Bar a live broker from leaderships until the second rebalance check from now (F11)."""
        self._slow[broker_id] = (image.brokers[broker_id].broker_epoch, SLOW_LOOKS)

    def is_slow(self, broker_id: int, image: Image) -> bool:
        """Return whether the broker's present incarnation has recently reported slow reads."""
        broker = image.brokers.get(broker_id)
        found = self._slow.get(broker_id)
        return broker is not None and found is not None and found[0] == broker.broker_epoch

    def note_unfit(self, broker_id: int, topic_partition: TopicPartition, image: Image) -> None:
        """Bar a live broker from leading a partition, because the disk is full or slow (D13, D14).

        The replica may lead again when the broker withdraws its report, or at the second rebalance
        check from now, because the withdrawal may be lost.
        """
        epoch = image.brokers[broker_id].broker_epoch
        self._unfit[broker_id, topic_partition] = (epoch, SLOW_LOOKS)

    def note_fit(self, broker_id: int) -> None:
        """Forget that a broker reported replicas on full or slow disks, because the broker has
        withdrawn these reports.
        """
        self._unfit = {
            replica: found for replica, found in self._unfit.items() if replica[0] != broker_id
        }

    def is_avoided(self, broker_id: int, topic_partition: TopicPartition, image: Image) -> bool:
        """Return whether a broker should not lead a partition.

        It should not if it recently reported slow reads, or a full or slow disk for this partition.
        """
        return self.is_slow(broker_id, image) or self.is_unfit(broker_id, topic_partition, image)

    def is_unfit(self, broker_id: int, topic_partition: TopicPartition, image: Image) -> bool:
        """Return whether a broker's present incarnation reported that the disk of this replica is
        full or slow, so that the broker would give up the leadership at once (D13, D14).
        """
        broker = image.brokers.get(broker_id)
        found = self._unfit.get((broker_id, topic_partition))
        return broker is not None and found is not None and found[0] == broker.broker_epoch

    @property
    def counts_looks(self) -> bool:
        """Whether rebalance checks must run so that reports of slow reads and disks expire."""
        return bool(self._slow or self._unfit)

    def held_back(self) -> tuple[int, ...]:
        """Return brokers that got no leaderships at the last step, because they must catch up."""
        return tuple(
            sorted(broker_id for broker_id, seen in self._brokers.items() if not seen.may_lead)
        )

    def _may_lead(self, image: Image, broker_id: int) -> bool:
        epoch = image.brokers[broker_id].broker_epoch
        seen = self._brokers.get(broker_id)
        if seen is None or seen.broker_epoch != epoch:
            seen = self._brokers[broker_id] = _Registration(epoch, 0, may_lead=False)
        if not seen.may_lead:
            if seen.witness is None or not _is_behind(image, broker_id, seen.witness):
                seen.witness = next(behind(image, broker_id), None)
            seen.may_lead = seen.witness is None
        return seen.may_lead

    def copy(self) -> Balance:
        """Return an independent copy."""
        other = Balance()
        other._waiting = dict(self._waiting)
        other._slow = dict(self._slow)
        other._unfit = dict(self._unfit)
        other._brokers = {key: replace(registration) for key, registration in self._brokers.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """Return a hashable form for the model checker; equal forms mean equal next decisions."""
        return (
            tuple(self._waiting),
            tuple(sorted(self._slow.items())),
            tuple(sorted(self._unfit.items())),
            tuple(
                (key, registration.broker_epoch, registration.behind, registration.may_lead)
                for key, registration in sorted(self._brokers.items())
            ),
        )


def out_of_balance(image: Image, percentage: int) -> list[TopicPartition]:
    """Return the partitions whose leadership is to return to the preferred replica.

    Each returned partition is led by another replica, and its preferred broker is alive and not
    leaving. More than `percentage` percent of the partitions that prefer this broker have another
    leader.
    """
    preferring: dict[int, int] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        if not _is_settled(image, topic):
            continue
        for topic_partition in topic.partitions:
            state = image.states.get(topic_partition)
            if state is None:
                continue
            replicas = image.replicas(topic_partition)
            preferred = replicas[0]
            preferring[preferred] = preferring.get(preferred, 0) + 1
            if election.prefers_another(state, replicas):
                elsewhere.setdefault(preferred, []).append(topic_partition)
    return [
        topic_partition
        for broker_id, led_elsewhere in sorted(elsewhere.items())
        if broker_id in image.brokers
        and not image.brokers[broker_id].is_leaving
        and 100 * len(led_elsewhere) > percentage * preferring[broker_id]
        for topic_partition in led_elsewhere
    ]


def behind(image: Image, broker_id: int) -> Iterator[TopicPartition]:
    """Yield the partitions on which a broker has to catch up.

    The broker has a replica of each yielded partition, but is not in its ISR, and another live
    broker leads.
    """
    return (
        partition
        for partition in image.hosted_by(broker_id)
        if _is_behind(image, broker_id, partition)
    )


def _is_behind(image: Image, broker_id: int, topic_partition: TopicPartition) -> bool:
    state = image.states.get(topic_partition)
    return (
        state is not None
        and broker_id not in state.isr
        and state.leader in image.brokers
        and topic_partition not in image.moving
        and not image.is_deleting(topic_partition.topic)
        and broker_id in image.replicas(topic_partition)
        and topic_partition.partition not in image.closing(topic_partition.topic)
    )


def _is_settled(image: Image, topic: Topic) -> bool:
    """Return whether no reassignment or deletion of a topic is under way."""
    return not topic.is_reassigning and not image.is_deleting(topic.name)


def _elsewhere(image: Image, topic_partition: TopicPartition) -> int | None:
    """Return the preferred replica of a partition that another replica leads, else None."""
    state, topic = image.states.get(topic_partition), image.topics.get(topic_partition.topic)
    if state is None or topic is None or not _is_settled(image, topic):
        return None
    replicas = image.replicas(topic_partition)
    return replicas[0] if election.prefers_another(state, replicas) else None
