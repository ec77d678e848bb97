"""The settings of a log: the topic configuration that concerns log files.

Defaults are Kafka's. Times are in ms, sizes in bytes. Where Kafka allows -1 for a key, -1 means no
limit.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MAX_DECOMPRESSED_BYTES, MESSAGE_MAX_BYTES, MIB

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

_WEEK_MS = 7 * 24 * 3_600_000
_DAY_MS = 24 * 3_600_000
NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one partition's log, replaced as a whole when the topic's settings change."""

    segment_bytes: int = 1 << 30
    segment_ms: int = _WEEK_MS
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * MIB
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    max_message_bytes: int = MESSAGE_MAX_BYTES
    message_timestamp_type: str = CREATE_TIME
    #: How far a record's timestamp may lie before the time of the leader's clock.
    timestamp_before_max_ms: int = NEVER
    #: How far a record's timestamp may lie after the time of the leader's clock.
    timestamp_after_max_ms: int = NEVER
    #: If the log has at least this many unflushed records, an append waits for a flush.
    flush_messages: int = NEVER
    file_delete_delay_ms: int = 60_000
    #: Whether retention applies (cleanup.policy has `delete`).
    delete_enabled: bool = True
    #: Whether the log is compacted, so that every record needs a key (cleanup.policy has
    #: `compact`).
    compact_enabled: bool = False
    #: Age of unflushed records after which the broker flushes the log (flush.ms).
    flush_ms: int = NEVER
    #: Whether a record counts for the high watermark only when it is synced (V69).
    flush_before_ack: bool = False
    #: Maximum time by which a segment may roll before it reaches its age limit (segment.jitter.ms).
    segment_jitter_ms: int = 0
    #: Codec of all batches that clients append (compression.type); None keeps each producer's
    #: codec.
    codec: int | None = None
    #: Kafka's compression level for `codec` (KIP-390); None for the codec's default.
    compression_level: int | None = None
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    #: How long compaction keeps a tombstone (delete.retention.ms).
    delete_retention_ms: int = _DAY_MS
    #: Age from which records may be compacted (min.compaction.lag.ms).
    min_compaction_lag_ms: int = 0
    #: Age at which records must be compacted (max.compaction.lag.ms).
    max_compaction_lag_ms: int = NEVER
    #: Share of dirty bytes above which a log is compacted (min.cleanable.dirty.ratio).
    min_cleanable_dirty_ratio: float = 0.5
    #: The log forgets a producer that has sent no batch for this time.
    producer_id_expiration_ms: int = _DAY_MS

    @property
    def roll_ms(self) -> int:
        """Age at which a segment rolls.

        In a compacted topic, a segment rolls at the age `max.compaction.lag.ms` at the latest,
        because compaction leaves out the active segment.
        """
        if self.compact_enabled:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
