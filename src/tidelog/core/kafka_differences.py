"""Differences between Kafka 3.9 and tidelog in what a `server.properties` may contain.

A test generates files and compares tidelog with Kafka's own loader and KafkaConfig, so that the
list is complete. The reference of configuration keys shows the tables of this module.
"""

from __future__ import annotations

from typing import Final

#: Configurations that Kafka accepts and tidelog refuses: short name -> description.
REFUSED: Final[dict[str, str]] = {
    "protocols": "a listener with a protocol other than PLAINTEXT",
    "features": "`authorizer.class.name`, `process.roles` and `config.providers` with a value",
    "broker.id": "a `broker.id` below 0: Kafka makes one up",
    "directories": "a log directory that is named twice, or lies inside another",
    "fetch wait": (
        "a `replica.fetch.wait.max.ms` equal to `replica.lag.time.max.ms`: followers without news"
        " would leave the ISR (rule F9)"
    ),
    "session timeouts": (
        "a `group.min.session.timeout.ms` above `group.max.session.timeout.ms`: no member could"
        " join a group"
    ),
    "protocol version": "an `inter.broker.protocol.version` before 2.6",
    "host names": (
        "values of `zookeeper.ssl.endpoint.identification.algorithm` other than HTTPS and empty"
    ),
    "ranges": "numbers that Kafka's ConfigDef allows, and with which a broker could not work",
    "later keys": (
        "wrong values of keys that Kafka 3.9 ignores in a file: `cordoned.log.dirs` of a later"
        " version, and the rates of throttles, which it takes by AlterConfigs alone"
    ),
}

#: Keys whose ranges are narrower than in Kafka (the entry "ranges" of `REFUSED`).
NARROWER: Final = (
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "controller.socket.timeout.ms",
    "default.replication.factor",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.min.session.timeout.ms",
    "leader.imbalance.per.broker.percentage",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.min.cleanable.ratio",
    "log.flush.interval.ms",
    "max.connections",
    "num.replica.alter.log.dirs.threads",
    "num.replica.fetchers",
    "offset.metadata.max.bytes",
    "replica.fetch.min.bytes",
    "replica.fetch.wait.max.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "request.timeout.ms",
    "zookeeper.connection.timeout.ms",
)

#: Keys that Kafka 3.9 ignores in a configuration file (the entry "later keys" of `REFUSED`).
NOT_IN_FILES: Final = (
    "cordoned.log.dirs",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)

#: Keys whose changes take effect at once in Kafka, and at the next start in tidelog.
READ_ONLY_HERE: Final = (
    "advertised.listeners",
    "listener.security.protocol.map",
    "listeners",
    "num.replica.fetchers",
)

#: Configurations that tidelog reads with other values than Kafka: short name -> description.
READ_OTHERWISE: Final[dict[str, str]] = {
    "encoding": (
        "A file in UTF-8 is read as UTF-8, and a mark at its beginning is skipped; Kafka reads"
        " ISO-8859-1 always. A file that is no UTF-8 is read as ISO-8859-1."
    ),
    "advertised host": (
        "A listener without a host is advertised as 127.0.0.1, one on `::` as ::1, with a warning;"
        " Kafka advertises the machine's name, and `::` as it is."
    ),
}

#: Configurations that tidelog accepts and Kafka refuses: short name -> description.
TAKEN: Final[dict[str, str]] = {
    "empty texts": (
        "empty values of `listener.security.protocol.map`, `advertised.listeners`,"
        " `inter.broker.listener.name`, `security.inter.broker.protocol`, `log.dirs` and"
        " `inter.broker.protocol.version` count as not set; so do empty elements of the map"
    ),
    "case": "`security.inter.broker.protocol` in small letters",
    "only listener": "the only listener serves brokers, whatever its name",
    "no effect": "keys without effect here may have any value",
    "reserved ids": "a `broker.id` above `reserved.broker.max.id`",
    "idle": "a `connections.max.idle.ms` of at most `connection.failed.authentication.delay.ms`",
    "request budget": (
        "a `queued.max.request.bytes` of 268435456, the default here, below"
        " `socket.request.max.bytes`"
    ),
    "cleaner": "a `log.cleaner.dedupe.buffer.size` of less than 1 MiB for each cleaner thread",
}
