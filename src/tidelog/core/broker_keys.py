"""The keys of one broker, with the names and defaults of Kafka's server.properties.

`BrokerKeys` has one attribute per supported key (dots as underscores), with Kafka's type and range.
A few keys exist only in tidelog, and are marked as such. `core.config` reads the keys and checks
them together.
"""

from __future__ import annotations

import sys
from dataclasses import field

from tidelog.core import (
    limits,
    log_dir_keys,
    protocol_level,
    reassignment_keys,
    shared_keys,
    throttle_keys,
)
from tidelog.core.config_keys import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    boolean,
    choice,
    choices,
    integer,
    long,
    number,
    ratio,
    text,
)
from tidelog.core.dataclass import dataclass
from tidelog.core.listeners import is_admin_listener
from tidelog.core.log_dirs import DEFAULT_LOG_DIR
from tidelog.core.types import Endpoint

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
#: Kafka's default of log.retention.hours and log.roll.hours.
_WEEK_MS = 7 * 24 * _HOUR_MS
#: A value of `metadata.store` begins with one of these prefixes, which select the kind of store.
EMBEDDED = "embedded:"
ZOOKEEPER = "zookeeper://"


def _is_store(value: str) -> bool:
    return value == "" or (
        value.startswith((EMBEDDED, ZOOKEEPER))
        and value.removeprefix(EMBEDDED).removeprefix(ZOOKEEPER).strip() != ""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerKeys:
    """The values of all keys of a broker, each checked separately.

    The name of an attribute that holds a time ends in the unit, such as `_ms`. Sizes are in bytes.
    -1 means no limit for the keys for which Kafka allows it.
    """

    broker_id: int = integer(
        -1, "This broker's number in the cluster.", at_least=0, synonyms=("node.id",)
    )
    broker_rack: str = text("", "The rack; replicas of a partition are spread over racks.")
    metadata_store: str = text(
        "",
        "Where the cluster's metadata is: embedded:DIRECTORY, on a local disk shared by the "
        "brokers of one machine, or in ZooKeeper 3.6 and later, "
        "zookeeper://host:port,host:port/chroot.",
        expected="embedded:DIRECTORY or zookeeper://host:port[,host:port][/chroot]",
        ours=True,
        pattern=_is_store,
    )
    metadata_session_timeout_ms: int = integer(
        18_000,
        "A broker that has not renewed its session for this long is taken as dead.",
        at_least=100,
        ours=True,
        synonyms=("zookeeper.session.timeout.ms",),
    )
    zookeeper_connect: str = text(
        "",
        "ZooKeeper servers, host:port separated by commas, and a chroot: Kafka's way to say "
        "metadata.store.",
    )
    zookeeper_connection_timeout_ms: int = integer(
        18_000,
        "How long a broker that starts tries to reach a ZooKeeper quorum before it gives up; where "
        "it is not set, the session timeout.",
        at_least=1,
    )
    zookeeper_set_acl: bool = boolean(
        False, "Create nodes that only their creator may change; needs authentication."
    )
    zookeeper_ssl_client_enable: bool = boolean(False, "TLS to ZooKeeper.")
    zookeeper_ssl_truststore_location: str = text(
        "", "Authorities that ZooKeeper's certificate may come from, PEM; empty: the system's."
    )
    zookeeper_ssl_keystore_location: str = text(
        "", "This broker's certificate and key for ZooKeeper, PEM, the key without password."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = choice(
        "HTTPS", "Whether ZooKeeper's certificate must be for its host name.", "HTTPS", ""
    )
    zookeeper_sasl_credentials_file: str = text(
        "",
        "A file with user:password for SASL DIGEST-MD5 with ZooKeeper, in place of Kafka's JAAS "
        "file.",
        ours=True,
    )

    # The values of the following keys are defaults for the creation of topics.
    num_partitions: int = integer(1, "Partitions of an automatically created topic.", at_least=1)
    default_replication_factor: int = integer(
        1, "Replication factor of an automatically created topic.", at_least=1
    )
    auto_create_topics_enable: bool = boolean(True, "Create a topic when a client first uses it.")
    delete_topic_enable: bool = boolean(True, "Allow topics to be deleted.")

    # The values of the following keys are defaults of topic keys, for topics that do not set them.
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
    message_max_bytes: int = integer(
        limits.MESSAGE_MAX_BYTES, "Largest record batch accepted.", at_least=0
    )
    compression_type: str = shared_keys.compression_type()
    compression_gzip_level: int = shared_keys.compression_gzip_level()
    compression_lz4_level: int = shared_keys.compression_lz4_level()
    compression_zstd_level: int = shared_keys.compression_zstd_level()
    log_message_timestamp_type: str = choice(
        "CreateTime", "Whose timestamp a record carries.", "CreateTime", "LogAppendTime"
    )
    log_message_timestamp_difference_max_ms: int = shared_keys.timestamp_difference_max_ms()
    log_message_timestamp_before_max_ms: int = shared_keys.timestamp_before_max_ms()
    log_message_timestamp_after_max_ms: int = shared_keys.timestamp_after_max_ms()
    log_cleanup_policy: tuple[str, ...] = choices(
        ("delete",), "What happens to old records.", "delete", "compact"
    )
    log_segment_bytes: int = integer(1 << 30, "Size at which a segment is rolled.", at_least=14)
    log_roll_ms: int = long(_WEEK_MS, "Age at which a segment is rolled.", at_least=1)
    log_roll_jitter_ms: int = shared_keys.segment_jitter_ms()
    log_retention_ms: int = long(_WEEK_MS, "Age at which records may be deleted; -1: never.")
    log_retention_bytes: int = long(-1, "Size of a partition above which records may go; -1: none.")
    log_index_interval_bytes: int = integer(
        4096, "Bytes of records between two entries of an index.", at_least=0
    )
    log_index_size_max_bytes: int = integer(
        10 * limits.MIB, "Size of an index at which its segment is rolled.", at_least=4
    )
    log_flush_interval_messages: int = long(
        INT64_MAX, "Records after which a log is flushed to the disk.", at_least=1
    )
    log_flush_interval_ms: int = long(
        INT64_MAX, "Age at which unflushed records are flushed to the disk.", at_least=0
    )
    flush_before_ack: bool = shared_keys.flush_before_ack()
    log_segment_delete_delay_ms: int = long(
        60_000, "Time between taking a file away and removing it.", at_least=0
    )
    log_preallocate: bool = shared_keys.preallocate()
    log_message_format_version: str = shared_keys.message_format_version()
    log_message_downconversion_enable: bool = shared_keys.message_downconversion_enable()
    log_local_retention_ms: int = shared_keys.local_retention_ms()
    log_local_retention_bytes: int = shared_keys.local_retention_bytes()

    # The following keys configure log compaction.
    log_cleaner_enable: bool = boolean(True, "Compact topics whose cleanup.policy says so.")
    log_cleaner_backoff_ms: int = long(
        15_000, "How long the cleaner rests when nothing is to be compacted.", at_least=0
    )
    log_cleaner_io_max_bytes_per_second: float = number(
        sys.float_info.max, "Bytes that the cleaner reads and writes in a second."
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 * limits.MIB,
        "Memory for the keys of one run, 176 bytes each; what does not fit waits for the next run.",
        at_least=1024,
    )
    log_cleaner_io_buffer_size: int = integer(
        512 * limits.KIB,
        "Half of it is read at once, and little else is done on the disk meanwhile.",
        at_least=1024,
    )
    log_cleaner_io_buffer_load_factor: float = number(
        0.9, "How full the memory for keys may become, as a share of it."
    )
    log_cleaner_delete_retention_ms: int = long(
        24 * _HOUR_MS, "How long a deletion mark is kept.", at_least=0
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, "Age below which nothing is compacted.", at_least=0
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        INT64_MAX, "Age above which records must be compacted.", at_least=1
    )
    log_cleaner_min_cleanable_ratio: float = ratio(
        0.5, "Share of new records that starts compaction."
    )

    # The following keys configure log directories.
    log_dirs: tuple[str, ...] = field(default=(DEFAULT_LOG_DIR,))
    log_dir_reserve_bytes: int = log_dir_keys.reserve()
    log_dir_slow_threshold_ms: int = log_dir_keys.slow_threshold()
    log_dir_slow_window_ms: int = log_dir_keys.slow_window()
    log_dir_slow_action: str = log_dir_keys.slow_action()
    cordoned_log_dirs: tuple[str, ...] = log_dir_keys.cordoned()
    draining_log_dirs: tuple[str, ...] = log_dir_keys.draining()
    log_dir_balance_enable: bool = log_dir_keys.balance_enable()
    log_dir_balance_threshold_percent: int = log_dir_keys.balance_threshold()
    log_dir_balance_check_interval_seconds: int = log_dir_keys.balance_interval()
    log_retention_check_interval_ms: int = long(
        300_000, "How often retention looks for old segments.", at_least=1
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often recovery points are written down.", at_least=0
    )
    log_stray_delete_delay_ms: int = long(
        24 * _HOUR_MS, "How long a stray partition is kept (rule V35).", at_least=0, ours=True
    )
    producer_id_expiration_ms: int = integer(
        86_400_000, "An idempotent producer that was silent for this long is forgotten.", at_least=1
    )

    # The following keys configure replication.
    inter_broker_protocol_version: str = text(
        protocol_level.NEWEST,
        "Level of the protocol that this broker speaks to others. Below 2.7 a leader writes the"
        " state nodes of its partitions itself, instead of sending AlterPartition (rule A12)."
        " Brokers of different levels work together, so that a rolling restart may raise or lower"
        " the level.",
        expected=protocol_level.EXPECTED,
        pattern=protocol_level.is_level,
    )
    replica_lag_time_max_ms: int = long(
        30_000, "A follower that was not caught up for this long leaves the ISR.", at_least=1
    )
    follower_fetch_pending_reads_insync_enable: bool = shared_keys.pending_reads_insync()
    leader_relinquish_on_slow_reads_enable: bool = boolean(
        False,
        "Ask the controller for another leader where a read from the disk takes longer than "
        "replica.lag.time.max.ms and another member of the ISR can lead (rule F11).",
        ours=True,
    )
    replica_lag_max_bytes: int = long(
        -1, "A follower this far behind leaves the ISR; -1: off (rule V62).", at_least=-1, ours=True
    )
    leader_recovery_wait_ms: int = integer(
        3_000,
        "Where no replica is proven to have a partition's whole log, how long the controller waits"
        " for the others before it compares the logs of those that are there (rule E6).",
        at_least=0,
        ours=True,
    )
    replica_fetch_wait_max_ms: int = integer(
        500, "How long a leader may hold a follower's fetch.", at_least=0
    )
    replica_fetch_min_bytes: int = integer(1, "Bytes for which a fetch is answered.", at_least=0)
    replica_fetch_max_bytes: int = integer(
        limits.MIB, "Bytes fetched per partition; a batch above it still comes.", at_least=0
    )
    replica_fetch_response_max_bytes: int = integer(
        10 * limits.MIB, "Bytes of a whole fetch answer.", at_least=0
    )
    replica_fetch_backoff_ms: int = integer(
        1000, "Pause of a partition whose fetch failed.", at_least=0
    )
    replica_socket_timeout_ms: int = integer(
        30_000, "How long a follower waits for an answer.", at_least=1
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000, "How often high watermarks are written down.", at_least=1
    )
    num_replica_fetchers: int = integer(1, "Fetchers per source broker.", at_least=1)
    leader_replication_throttled_rate: int = throttle_keys.leader_rate()
    follower_replication_throttled_rate: int = throttle_keys.follower_rate()
    replication_quota_window_num: int = throttle_keys.window_count()
    replication_quota_window_size_seconds: int = throttle_keys.window_seconds()
    replica_alter_log_dirs_io_max_bytes_per_second: int = throttle_keys.directory_move_rate()
    alter_log_dirs_replication_quota_window_num: int = throttle_keys.directory_move_windows()
    alter_log_dirs_replication_quota_window_size_seconds: int = (
        throttle_keys.directory_move_window_seconds()
    )
    num_replica_alter_log_dirs_threads: int = throttle_keys.directory_move_threads()

    # The following keys configure the controller.
    controller_socket_timeout_ms: int = integer(
        30_000, "How long the controller waits for an answer to a command.", at_least=1
    )
    controlled_shutdown_enable: bool = boolean(
        True, "Transfer a broker's leaderships before it stops (controlled shutdown, rule V43)."
    )
    controlled_shutdown_max_retries: int = integer(
        3, "How often a broker that stops asks the controller before it stops anyway.", at_least=0
    )
    controlled_shutdown_retry_backoff_ms: int = long(
        5_000, "Pause before it asks again, unless there is another controller.", at_least=0
    )
    log_dirs_room_check_enable: bool = log_dir_keys.room_check()
    log_dir_failure_timeout_ms: int = log_dir_keys.failure_timeout()
    controller_activity_timeout_ms: int = integer(
        30_000,
        "A controller that has waited for this long for one answer of the store, and for two "
        "session timeouts, resigns; 0: never (rule V42).",
        at_least=0,
        ours=True,
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, "Give leadership back to preferred replicas from time to time (rule V46)."
    )
    leader_imbalance_check_interval_seconds: int = long(
        300, "How often the controller looks whether preferred replicas lead.", at_least=1
    )
    leader_imbalance_per_broker_percentage: int = integer(
        10,
        "Share of a broker's preferred partitions that others may lead before they go back.",
        at_least=0,
    )
    metadata_leader_wait_max_ms: int = integer(
        250,
        "How long a Metadata or FindCoordinator response may wait for the next leader of a "
        "partition whose leader has just ended; 0: not at all (rule V83).",
        at_least=0,
        at_most=10_000,
        ours=True,
    )
    controller_propagation_linger_ms: int = integer(
        0, "How long a decision may wait to be sent with others (rule V17).", at_least=0, ours=True
    )
    isr_expand_linger_ms: int = integer(
        0,
        "How long the controller may hold expansions of ISRs back, to write them together. It "
        "never holds back a shrink, an expansion of an ISR below min.insync.replicas, or one of a "
        "partition that is being reassigned (rule A11).",
        at_least=0,
        at_most=60_000,
        ours=True,
    )

    reassignment_max_concurrent_partitions: int = reassignment_keys.max_concurrent()
    reassignment_max_concurrent_partitions_per_broker: int = (
        reassignment_keys.max_concurrent_per_broker()
    )
    reassignment_auto_pause_enable: bool = reassignment_keys.auto_pause()

    # The following keys configure the topic of cluster events.
    cluster_events_enable: bool = boolean(
        False,
        "Write what happens in the cluster (leader and ISR changes, failovers, sessions) to the "
        "topic __cluster_events (rule V80).",
        ours=True,
    )
    cluster_events_topic_replication_factor: int = integer(
        3,
        "Replication factor of __cluster_events; where fewer brokers live for 15 seconds, as many "
        "as those.",
        at_least=1,
        at_most=INT16_MAX,
        ours=True,
    )
    cluster_events_retention_ms: int = long(
        _WEEK_MS, "How long events of the cluster are kept; -1: for ever.", at_least=-1, ours=True
    )

    # The following keys configure the topic of committed offsets. A broker creates the topic when a
    # client first looks for a group's coordinator.
    offsets_topic_num_partitions: int = integer(
        50, "Partitions of __consumer_offsets; not to be changed once it exists.", at_least=1
    )
    offsets_topic_replication_factor: int = integer(
        3,
        "Replication factor of __consumer_offsets, which needs as many live brokers to be created.",
        at_least=1,
        at_most=INT16_MAX,
    )
    offsets_topic_segment_bytes: int = integer(
        100 * limits.MIB, "Segment size of __consumer_offsets: small, to load fast.", at_least=1
    )

    offsets_topic_compression_codec: int = integer(
        0,
        "Compression of what is written to __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, "
        "4 zstd.",
        at_least=0,
        at_most=4,
    )
    offsets_load_buffer_size: int = integer(
        5 * limits.MIB,
        "Bytes of __consumer_offsets read at once when a coordinator loads it.",
        at_least=1,
    )
    offsets_commit_timeout_ms: int = integer(
        5_000, "How long a commit may wait for the in-sync replicas.", at_least=1
    )
    offsets_retention_minutes: int = integer(
        7 * 24 * 60, "Offsets are kept for this long after their group became empty.", at_least=1
    )
    offsets_retention_check_interval_ms: int = long(
        600_000, "How often expired offsets are looked for.", at_least=1
    )
    offset_metadata_max_bytes: int = integer(
        4096, "Longest text that a client may commit with an offset.", at_least=0
    )

    # The following keys configure consumer groups.
    group_min_session_timeout_ms: int = integer(
        6_000, "Shortest session timeout that a member may ask for.", at_least=1
    )
    group_max_session_timeout_ms: int = integer(
        30 * _MINUTE_MS, "Longest session timeout that a member may ask for.", at_least=1
    )
    group_initial_rebalance_delay_ms: int = integer(
        3_000, "How long the first rebalance of an empty group waits for more members.", at_least=0
    )
    group_max_size: int = integer(INT32_MAX, "Members of one group.", at_least=1)

    # The following keys configure the connections of clients.
    listeners: tuple[Endpoint, ...] = field(default=(Endpoint("PLAINTEXT", "", 9092),))
    advertised_listeners: tuple[Endpoint, ...] = field(
        default=(Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    )
    inter_broker_listener_name: str = field(default="PLAINTEXT")
    socket_request_max_bytes: int = integer(
        limits.MAX_REQUEST_BYTES,
        "Largest request accepted. One above 1 MiB that carries neither records nor the state of "
        "partitions may list 100,000 entries; with more it is refused by its API's error, and with "
        "more than 250,000 its connection is closed.",
        at_least=1,
    )
    queued_max_request_bytes: int = long(
        limits.QUEUED_REQUEST_BYTES,
        "Bytes of requests above 64 KiB that are being received or handled, over all connections; "
        "above, connections wait to be read. Requests other than Produce have a budget of their "
        "own, of socket.request.max.bytes. While others wait, a connection that sends nothing of "
        "its request for 5 s, or less than 1 MiB or a sixth of it in 10 s, is closed. -1: no "
        "limit, as by default in Kafka.",
    )
    queued_max_response_bytes: int = long(
        limits.QUEUED_RESPONSE_BYTES,
        "Bytes of responses that clients have not read yet, over all connections; brokers have as "
        "many of their own. The less are left, the fewer records a fetch gets. At the limit, a "
        "connection that reads nothing for 10 s is closed, the one with the most bytes first.",
        at_least=64 * limits.KIB,
        ours=True,
    )
    max_connections: int = integer(
        limits.MAX_CONNECTIONS,
        "Connections at the same time. At the limit, clients are refused and brokers are not: on "
        "a listener of their own, or after a first request that only brokers send, a broker takes "
        "the place of the longest idle client.",
        at_least=1,
    )
    connections_max_idle_ms: int = long(
        10 * _MINUTE_MS, "A connection unused for this long is closed; below 0: never."
    )
    request_timeout_ms: int = integer(
        30_000, "How long this broker waits for others on behalf of a client.", at_least=1
    )
    fetch_max_bytes: int = integer(
        55 * limits.MIB, "Largest answer to a fetch, whatever a client asks for.", at_least=1024
    )
    max_request_partition_size_limit: int = integer(
        2000, "Partitions of one page of DescribeTopicPartitions.", at_least=1
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        limits.MAX_FETCH_SESSIONS, "Fetch sessions at the same time.", at_least=0
    )
    max_decompressed_message_bytes: int = integer(
        limits.MAX_DECOMPRESSED_BYTES,
        "Decompressed size above which a batch is refused.",
        at_least=1024,
        ours=True,
    )
    admin_listener: str = text(
        "",
        "Where the admin port listens: metrics for Prometheus on /metrics, and the probes /healthz "
        "and /readyz, over HTTP without authentication. Without a host it listens on 127.0.0.1; "
        "empty: no admin port.",
        expected="[http://][HOST]:PORT, ports from 0 (any free one) to 65535, or nothing",
        ours=True,
        pattern=is_admin_listener,
    )
    admin_history_path: str = text(
        "",
        "File with the last 24 hours of the broker's main metrics, which the admin port has on "
        "/history; of less than 1 MiB. Empty: the history is in memory only.",
        ours=True,
    )
    metrics_newer_names_enable: bool = boolean(
        False,
        "Give Kafka's metrics the names of Strimzi's own reporter, too, which end in persec_total.",
        ours=True,
    )
    tidelog_logging_format: str = choice(
        "text",
        "Form of the broker's log lines: text in Kafka's pattern, or one JSON object in each line.",
        "text",
        "json",
        ours=True,
    )
    tidelog_logging_max_bytes: int = integer(
        0,
        "Size at which a broker rotates its log, if standard error is a file; 0: no size.",
        at_least=0,
        ours=True,
    )
    tidelog_logging_max_hours: int = integer(
        0,
        "Hours of one log file, if standard error is a file: 24 is a file for each day of UTC; 0: "
        "no limit.",
        at_least=0,
        at_most=8_760,
        ours=True,
    )
    tidelog_logging_files: int = integer(
        8,
        "Number of rotated files of the broker's log that stay, the last one as broker.log.1.",
        at_least=1,
        at_most=1_000,
        ours=True,
    )
    tidelog_test_interception_directory: str = text(
        "",
        "For tests only: a directory whose rules lose, hold, cut off or refuse requests.",
        ours=True,
    )
    tidelog_test_disk_faults: str = text(
        "", "For tests only: a file whose content fails log directories.", ours=True
    )
