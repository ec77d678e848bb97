"""Settings of transactions for operators, and limits of the memory that clients can occupy.

The names of settings are Kafka's.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import (
    MAX_PARTITIONS_PER_TRANSACTION,
    MAX_TRANSACTIONAL_IDS_PER_PARTITION,
)

#: The `transaction.version` from which on an abort by the coordinator raises the epoch as a
#: client's end of a transaction does (T22).
RAISING_LEVEL: Final = 2


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Settings of the transaction coordinators of one broker; the defaults are Kafka's."""

    #: `transaction.max.timeout.ms`
    max_timeout_ms: int = 900_000
    #: `transactional.id.expiration.ms`
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    #: `transaction.abort.timed.out.transaction.cleanup.interval.ms`
    timeout_interval_ms: int = 10_000
    #: `transaction.remove.expired.transaction.cleanup.interval.ms`
    expiration_interval_ms: int = 60 * 60 * 1000
    #: Pause in ms before a record of a complete transaction is appended again (T51).
    completion_backoff_ms: int = 500
    max_ids: int = MAX_TRANSACTIONAL_IDS_PER_PARTITION
    max_partitions: int = MAX_PARTITIONS_PER_TRANSACTION
