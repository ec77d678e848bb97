"""The records of `__transaction_state` as values: the stored state of each transactional id.

`broker.coordinators` encodes and decodes these values.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.txn.states import TransactionPhase

#: The value of a producer id field that names no producer.
NO_PRODUCER_ID: Final = -1
#: The value of a producer epoch field that names no epoch.
NO_PRODUCER_EPOCH: Final = -1
#: The start time of a transactional id that has had no transaction since its last InitProducerId.
NOT_STARTED_MS: Final = -1
#: The highest epoch. No producer ever gets it: it only fences the epoch before it (T9).
MAX_PRODUCER_EPOCH: Final = 32_767
#: From this epoch on, a producer needs a new producer id (T8).
EXHAUSTED_EPOCH: Final = MAX_PRODUCER_EPOCH - 1
#: The client's transaction version of requests that raise the epoch with each transaction (T18).
#: PLAIN_VERSION is the version of all other requests.
RAISING_VERSION: Final = 2
PLAIN_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id, as one record stores it."""

    producer_id: int
    producer_epoch: int
    #: The epoch before the last raise that the producer itself requested; -1 if there is none. A
    #: request with this epoch may be the repetition of a request whose response was lost (T7).
    last_producer_epoch: int
    #: The producer id before the last change of the id; equal to `producer_id` without a change.
    previous_producer_id: int
    #: The producer id that replaces an exhausted one when the transaction is complete; -1 if the
    #: producer id stays (T8).
    next_producer_id: int
    #: The transaction timeout that the producer requested, in ms.
    timeout_ms: int
    phase: TransactionPhase
    #: The partitions of the transaction; empty when it is complete.
    partitions: frozenset[TopicPartition]
    #: Wall-clock time in ms of the last change. `started_ms` is the time at which the transaction
    #: began, or NOT_STARTED_MS.
    updated_ms: int
    started_ms: int
    #: The client's transaction version of the request that ended the transaction: RAISING_VERSION
    #: if its epoch was raised then, else PLAIN_VERSION.
    client_version: int = PLAIN_VERSION

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer's next epoch needs a new producer id (T8)."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def next_identity(self) -> tuple[int, int]:
        """The producer id and epoch of the producer after this transaction (T19)."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a sortable and hashable value, for the model checker."""
        return (
            self.producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.previous_producer_id,
            self.next_producer_id,
            self.timeout_ms,
            self.phase,
            tuple(sorted(self.partitions)),
            self.updated_ms,
            self.started_ms,
            self.client_version,
        )


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A record of a partition of `__transaction_state`; None as the value deletes the id."""

    transactional_id: str
    value: Transaction | None
    #: The version of the record's value: version 0 lacks the tagged fields (T58).
    version: int = 1


def record_version(value: Transaction, level: int) -> int:
    """Return the version of the record of `value` while `level` is the `transaction.version` (T58).

    A state that version 0 cannot hold is written as version 1 even while `level` is 0.
    """
    needs_tags = value.client_version != PLAIN_VERSION or value.next_producer_id != NO_PRODUCER_ID
    return 1 if level >= 1 or needs_tags else 0
