"""The configuration of one topic, with Kafka's topic-level keys and the broker's defaults.

`validate_topic_configs` checks the configuration of a CreateTopics request; `TopicConfig` is the
configuration that a partition uses. The store holds only a topic's own settings
(`/config/topics/T`), so a changed default applies to every topic that does not set the key. Keys
and ranges are Kafka's (LogConfig in 3.9). A key without effect here is accepted, and
`settings_without_effect` lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.core import shared_keys
from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import (
    INT64_MAX,
    boolean,
    choice,
    choices,
    integer,
    key_name,
    keys_of,
    long,
    only,
    ratio,
    read_value,
    throttled_replicas,
    to_text,
)
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configuration of one topic, with times in ms and sizes in bytes.

    -1 means no limit for the keys for which Kafka allows it. `TopicConfig.of` makes the
    configuration of a topic. The fields' defaults apply if neither the topic nor the broker sets a
    key.
    """

    cleanup_policy: tuple[str, ...] = choices(
        ("delete",),
        "Delete old records, or keep the newest of each key, or both.",
        "delete",
        "compact",
    )
    retention_ms: int = long(
        7 * _DAY_MS,
        "Age at which records may be deleted: that of the largest timestamp of a segment; where no "
        "record of it carries a timestamp, that of the last write to its file.",
        at_least=-1,
    )
    retention_bytes: int = long(-1, "Size of a partition above which old records may go.")
    segment_bytes: int = integer(1 << 30, "Size at which a segment is rolled.", at_least=14)
    segment_ms: int = long(7 * _DAY_MS, "Age at which a segment is rolled.", at_least=1)
    segment_jitter_ms: int = shared_keys.segment_jitter_ms()
    segment_index_bytes: int = integer(
        10 << 20, "Size of an index at which its segment is rolled.", at_least=4
    )
    index_interval_bytes: int = integer(
        4096, "Bytes of records between two index entries.", at_least=0
    )
    max_message_bytes: int = integer((1 << 20) + 12, "Largest record batch accepted.", at_least=0)
    min_insync_replicas: int = integer(
        1,
        "Replicas that must be in sync for acks=all to be accepted; where a partition has fewer in "
        "all, all of them (rule V60; so in Kafka since 3.7).",
        at_least=1,
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Let a replica outside the ISR lead when no replica of the ISR can; may lose records.",
    )
    follower_fetch_pending_reads_insync_enable: bool = shared_keys.pending_reads_insync()
    message_timestamp_type: str = choice(
        "CreateTime", "Whose timestamp a record carries.", "CreateTime", "LogAppendTime"
    )
    message_timestamp_difference_max_ms: int = shared_keys.timestamp_difference_max_ms()
    message_timestamp_before_max_ms: int = shared_keys.timestamp_before_max_ms()
    message_timestamp_after_max_ms: int = shared_keys.timestamp_after_max_ms()
    flush_messages: int = long(
        INT64_MAX, "Records after which the log is flushed to the disk.", at_least=1
    )
    flush_ms: int = long(INT64_MAX, "Age at which unflushed records are flushed.", at_least=0)
    flush_before_ack: bool = shared_keys.flush_before_ack()
    file_delete_delay_ms: int = long(
        60_000, "Time between taking a file away and removing it.", at_least=0
    )
    compression_type: str = shared_keys.compression_type()
    compression_gzip_level: int = shared_keys.compression_gzip_level()
    compression_lz4_level: int = shared_keys.compression_lz4_level()
    compression_zstd_level: int = shared_keys.compression_zstd_level()

    # The following keys configure log compaction.
    delete_retention_ms: int = long(_DAY_MS, "How long a deletion mark is kept.", at_least=0)
    min_compaction_lag_ms: int = long(0, "Age below which nothing is compacted.", at_least=0)
    max_compaction_lag_ms: int = long(
        INT64_MAX, "Age above which records must be compacted.", at_least=1
    )
    min_cleanable_dirty_ratio: float = ratio(0.5, "Share of new records that starts compaction.")

    # Lists of throttled replicas: a replica in a list waits while its broker exceeds its rate of
    # throttled replication (R15, KIP-73).
    leader_replication_throttled_replicas: tuple[str, ...] = throttled_replicas(
        "Leaders that send to followers outside the ISR no faster than "
        "leader.replication.throttled.rate of their broker."
    )
    follower_replication_throttled_replicas: tuple[str, ...] = throttled_replicas(
        "Replicas that fetch no faster than follower.replication.throttled.rate of their broker "
        "while they are outside the ISR."
    )

    # Keys of tiered storage, which Kafka also refuses if tiered storage is off or the cluster uses
    # ZooKeeper.
    remote_storage_enable: bool = only(False, "Records stay on the brokers' disks.", "false")
    remote_log_copy_disable: bool = only(False, "There are no remote records.", "false")
    remote_log_delete_on_disable: bool = only(False, "There are no remote records.", "false")

    # The following keys are accepted without effect.
    preallocate: bool = shared_keys.preallocate()
    message_format_version: str = shared_keys.message_format_version()
    message_downconversion_enable: bool = shared_keys.message_downconversion_enable()
    local_retention_ms: int = shared_keys.local_retention_ms()
    local_retention_bytes: int = shared_keys.local_retention_bytes()

    @classmethod
    def of(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the topic's configuration: its overrides, else the broker's defaults.

        Raises ConfigError like `validate_topic_configs`.
        """
        return cls(**{**_defaults_of(broker), **_read(overrides)})

    @classmethod
    def lenient(
        cls, broker: BrokerConfig, overrides: Mapping[str, str]
    ) -> tuple[TopicConfig, tuple[str, ...]]:
        """Return a topic's configuration from stored settings, and the errors of unusable settings.

        A program other than a broker may have written the stored settings. For an unusable setting,
        the default stays in force.
        """
        values = _defaults_of(broker)
        problems: list[str] = []
        for key in sorted(overrides):
            try:
                values.update(_read({key: overrides[key]}))
            except ConfigError as error:
                problems.append(str(error))
        return cls(**values), tuple(problems)

    @property
    def deletes_old_segments(self) -> bool:
        """Whether retention deletes old segments; a topic that is only compacted keeps them."""
        return "delete" in self.cleanup_policy


#: Topic attribute -> the broker attribute that is its default (Kafka's synonyms).
_BROKER_DEFAULTS = {
    "cleanup_policy": "log_cleanup_policy",
    "retention_ms": "log_retention_ms",
    "retention_bytes": "log_retention_bytes",
    "segment_bytes": "log_segment_bytes",
    "segment_ms": "log_roll_ms",
    "segment_index_bytes": "log_index_size_max_bytes",
    "index_interval_bytes": "log_index_interval_bytes",
    "max_message_bytes": "message_max_bytes",
    "min_insync_replicas": "min_insync_replicas",
    "unclean_leader_election_enable": "unclean_leader_election_enable",
    "follower_fetch_pending_reads_insync_enable": "follower_fetch_pending_reads_insync_enable",
    "message_timestamp_type": "log_message_timestamp_type",
    "flush_messages": "log_flush_interval_messages",
    "flush_ms": "log_flush_interval_ms",
    "flush_before_ack": "flush_before_ack",
    "file_delete_delay_ms": "log_segment_delete_delay_ms",
    "compression_type": "compression_type",
    "compression_gzip_level": "compression_gzip_level",
    "compression_lz4_level": "compression_lz4_level",
    "compression_zstd_level": "compression_zstd_level",
    "message_timestamp_difference_max_ms": "log_message_timestamp_difference_max_ms",
    "message_timestamp_before_max_ms": "log_message_timestamp_before_max_ms",
    "message_timestamp_after_max_ms": "log_message_timestamp_after_max_ms",
    "segment_jitter_ms": "log_roll_jitter_ms",
    "preallocate": "log_preallocate",
    "message_format_version": "log_message_format_version",
    "message_downconversion_enable": "log_message_downconversion_enable",
    "local_retention_ms": "log_local_retention_ms",
    "local_retention_bytes": "log_local_retention_bytes",
    "delete_retention_ms": "log_cleaner_delete_retention_ms",
    "min_compaction_lag_ms": "log_cleaner_min_compaction_lag_ms",
    "max_compaction_lag_ms": "log_cleaner_max_compaction_lag_ms",
    "min_cleanable_dirty_ratio": "log_cleaner_min_cleanable_ratio",
}


def broker_keys() -> dict[str, str]:
    """Return the broker key that is the default of each topic key, for topic keys that have one."""
    return {key_name(topic): key_name(default) for topic, default in _BROKER_DEFAULTS.items()}


def _defaults_of(broker: BrokerConfig) -> dict[str, Any]:
    return {topic: getattr(broker, default) for topic, default in _BROKER_DEFAULTS.items()}


def _read(configs: Mapping[str, str | None]) -> dict[str, Any]:
    """Check the values of topic keys, singly and together; return the values by attribute."""
    declared = keys_of(TopicConfig)
    values: dict[str, Any] = {}
    for key in sorted(configs):
        if key not in declared:
            import difflib  # `difflib` takes 150 KiB, and few brokers need it

            near = difflib.get_close_matches(key, declared, n=1, cutoff=0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{key} is not a topic configuration that is supported here{hint}")
        attribute, declaration, _ = declared[key]
        value = configs[key]
        if value is None:
            raise ConfigError(f"{key} has no value (null): {declaration.expected} expected")
        values[attribute] = read_value(key, declaration, value)
    lag_ms, limit_ms = values.get("min_compaction_lag_ms"), values.get("max_compaction_lag_ms")
    if lag_ms is not None and limit_ms is not None and lag_ms > limit_ms:
        raise ConfigError(
            f"min.compaction.lag.ms={lag_ms} must not be more than max.compaction.lag.ms={limit_ms}"
        )
    return values


def settings_without_effect(configs: Mapping[str, str]) -> list[str]:
    """Return a sentence for each setting that differs from the default and has no effect here."""
    declared = keys_of(TopicConfig)
    sentences = []
    for name in sorted(configs):
        _, key, default = declared.get(name, (None, None, None))
        if key is None or not key.without_effect:
            continue
        value = configs[name].strip()
        if value != to_text(default):
            sentences.append(f"{name}={value} has no effect here: {key.without_effect}")
    return sentences


def validate_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Check a client's settings of a topic; return the values to store, without surrounding blanks.

    Raises ConfigError naming the key, the value and the right form.
    """
    _read(configs)
    return {key: value.strip() for key, value in configs.items() if value is not None}
