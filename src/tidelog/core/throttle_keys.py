"""Declarations of the keys of the replication throttle, and its lists of replicas (R15, KIP-73).

A broker has one rate as leader and one as follower, in bytes per second. A broker's own setting
takes precedence over the setting for all brokers. A topic lists its throttled replicas separately
for the leaders, which send records, and for the followers, which fetch them. Names, ranges and
defaults are Kafka's in 3.9 (DynamicConfig.Broker, LogConfig, ReplicationQuotaManagerConfig).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tidelog.core.config_keys import INT64_MAX, integer, long
from tidelog.core.dataclass import dataclass

#: The rate that means no throttle, Kafka's default.
UNLIMITED: Final = INT64_MAX
#: The rates of the replication throttle. Any broker may change them for another broker, which may
#: be dead (R15).
THROTTLE_RATES: Final = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
)
#: The broker key of the rate for moves between log directories (D11).
DIRECTORY_MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
#: All keys that any broker may change for another broker.
FOREIGN_RATES: Final = (*THROTTLE_RATES, DIRECTORY_MOVE_RATE)
_ALL: Final = "*"


def leader_rate() -> Any:
    """Return the declaration of leader.replication.throttled.rate."""
    return long(
        UNLIMITED,
        "Bytes a second that this broker sends to followers of throttled partitions "
        "(leader.replication.throttled.replicas of the topic), followers in the ISR included; only "
        "those outside the ISR wait (rule R15). The largest value: no limit.",
        at_least=0,
    )


def follower_rate() -> Any:
    """Return the declaration of follower.replication.throttled.rate."""
    return long(
        UNLIMITED,
        "Bytes a second that this broker fetches of throttled partitions that it follows "
        "(follower.replication.throttled.replicas of the topic); only replicas outside the ISR "
        "wait (rule R15). The largest value: no limit.",
        at_least=0,
    )


def window_count() -> Any:
    """Return the declaration of replication.quota.window.num."""
    return integer(11, "Windows over which a throttle measures its rate.", at_least=1)


def window_seconds() -> Any:
    """Return the declaration of replication.quota.window.size.seconds."""
    return integer(1, "Length of a window of replication.quota.window.num, in seconds.", at_least=1)


def directory_move_rate() -> Any:
    """Return the declaration of replica.alter.log.dirs.io.max.bytes.per.second (KIP-113)."""
    return long(
        UNLIMITED,
        "Bytes a second that replicas on their way between the log directories of this broker are "
        "copied with, all together (rule D11). The largest value: no limit.",
        at_least=0,
    )


def directory_move_windows() -> Any:
    """Return the declaration of alter.log.dirs.replication.quota.window.num."""
    meaning = "Windows over which the rate of moves between log directories is measured."
    return integer(11, meaning, at_least=1)


def directory_move_window_seconds() -> Any:
    """Return the declaration of alter.log.dirs.replication.quota.window.size.seconds."""
    meaning = "Length of a window of alter.log.dirs.replication.quota.window.num, in seconds."
    return integer(1, meaning, at_least=1)


def directory_move_threads() -> Any:
    """Return the declaration of num.replica.alter.log.dirs.threads."""
    return integer(
        -1,
        "How many replicas are copied between log directories at a time; -1: as many as there are "
        "log directories.",
        at_least=1,
        also=-1,
    )


@dataclass(frozen=True, slots=True)
class ThrottledPartitions:
    """The partitions of one topic that are throttled on one broker."""

    #: Whether the configured list is `*`, which throttles all partitions and leaves `numbers`
    #: empty.
    is_all: bool = False
    numbers: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return self.is_all or bool(self.numbers)

    def __contains__(self, partition: int) -> bool:
        return self.is_all or partition in self.numbers


def on_broker(replicas: Iterable[str], broker_id: int) -> ThrottledPartitions:
    """Return the partitions that a list of `partition:broker` entries throttles on a broker."""
    numbers = []
    for replica in replicas:
        if replica == _ALL:
            return ThrottledPartitions(is_all=True)
        partition, _, broker = replica.partition(":")
        if broker and int(broker) == broker_id:
            numbers.append(int(partition))
    return ThrottledPartitions(numbers=frozenset(numbers))
