"""Which partitions their preferred replicas should lead again by themselves, and when (V46).

A broker is out of balance when others lead more than a given share of the partitions that prefer
it: all of those are to go back then. They do so in steps, a bounded number each, so that clients do
not all ask for their leaders anew at once; and to a broker that has come back only once it has
caught up: while it is outside the ISR of a partition that somebody leads, it has enough to fetch
and gets nothing to serve. Partitions that are being moved, removed or deleted do not count for
that. Nor does one that never comes in sync, for ever: what joined nothing between two looks is not
waited for any longer. Who asks for an election (V8) is held to the ISR alone, not to any of this.

Reads the image only; looks and steps come from outside, so time is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidelog.controller.elections import election
from tidelog.controller.image import Image
from tidelog.core.limits import MAX_AUTOMATIC_ELECTIONS_PER_STEP
from tidelog.core.types import TopicPartition


@dataclass(slots=True)
class _Registration:
    """What was found of a broker that is to get leaderships back, in its present life."""

    broker_epoch: int
    #: Partitions that it had to catch up on at the last look.
    behind: int
    #: It has caught up, or is not waited for.
    may_lead: bool
    #: One of the partitions that it is waited for.
    witness: TopicPartition | None = None


class Balance:
    """What is to go back, in the order of the preferred replicas."""

    __slots__ = ("_brokers", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, None] = {}
        self._brokers: dict[int, _Registration] = {}

    def __bool__(self) -> bool:
        """Whether another step may find something to do."""
        return bool(self._waiting)

    def look(self, image: Image, percentage: int) -> None:
        """Find out who is out of balance; `percentage` is leader.imbalance.per.broker.percentage.

        What waited since the last look waits on only where it is still found.
        """
        self._waiting = dict.fromkeys(out_of_balance(image, percentage))
        known, self._brokers = self._brokers, {}
        for preferred in dict.fromkeys(image.replicas(one)[0] for one in self._waiting):
            epoch = image.brokers[preferred].broker_epoch
            before = known.get(preferred)
            count = sum(1 for _ in behind(image, preferred))
            makes_progress = before is None or before.broker_epoch != epoch or count < before.behind
            self._brokers[preferred] = _Registration(
                epoch, count, may_lead=count == 0 or not makes_progress
            )

    def step(self, image: Image) -> list[TopicPartition]:
        """The next partitions to give back, taken out of what waits."""
        due: list[TopicPartition] = []
        held: dict[int, bool] = {}
        for topic_partition in list(self._waiting):
            if len(due) == MAX_AUTOMATIC_ELECTIONS_PER_STEP:
                break
            preferred = _elsewhere(image, topic_partition)
            if preferred is None or preferred not in image.brokers:
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

    def held_back(self) -> tuple[int, ...]:
        """Brokers that were found to catch up first, at the last step."""
        return tuple(sorted(one for one, seen in self._brokers.items() if not seen.may_lead))

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
        """An independent copy."""
        other = Balance()
        other._waiting = dict(self._waiting)
        other._brokers = {key: replace(one) for key, one in self._brokers.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """Equal for those that go on alike."""
        return (
            tuple(self._waiting),
            tuple(
                (key, one.broker_epoch, one.behind, one.may_lead)
                for key, one in sorted(self._brokers.items())
            ),
        )


def out_of_balance(image: Image, percentage: int) -> list[TopicPartition]:
    """Partitions that others lead than their preferred replicas, of brokers that are alive, do not
    leave, and of whose partitions others lead more than the percentage."""
    preferring: dict[int, int] = {}
    elsewhere: dict[int, list[TopicPartition]] = {}
    for topic_partition in image.partitions():
        if topic_partition not in image.states or not _is_settled(image, topic_partition):
            continue
        preferred = image.replicas(topic_partition)[0]
        preferring[preferred] = preferring.get(preferred, 0) + 1
        if _elsewhere(image, topic_partition) is not None:
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
    """Partitions that a broker has to catch up on: assigned to it, led by another live one, and in
    their ISR it is not."""
    return (one for one in image.hosted_by(broker_id) if _is_behind(image, broker_id, one))


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


def _is_settled(image: Image, topic_partition: TopicPartition) -> bool:
    """Whether nobody is about to move a partition's replicas, or to delete them."""
    topic = image.topics.get(topic_partition.topic)
    return topic is not None and not topic.is_reassigning and not image.is_deleting(topic.name)


def _elsewhere(image: Image, topic_partition: TopicPartition) -> int | None:
    """The preferred replica of a partition that another one leads, None where it is no more so."""
    state = image.states.get(topic_partition)
    if state is None or not _is_settled(image, topic_partition):
        return None
    replicas = image.replicas(topic_partition)
    if not replicas or not election.prefers_another(state, replicas):
        return None
    return replicas[0]
