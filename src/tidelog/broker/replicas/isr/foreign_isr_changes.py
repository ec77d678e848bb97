"""ISR changes that a leader did not request, or whose outcome it never learned (A3, A9).

The controller sends the outcome of an AlterPartition to its sender, and metadata to every broker.
Connections have no authentication, so another peer may send an AlterPartition in the leader's name;
the leader then learns of the outcome only from metadata. A leader that missed a change has an older
partition epoch than the published state, and no change in flight. The missed change, or the
response to an earlier change of the leader, may still be on its way to the leader. If the leader is
still behind a second later, the broker requests all its commands again, so that no leader continues
with an outdated ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.core.types import TopicPartition
from tidelog.replication.leader import LeaderReplica

if TYPE_CHECKING:
    from tidelog.broker.replicas.command_requests import CommandRequests
    from tidelog.broker.replicas.hosting.hosted_partitions import HostedPartitions
    from tidelog.broker.services import Services
    from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

#: Milliseconds for which a leader may be behind before the broker requests its commands, because
#: responses and metadata arrive over different connections.
GRACE_MS: Final = 1_000


class ForeignIsrChanges:
    """Published ISRs that this broker's leaders have not learned yet."""

    def __init__(
        self, services: Services, replicas: HostedPartitions, requests: CommandRequests
    ) -> None:
        self._services = services
        self._replicas = replicas
        self._requests = requests
        #: Partitions whose leader is behind, with their leader epoch and published partition epoch.
        self._behind: dict[TopicPartition, tuple[int, int]] = {}

    def published(self, message: UpdateMetadataRequest) -> None:
        """Check the metadata of partitions that this broker leads."""
        own = self._services.broker_id
        found = [
            (TopicPartition(topic.topic_name, state.partition_index), state)
            for topic in message.topic_states
            for state in topic.partition_states
            if state.leader == own
        ]
        is_idle = not self._behind
        for topic_partition, state in found:
            epochs = (state.leader_epoch, state.zk_version)
            if self._lags(topic_partition, epochs):
                self._behind[topic_partition] = epochs
        if is_idle and self._behind:
            self._services.timers.after(GRACE_MS, self._look_again)

    def _look_again(self) -> None:
        behind = {name: epochs for name, epochs in self._behind.items() if self._lags(name, epochs)}
        missed = [name for name in behind if not self._has_change_in_flight(name)]
        self._behind = {name: behind[name] for name in behind if name not in missed}
        if self._behind:  # look again, as a response in flight may not show the missed change
            self._services.timers.after(GRACE_MS, self._look_again)
        if missed:
            self._services.tracer.mark("foreign_isr_change_found")
            self._requests.ask(
                f"it leads {missed[0]} by an older ISR than the published one"
                f"{f', and {len(missed) - 1} more' if len(missed) > 1 else ''}"
            )

    def _lags(self, topic_partition: TopicPartition, epochs: tuple[int, int]) -> bool:
        """Return whether this broker's leader knows an older ISR than the published ISR.

        `epochs` are the leader epoch and the partition epoch of the published state. Returns False
        if this broker does not lead in that leader epoch.
        """
        core = self._leader(topic_partition)
        leader_epoch, partition_epoch = epochs
        return (
            core is not None
            and core.leader_epoch == leader_epoch
            and core.isr.partition_epoch < partition_epoch
        )

    def _has_change_in_flight(self, topic_partition: TopicPartition) -> bool:
        core = self._leader(topic_partition)
        return core is not None and bool(core.isr.in_flight)

    def _leader(self, topic_partition: TopicPartition) -> LeaderReplica | None:
        partition = self._replicas.get(topic_partition)
        core = None if partition is None else partition.role.core
        return core if isinstance(core, LeaderReplica) else None
