"""Values that all layers share, such as partitions, topic ids, endpoints and partition states.

A topic id is 16 bytes here and on the wire. A topic id's text form is Kafka's: 22 characters of
URL-safe base64 without padding. `PartitionState`, an immutable value, is the content of a
partition's state node (rules V5, V6).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import field
from typing import Final, NamedTuple

from tidelog.core.dataclass import dataclass

TopicId = bytes
ZERO_TOPIC_ID: TopicId = bytes(16)

NO_LEADER = -1
NO_EPOCH = -1
NO_BROKER_EPOCH = -1
#: The value that stands for a missing node `/brokers/stamps/N` (the stamp of broker N) in the store
#: (E8).
NO_STAMP = -1

#: Isolation levels of consumers (KIP-98).
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

#: Leader recovery states (KIP-704).
RECOVERED = 0
RECOVERING = 1


class TopicPartition(NamedTuple):
    """A partition, identified by topic name and partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReassignmentEntry(NamedTuple):
    """One partition of `/admin/reassign_partitions`.

    `replicas` are the target; `original` are the original replicas, once the controller accepted
    the entry (R1).
    """

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    original: tuple[int, ...] = ()
    #: Bytes per second that brokers may copy for this reassignment; 0 if the reassignment sets no
    #: throttle (R4).
    throttle: int = 0


class EpochEnd(NamedTuple):
    """The end offset (exclusive) of a leader epoch, as in an OffsetForLeaderEpoch response."""

    leader_epoch: int
    end_offset: int


class Endpoint(NamedTuple):
    """One listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


def partitions_text(count: int) -> str:
    """Return the numbers of a topic's partitions for messages, such as `partitions 0 to 5`."""
    return "partition 0 only" if count == 1 else f"partitions 0 to {count - 1}"


def topic_id_to_text(topic_id: TopicId) -> str:
    """Return Kafka's text form of a topic id: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def topic_id_from_text(text: str) -> TopicId:
    """Return the 16 bytes of a topic id; raise ValueError for any other text."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a topic id: {text!r}") from error
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"not a topic id: {text!r} (22 characters of URL-safe base64 expected)")
    return raw


#: Maximum number of broker epochs in `CleanEpochs.earlier`.
MAX_EARLIER_EPOCHS: Final = 64


class CleanEpochs(NamedTuple):
    """Broker epochs of registrations since which a broker has provably lost no record (E3, E7).

    `last` is the broker epoch of the last registration, or -1. `earlier` are the broker epochs of
    earlier registrations, the newest last. After each listed registration the broker shut down
    cleanly, or lost only its session. A partition's state node may still record one of the
    `earlier` broker epochs, if no controller recorded a later epoch. `earlier` lists each epoch,
    because an unlisted epoch between two listed epochs may belong to an incarnation with another
    disk.
    """

    last: int = NO_BROKER_EPOCH
    earlier: tuple[int, ...] = ()

    def followed_by(self, broker_epoch: int) -> CleanEpochs:
        """Return the epochs after another registration, whose epoch is `broker_epoch`.

        The caller must know that the broker has lost no record since the last registration.
        """
        if self.last == NO_BROKER_EPOCH:
            return CleanEpochs(broker_epoch)
        return CleanEpochs(broker_epoch, (*self.earlier, self.last)[-MAX_EARLIER_EPOCHS:])


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker: the content of its node `/brokers/ids/N`, and its epoch (rule V4)."""

    broker_id: int
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    #: Broker epoch of the broker's previous registration, if the broker provably lost nothing since
    #: then; else -1. The proof that nothing was lost is a clean shutdown (E3), or that the same
    #: process still runs (E7).
    previous_broker_epoch: int = NO_BROKER_EPOCH
    #: Broker epochs of the registrations before the previous registration, since which the broker
    #: provably lost nothing.
    earlier_broker_epochs: tuple[int, ...] = ()
    #: Whether the broker supports GetReplicaLogInfo (E6), unlike brokers of Kafka 3.9.
    reports_log_ends: bool = False
    #: Whether the broker has requested a controlled shutdown (V43); not part of the node.
    is_leaving: bool = False


#: Least number of leader epochs that every partition skips after the store was restored from an
#: older copy (E8). Between the backup of the store and the restore, no leader epoch can rise by
#: `LEAST_EPOCHS_SKIPPED` or more. The number of skipped epochs is drawn at random between
#: `LEAST_EPOCHS_SKIPPED` and its double, so that a second restore of the same backup skips another
#: number.
LEAST_EPOCHS_SKIPPED: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class StoreWentBack:
    """The node `/brokers/store_went_back`: the store was restored from an old copy (E8)."""

    broker_id: int
    #: Transaction in which the broker last wrote its node `/brokers/stamps/N` (its stamp), as its
    #: log directories recorded it.
    seen: int
    #: Transaction in which the broker last wrote `/brokers/stamps/N` according to the store;
    #: NO_STAMP if the store has no such node.
    found: int
    timestamp_ms: int
    #: Number of leader epochs that each partition skips after the restore of the store.
    skipped: int = LEAST_EPOCHS_SKIPPED
    #: Transaction that wrote `/brokers/store_went_back`; partition states that were in the store
    #: before this transaction do not prove which replicas have the committed records.
    zxid: int = 0

    @property
    def name(self) -> str:
        """The name by which brokers recognize this mark of a restored store.

        The name contains the time, because two stores may have marks with the same `zxid`.
        """
        return f"{self.zxid}-{self.timestamp_ms}"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader and ISR of one partition as published in its state node (rule V6).

    `partition_epoch` is the version of the state node. `isr_epochs` holds, in the order of `isr`,
    the broker epoch under which each member was in sync (V10); None if the node lacks the key.
    `elr` are the eligible leader replicas, which left the ISR and have every committed record (E1).
    `elr_epochs` holds the broker epoch of each replica in `elr`, or -1 if it is not known.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    leader_recovery_state: int = RECOVERED
    isr_epochs: tuple[int, ...] | None = None
    elr: tuple[int, ...] = ()
    elr_epochs: tuple[int, ...] = ()
    #: The last leader of a partition that has no leader now (E4).
    last_leader: int = NO_LEADER
    #: Whether an operator has removed this partition from its topic, which Kafka does not support
    #: (V71). The state node of a removed partition is kept, because the node records the epochs.
    removed: bool = False
    #: The target replicas of a reassignment whose removed replicas have left the ISR for good
    #: (V52). `reassigned_to` has no meaning once the topic node has another target.
    reassigned_to: tuple[int, ...] = ()
    #: (leader epoch, partition epoch) of the first state of the partition's current incarnation. A
    #: partition that was removed and then created again has a new incarnation, whose first epochs
    #: are above zero (V71).
    first_epochs: tuple[int, int] = (0, 0)
    #: Whether the state is from a store that was restored from an older copy (E8). In an unproven
    #: state no recorded epoch proves that a replica lost nothing, and any assigned replica may have
    #: the committed records. The election of the next leader makes the state proven again.
    is_unproven: bool = False
    #: Transaction id of the node's last change. If `isr_epochs` is absent, a member whose broker
    #: registered after this change may have lost records (V10).
    mzxid: int = field(default=0, compare=False)

    def in_next_epoch(
        self,
        leader: int,
        isr: tuple[int, ...],
        controller_epoch: int,
        isr_epochs: tuple[int, ...],
        elr: tuple[int, ...],
        elr_epochs: tuple[int, ...],
        *,
        last_leader: int,
    ) -> PartitionState:
        """Return the state for the next leader epoch; `dataclasses.replace` would take longer."""
        return PartitionState(
            leader,
            self.leader_epoch + 1,
            isr,
            controller_epoch,
            self.partition_epoch + 1,
            self.leader_recovery_state,
            isr_epochs,
            elr,
            elr_epochs,
            last_leader,
            self.removed,
            self.reassigned_to,
            self.first_epochs,
        )

    def written_by(self, mzxid: int) -> PartitionState:
        """Return this state with the id of the transaction that wrote its node."""
        return PartitionState(
            self.leader,
            self.leader_epoch,
            self.isr,
            self.controller_epoch,
            self.partition_epoch,
            self.leader_recovery_state,
            self.isr_epochs,
            self.elr,
            self.elr_epochs,
            self.last_leader,
            self.removed,
            self.reassigned_to,
            self.first_epochs,
            self.is_unproven,
            mzxid,
        )
