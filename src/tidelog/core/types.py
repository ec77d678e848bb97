"""Plain values that every layer names alike: partitions, topic ids, endpoints, published state.

A topic id is 16 bytes here and on the wire; its text form is Kafka's (URL-safe base64 without
padding, 22 characters). `PartitionState` is what the state node of a partition holds (rules V5,
V6): an immutable value, replaced and never changed.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import NamedTuple

TopicId = bytes
ZERO_TOPIC_ID: TopicId = bytes(16)

NO_LEADER = -1
NO_EPOCH = -1
NO_BROKER_EPOCH = -1

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
    """One partition of `/admin/reassign_partitions`: where it is to be, and, once that was
    accepted, where it was (R1)."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    original: tuple[int, ...] = ()


class EpochEnd(NamedTuple):
    """The end offset (exclusive) of a leader epoch, as OffsetForLeaderEpoch answers it."""

    leader_epoch: int
    end_offset: int


class Endpoint(NamedTuple):
    """One listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


def topic_id_to_text(topic_id: TopicId) -> str:
    """Kafka's text form of a topic id: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def topic_id_from_text(text: str) -> TopicId:
    """The 16 bytes of a topic id; raises ValueError for anything that is not one."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a topic id: {text!r}") from error
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"not a topic id: {text!r} (22 characters of URL-safe base64 expected)")
    return raw


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker: what `/brokers/ids/N` holds, and its epoch (rule V4)."""

    broker_id: int
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    #: Broker epoch of the clean shutdown that it proved at registration, -1 without proof (E3).
    previous_broker_epoch: int = NO_BROKER_EPOCH
    #: It has asked the controller for a controlled shutdown (V43); not part of the node.
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Leader and ISR of one partition as published in its state node (rule V6).

    `partition_epoch` is the version of the node. `isr_epochs` holds, in the order of `isr`, the
    broker epoch under which each member was in sync (V10); None where the node lacks the key.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int = 0
    leader_recovery_state: int = RECOVERED
    isr_epochs: tuple[int, ...] | None = None
    elr: tuple[int, ...] = ()
    last_leader: int = NO_LEADER
    removed: bool = False
    #: The replicas that a reassignment has come down to: those that it takes away are out of the
    #: ISR for good (V52). Means nothing once the topic node's target is another.
    reassigned_to: tuple[int, ...] = ()
    #: Transaction id of the node's last change; bounds bounces where isr_epochs is absent (V10).
    mzxid: int = field(default=0, compare=False)
