"""The facts about a cluster that the console knows at one time.

The poller publishes a new `ClusterReading` after each round, and never changes a published one, so
that views of all viewers are built from it without locks. A part that could not be read keeps its
last value, and `problems` has the reason as a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from tidelog.client.cluster import ClusterMetadata
from tidelog.client.groups import FetchedOffset, GroupDescription, GroupListing
from tidelog.client.move_progress import MoveProgress
from tidelog.client.moving import Moves
from tidelog.client.replica_requests import PartitionReplicas
from tidelog.client.throttles import Throttle
from tidelog.client.upkeep import LogDirDescription
from tidelog.console.samples import SampleTable
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition

#: A cluster event as docs/reference/events.md describes it.
Event = Mapping[str, Any]


class ReadingPart(StrEnum):
    """A part of a reading, which is read with its own requests and at its own interval."""

    CLUSTER = "cluster"
    OFFSETS = "offsets"
    REPLICAS = "replicas"
    GROUPS = "groups"
    DISKS = "disks"
    MOVES = "moves"
    EVENTS = "events"
    SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A group; `description` is None if its coordinator did not respond."""

    listing: GroupListing
    description: GroupDescription | None
    committed: Mapping[TopicPartition, FetchedOffset]


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """A cluster at one time; `metadata` is None before any broker has responded."""

    #: Counts the readings of this process.
    number: int = 0
    time_ms: int = 0
    metadata: ClusterMetadata | None = None
    #: Why a part is missing or old, as a sentence for the page that shows the part.
    problems: Mapping[ReadingPart, str] = field(default_factory=dict)
    #: Wall clock in ms of the last success of each part.
    read_ms: Mapping[ReadingPart, int] = field(default_factory=dict)
    #: High watermarks, and log start offsets of the partitions that groups have committed.
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: Replicas of the viewed partitions only.
    described: Mapping[TopicPartition, PartitionReplicas] = field(default_factory=dict)
    #: min.insync.replicas of viewed topics, and of topics with a replica out of the ISR.
    minimums: Mapping[str, int] = field(default_factory=dict)
    throttles: Sequence[Throttle] = ()
    groups: Mapping[str, GroupReading] = field(default_factory=dict)
    log_dirs: Sequence[LogDirDescription] = ()
    #: Why a broker's log directories are missing, by broker.
    silent_disks: Mapping[int, str] = field(default_factory=dict)
    moves: Moves | None = None
    progress: Sequence[MoveProgress] = ()
    #: The latest events in the order of their topic.
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples that the poller keeps in addition to its readings."""

    #: Records ever written, by topic: the sum of high watermarks.
    topics: SampleTable
    #: Lag in records, by group.
    groups: SampleTable
    #: Log end offsets and high watermarks of viewed partitions, by `replica_key`.
    replicas: SampleTable

    @classmethod
    def empty(cls) -> Samples:
        """Return tables for a quarter of an hour of topics and groups, five minutes of replicas."""
        return cls(SampleTable(2_000, 450), SampleTable(2_000, 450), SampleTable(900, 300))


#: The key of a partition's high watermark among the samples of its replicas.
HIGH_WATERMARK_KEY = "hw"


def replica_key(tp: TopicPartition, what: int | str) -> str:
    """Return the key of a replica's log end offset, or of the high watermark."""
    return f"{tp.topic}-{tp.partition}/{what}"
