"""Both sides (leader and follower) of the replication throttle of one broker (R15, KIP-73).

The rates come from the broker's configuration, and the throttled replicas from the topics hosted
here. `replication.throttle` decides which replicas must wait. `delayed_fetch` skips throttled
partitions in responses to followers, and `fetchers` skips them in this broker's own fetches.
`throttle_watch` reports followers that cannot catch up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.broker.replicas.metrics import (
    FOLLOWER_REPLICATION_BYTE_RATE,
    LEADER_REPLICATION_BYTE_RATE,
)
from tidelog.core import throttle_keys
from tidelog.core.config import BrokerConfig
from tidelog.core.throttle_keys import ThrottledPartitions
from tidelog.core.types import TopicPartition
from tidelog.replication.throttle import MoveRates, SideThrottle, ThrottleSettings

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.core.topic_config import TopicConfig
    from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState

_MS_PER_S: Final = 1_000


class ReplicationThrottles:
    """Both sides of the throttle, and the replicas that wait on each side."""

    def __init__(self, services: Services) -> None:
        self._services = services
        config = services.config
        windows = config.replication_quota_window_num
        window_ms = config.replication_quota_window_size_seconds * _MS_PER_S
        #: Throttle rates that reassignments set, by partition (R4).
        self.moves = MoveRates()
        self.leader = SideThrottle(windows, window_ms, self.moves)
        self.follower = SideThrottle(windows, window_ms, self.moves)
        #: Partitions that `leader.replication.throttled.replicas` throttles, by topic.
        self._leader_topics: dict[str, ThrottledPartitions] = {}
        #: Partitions that `follower.replication.throttled.replicas` throttles, by topic.
        self._follower_topics: dict[str, ThrottledPartitions] = {}
        #: Replicas that reassignments add; the throttle rate of a reassignment applies to these
        #: replicas only.
        self._added: dict[TopicPartition, tuple[int, ...]] = {}
        #: Partitions whose replica on this broker does not copy at present, because its
        #: reassignment pauses.
        self.idle: dict[TopicPartition, None] = {}
        #: Followers, by partition and broker id, to which this broker, as the leader, sent no
        #: records because of the throttle, since the last check of `throttle_watch`.
        self.left_out: dict[tuple[TopicPartition, int], None] = {}
        #: Partitions that this broker, as a follower, did not fetch because of the throttle, since
        #: the last check of `throttle_watch`.
        self.not_fetched: dict[TopicPartition, None] = {}
        #: A version number, increased by each change of settings after which the leader may
        #: throttle fewer followers.
        self.settings_number = 0
        #: A version number, increased when more replicas here may have to wait before they fetch;
        #: fetched records alone do not increase the number.
        self.hold_number = 0
        #: Called when this broker as a follower may fetch more partitions, so that the fetchers
        #: check the partitions that they skip.
        self.fetch_again: Callable[[], None] = lambda: None
        self.rates_changed()

    # configuration

    def topic_changed(self, topic: str, config: TopicConfig) -> None:
        """Note a topic's throttled replicas; `rates_changed` then applies them."""
        broker_id = self._services.broker_id
        leaders = throttle_keys.on_broker(config.leader_replication_throttled_replicas, broker_id)
        followers = throttle_keys.on_broker(
            config.follower_replication_throttled_replicas, broker_id
        )
        for topics, partitions in (
            (self._leader_topics, leaders),
            (self._follower_topics, followers),
        ):
            topics.pop(topic, None)
            if partitions:
                topics[topic] = partitions

    def topic_gone(self, topic: str) -> None:
        """Forget a topic without a replica here; a new replica reads the configuration again."""
        leads = self._leader_topics.pop(topic, None)
        follows = self._follower_topics.pop(topic, None)
        if leads or follows:
            self.rates_changed()

    def rates_changed(self) -> None:
        """Apply the broker's rates and the topics' throttled replicas."""
        services = self._services
        config: BrokerConfig = services.config
        now_ms = services.clock.monotonic_ms()
        leading = ThrottleSettings(
            config.leader_replication_throttled_rate, dict(self._leader_topics)
        )
        following = ThrottleSettings(
            config.follower_replication_throttled_rate, dict(self._follower_topics)
        )
        if self.leader.configure(leading, now_ms):
            self.settings_number += 1
            self._report("leader", self.leader)
        if self.follower.configure(following, now_ms):
            self._report("follower", self.follower)
            self._look_at_fetches()

    def role_taken(
        self, topic_partition: TopicPartition, state: LeaderAndIsrPartitionState
    ) -> bool:
        """Apply the reassignment in a command: its throttle rate and the added replicas that pause.

        Returns whether the reassignment has changed. Under a new leader epoch the caller ignores
        this method's result, because leader and follower then check the throttle anyway.
        """
        added = tuple(state.adding_replicas) if state.throttle else ()
        is_news = added != self._added.pop(topic_partition, ())
        if added:
            self._added[topic_partition] = added
        is_news = self.moved(topic_partition, state.throttle) or is_news
        is_idle = self._services.broker_id in state.idle
        if is_idle == (topic_partition in self.idle):
            return is_news
        if is_idle:
            self.idle[topic_partition] = None
            self._services.tracer.mark("move_paused")
        else:
            del self.idle[topic_partition]
        return True

    def role_repeated(
        self, topic_partition: TopicPartition, state: LeaderAndIsrPartitionState
    ) -> None:
        """Apply a repeated command; if its reassignment changed, check the waiting partitions."""
        if self.role_taken(topic_partition, state):
            self.settings_number += 1
            self._look_at_fetches()

    def left(self, topic_partition: TopicPartition) -> None:
        """Forget the reassignment of a replica that is no longer hosted."""
        self.moved(topic_partition, 0)
        self._added.pop(topic_partition, None)
        self.idle.pop(topic_partition, None)

    def moved(self, topic_partition: TopicPartition, rate: int) -> bool:
        """Apply the rate that a role's reassignment sets; 0 without a rate (R4).

        Returns whether the rate has changed. The lowest of the configured rate and all
        reassignments' rates applies.
        """
        if not self.moves.put(topic_partition, rate):
            return False
        now_ms = self._services.clock.monotonic_ms()
        if rate:
            self._services.tracer.mark("move_throttled")
        else:
            self._services.tracer.mark("move_throttle_ended")
        if self.leader.moves_changed(now_ms):
            self.settings_number += 1
        if self.follower.moves_changed(now_ms):
            self._look_at_fetches()
        return True

    def _look_at_fetches(self) -> None:
        self.hold_number += 1
        self.fetch_again()

    def _report(self, side: str, throttle: SideThrottle) -> None:
        self._services.tracer.event(
            "throttle_changed",
            side=side,
            rate=throttle.rate,
            topics=tuple(throttle.settings.topics),
        )

    def spares(
        self, topic_partition: TopicPartition, broker_id: int, throttle: SideThrottle
    ) -> bool:
        """Return whether the throttle exempts a replica, because no reassignment added it (R4).

        A replica that was assigned before the reassignment catches up as fast as it can.
        """
        if topic_partition not in self.moves or broker_id in self._added.get(topic_partition, ()):
            return False
        topic, number = topic_partition
        configured = throttle.settings.topics.get(topic)
        return configured is None or number not in configured

    # the leader's side

    def leaves_out(self, partition: Partition, follower: int, further_bytes: int) -> bool:
        """Return whether a follower must wait for records of a partition that this broker leads.

        `further_bytes` are the bytes that the same fetch has already read for this follower. A
        member of the maximal ISR never waits, because the high watermark cannot pass its log end.
        """
        leadership = partition.leadership
        if leadership is None:
            return False
        topic_partition = partition.topic_partition
        progress = leadership.followers.get(follower)
        is_in_sync = progress is None or progress.in_maximal_isr
        is_in_sync = is_in_sync or self.spares(topic_partition, follower, self.leader)
        now_ms = self._services.clock.monotonic_ms()
        if not self.leader.leaves_out(topic_partition, is_in_sync, now_ms, further_bytes):
            return False
        self.left_out[topic_partition, follower] = None
        self._services.tracer.mark("follower_throttled_by_leader")
        return True

    def leader_is_exceeded(self) -> bool:
        """Return whether the leader's side exceeds its rate now, so followers must wait."""
        return self.leader.is_exceeded(self._services.clock.monotonic_ms())

    def leader_recovers_in_ms(self) -> int:
        """Return the milliseconds until the rate on the leader's side is no longer exceeded."""
        return self.leader.recovers_in_ms(self._services.clock.monotonic_ms())

    def is_held_back(self, partition: Partition, follower: int) -> bool:
        """Return whether the throttle may skip a follower: it is throttled and out of the ISR."""
        leadership = partition.leadership
        if leadership is None or not self.leader.is_throttled(partition.topic_partition):
            return False
        progress = leadership.followers.get(follower)
        if self.spares(partition.topic_partition, follower, self.leader):
            return False
        return progress is not None and not progress.in_maximal_isr

    def sent(self, count: int, out_of_sync_count: int) -> None:
        """Count the bytes of throttled partitions in a response to a follower.

        `out_of_sync_count` is the part of the bytes for partitions whose ISR lacks the follower.
        """
        now_ms = self._services.clock.monotonic_ms()
        self.leader.record(count, out_of_sync_count, now_ms)
        rate = self.leader.byte_rate(now_ms)
        self._services.metrics.put(LEADER_REPLICATION_BYTE_RATE, rate)

    # the follower's side

    def is_caught_up(self, partition: Partition) -> bool:
        """Return whether a replica is caught up, so the follower's throttle never delays it.

        A replica is caught up if it has reached the high watermark that the leader reported last,
        as in Kafka, or if it is in the published ISR.
        """
        reported = partition.told_high_watermark
        return 0 <= reported <= partition.log.log_end_offset or self._is_member(partition)

    def _is_member(self, partition: Partition) -> bool:
        """Return whether published state has this follower in the ISR."""
        published = self._services.view.partition(partition.topic_partition)
        return published is not None and self._services.broker_id in published.isr

    def waits(self, partition: Partition) -> bool:
        """Return whether this broker must leave the partition out of its fetches for now.

        A replica whose reassignment is paused does not fetch even if it has reached the high
        watermark, because the leader's log may grow while the high watermark stands still.
        """
        if partition.topic_partition in self.idle and not self._is_member(partition):
            return True
        follower = self.follower
        if not follower.is_active:
            return False
        topic_partition = partition.topic_partition
        now_ms = self._services.clock.monotonic_ms()
        is_spared = self.spares(topic_partition, self._services.broker_id, follower)
        is_caught_up = is_spared or self.is_caught_up(partition)
        if not follower.leaves_out(topic_partition, is_caught_up, now_ms):
            return False
        self.not_fetched[topic_partition] = None
        self._services.tracer.mark("follower_throttled_itself")
        return True

    @property
    def may_hold_fetches(self) -> bool:
        """Whether this broker may leave partitions out of its own fetches."""
        return self.follower.is_active or bool(self.idle)

    @property
    def holds_fetches(self) -> bool:
        """Whether the rate or a paused reassignment keeps partitions out of fetches now."""
        return bool(self.idle) or self.follower_is_exceeded()

    def follower_is_exceeded(self) -> bool:
        """Return whether the follower's side exceeds its rate now, so replicas here must wait."""
        return self.follower.is_exceeded(self._services.clock.monotonic_ms())

    def follower_recovers_in_ms(self) -> int:
        """Return the milliseconds until the rate on the follower's side is no longer exceeded."""
        return self.follower.recovers_in_ms(self._services.clock.monotonic_ms())

    def received(self, partition: Partition, count: int) -> None:
        """Count the bytes of a followed partition in a response, if the partition is throttled."""
        if not self.follower.is_active:
            return
        if not self.follower.is_throttled(partition.topic_partition):
            return
        now_ms = self._services.clock.monotonic_ms()
        out_of_sync_count = 0 if self.is_caught_up(partition) else count
        was_exceeded = self.follower.is_exceeded(now_ms)
        self.follower.record(count, out_of_sync_count, now_ms)
        if not was_exceeded and self.follower.is_exceeded(now_ms):
            self.hold_number += 1
        rate = self.follower.byte_rate(now_ms)
        self._services.metrics.put(FOLLOWER_REPLICATION_BYTE_RATE, rate)

    def show_rates(self) -> None:
        """Put the current rates into the metrics, if partitions are throttled."""
        now_ms = self._services.clock.monotonic_ms()
        for throttle, metric in (
            (self.leader, LEADER_REPLICATION_BYTE_RATE),
            (self.follower, FOLLOWER_REPLICATION_BYTE_RATE),
        ):
            if throttle.is_active:
                self._services.metrics.put(metric, throttle.byte_rate(now_ms))
            else:
                self._services.metrics.drop(metric)
