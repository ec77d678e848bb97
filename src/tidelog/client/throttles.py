"""Configured replication throttles (KIP-73), as Kafka's tools set them.

A throttle is a list of replicas for each topic and a rate for each broker, and stays until it is
removed. A throttle that outlives its moves slows down the next replica that must catch up. The
functions are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from tidelog.client.configs import BROKER, TOPIC, ConfigChange, ConfigResource, ConfigValue
from tidelog.client.moving import MoveUnderWay
from tidelog.core.dataclass import dataclass
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.throttle_keys import FOREIGN_RATES, UNLIMITED, on_broker
from tidelog.core.types import TopicPartition

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LISTS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
RATES: Final = FOREIGN_RATES
#: Sources (DescribeConfigs) of settings made by requests, not by configuration files.
_STORED: Final = (
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
)
_DEFAULT: Final = "DYNAMIC_DEFAULT_BROKER_CONFIG"


@dataclass(frozen=True, slots=True)
class Throttle:
    """A setting of a throttle: of a topic, of a broker, or of all brokers."""

    resource: ConfigResource
    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value} of {self.resource}"


def of_configs(found: Mapping[ConfigResource, Iterable[ConfigValue]]) -> list[Throttle]:
    """Return the throttle settings among configurations, without duplicates; topics come first."""
    throttles: dict[tuple[ConfigResource, str], Throttle] = {}
    for resource, values in found.items():
        for each in values:
            if each.name not in (*LISTS, *RATES):
                continue
            for value, source in _stored(each):
                owner = ConfigResource(BROKER, "") if source == _DEFAULT else resource
                throttles[owner, each.name] = Throttle(owner, each.name, value)
    order = {TOPIC: 0, BROKER: 1}
    return sorted(
        throttles.values(), key=lambda each: (order[each.resource.type], each.resource, each.key)
    )


def _stored(value: ConfigValue) -> list[tuple[str, str]]:
    found = [(each.value, each.source) for each in value.synonyms]
    if not value.synonyms:
        found = [(value.value, value.source)]
    return [(text, source) for text, source in found if text and source in _STORED]


def outliving(throttles: Sequence[Throttle], moving: Collection[TopicPartition]) -> list[Throttle]:
    """Return the settings that no move in `moving` (under way or queued) needs.

    A topic's list of throttled replicas is needed while a partition of the topic moves; a rate is
    needed while any partition moves.
    """
    topics = {tp.topic for tp in moving}
    return [
        each
        for each in throttles
        if (each.resource.name not in topics if each.resource.type == TOPIC else not topics)
    ]


def rate_of(throttles: Iterable[Throttle], tp: TopicPartition, move: MoveUnderWay) -> int | None:
    """Return the lowest configured rate that limits a move's copies; None if there is none."""
    rates: dict[str, dict[str, int]] = {}
    lists: dict[str, list[str]] = {}
    for each in throttles:
        if each.resource.type == BROKER:
            rates.setdefault(each.key, {})[each.resource.name] = int(each.value)
        elif each.resource.name == tp.topic:
            lists[each.key] = [text.strip() for text in each.value.split(",")]
    sources = [replica for replica in move.replicas if replica not in move.adding]
    found = []
    for key, rate, brokers in (
        (LEADER_REPLICAS, LEADER_RATE, sources),
        (FOLLOWER_REPLICAS, FOLLOWER_RATE, move.adding),
    ):
        for broker in brokers:
            if tp.partition in on_broker(lists.get(key, ()), broker):
                of_all = rates.get(rate, {}).get("", UNLIMITED)
                found.append(rates.get(rate, {}).get(str(broker), of_all))
    lowest = min(found, default=UNLIMITED)
    return None if lowest == UNLIMITED else lowest


def removals(throttles: Iterable[Throttle]) -> dict[ConfigResource, list[ConfigChange]]:
    """Return the configuration changes that remove these throttle settings."""
    changes: dict[ConfigResource, list[ConfigChange]] = {}
    for each in throttles:
        change = ConfigChange(ConfigOperation.DELETE, each.key, None)
        changes.setdefault(each.resource, []).append(change)
    return changes
