"""The invariants of a healthy log directory, one sentence for each kind of finding.

The report of an audit explains the kinds of its findings with these sentences, and
docs/reference/audit.md lists each invariant with the damage that tests inject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.spark.pipelines.audit.findings import FindingKind as Kind

INVARIANTS: Final[Mapping[Kind, str]] = {
    Kind.CHECKSUM: "The CRC-32C of a batch fits its bytes.",
    Kind.NO_BATCH: "A log file is a sequence of whole batches of magic 2.",
    Kind.HEADER: "A batch has at most one record for each of its offsets, and known attributes.",
    Kind.FRAMES: "Kafka's clients can decompress the records of a batch.",
    Kind.OFFSET_ORDER: "Offsets rise from batch to batch, and from segment to segment.",
    Kind.GAP: "Offsets have no gap, unless compaction removed records.",
    Kind.EPOCH_ORDER: "Leader epochs do not fall from batch to batch.",
    Kind.EPOCH_CHECKPOINT: "`leader-epoch-checkpoint` has the first offset of each leader epoch of"
    " the flushed batches, and no offset beyond the log end.",
    Kind.INDEX: "A flushed segment has an offset index. Its entries are whole and rise, and each"
    " names the position of a batch.",
    Kind.TIME_INDEX: "A flushed segment has a time index. Its entries are whole and rise, each fits"
    " its batch, and the last one has the segment's largest timestamp.",
    Kind.TRANSACTION_INDEX: "The entries of a transaction index are whole, and rise in their last"
    " offsets.",
    Kind.SNAPSHOT: "A producer snapshot has a right checksum. Its offset is not beyond the log end,"
    " and its entries fit the producers' batches below that offset.",
    Kind.CUT_TAIL: "A log file ends with a whole batch, and reaches the last offset of its index.",
    Kind.SWAPPED: "A log file holds the offsets from its name up to the next file's name.",
    Kind.OFFSET_RANGE: "Offsets of a segment lie less than 2^31 above its base offset.",
    Kind.LOG_START: "The log start lies in the log. A replica begins no later than its log start"
    " and than the other replicas, unless retention removed its first segments.",
    Kind.LOG_END: "The log reaches its recovery point.",
    Kind.SHORT: "A replica reaches its own high watermark, and in the ISR that of the partition.",
    Kind.MISSING: "Each assigned replica, and each replica with a checkpointed offset, has a"
    " directory.",
    Kind.DIVERGED: "All replicas have the same records below the high watermark.",
    Kind.BATCHED: "All replicas have their records in the same batches.",
    Kind.COMPACTED: "All replicas of a compacted topic are compacted to the same records.",
    Kind.ORPHAN: "A log directory has only files that a broker writes, and a log file for each"
    " index and for each replica.",
    Kind.STRAY: "Each replica is assigned to its broker, and none is set aside as a stray.",
    Kind.FUTURE: "A future replica has its current replica in another log directory of the broker.",
    Kind.UNREADABLE: "The operating system reads each file.",
    Kind.CHECKPOINT: "Each text file of a log directory has the format of its name.",
    Kind.CHECKPOINTED_OFFSET: "After a clean shutdown, each replica has a high watermark from its"
    " log start on and a recovery point at its log end. No log is compacted beyond its end.",
    Kind.OLD_FORMAT: "No log has message sets of a format before Kafka 0.11.",
    Kind.DUPLICATE: "A broker has one replica of a partition.",
    Kind.MOVED: "A replica that moved to another log directory left no older copy.",
    Kind.TOPIC_ID: "A replica with records has its topic id.",
    Kind.OTHER_TOPIC: "All replicas of a topic have one topic id, which no other topic has.",
    Kind.OWNER: "A log directory names its owner, and a directory id belongs to one directory.",
    Kind.OTHER_CLUSTER: "All log directories belong to one cluster.",
    Kind.CHANGING: "The files of a partition rest long enough to be read once.",
}
