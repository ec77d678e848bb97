"""Keys that Kafka changes while brokers run and that have no effect here.

AlterConfigs accepts them with Kafka's validation, because tools such as kafka-configs and
kafka-reassign-partitions count on it. Brokers log each one, and
DescribeConfigs says that it has no effect. Keys of listeners' security are not among them: an
operator must not take a listener for encrypted that is not. Source: DynamicBrokerConfig,
DynamicConfig.Broker in Kafka 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tidelog.core.config_keys import INT64_MAX, Key, boolean, integer, keys_of, long, text

_RATE = "Bytes a second; a throttle of Kafka."


@dataclass(frozen=True, slots=True, kw_only=True)
class _InertKeys:
    """One attribute per key, with Kafka's type, range and default."""

    background_threads: int = integer(10, "Threads for background work.", at_least=1)
    log_cleaner_threads: int = integer(1, "Threads of the log cleaner.", at_least=0)
    max_connection_creation_rate: int = integer(2**31 - 1, "Connections a second.", at_least=0)
    max_connections_per_ip: int = integer(2**31 - 1, "Connections of one address.", at_least=0)
    max_connections_per_ip_overrides: str = text("", "Connections of single addresses.")
    metric_reporters: str = text("", "Classes that report metrics.")
    num_io_threads: int = integer(8, "Threads that serve requests.", at_least=1)
    num_network_threads: int = integer(3, "Threads that serve sockets.", at_least=1)
    num_recovery_threads_per_data_dir: int = integer(1, "Threads of recovery.", at_least=1)
    remote_fetch_max_wait_ms: int = integer(500, "Wait for remote storage.", at_least=1)
    remote_log_index_file_cache_total_size_bytes: int = long(
        1 << 30, "Size of the cache of remote indexes.", at_least=1
    )
    remote_log_manager_copy_max_bytes_per_second: int = long(INT64_MAX, _RATE, at_least=1)
    remote_log_manager_fetch_max_bytes_per_second: int = long(INT64_MAX, _RATE, at_least=1)
    transaction_partition_verification_enable: bool = boolean(True, "Verify transactions.")


@cache
def inert_broker_keys() -> dict[str, Key]:
    """Return `{key: declaration}` of each key."""
    return {name: key for name, (_, key, _) in keys_of(_InertKeys).items()}
