"""CreateTopics: which requests are rejected and why, and the content of a new topic.

`plan` turns one topic of a request into its node, its configuration and the first states of its
partitions (V20, V21, V23, V24). Refusals are KafkaErrors whose message names an acceptable request.
Topic ids and the seed of the placement come with the request: this module uses no randomness.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.controller import lifecycle
from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.incarnations import Brokers
from tidelog.controller.partitions import assignments as checks
from tidelog.controller.partitions import placement
from tidelog.controller.records import Topic
from tidelog.controller.settings import TopicDefaults
from tidelog.controller.settlement import Settlement
from tidelog.controller.state_writes import first_states, send_first_states
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict, Outcome, Write
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError, ErrorCode, KafkaError
from tidelog.core.limits import MAX_CREATED_CONFIG_BYTES, MAX_PARTITIONS_PER_REQUEST
from tidelog.core.names import validate_topic_name
from tidelog.core.types import ZERO_TOPIC_ID, PartitionState, TopicId
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

#: The count in a request that stands for the cluster's default (KIP-464).
DEFAULT_COUNT = -1
#: `config_source` of a value set for the topic itself (Kafka's DYNAMIC_TOPIC_CONFIG).
_TOPIC_CONFIG = 1
_UNCLEAN = "unclean.leader.election.enable"
_MINIMUM = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class CreateTopicsAsked(Event):
    """A client's request for topics, with a new id for each and a seed for their placement."""

    ticket: int
    request: CreateTopicsRequest
    topic_ids: Sequence[TopicId]
    seed: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to write: its node, its configuration, and first states by partition."""

    topic: Topic
    configs: Mapping[str, str]
    states: Mapping[int, PartitionState]

    @property
    def replication_factor(self) -> int:
        """Number of replicas of each partition."""
        return len(next(iter(self.topic.assignments.values())))


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """Notice: this controller created a topic, whose node must be watched."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateTopic(Write):
    """Create the nodes of a topic: its configuration and its partitions' first states."""

    made: NewTopic

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Add the topic to the image, unless a topic of its name exists."""
        if isinstance(outcome, Conflict):
            return
        topic = self.made.topic
        states = first_states(self.made.states, outcome.mzxid)
        settlement.apply(TopicFound(topic, states))
        settlement.notices.add(TopicCreated(topic.name))
        send_first_states(topic, states, settlement)


class TakenNames:
    """Names that a new topic may not have: existing names, and names that collide in metrics."""

    def __init__(self, image: Image) -> None:
        self._deletions = image.deletions
        self._names: dict[str, None] = {}
        self._unified: dict[str, str] = {}
        for name in (*image.topics, *image.unreadable):
            self.add(name)

    def add(self, name: str) -> None:
        """Record that a topic name is taken."""
        self._names[name] = None
        self._unified[_unified(name)] = name

    def check(self, name: str) -> None:
        """Raise KafkaError unless a topic may have this name."""
        validate_topic_name(name)
        if name in self._deletions:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} is being deleted")
        if name in self._names:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        other = self._unified.get(_unified(name))
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name!r} collides with {other!r}: '.' and '_' look alike in metric names",
            )


def _unified(name: str) -> str:
    return name.replace(".", "_")


@dataclass(slots=True)
class Creation:
    """One topic of a CreateTopics request; `made` is None if the topic is rejected."""

    name: str
    made: NewTopic | None = None


def create_topics(asked: CreateTopicsAsked, draft: Draft, names: TakenNames) -> None:
    """Plan every topic of a client's request; each topic is created or rejected by itself."""
    request, settings = asked.request, draft.settings
    answer = Answer[Creation](asked.ticket, Precedence.CREATE_TOPICS, _response, _on_conflict)
    draft.answer(answer)
    counts = Counter(wanted.name for wanted in request.topics)
    room = MAX_PARTITIONS_PER_REQUEST
    for index, wanted in enumerate(request.topics):
        result = Result(Creation(wanted.name))
        answer.results.append(result)
        try:
            if counts[wanted.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"topic {wanted.name!r} is named {counts[wanted.name]} times",
                )
            made = plan(
                wanted,
                draft.image.brokers,
                names,
                settings.topic_defaults,
                asked.topic_ids[index],
                asked.seed + index,
                settings.controller_epoch,
                room,
            )
        except KafkaError as error:
            result.refuse(error)
            continue
        result.subject.made = made
        room -= len(made.topic.assignments)
        if not request.validate_only:
            names.add(wanted.name)
            result.write = draft.add(CreateTopic(made))


def _on_conflict(result: Result[Creation], conflict: Conflict) -> tuple[ErrorCode, str | None]:
    return (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"topic {result.subject.name!r} was created concurrently",
    )


def _response(results: Sequence[Result[Creation]]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_topic(result) for result in results])


def _topic(result: Result[Creation]) -> CreatableTopicResult:
    name, made = result.subject.name, result.subject.made
    if result.error is not ErrorCode.NONE or made is None:
        return CreatableTopicResult(
            name=name, error_code=result.error, error_message=result.message
        )
    return CreatableTopicResult(
        name=name,
        topic_id=made.topic.topic_id if result.write is not None else ZERO_TOPIC_ID,
        num_partitions=len(made.topic.assignments),
        replication_factor=made.replication_factor,
        configs=[
            CreatableTopicConfigs(name=key, value=value, config_source=_TOPIC_CONFIG)
            for key, value in sorted(made.configs.items())
        ],
    )


def plan(
    wanted: CreatableTopic,
    brokers: Brokers,
    names: TakenNames,
    defaults: TopicDefaults,
    topic_id: TopicId,
    seed: int,
    controller_epoch: int,
    room: int,
) -> NewTopic:
    """Return the new topic. Raises KafkaError with the reason if the request is rejected.

    `room` is the number of partitions that this request may still create.
    """
    names.check(wanted.name)
    configs = _configs(wanted, defaults)
    if wanted.assignments:
        assignments = _explicit_assignment(wanted, room)
    else:
        assignments = _placed(wanted, brokers, defaults, seed, room)
    states = {}
    for partition, replicas in assignments.items():
        state = lifecycle.first_state(replicas, brokers, controller_epoch)
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"no replica of partition {partition} is alive: {list(replicas)}, live brokers are"
                f" {sorted(brokers)}",
            )
        states[partition] = state
    unclean, minimum = configs.get(_UNCLEAN), configs.get(_MINIMUM)
    topic = Topic(
        wanted.name,
        topic_id,
        assignments,
        None if unclean is None else unclean == "true",
        min_insync_replicas=None if minimum is None else int(minimum),
    )
    return NewTopic(topic, configs, states)


def _configs(wanted: CreatableTopic, defaults: TopicDefaults) -> Mapping[str, str]:
    try:
        configs = defaults.validate_configs(
            {config.name: config.value for config in wanted.configs}
        )
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    size_bytes = len(json.dumps(dict(configs)))  # an upper bound of the stored size
    if size_bytes > MAX_CREATED_CONFIG_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{size_bytes} bytes of settings: at most {MAX_CREATED_CONFIG_BYTES} for a new topic",
        )
    return configs


def _placed(
    wanted: CreatableTopic, brokers: Brokers, defaults: TopicDefaults, seed: int, room: int
) -> dict[int, tuple[int, ...]]:
    partitions = wanted.num_partitions
    if partitions == DEFAULT_COUNT:
        partitions = defaults.num_partitions
    replication_factor = wanted.replication_factor
    if replication_factor == DEFAULT_COUNT:
        replication_factor = defaults.replication_factor
    checks.check_partition_count(partitions, room)
    checks.check_size(partitions, partitions * replication_factor, max(brokers, default=0))
    return placement.place(list(brokers.values()), partitions, replication_factor, seed)


def _explicit_assignment(wanted: CreatableTopic, room: int) -> dict[int, tuple[int, ...]]:
    """Return the replicas that a request chose (V21); raise KafkaError for an invalid choice.

    A broker has at most one replica of each partition (V5).
    """
    if wanted.num_partitions != DEFAULT_COUNT or wanted.replication_factor != DEFAULT_COUNT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "give the replicas or the numbers of partitions and replicas, not both",
        )
    checks.check_partition_count(len(wanted.assignments), room)
    chosen = {
        assignment.partition_index: tuple(assignment.broker_ids)
        for assignment in wanted.assignments
    }
    if sorted(chosen) != list(range(len(wanted.assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions must be numbered 0 to n-1, each once, not"
            f" {sorted(assignment.partition_index for assignment in wanted.assignments)[:10]}",
        )
    for partition in sorted(chosen):
        checks.check_replicas(partition, chosen[partition], len(chosen[0]))
    widest_id = max(max(replicas) for replicas in chosen.values())
    checks.check_size(len(chosen), len(chosen) * len(chosen[0]), widest_id)
    return dict(sorted(chosen.items()))
