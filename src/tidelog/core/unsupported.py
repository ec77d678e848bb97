"""Reasons why keys of Kafka have no effect here, for operators who set these keys.

The longest listed prefix of a key gives its reason; a test checks that every unsupported key
(`core.kafka_keys`) has a reason.
"""

from __future__ import annotations

_NO_KRAFT = "brokers find each other in the metadata store; there is no KRaft"
_NO_POLICIES = "policies and plug-ins are Java classes"
_NO_METRICS = "metrics reporters are Java classes"
_NO_QUOTAS = "there are no quotas for clients yet"
_NO_SECURITY = "listeners are plain text, without authentication, yet"
_ONE_LOOP = "a broker is one loop, with a thread for each log directory"
_NO_TRANSACTIONS = "there are no transactions yet"
_NO_TIERS = "records stay on the brokers' disks"
_NO_PURGING = "what waits for an answer is dropped when it is answered"
_NO_GROUP_KEYS = "not looked at by the coordinator of groups"
_SYSTEM_SOCKETS = "sockets have the operating system's settings"
_NO_SOCKET_LIMITS = "connections are limited by max.connections alone"
_ZOOKEEPER_CLIENT = "connections to ZooKeeper are Python's, certificates and keys are PEM"

#: Prefix of keys -> reason why the keys have no effect.
_REASONS: dict[str, str] = {
    "alter.config.policy.": _NO_POLICIES,
    "authorizer.": "there is no authorization yet",
    "auto.include.": _NO_METRICS,
    "background.": _ONE_LOOP,
    "broker.": _NO_KRAFT,
    "broker.id.generation.enable": "broker.id is given, never made up",
    "client.quota.": _NO_QUOTAS,
    "connection.failed.": _NO_SECURITY,
    "connections.max.reauth.ms": _NO_SECURITY,
    "control.plane.": "commands of the controller share the listener of the brokers",
    "controller.": _NO_KRAFT,
    "controller.quota.": _NO_QUOTAS,
    "create.topic.policy.": _NO_POLICIES,
    "delegation.token.": _NO_SECURITY,
    "delete.records.": _NO_PURGING,
    "early.start.listeners": _NO_KRAFT,
    "eligible.leader.": "eligible leader replicas are not kept yet",
    "fetch.purgatory.": _NO_PURGING,
    "group.": _NO_GROUP_KEYS,
    "initial.broker.": _NO_KRAFT,
    "kafka.metrics.": _NO_METRICS,
    "listener.name.": _NO_SECURITY,
    "log.cleaner.": "not needed by this log cleaner",
    "log.flush.": "logs are flushed as soon as they are due, and looked at every second",
    "log.initial.": "the first look comes after one interval",
    "max.connection": _NO_SOCKET_LIMITS,
    "metadata.": _NO_KRAFT,
    "metric": _NO_METRICS,
    "num.": _ONE_LOOP,
    "offset": _NO_GROUP_KEYS,
    "password.encoder.": "no setting is a secret, so none is encoded",
    "principal.": _NO_SECURITY,
    "process.roles": _NO_KRAFT,
    "producer.id.expiration.check.": "silent producers are looked for with each retention",
    "producer.purgatory.": _NO_PURGING,
    "queued.": "reading stops when a connection has too many requests in flight",
    "quota.": _NO_QUOTAS,
    "remote.": _NO_TIERS,
    "replica.selector.": "consumers read from leaders",
    "replica.socket.receive.": _SYSTEM_SOCKETS,
    "reserved.broker.": "broker.id is given, never made up",
    "sasl.": _NO_SECURITY,
    "security.": _NO_SECURITY,
    "server.max.": _NO_KRAFT,
    "socket.": _SYSTEM_SOCKETS,
    "ssl.": _NO_SECURITY,
    "telemetry.": "clients' metrics are not taken",
    "transaction": _NO_TRANSACTIONS,
    "unclean.leader.election.interval.": "elections wait for no interval",
    "unstable.": _NO_KRAFT,
    "zookeeper.": _ZOOKEEPER_CLIENT,
}


def why(key: str) -> str | None:
    """Return why a key has no effect, without a full stop; None if no reason is listed."""
    fitting = [prefix for prefix in _REASONS if key.startswith(prefix)]
    return _REASONS[max(fitting, key=len)] if fitting else None
