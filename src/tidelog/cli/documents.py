"""The JSON documents that commands print with `-o json`: a contract for programs.

Some documents are values of the client, such as `ConfigValue` and `GroupListing`; this module has
all other documents. Keys are never renamed or removed; new keys may be added.
`docs/reference/cli.md` lists the keys; it is generated from the classes. Times are milliseconds
since 1970, sizes are bytes, null means unknown or absent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.client.configs import ConfigValue
from tidelog.client.replica_requests import ReplicaProgress
from tidelog.client.upkeep import ReplicaSize
from tidelog.core.dataclass import dataclass
from tidelog.local.status import PartitionStatus

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")
F = TypeVar("F", bound=Callable[..., Any])


def prints(document: Any) -> Callable[[F], F]:
    """Mark a command with the class of the JSON document that it prints, or a list of the class."""

    def mark(command: F) -> F:
        command.__prints__ = document  # type: ignore[attr-defined]
        return command

    return mark


def document_of(kind: type[D], source: object, **given: Any) -> D:
    """Return a document of the class `kind`.

    `given` has some of the document's fields; the other fields are attributes of `source`.
    """
    names = (each.name for each in fields(kind) if each.name not in given)
    return kind(**{name: getattr(source, name) for name in names}, **given)


@dataclass(frozen=True, slots=True)
class OfPartition:
    """The topic and the partition number, which many of the documents below have as keys."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class StoreDifference:
    """A node of the metadata that differs between two stores; null where a store lacks the node."""

    path: str
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created; `topic_id` in Kafka's text form."""

    topic: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic that was deleted."""

    topic: str


@dataclass(frozen=True, slots=True)
class AddedPartitions:
    """A topic with added partitions, and its partition counts before and after."""

    topic: str
    partitions_before: int
    partitions: int


@dataclass(frozen=True, slots=True)
class GroupLoss:
    """The committed offset of a consumer group in a removed partition, and its unread records."""

    group: str
    committed: int
    unread: int


@dataclass(frozen=True, slots=True)
class PartitionLoss:
    """The data lost with a removed partition: its offsets, one replica's bytes, groups' offsets."""

    partition: int
    first_offset: int
    end_offset: int
    size_bytes: int
    groups: list[GroupLoss]


@dataclass(frozen=True, slots=True)
class RemovedPartitions:
    """A topic with partitions to remove, its partition counts, and the lost records and offsets.

    With `drain` the partitions are removed after every group has read them.
    """

    topic: str
    partitions_before: int
    partitions: int
    drain: bool
    removed: bool
    lost: list[PartitionLoss]


@dataclass(frozen=True, slots=True)
class StrayListed:
    """A replica that a broker has set aside; `name` is its directory in `log_dir`.

    `delete_at_ms` is null if the replica is `held` until an operator deletes or restores it.
    """

    broker: int
    log_dir: str
    name: str
    topic: str | None
    partition: int | None
    topic_id: str | None
    set_aside_ms: int
    size_bytes: int
    delete_at_ms: int | None
    held: bool
    restorable: bool


@dataclass(frozen=True, slots=True)
class StrayChanged:
    """A set-aside replica; `result` is `restored`, `deleted` or an error's name.

    `first_offset` and `end_offset` are null unless the replica was restored.
    """

    broker: int
    log_dir: str
    name: str
    topic: str | None
    partition: int | None
    result: str
    message: str
    first_offset: int | None
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class AwaitedMemberDescription:
    """A broker with an eligible replica of a partition without a leader.

    `status` is `registered`, `not_registered` or `leaving` (shutting down). For a registered broker
    it may also be `asked` (the controller has requested the log end offset of its replica) or
    `compared` (it has reported this offset). In state `unreadable` the broker cannot read the log,
    in state `lost` it no longer has the replica. A broker of Kafka is `silent`, because it cannot
    report the offset.
    """

    broker: int
    status: str


@dataclass(frozen=True, slots=True)
class PartitionDescription(PartitionStatus):
    """A partition; `leader` is -1 without a leader, and `no_leader` is a text with the reason.

    `elr` and `last_known_elr` are null from brokers that do not serve them. `quorum` is the number
    of `members` that must be registered before any of them may lead; both are null where there is a
    leader. `replica_progress` is null without --replicas.
    """

    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    no_leader: str | None
    quorum: int | None
    members: list[AwaitedMemberDescription] | None
    max_lag_ms: int | None
    replica_progress: list[ReplicaProgress] | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions."""

    topic: str
    topic_id: str
    internal: bool
    partitions: list[PartitionDescription]


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A changed configuration key.

    `operation` is `set`, `delete`, `append` or `subtract`. With `delete`, the `value` is null.
    """

    operation: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """A changed configuration; `name` is null with resource `brokers`: the defaults of all brokers.

    `executed` is false with --dry-run.
    """

    resource: str
    name: str | None
    executed: bool
    changes: list[ConfigChanged]


@dataclass(frozen=True, slots=True)
class ConfigsDescription:
    """The configuration of a topic, of a broker, or of all brokers (`brokers`, `name` null)."""

    resource: str
    name: str | None
    configs: list[ConfigValue]


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    """Records sent to one partition; offsets are null without a response (--acks 0)."""

    partition: int
    records: int
    first_offset: int | None
    last_offset: int | None


@dataclass(frozen=True, slots=True)
class Produced:
    """Records produced to a topic."""

    topic: str
    records: int
    partitions: list[ProducedPartition]


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record; its `value` has the same form as the record's value."""

    key: str
    value: str | dict[str, str] | None


@dataclass(frozen=True, slots=True)
class RecordDocument(OfPartition):
    """A record, one JSON document a line.

    Key and values are text if they are UTF-8, else {"base64": "..."}; a missing key or value is
    null.
    """

    offset: int
    timestamp_ms: int
    key: str | dict[str, str] | None
    value: str | dict[str, str] | None
    headers: list[Header]


@dataclass(frozen=True, slots=True)
class AssignedPartition(OfPartition):
    """A partition."""


@dataclass(frozen=True, slots=True)
class MemberDocument:
    """A member of a group; `partitions` is null if the member is not a consumer."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[AssignedPartition] | None


@dataclass(frozen=True, slots=True)
class GroupOffset(OfPartition):
    """A group's committed offset and its lag in one partition.

    `committed_offset` is null if a member reads the partition and the group has not committed an
    offset yet. `lag` is null without a committed offset or a responding leader. `member_id` is null
    if no member reads the partition.
    """

    committed_offset: int | None
    high_watermark: int | None
    lag: int | None
    member_id: str | None


@dataclass(frozen=True, slots=True)
class GroupDescribed:
    """A group with members, assignments and lag; `coordinator` is a broker's id."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: list[MemberDocument]
    offsets: list[GroupOffset]


@dataclass(frozen=True, slots=True)
class OffsetReset(OfPartition):
    """One partition's committed offset; `before` is null if no offset was committed before."""

    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class GroupReset:
    """New offsets of a group; `executed` is false without --execute."""

    group: str
    executed: bool
    offsets: list[OffsetReset]


@dataclass(frozen=True, slots=True)
class GroupsDeleted:
    """Groups that were deleted."""

    groups: list[str]


@dataclass(frozen=True, slots=True)
class ServerStarted:
    """The ZooKeeper server of a local cluster."""

    address: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class BrokerStarted:
    """A broker of a local cluster: its process, its addresses, and its files.

    `address` is for clients; `admin` is the address of the admin port, null without an admin port.
    """

    id: int
    pid: int | None
    address: str
    admin: str | None
    directory: str
    config: str
    log: str


@dataclass(frozen=True, slots=True)
class ClusterStarted:
    """A local cluster that is up; `bootstrap` is the address for clients."""

    bootstrap: str
    directory: str
    zookeeper: ServerStarted | None
    brokers: list[BrokerStarted]


@dataclass(frozen=True, slots=True)
class BrokerListed:
    """A broker, with the numbers of partitions that it leads and of replicas that it has.

    `state` is `up` or `down`: a broker is down if it holds replicas and is not registered. The
    address of a broker that is down is unknown.
    """

    id: int
    host: str | None
    port: int | None
    rack: str | None
    controller: bool
    leaders: int
    replicas: int
    out_of_sync: int
    state: str


@dataclass(frozen=True, slots=True)
class LeaderElected(OfPartition):
    """One partition's election. `result` is `elected`, `not_needed`, or Kafka's error name.

    `message` is the broker's reason for an error, empty if it gave none.
    """

    result: str
    leader_before: int
    leader: int
    message: str


@dataclass(frozen=True, slots=True)
class MoveBegun(OfPartition):
    """A requested move of a partition. `result` is `accepted`, `would_move`, or Kafka's error name.

    `message` is the broker's reason for an error, empty if it gave none.
    """

    result: str
    replicas_before: tuple[int, ...]
    replicas: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class MovePlanned(OfPartition):
    """A move that a command planned. `result` is `accepted`, or Kafka's error name.

    `moved_bytes` is the sum of the bytes copied to all added replicas. `reason` says why the plan
    moves the partition. `message` is the broker's reason for a refusal, empty if it gave none.
    """

    result: str
    replicas_before: tuple[int, ...]
    replicas: tuple[int, ...]
    moved_bytes: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ReassignedReplicas(OfPartition):
    """The target of one partition, preferred leader first.

    `expected_replicas` are the replicas that the partition must still have. Kafka's tool ignores
    `expected_replicas` and `reason`.
    """

    replicas: tuple[int, ...]
    expected_replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ReassignmentDocument:
    """A document of Kafka's form, which `tidelog reassign execute` and Kafka's tool execute."""

    version: int
    partitions: list[ReassignedReplicas]


@dataclass(frozen=True, slots=True)
class MoveCancelled(OfPartition):
    """A move to be cancelled. `result` is `cancelled`, `would_cancel`, or Kafka's error name.

    `replicas` are all replicas before the cancel, `target` are the replicas that the move aimed at.
    `message` is the broker's reason for an error, empty if it gave none.
    """

    result: str
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class MoveListed(OfPartition):
    """A partition on the move; `replicas` are all current replicas, the target first.

    `original` are the replicas that a cancel restores, empty where they are not known. `state` is
    `adding`, `completing`, `removing` (no replica is added) or `cancelling`. Each number of bytes
    covers all added replicas, and is null if a broker does not report it. `bytes_per_s` and
    `left_ms` are null in the first sample. `never` is true if the copy cannot catch up, because
    producers write at least as fast. `throttle` is in bytes a second for each broker, null without
    a throttle; `throttle_configured` is the lowest rate configured on brokers for these copies
    (KIP-73), null without such a rate. `paused` is the reason for which the added replicas pause
    their copies, empty where they copy. `request_id` identifies the accepted request of this move:
    the czxid of its node below /admin/reassignments, null if there is no such node.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    target: tuple[int, ...]
    original: tuple[int, ...]
    state: str
    done_bytes: int | None
    left_bytes: int | None
    bytes_per_s: int | None
    left_ms: int | None
    never: bool
    throttle: int | None
    throttle_configured: int | None
    paused: str
    request_id: int | None


@dataclass(frozen=True, slots=True)
class ThrottleRemoved:
    """A setting of a throttle; `entity` is `topic`, `broker` or `brokers` (all brokers).

    `result` is `removed`, or `would_remove` with --dry-run.
    """

    entity: str
    name: str | None
    key: str
    value: str
    result: str


@dataclass(frozen=True, slots=True)
class MovesSampled:
    """The moves under way at a time; a line of `tidelog reassign list --watch`."""

    time_ms: int
    moves: list[MoveListed]


@dataclass(frozen=True, slots=True)
class MoveInQueue(OfPartition):
    """A move that waits in the queue; `reason` is empty if the move is about to begin."""

    target: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class MoveVerified(OfPartition):
    """The progress of one partition's move.

    `state` is `done`, `moving` or `queued`. In state `elsewhere`, the partition has other replicas
    than the wanted ones, and no move. In `moving_elsewhere` and `queued_elsewhere`, its move has
    another target. In state `moving_directory`, the partition has the wanted replicas, but a
    replica is not yet in its wanted log directory. In state `changed`, another request has replaced
    the given request. In state `in_place`, the partition has the wanted replicas, and the store no
    longer records the given request.
    """

    state: str
    replicas: tuple[int, ...]
    replicas_wanted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LastKnownReplica(OfPartition):
    """A replica of a failed log directory; `size_bytes` is null where it is not known."""

    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class LogDirDescribed:
    """A log directory; `error` is Kafka's error name, null for a healthy directory.

    Bytes of the volume are null if the broker does not report them. With `read_only` the disk is
    full: the directory serves reads, and takes no records until there is space. With `cordoned` the
    directory takes no new replicas. With `slow` too many writes or reads in the directory take
    log.dir.slow.threshold.ms or longer. With `draining` the directory's replicas move to other
    directories. `last_known` are the replicas of a failed directory: its replicas at the failure,
    or else the controller's offline replicas, without sizes.
    """

    broker: int
    log_dir: str
    error: str | None
    size_bytes: int
    usable_bytes: int | None
    total_bytes: int | None
    read_only: bool
    cordoned: bool
    slow: bool
    draining: bool
    replicas: list[ReplicaSize]
    last_known: list[LastKnownReplica]


@dataclass(frozen=True, slots=True)
class DirectoryMoveEntry:
    """A requested move of a replica to another log directory of its broker.

    `result` is `accepted`, `done` (with --wait), `would_move`, or Kafka's error name.
    `log_dir_before` is null where the broker has no replica yet.
    """

    broker: int
    topic: str
    partition: int
    result: str
    log_dir_before: str | None
    log_dir: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogDirMarked:
    """A log directory that its broker treats as failed because a request marked it bad."""

    broker: int
    log_dir: str


@dataclass(frozen=True, slots=True)
class RecordsDeleted(OfPartition):
    """A partition whose oldest records were deleted; `low_watermark` is its new first offset.

    With --dry-run, `low_watermark` is the first offset that the partition would have.
    """

    low_watermark: int
    executed: bool


@dataclass(frozen=True, slots=True)
class DirectoryMovePlanned:
    """A replica that a drain or balancing moves to another log directory of its broker.

    `result` is `would_move`, `accepted`, `done` (with --wait), or Kafka's error name. `log_dir` is
    null for a replica that fits nowhere now. `reason` says why the broker moves the replica.
    """

    broker: int
    topic: str
    partition: int
    result: str
    log_dir_before: str
    log_dir: str | None
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogDirDrained:
    """A log directory whose replicas move to other directories; `executed` is false with --dry-run.

    `replicas` and `size_bytes` are the numbers of replicas and bytes that are left in the
    directory. `moves` are the moves that the broker plans or executes.
    """

    broker: int
    log_dir: str
    executed: bool
    replicas: int
    size_bytes: int
    moves: list[DirectoryMovePlanned]
