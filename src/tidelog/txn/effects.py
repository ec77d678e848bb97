"""Effects of a transaction coordinator beside those of every coordinator, and its timers.

The broker carries out effects in the order in which the coordinator returns them.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.core.coordinator_shard import Effect
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition


class TransactionTimerKind(Enum):
    """Kind of a timer, by what the coordinator does when the timer fires."""

    #: Abort transactions that are older than their timeout (T61).
    TIMEOUTS = "timeouts"
    #: Remove transactional ids that were not used for long (T63).
    EXPIRY = "expiry"
    #: Append the record of a complete transaction again (T51).
    COMPLETION = "completion"


class TransactionTimer(NamedTuple):
    """Identity of a timer; `transactional_id` is empty for timers of the whole partition."""

    kind: TransactionTimerKind
    transactional_id: str = ""


@dataclass(frozen=True, slots=True)
class NeedProducerId:
    """Effect: take a new producer id from the broker's block, and report it by `number` (T5)."""

    number: int


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Effect: write the markers of a decided transaction into all its partitions (T39).

    The broker sends each marker to the partition's present leader, again and again, until a leader
    responds NONE or the store shows that the partition no longer exists (T42, table 6). The broker
    reports either outcome with `TransactionPartition.marked`.
    """

    #: Identifies the decision in reports. Up to version 4 of EndTxn, all transactions of a producer
    #: have the same epoch, so the epoch does not show which transaction a report is about.
    number: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    #: The client's transaction version, by which leaders check the marker's epoch (T45).
    client_version: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class StopMarkers:
    """Effect: stop sending markers of this transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class LoadAgain:
    """Effect: unload the partition, and load it again if this broker still leads it (T57)."""


TransactionEffect = Effect | NeedProducerId | SendMarkers | StopMarkers | LoadAgain
TransactionEffects = tuple[TransactionEffect, ...]
