"""Plain values that all layers share: partitions, topic ids, endpoints, published state.

A topic id is 16 bytes here and on the wire; its text form is Kafka's (URL-safe base64 without
padding, 22 characters). `PartitionState` is the content of a partition's state node (rules V5, V6):
an immutable value, replaced and never changed.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final, NamedTuple

TopicId = bytes
ZERO_TOPIC_ID: TopicId = bytes(16)

NO_LEADER = -1
NO_EPOCH = -1
NO_BROKER_EPOCH = -1
#: No transaction of the metadata store is known (E8).
NO_STAMP = -1

#: Isolation levels of consumers (KIP-98).
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

#: Leader recovery states (KIP-704).
RECOVERED = 0
RECOVERING = 1


class TopicPartition(NamedTuple):
    """A partition by topic name and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReassignmentEntry(NamedTuple):
    """One partition of `/admin/reassign_partitions`.

    It has the target replicas and, once the controller accepted it, the original ones (R1).
    """

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    original: tuple[int, ...] = ()
    #: Bytes a second that brokers may copy for the move, 0 for no throttle of its own (R4).
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


#: Registrations that a broker proves beside its last one: sessions that ended in a row, at most.
MAX_EARLIER_EPOCHS: Final = 64


class CleanEpochs(NamedTuple):
    """Registrations of one broker since each of which it has provably lost nothing (E3, E7).

    `last` is the epoch of its last registration, -1 for none; `earlier` are those before it, the
    newest last. Each incarnation ended cleanly, or with its session alone. The earlier ones matter
    where no controller recorded the registrations between. They are named one by one: an epoch
    between two of them may be of an incarnation with another disk.
    """

    last: int = NO_BROKER_EPOCH
    earlier: tuple[int, ...] = ()

    def followed_by(self, broker_epoch: int) -> CleanEpochs:
        """Return the same with one more registration that lost nothing; the oldest may drop out."""
        if self.last == NO_BROKER_EPOCH:
            return CleanEpochs(broker_epoch)
        return CleanEpochs(broker_epoch, (*self.earlier, self.last)[-MAX_EARLIER_EPOCHS:])


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker: the content of `/brokers/ids/N`, and its epoch (rule V4)."""

    broker_id: int
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    #: Broker epoch of its last registration, if it provably lost nothing since then: its process
    #: shut down cleanly, or lives on (E3, E7). -1 without proof.
    previous_broker_epoch: int = NO_BROKER_EPOCH
    #: Broker epochs of the registrations before that, since each of which it provably lost nothing.
    earlier_broker_epochs: tuple[int, ...] = ()
    #: It answers GetReplicaLogInfo (E6), as brokers of Kafka 3.9 do not.
    reports_log_ends: bool = False
    #: It has asked the controller for a controlled shutdown (V43); not part of the node.
    is_leaving: bool = False


#: Least number of leader epochs that every partition skips after the store went back to an older
#: copy: no leader of the lost time can have had a higher one (E8). The broker draws a number from
#: this to twice this, so that it differs where the same copy is restored a second time.
LEAST_EPOCHS_SKIPPED: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class StoreWentBack:
    """`/brokers/store_went_back`: which broker found out that the store is older, and when (E8)."""

    broker_id: int
    #: The transaction of the broker's last stamp, which its log directories have seen.
    seen: int
    #: The stamp that the store has for the broker, NO_STAMP for none.
    found: int
    timestamp_ms: int
    #: Leader epochs that each partition skips.
    skipped: int = LEAST_EPOCHS_SKIPPED
    #: Transaction that wrote the node: what the store had before it proves nothing.
    zxid: int = 0

    @property
    def name(self) -> str:
        """What distinguishes this mark from all others, of the same transaction number, too."""
        return f"{self.zxid}-{self.timestamp_ms}"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader and ISR of one partition as published in its state node (rule V6).

    `partition_epoch` is the version of the node. `isr_epochs` holds, in the order of `isr`, the
    broker epoch under which each member was in sync (V10); None where the node lacks the key.
    `elr_epochs` holds the same for `elr`, the replicas that left a small ISR with every committed
    record (E1); -1 where the epoch is not known.
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
    #: The last leader of a partition that has none (E4).
    last_leader: int = NO_LEADER
    #: The partition was removed: the node is kept for its epochs (V71).
    removed: bool = False
    #: The replicas to which a reassignment has come down: the replicas that it removes are out of
    #: the ISR for good (V52). It has no meaning once the topic node has another target.
    reassigned_to: tuple[int, ...] = ()
    #: (leader epoch, partition epoch) of the first state of the partition's present incarnation;
    #: above zero where a partition of that number was removed before (V71).
    first_epochs: tuple[int, int] = (0, 0)
    #: The state is from a store that went back: no recorded epoch proves a replica, and every
    #: assigned one may have the committed records (E8). The next leader ends that.
    is_unproven: bool = False
    #: Transaction id of the node's last change; bounds bounces where isr_epochs is absent (V10).
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
        """Return the state of the next leader epoch, not yet written, faster than `replace`."""
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
        """Return the same state as this transaction wrote it, in half the time of `replace`."""
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
