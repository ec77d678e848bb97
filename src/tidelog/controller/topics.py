"""Topics made and removed on request: what is refused and why, what a new one looks like.

`plan` turns one topic of a CreateTopics request into its node, its configuration and the first
states of its partitions (V20, V21, V23, V24); `deletion_target` resolves one entry of DeleteTopics
(V22). Refusals are KafkaErrors whose message says what would be right. Topic ids and the seed of
the placement come from the caller: nothing here is random. Nothing is written here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.controller import elections, placement
from tidelog.controller.image import Image, Topic
from tidelog.controller.liveness import Brokers
from tidelog.core.errors import ConfigError, ErrorCode, KafkaError
from tidelog.core.limits import MAX_PARTITIONS_PER_REQUEST
from tidelog.core.names import validate_topic_name
from tidelog.core.types import ZERO_TOPIC_ID, PartitionState, TopicId
from tidelog.wire.messages.create_topics import CreatableTopic
from tidelog.wire.messages.delete_topics import DeleteTopicState

#: "Take the cluster's default" in a request (KIP-464).
DEFAULT_COUNT = -1
_UNCLEAN = "unclean.leader.election.enable"

#: Checks the configuration of a topic and returns it as it is stored; raises ConfigError.
ConfigValidator = Callable[[Mapping[str, str | None]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What the cluster's configuration says about new topics."""

    num_partitions: int
    replication_factor: int
    validate_configs: ConfigValidator
    deletion_enabled: bool = True


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be written: node, configuration, first states by partition."""

    topic: Topic
    configs: Mapping[str, str]
    states: Mapping[int, PartitionState]

    @property
    def replication_factor(self) -> int:
        """Replicas of each partition."""
        return len(next(iter(self.topic.assignments.values())))


def colliding_name(name: str, others: Iterable[str]) -> str | None:
    """A topic that differs in '.' against '_' only: metric names could not tell them apart."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    return next((other for other in others if other.replace(".", "_") == unified), None)


def plan(
    wanted: CreatableTopic,
    image: Image,
    also_made: Iterable[str],
    defaults: TopicDefaults,
    topic_id: TopicId,
    seed: int,
    controller_epoch: int,
    room: int,
) -> NewTopic:
    """The topic as it will be; raises KafkaError with the reason.

    `also_made`: topics decided on but not yet in the image. `room`: partitions that this request
    may still make.
    """
    _check_name(wanted.name, image, also_made)
    configs = _configs(wanted, defaults)
    if wanted.assignments:
        assignments = _explicit_assignment(wanted, room)
    else:
        assignments = _placed(wanted, image.brokers, defaults, seed, room)
    states = {}
    for partition, replicas in assignments.items():
        state = elections.first_state(replicas, image.brokers, controller_epoch)
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"no replica of partition {partition} is alive: {list(replicas)}, live brokers are"
                f" {sorted(image.brokers)}",
            )
        states[partition] = state
    unclean = configs.get(_UNCLEAN)
    topic = Topic(
        wanted.name, topic_id, assignments, None if unclean is None else unclean == "true"
    )
    return NewTopic(topic, configs, states)


def deletion_target(
    wanted: DeleteTopicState, image: Image, defaults: TopicDefaults
) -> tuple[str, TopicId]:
    """Name and id of the topic to delete; raises KafkaError."""
    if not defaults.deletion_enabled:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if wanted.name is None:
        name = image.topic_name(wanted.topic_id)
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        return name, wanted.topic_id
    if wanted.topic_id != ZERO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is given by name or by id, not both")
    topic = image.topics.get(wanted.name)
    if topic is not None:
        return topic.name, topic.topic_id
    if wanted.name in image.unreadable:
        return wanted.name, ZERO_TOPIC_ID
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")


def _check_name(name: str, image: Image, also_made: Iterable[str]) -> None:
    validate_topic_name(name)
    if image.is_deleting(name):
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} is being deleted")
    existing = [*image.topics, *image.unreadable, *also_made]
    if name in existing:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    other = colliding_name(name, existing)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} collides with {other!r}: '.' and '_' look alike in metric names",
        )


def _configs(wanted: CreatableTopic, defaults: TopicDefaults) -> Mapping[str, str]:
    try:
        return defaults.validate_configs({one.name: one.value for one in wanted.configs})
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _placed(
    wanted: CreatableTopic, brokers: Brokers, defaults: TopicDefaults, seed: int, room: int
) -> dict[int, tuple[int, ...]]:
    partitions = wanted.num_partitions
    if partitions == DEFAULT_COUNT:
        partitions = defaults.num_partitions
    replication_factor = wanted.replication_factor
    if replication_factor == DEFAULT_COUNT:
        replication_factor = defaults.replication_factor
    _check_partition_count(partitions, room)
    return placement.place(list(brokers.values()), partitions, replication_factor, seed)


def _check_partition_count(partitions: int, room: int) -> None:
    if partitions > room:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions: this request may make {room} more, one request at most"
            f" {MAX_PARTITIONS_PER_REQUEST}",
        )


def _explicit_assignment(wanted: CreatableTopic, room: int) -> dict[int, tuple[int, ...]]:
    """What the caller chose (V21), if it can be (V5: a broker has at most one replica of each)."""
    if wanted.num_partitions != DEFAULT_COUNT or wanted.replication_factor != DEFAULT_COUNT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "give the replicas or the numbers of partitions and replicas, not both",
        )
    _check_partition_count(len(wanted.assignments), room)
    chosen = {one.partition_index: tuple(one.broker_ids) for one in wanted.assignments}
    if sorted(chosen) != list(range(len(wanted.assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions must be numbered 0 to n-1, each once, not"
            f" {sorted(one.partition_index for one in wanted.assignments)[:10]}",
        )
    for partition in sorted(chosen):
        _check_replicas(partition, chosen[partition], len(chosen[0]))
    return dict(sorted(chosen.items()))


def _check_replicas(partition: int, replicas: Sequence[int], expected: int) -> None:
    fault = None
    if not replicas:
        fault = "has no replicas"
    elif len(replicas) != expected:
        fault = f"has {len(replicas)} replicas, partition 0 has {expected}"
    elif len(dict.fromkeys(replicas)) != len(replicas):
        fault = f"names a broker twice: {list(replicas)}"
    elif min(replicas) < 0:
        fault = f"names a negative broker id: {list(replicas)}"
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {partition} {fault}")
