"""The reading: the state of a cluster at one time, as far as the console could read it.

After each round of reads, the poller publishes a new `ClusterReading`. A published reading never
changes, so the views of all viewers use it without locks. If a part could not be read, its last
value stays, and `problems` has the reason as a sentence.
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
from tidelog.local.admin_ports import HistoryWindow

#: A cluster event as docs/reference/events.md describes it.
Event = Mapping[str, Any]


class ReadingPart(StrEnum):
    """A part of a reading. Each part has its own requests and its own interval between reads."""

    CLUSTER = "cluster"
    OFFSETS = "offsets"
    REPLICAS = "replicas"
    GROUPS = "groups"
    DISKS = "disks"
    MOVES = "moves"
    EVENTS = "events"
    SETTINGS = "settings"
    HISTORY = "history"
    TOPIC_DAYS = "topic days"


@dataclass(frozen=True, slots=True)
class GroupReading:
    """A group; `description` is None if its coordinator did not respond."""

    listing: GroupListing
    description: GroupDescription | None
    committed: Mapping[TopicPartition, FetchedOffset]


@dataclass(frozen=True, slots=True)
class BrokerHistory:
    """Metrics that a broker keeps: the last 24 hours by minute, the last minutes by second."""

    day: HistoryWindow
    recent: HistoryWindow


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """A cluster at one time; `metadata` is None before any broker has responded."""

    #: The number of this reading among the readings of this process.
    number: int = 0
    time_ms: int = 0
    metadata: ClusterMetadata | None = None
    #: By part, a sentence that says why the part is missing or out of date.
    problems: Mapping[ReadingPart, str] = field(default_factory=dict)
    #: By part, the wall-clock time in ms at which the part was last read successfully.
    read_ms: Mapping[ReadingPart, int] = field(default_factory=dict)
    #: High watermarks of all partitions; `starts` has the log start offsets of partitions with
    #: committed offsets of groups.
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: The replicas of partitions, only for partitions that a viewer looks at.
    described: Mapping[TopicPartition, PartitionReplicas] = field(default_factory=dict)
    #: min.insync.replicas of viewed topics, and of topics with a replica out of the ISR.
    minimums: Mapping[str, int] = field(default_factory=dict)
    throttles: Sequence[Throttle] = ()
    groups: Mapping[str, GroupReading] = field(default_factory=dict)
    log_dirs: Sequence[LogDirDescription] = ()
    #: By broker, the reason why its log directories could not be read.
    silent_disks: Mapping[int, str] = field(default_factory=dict)
    moves: Moves | None = None
    progress: Sequence[MoveProgress] = ()
    #: By broker, the reason why groups of this coordinator may be missing.
    silent_coordinators: Mapping[int, str] = field(default_factory=dict)
    #: The latest events, in the order of their offsets in `__cluster_events`.
    events: Sequence[Event] = ()
    histories: Mapping[int, BrokerHistory] = field(default_factory=dict)
    #: Why a broker's history is missing or old, by broker.
    silent_histories: Mapping[int, str] = field(default_factory=dict)
    #: Of viewed topics: (time in ms, records in the logs up to it) over the last 24 hours.
    topic_days: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples that the poller keeps in addition to its readings."""

    #: The number of records ever written to a topic: the sum of its high watermarks.
    topics: SampleTable
    #: The lag of each group in records.
    groups: SampleTable
    #: Log end offsets and high watermarks of viewed partitions, by `replica_key`.
    replicas: SampleTable

    @classmethod
    def empty(cls) -> Samples:
        """Return empty tables, for 15 minutes of topics and groups and 5 minutes of replicas."""
        return cls(SampleTable(2_000, 450), SampleTable(2_000, 450), SampleTable(900, 300))


#: The argument of `replica_key` for a partition's high watermark, in place of a broker's id.
HIGH_WATERMARK_KEY = "hw"


def replica_key(tp: TopicPartition, what: int | str) -> str:
    """Return the key in `Samples.replicas` of a replica's log end offset or of a high watermark.

    `what` is the broker id of the replica, or HIGH_WATERMARK_KEY.
    """
    return f"{tp.topic}-{tp.partition}/{what}"
