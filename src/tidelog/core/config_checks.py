"""Checks of broker keys that depend on each other (rule F9, and Kafka's own checks).

A contradiction is an error; a setting without the effect that its operator expects is a warning.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.core import limits, log_dir_keys
from tidelog.core.broker_keys import BrokerKeys
from tidelog.core.errors import ConfigError


def check_together(config: BrokerKeys, warnings: list[str]) -> None:
    """Check a whole configuration; append to `warnings`. Raises ConfigError for a contradiction."""
    log_dir_keys.check_cordoned(config.cordoned_log_dirs, config.log_dirs)
    log_dir_keys.check_draining(config.draining_log_dirs, config.log_dirs)
    lag_ms, wait_ms = config.replica_lag_time_max_ms, config.replica_fetch_wait_max_ms
    if wait_ms >= lag_ms:
        raise ConfigError(
            f"replica.fetch.wait.max.ms={wait_ms} must be less than "
            f"replica.lag.time.max.ms={lag_ms}: a follower whose fetch is held that long would "
            "leave the ISR"
        )
    if wait_ms > config.replica_socket_timeout_ms:
        raise ConfigError(
            f"replica.socket.timeout.ms={config.replica_socket_timeout_ms} must be at least "
            f"replica.fetch.wait.max.ms={wait_ms}"
        )
    if config.metadata_session_timeout_ms >= lag_ms:
        warnings.append(
            f"metadata.session.timeout.ms={config.metadata_session_timeout_ms} should be less than "
            f"replica.lag.time.max.ms={lag_ms}: a dead broker would leave its ISRs before it is"
            " taken as dead"
        )
    if config.min_insync_replicas > config.default_replication_factor:
        warnings.append(
            f"min.insync.replicas={config.min_insync_replicas} is more than "
            f"default.replication.factor={config.default_replication_factor}: topics with fewer "
            "replicas count all of their replicas as the minimum"
        )
    shortest_ms = config.group_min_session_timeout_ms
    longest_ms = config.group_max_session_timeout_ms
    if shortest_ms > longest_ms:
        raise ConfigError(
            f"group.min.session.timeout.ms={shortest_ms} is more than "
            f"group.max.session.timeout.ms={longest_ms}: no member could join a group"
        )
    if config.tidelog_test_interception_directory:
        warnings.append(
            "tidelog.test.interception.directory is set: who may write "
            f"{config.tidelog_test_interception_directory} may lose, hold and refuse requests"
        )
    queued_bytes, largest_bytes = config.queued_max_request_bytes, config.socket_request_max_bytes
    if 0 < queued_bytes < largest_bytes and queued_bytes != limits.QUEUED_REQUEST_BYTES:
        raise ConfigError(
            f"queued.max.request.bytes={queued_bytes} must be at least "
            f"socket.request.max.bytes={largest_bytes}, or -1 for no limit"
        )
    if config.message_max_bytes > config.socket_request_max_bytes:
        warnings.append(
            f"message.max.bytes={config.message_max_bytes} can never be reached: "
            f"socket.request.max.bytes={config.socket_request_max_bytes} is less"
        )


#: Keys whose values the operating system or ZooKeeper reads as a path, a host or a node's name. A
#: NUL character would end the path or the name early. The values of other keys, such as
#: `broker.rack`, may contain a NUL, as in Kafka.
_TAKEN_BY_THE_SYSTEM = (
    "log.dir",
    "log.dirs",
    "metadata.store",
    "zookeeper.connect",
    "listeners",
    "advertised.listeners",
    "tidelog.test.interception.directory",
    "tidelog.test.disk.faults",
)


def refuse_nul(merged: Mapping[str, str]) -> None:
    """Raise ConfigError for a NUL character in a path, a host or a node's name."""
    for key in _TAKEN_BY_THE_SYSTEM:
        if "\0" in merged.get(key, ""):
            raise ConfigError(
                f"{key}={merged[key]!r} has a NUL character: text without one expected"
            )
