"""Topics made and removed on request: what is refused and why, what a new one looks like.

`plan` turns one topic of a CreateTopics request into its node, its configuration and the first
states of its partitions (V20, V21, V23, V24); `deletion_target` resolves one entry of DeleteTopics
(V22). Refusals are KafkaErrors whose message says what would be right. Topic ids and the seed of
the placement come from the caller: nothing here is random. Nothing is written here either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.controller import elections, placement
from tidelog.controller.changes import Topic
from tidelog.controller.image import Image
from tidelog.controller.liveness import Brokers
from tidelog.core.errors import ConfigError, ErrorCode, KafkaError
from tidelog.core.limits import (
    MAX_CREATED_CONFIG_BYTES,
    MAX_NODE_BYTES,
    MAX_PARTITIONS_PER_REQUEST,
)
from tidelog.core.names import is_internal_topic, validate_topic_name
from tidelog.core.types import ZERO_TOPIC_ID, PartitionState, TopicId
from tidelog.wire.messages.create_topics import CreatableTopic
from tidelog.wire.messages.delete_topics import DeleteTopicState

#: "Take the cluster's default" in a request (KIP-464).
DEFAULT_COUNT = -1
#: One node of the store, less what a topic node holds besides.
_MAX_ASSIGNMENT_BYTES = MAX_NODE_BYTES - 1_000
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


class TakenNames:
    """The names of topics that exist or are being made, with those that would look like them."""

    def __init__(self, image: Image) -> None:
        self._deletions = image.deletions
        self._names: dict[str, None] = {}
        self._unified: dict[str, str] = {}
        for name in (*image.topics, *image.unreadable):
            self.add(name)

    def add(self, name: str) -> None:
        """This name is taken from now on."""
        self._names[name] = None
        self._unified[_unified(name)] = name

    def check(self, name: str) -> None:
        """Raise KafkaError unless a topic may be called so."""
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
    """The topic as it will be; raises KafkaError with the reason.

    `room`: partitions that this request may still make.
    """
    names.check(wanted.name)
    configs = _configs(wanted, defaults)
    if wanted.assignments:
        assignments = _explicit_assignment(wanted, room)
    else:
        assignments = _placed(wanted, brokers, defaults, seed, room)
    states = {}
    for partition, replicas in assignments.items():
        state = elections.first_state(replicas, brokers, controller_epoch)
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"no replica of partition {partition} is alive: {list(replicas)}, live brokers are"
                f" {sorted(brokers)}",
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
        _check_deletable(name)
        return name, wanted.topic_id
    if wanted.topic_id != ZERO_TOPIC_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is given by name or by id, not both")
    _check_deletable(wanted.name)
    topic = image.topics.get(wanted.name)
    if topic is not None:
        return topic.name, topic.topic_id
    if wanted.name in image.unreadable:
        return wanted.name, ZERO_TOPIC_ID
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")


def _check_deletable(name: str) -> None:
    if is_internal_topic(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"internal topic {name!r} cannot be deleted: brokers keep their own records in it",
        )


def check_size(partitions: int, replicas: int, widest_id: int) -> None:
    """A topic is one node of the store: what does not fit is refused before it is worked out."""
    size_bytes = partitions * (len(str(partitions)) + 8) + replicas * (len(str(widest_id)) + 2)
    if size_bytes > _MAX_ASSIGNMENT_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions with {replicas} replicas take up to {size_bytes} bytes of"
            f" metadata, one topic has room for {_MAX_ASSIGNMENT_BYTES}",
        )


def _configs(wanted: CreatableTopic, defaults: TopicDefaults) -> Mapping[str, str]:
    try:
        configs = defaults.validate_configs({one.name: one.value for one in wanted.configs})
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    size_bytes = len(json.dumps(dict(configs)))  # never shorter than as it is stored
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
    check_partition_count(partitions, room)
    check_size(partitions, partitions * replication_factor, max(brokers, default=0))
    return placement.place(list(brokers.values()), partitions, replication_factor, seed)


def check_partition_count(partitions: int, room: int) -> None:
    """Raise KafkaError unless a request may make so many; `room`: what it may still make."""
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
    check_partition_count(len(wanted.assignments), room)
    chosen = {one.partition_index: tuple(one.broker_ids) for one in wanted.assignments}
    if sorted(chosen) != list(range(len(wanted.assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions must be numbered 0 to n-1, each once, not"
            f" {sorted(one.partition_index for one in wanted.assignments)[:10]}",
        )
    for partition in sorted(chosen):
        check_replicas(partition, chosen[partition], len(chosen[0]))
    widest_id = max(max(replicas) for replicas in chosen.values())
    check_size(len(chosen), len(chosen) * len(chosen[0]), widest_id)
    return dict(sorted(chosen.items()))


def check_replicas(partition: int, replicas: Sequence[int], expected: int) -> None:
    """Raise KafkaError unless these can be the replicas of a partition with `expected` many."""
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
