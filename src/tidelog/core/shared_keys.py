"""Declarations of the keys that exist for topics and, under another name, for brokers.

Each function returns a field for `TopicConfig` and for `BrokerConfig`, so that both classes parse,
check and describe a value alike. Names, types, ranges and defaults are equal to LogConfig's in
Kafka 3.9.
"""

from __future__ import annotations

import re
from typing import Any

from tidelog.core.config_keys import (
    INT64_MAX,
    boolean,
    choice,
    integer,
    long,
    text,
    without_effect,
)

#: Value of compression.type -> codec of batches; None keeps the codec of each producer.
CODECS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": 0,
    "gzip": 1,
    "snappy": 2,
    "lz4": 3,
    "zstd": 4,
}
#: zlib's number for its default compression level.
_GZIP_DEFAULT = -1
_NO_TIERS = "records stay on the brokers' disks"
#: Kafka's releases with the number of the last inter-broker protocol version of each
#: (MetadataVersion in 3.9).
_VERSIONS = {
    "0.8.0": -1, "0.8.1": -1, "0.8.2": -1, "0.9.0": -1, "0.10.0": 1, "0.10.1": 2, "0.10.2": 0,
    "0.11.0": 2, "1.0": 0, "1.1": 0, "2.0": 1, "2.1": 2, "2.2": 1, "2.3": 1, "2.4": 1, "2.5": 0,
    "2.6": 0, "2.7": 2, "2.8": 1, "3.0": 1, "3.1": 0, "3.2": 0, "3.3": 3, "3.4": 0, "3.5": 2,
    "3.6": 2, "3.7": 4, "3.8": 0, "3.9": 0, "4.0": 1,
}  # fmt: skip


def flush_before_ack() -> Any:
    """Return the declaration of flush.before.ack, a key that only tidelog has (V69)."""
    return boolean(
        False,
        "Acknowledge and commit only records that are synced to the disks of all in-sync replicas; "
        "acks=1 waits for the leader's disk (rule V69).",
        ours=True,
    )


def pending_reads_insync() -> Any:
    """Return the declaration of follower.fetch.pending.reads.insync.enable (KIP-501, rule F5)."""
    return boolean(
        False,
        "Keep a follower in the ISR while the leader's disk is slow with the reads for its fetch; "
        "it is caught up when they are done. A follower whose connection is closed, or whose "
        "request is older than replica.socket.timeout.ms, is not kept (rules F5 to F8).",
        ours=True,
    )


def compression_type() -> Any:
    """Return the declaration of compression.type."""
    return choice(
        "producer",
        "Codec of stored batches. producer keeps each batch as it came; for any other value the "
        "leader compresses a batch with that codec where it came with another one.",
        *CODECS,
    )


def compression_gzip_level() -> Any:
    """Return the declaration of compression.gzip.level (KIP-390)."""
    meaning = "Level of compression.type=gzip."
    return integer(_GZIP_DEFAULT, meaning, at_least=1, at_most=9, also=_GZIP_DEFAULT)


def compression_lz4_level() -> Any:
    """Return the declaration of compression.lz4.level (KIP-390)."""
    return integer(9, "Level of compression.type=lz4.", at_least=1, at_most=17)


def compression_zstd_level() -> Any:
    """Return the declaration of compression.zstd.level (KIP-390)."""
    return integer(3, "Level of compression.type=zstd.", at_least=-131_072, at_most=22)


def timestamp_difference_max_ms() -> Any:
    """Return the declaration of message.timestamp.difference.max.ms, deprecated (KIP-937)."""
    return long(
        INT64_MAX,
        "Deprecated. Holds for timestamps before and after the leader's clock where the key of "
        "that side has its default.",
        at_least=0,
    )


def timestamp_before_max_ms() -> Any:
    """Return the declaration of message.timestamp.before.max.ms (KIP-937)."""
    meaning = "How far the CreateTime of a record may lie before the leader's clock."
    return long(INT64_MAX, meaning, at_least=0)


def timestamp_after_max_ms() -> Any:
    """Return the declaration of message.timestamp.after.max.ms (KIP-937)."""
    meaning = "How far the CreateTime of a record may lie after the leader's clock."
    return long(INT64_MAX, meaning, at_least=0)


def segment_jitter_ms() -> Any:
    """Return the declaration of segment.jitter.ms."""
    return long(0, "A segment is rolled up to this much earlier than at its age.", at_least=0)


def preallocate() -> Any:
    """Return the declaration of preallocate."""
    meaning = "Give a new segment its full size on the disk."
    return without_effect(boolean(False, meaning), "files grow as they are written")


def message_format_version() -> Any:
    """Return the declaration of message.format.version, which Kafka ignores since 3.0."""
    field = text(
        "3.0-IV1",
        "Format of records.",
        expected="a version of Kafka such as 3.0",
        pattern=_is_version,
    )
    return without_effect(field, "records have format 2, as in every Kafka since 3.0")


def message_downconversion_enable() -> Any:
    """Return the declaration of message.downconversion.enable."""
    meaning = "Convert records for consumers that know older formats only."
    return without_effect(boolean(True, meaning), "consumers without format 2 are not served")


def local_retention_ms() -> Any:
    """Return the declaration of local.retention.ms."""
    meaning = "Age at which records with a remote copy may be deleted."
    return without_effect(long(-2, meaning, at_least=-2), _NO_TIERS)


def local_retention_bytes() -> Any:
    """Return the declaration of local.retention.bytes."""
    meaning = "Size of a partition above which records with a remote copy may be deleted."
    return without_effect(long(-2, meaning, at_least=-2), _NO_TIERS)


def _is_version(value: str) -> bool:
    """Return whether Kafka's MetadataVersion.fromVersionString accepts the text."""
    parts = value.split(".")
    kept = 3 if value.startswith("0.") else 2
    key = ".".join(parts[:kept])
    found = re.fullmatch(r"([0-9.]+)(?:-IV([0-9]))?", key, re.ASCII)
    if found is None or found[1] not in _VERSIONS:
        return False
    return found[2] is None or int(found[2]) <= _VERSIONS[found[1]]
