"""The configuration of a run's brokers: short times, small segments, few partitions of
`__consumer_offsets`.

A seed and its profile vary some settings. Each broker listens on the same port of its own host.
Each broker has one or more log directories, each on its own disk.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from tidelog.core.config import BrokerConfig
from tidelog.core.dataclass import dataclass
from tidelog.sim.profiles.profile import Profile, properties_of

PORT: Final = 9092
#: Path of the first log directory; the paths of further directories end with a number.
LOG_DIRECTORY: Final = "/data"
#: Partitions of `__consumer_offsets`.
OFFSETS_PARTITIONS: Final = 3
#: Configuration of all brokers, unless a profile or a seed sets another value.
_PROPERTIES: Final = properties_of(
    "leader.recovery.wait.ms=300, replica.fetch.wait.max.ms=250, replica.fetch.backoff.ms=100,"
    " replica.socket.timeout.ms=1500, replica.high.watermark.checkpoint.interval.ms=700,"
    " log.flush.offset.checkpoint.interval.ms=1500, log.segment.bytes=16384,"
    " log.index.interval.bytes=512, log.segment.delete.delay.ms=500, log.dir.reserve.bytes=0,"
    " log.dir.slow.threshold.ms=0, controller.socket.timeout.ms=1500,"
    " controller.activity.timeout.ms=0, request.timeout.ms=2000,"
    " controlled.shutdown.enable=false, auto.create.topics.enable=false,"
    " default.replication.factor=3, min.insync.replicas=2,"
    f" offsets.topic.num.partitions={OFFSETS_PARTITIONS}, offsets.topic.segment.bytes=16384,"
    " offsets.commit.timeout.ms=1500, offsets.load.buffer.size=4096,"
    " group.min.session.timeout.ms=100, group.initial.rebalance.delay.ms=200"
)


def host_of(broker_id: int) -> str:
    """Return the host name of a broker."""
    return f"broker{broker_id}"


@dataclass(slots=True)
class BrokerSettings:
    """Settings of a run's brokers; times are short, so that much happens in little time."""

    #: The profile of the run; for some settings, the seed draws the value.
    profile: Profile = field(default_factory=lambda: Profile("quiet"))
    session_timeout_ms: int = 1_500
    lag_time_max_ms: int = 2_000
    #: Time in ms after which the store ends the session of a dead process; None means the session
    #: timeout.
    detect_ms: float | None = None
    properties: dict[str, str] = field(default_factory=dict)
    #: Number of log directories of each broker.
    log_dirs: int = 1
    #: Topics that are compacted even if other topics are not.
    compacted_topics: tuple[str, ...] = ()
    #: `inter.broker.protocol.version` by broker; a broker without an entry has the newest version
    #: (A12).
    levels: dict[int, str] = field(default_factory=dict)

    @property
    def flushes_before_ack(self) -> bool:
        """Whether all brokers have `flush.before.ack`, so that a power loss of any number of
        brokers loses no committed record (V69).

        """
        return self.properties.get("flush.before.ack") == "true"

    @property
    def log_directories(self) -> tuple[str, ...]:
        """The log directories of each broker."""
        more = (f"{LOG_DIRECTORY}{number}" for number in range(1, self.log_dirs))
        return (LOG_DIRECTORY, *more)

    def of(self, broker_id: int) -> BrokerConfig:
        """Return the configuration of one broker."""
        return BrokerConfig.from_properties(
            {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://{host_of(broker_id)}:{PORT}",
                "log.dirs": ",".join(self.log_directories),
                "metadata.session.timeout.ms": str(self.session_timeout_ms),
                "replica.lag.time.max.ms": str(self.lag_time_max_ms),
                **_PROPERTIES,
                **self.properties,
                "inter.broker.protocol.version": self.levels.get(broker_id, ""),
            }
        )
