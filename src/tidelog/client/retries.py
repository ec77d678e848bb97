"""Retries: retriable errors, pauses between tries, and the deadline.

The retriable errors are the RetriableExceptions of Apache Kafka's clients, except CORRUPT_MESSAGE.
A retry cannot repair CORRUPT_MESSAGE: TCP detects damage on the way, and a wrongly built batch
stays wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError, RequestTimeout, TidelogError

#: Errors whose cause is not the request itself, so a retry may succeed.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
#: Errors for a topic that is either new or does not exist.
UNKNOWN_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
#: Time in ms to look for an unknown topic; brokers learn of a new topic within one round trip.
UNKNOWN_TOPIC_PATIENCE_MS: Final = 5_000

FIRST_BACKOFF_MS: Final = 20
LAST_BACKOFF_MS: Final = 500


def is_retriable(error: TidelogError) -> bool:
    """Return whether a request that may be repeated may succeed at a later try."""
    if isinstance(error, KafkaError):
        return error.code in RETRIABLE
    return isinstance(error, ConnectionLost | RequestTimeout)


class Patience:
    """One operation's deadline, and the growing pauses between its tries. `now_ms` is monotonic."""

    __slots__ = ("_backoff_ms", "_deadline_ms", "_now_ms", "_started_ms", "is_over")

    def __init__(self, now_ms: Callable[[], int], timeout_ms: int) -> None:
        self._now_ms = now_ms
        self._started_ms = now_ms()
        self._deadline_ms = self._started_ms + timeout_ms
        self._backoff_ms = FIRST_BACKOFF_MS
        #: Whether the last error is final, although its code is retriable.
        self.is_over = False

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since the start."""
        return self._now_ms() - self._started_ms

    @property
    def remaining_ms(self) -> int:
        """Remaining milliseconds, never below 0."""
        return max(0, self._deadline_ms - self._now_ms())

    def pause_after(self, error: TidelogError) -> int | None:
        """Return the pause in ms before the next try; None if the time is over."""
        if self.is_over or not is_retriable(error):
            return None
        left_ms = self.remaining_ms
        if isinstance(error, KafkaError) and error.code in UNKNOWN_TOPIC:
            left_ms = min(left_ms, UNKNOWN_TOPIC_PATIENCE_MS - self.elapsed_ms)
        pause_ms = self._backoff_ms
        if pause_ms >= left_ms:
            return None
        self._backoff_ms = min(2 * pause_ms, LAST_BACKOFF_MS)
        return pause_ms


def given_up(what: str, error: TidelogError, patience: Patience) -> TidelogError:
    """Return the error to raise after the last try, with operation, time spent and last cause."""
    if patience.is_over or not is_retriable(error):
        return error
    if isinstance(error, KafkaError):
        cause = f": {error.message}" if error.message else ""
        return KafkaError(error.code, f"{what} failed for {patience.elapsed_ms} ms{cause}")
    return type(error)(f"{what} failed for {patience.elapsed_ms} ms: {error}")
