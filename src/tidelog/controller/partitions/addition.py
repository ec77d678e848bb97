"""Addition of partitions to topics: which requests are rejected, and what is written (V7, V70).

`plan` takes one topic of a CreatePartitions request (KIP-195), or of the requests that
administrators store below `/admin/partitions_add`. `plan` returns the topic's new node and the
first states of the added partitions. Existing partitions stay unchanged. If a partition with the
same number was removed earlier, the epochs of the new partition are above those of the removed
partition (V71). Refusals are KafkaErrors whose message names an acceptable request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidelog.controller import lifecycle
from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.notices import TopicOutdated
from tidelog.controller.partitions import assignments, placement, refusals
from tidelog.controller.records import Topic
from tidelog.controller.settlement import Settlement
from tidelog.controller.state_writes import first_states, send_first_states
from tidelog.controller.writes import Conflict, Outcome, Write
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MAX_PARTITIONS_PER_REQUEST
from tidelog.core.names import is_internal_topic
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

#: Maximum number of waiting partitions that a message for operators lists.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class CreatePartitionsAsked(Event):
    """A client's request for more partitions, with a seed for their placement."""

    ticket: int
    request: CreatePartitionsRequest
    seed: int


@dataclass(frozen=True, slots=True)
class AdditionsRead(Event):
    """Requests read from `/admin/partitions_add`: replicas by topic and partition number (V7).

    An empty list leaves the choice of replicas to the controller. The seed determines where the
    controller places replicas that it chooses.
    """

    wanted: Mapping[str, Mapping[int, Sequence[int]]]
    seed: int


@dataclass(frozen=True, slots=True)
class FormerRead(Event):
    """What the state nodes of partitions to add hold already (V71).

    A removed partition of the same number may have left its last state there. The state is None if
    there is no state node.
    """

    states: Mapping[TopicPartition, PartitionState | None]


@dataclass(frozen=True, slots=True)
class PartitionsAdded(Change):
    """A known topic has more partitions; `states` are the states of the added partitions (V70)."""

    topic: Topic
    states: Mapping[int, PartitionState]

    def apply(self, image: Image) -> None:
        """Add the partitions to the topic; its other partitions stay unchanged."""
        image.place(self.topic, self.states)


@dataclass(frozen=True, slots=True)
class FormerFound(Change):
    """What the state nodes of partitions to add hold already.

    A removed partition of the same number may have left its last state there. The state is None if
    there is no state node.
    """

    states: Mapping[TopicPartition, PartitionState | None]

    def apply(self, image: Image) -> None:
        """Record the former incarnations."""
        image.former.update(self.states)


@dataclass(frozen=True, slots=True)
class FormerForgotten(Change):
    """Change: what the image knows of a topic's former partitions (V71) is outdated."""

    name: str

    def apply(self, image: Image) -> None:
        """Drop the former incarnations."""
        image.forget_former(self.name)


@dataclass(frozen=True, slots=True)
class Growth:
    """The outcome of a request for more partitions: the topic's new node, and the first states of
    the added partitions.
    """

    topic: Topic
    states: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True)
class AddPartitions(Write):
    """Add partitions to a topic's node, and create their first states."""

    growth: Growth

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Add the new partitions to the image."""
        topic = self.growth.topic
        if isinstance(outcome, Conflict):
            number_unknown(topic.name, settlement)
            return
        states = first_states(self.growth.states, outcome.mzxid)
        settlement.apply(PartitionsAdded(topic, states))
        send_first_states(topic, states, settlement)


def number_unknown(name: str, settlement: Settlement) -> None:
    """Drop the recorded former states of a topic's partitions, because they are outdated."""
    settlement.notices.add(TopicOutdated(name))
    settlement.apply(FormerForgotten(name))


def create_partitions(asked: CreatePartitionsAsked, draft: Draft) -> bool:
    """Plan more partitions for each topic in a client's request (V70).

    Returns False, and leaves the request to a later step, if another request in the same step of
    the controller changes the number of a topic's partitions.
    """
    request = asked.request
    counts = Counter(wanted.name for wanted in request.topics)
    if draft.has_changed(counts):
        return False
    answer = Answer[str](asked.ticket, Precedence.CREATE_PARTITIONS, _response, _on_conflict)
    draft.answer(answer)
    room = MAX_PARTITIONS_PER_REQUEST
    for index, wanted in enumerate(request.topics):
        result = Result(wanted.name)
        answer.results.append(result)
        try:
            refusals.check_resizable(wanted.name, counts[wanted.name], draft)
            planned = plan(
                wanted, draft.image, asked.seed + index, draft.settings.controller_epoch, room
            )
        except KafkaError as error:
            result.refuse(error)
            continue
        room -= len(planned.states)
        if not request.validate_only:
            draft.resized[wanted.name] = None
            result.write = draft.add(AddPartitions(planned))
    return True


def _on_conflict(result: Result[str], conflict: Conflict) -> tuple[ErrorCode, str | None]:
    return (
        ErrorCode.INVALID_UPDATE_VERSION,
        f"topic {result.subject!r} was changed concurrently: describe it and retry",
    )


def _response(results: Sequence[Result[str]]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(result.subject, result.error, result.message)
            for result in results
        ]
    )


class Additions:
    """Stored requests to add partitions (V7).

    A request waits until all partitions with lower numbers exist or are requested too.
    """

    __slots__ = ("_reported", "_seed", "_wanted")

    def __init__(self) -> None:
        self._wanted: Mapping[str, Mapping[int, Sequence[int]]] = {}
        self._seed = 0
        #: By topic, the last report about its requests that wait for lower partition numbers, so
        #: that each report is logged once.
        self._reported: dict[str, str] = {}

    def read(self, event: AdditionsRead) -> None:
        """Replace the known stored requests by the requests that were read."""
        self._wanted, self._seed = event.wanted, event.seed

    def write(self, draft: Draft) -> None:
        """Carry out the requests that are possible now; report once why other requests wait."""
        waiting: dict[str, str] = {}
        for name, wanted in self._wanted.items():
            gap = self._add(name, wanted, draft)
            if gap:
                waiting[name] = gap
        for name in [name for name in self._reported if name not in self._wanted]:
            del self._reported[name]
        for name, gap in waiting.items():
            if self._reported.get(name) != gap:
                self._reported[name] = gap
                draft.report(gap)

    def _add(self, name: str, wanted: Mapping[int, Sequence[int]], draft: Draft) -> str:
        """Carry out the possible requests for one topic; return a report of requests that wait."""
        image = draft.image
        topic = image.topics.get(name)
        if draft.has_changed((name,)) or name in image.unreadable or image.closing(name):
            return ""
        count = 0 if topic is None else len(topic.assignments)
        for partition in wanted:
            if partition < count:
                draft.add(refusals.ForgetRequest(TopicPartition(name, partition), is_removal=False))
        run: list[tuple[int, ...]] = []
        while count + len(run) in wanted and len(run) < MAX_PARTITIONS_PER_REQUEST:
            chosen = tuple(wanted[count + len(run)])
            if run and bool(chosen) != bool(run[0]):
                break
            run.append(chosen)
        if topic is not None and not run:
            return _gap(name, count, wanted)
        request = CreatePartitionsTopic(name=name, count=count + len(run))
        if run and run[0]:
            request.assignments = [CreatePartitionsAssignment(chosen) for chosen in run]
        epoch = draft.settings.controller_epoch
        try:
            refusals.check_resizable(name, 1, draft)
            planned = plan(request, image, self._seed, epoch, MAX_PARTITIONS_PER_REQUEST)
        except KafkaError as error:
            refused = range(count, count + len(run)) if topic is not None else wanted
            for partition in refused:
                topic_partition = TopicPartition(name, partition)
                refusals.refuse(topic_partition, error.message, draft, is_removal=False)
            return ""
        draft.resized[name] = None
        draft.add(AddPartitions(planned))
        return ""

    def wanted_former(self, events: Iterable[Event], image: Image) -> list[TopicPartition]:
        """Return partitions to add whose former incarnations are unknown.

        The former states of the returned partitions must be read (`FormerRead`) before the decision
        (V71).
        """
        asked: dict[str, int] = {}
        known: dict[TopicPartition, PartitionState | None] = {}
        additions = [self._wanted]
        for event in events:
            if isinstance(event, CreatePartitionsAsked):
                for topic in event.request.topics:
                    asked[topic.name] = max(topic.count, asked.get(topic.name, 0))
            elif isinstance(event, AdditionsRead):
                additions.append(event.wanted)
            elif isinstance(event, FormerRead):
                known.update(event.states)
        for wanted in additions:
            for name, partitions in wanted.items():
                asked[name] = max(asked.get(name, 0), *(number + 1 for number in partitions))
        return [partition for partition in unknown_numbers(asked, image) if partition not in known]

    def copy(self) -> Additions:
        """Return an independent copy."""
        other = Additions()
        other._wanted, other._seed = self._wanted, self._seed
        other._reported = dict(self._reported)
        return other


def _gap(name: str, count: int, wanted: Mapping[int, Sequence[int]]) -> str:
    """Return a report of the requests that wait for a lower partition number; "" if none waits."""
    above = sorted(number for number in wanted if number > count)
    if not above:
        return ""
    waiting = ", ".join(map(str, above[:_NAMED]))
    missing = str(count) if above[0] == count + 1 else f"{count} to {above[0] - 1}"
    return (
        f"topic {name!r} has {count} partitions: requests to add partition {waiting} wait for"
        f" requests to add partition {missing} (nodes /admin/partitions_add/{name}/{count} and on)"
    )


def unknown_numbers(counts: Mapping[str, int], image: Image) -> list[TopicPartition]:
    """Return partitions to add whose former state is unknown.

    `counts` has, by topic, the number of partitions after the addition. The result has at most as
    many partitions of a topic as one request may add.
    """
    found = []
    for name, count in counts.items():
        topic = image.topics.get(name)
        if topic is not None:
            first = len(topic.assignments)
            for number in range(first, min(count, first + MAX_PARTITIONS_PER_REQUEST)):
                topic_partition = TopicPartition(name, number)
                if topic_partition not in image.former:
                    found.append(topic_partition)
    return found


def plan(
    wanted: CreatePartitionsTopic, image: Image, seed: int, controller_epoch: int, room: int
) -> Growth:
    """Return the topic with its added partitions. Raises KafkaError with the reason of a refusal.

    `room` is the number of partitions that this request may still create.
    """
    topic = changeable(wanted.name, image)
    existing = topic.assignments
    added = _check_count(wanted, topic)
    assignments.check_partition_count(added, room)
    factor = len(existing[0])
    assignments.check_size(wanted.count, wanted.count * factor, max(image.brokers, default=0))
    if not wanted.assignments:
        live = list(image.brokers.values())
        new = placement.place(live, added, factor, seed, existing)
    else:
        chosen = [tuple(assignment.broker_ids) for assignment in wanted.assignments]
        new = assignments.explicit(chosen, added, len(existing), factor, image.brokers)
    states = {}
    for partition, replicas in new.items():
        former = image.former.get(TopicPartition(topic.name, partition))
        state = lifecycle.first_state(replicas, image.brokers, controller_epoch, former)
        assert state is not None, "all its replicas are alive"
        states[partition] = state
    grown = replace(topic, assignments={**existing, **new}, version=topic.version + 1)
    return Growth(grown, states)


def changeable(name: str, image: Image) -> Topic:
    """Return the topic if its number of partitions can be changed now, else raise KafkaError."""
    if is_internal_topic(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the partitions of internal topic {name!r} cannot be changed: keys map to them by"
            " their number",
        )
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if image.is_deleting(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is being deleted")
    closing = image.closing(name)
    if closing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"partitions {closing.start} to {closing.stop - 1} of topic {name!r} are being removed:"
            " wait until the removal ends",
        )
    if topic.is_reassigning:
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"partitions of topic {name!r} are being reassigned: wait until that ends, or"
            " cancel it",
        )
    if sorted(topic.assignments) != list(range(len(topic.assignments))) or not topic.assignments:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"partitions of topic {name!r} are not numbered from 0 on: none can be added or"
            " removed",
        )
    return topic


def _check_count(wanted: CreatePartitionsTopic, topic: Topic) -> int:
    """Return how many partitions to add. Raises KafkaError if the requested count is invalid."""
    now = len(topic.assignments)
    if wanted.count == now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {now} partitions already"
        )
    if wanted.count < now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {now} partitions, more than the {wanted.count} asked for:"
            " this request only adds; RemovePartitions removes the highest",
        )
    return wanted.count - now
