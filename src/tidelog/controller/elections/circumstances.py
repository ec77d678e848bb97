"""The circumstances of a partition's election: every input except the published state.

The circumstances are the replicas, the live brokers, the configuration, the missing replicas, and
the progress of a recovery by proof (a comparison of log ends, E6).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.draft import Draft
from tidelog.controller.incarnations import Brokers
from tidelog.controller.records import Recovery
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Inputs of a partition's election, except the partition's published state."""

    #: The assigned replicas of the partition, preferred leader first.
    replicas: Sequence[int]
    brokers: Brokers
    controller_epoch: int
    #: The effective minimum: min(min.insync.replicas, number of replicas).
    minimum: int = 1
    #: Live brokers whose replica of the partition is lost or offline, and so serves no requests
    #: (D3, D4).
    absent: Sequence[int] = ()
    #: The effective unclean.leader.election.enable.
    unclean: bool = False
    #: Whether an operator requested an unclean election, which waits for no recovery.
    is_forced: bool = False
    #: Progress of the recovery, which asks the members for their log ends (E6); None before it
    #: began.
    recovery: Recovery | None = None
    #: The brokers of `absent` whose replica is in a failed log directory; the replica may hold
    #: every record.
    offline: Sequence[int] = ()
    #: Leader epochs that a partition skips after the store lost its latest writes (E8).
    epochs_skipped: int = 0

    @property
    def lost(self) -> Sequence[int]:
        """Live brokers that reported that they lost their replica."""
        if not self.offline:
            return self.absent
        return [broker_id for broker_id in self.absent if broker_id not in self.offline]

    def has_replica(self, broker_id: int) -> bool:
        """Return whether a broker is alive, leaving or not, with a replica that serves (V12)."""
        return broker_id in self.brokers and broker_id not in self.absent

    def can_lead(self, broker_id: int) -> bool:
        """Return whether a broker is alive, not leaving, and has a replica that serves."""
        return self.has_replica(broker_id) and not self.brokers[broker_id].is_leaving


def circumstances(topic_partition: TopicPartition, draft: Draft) -> Circumstances:
    """Return the circumstances of a partition of an existing topic, as this decision finds them."""
    image, settings = draft.image, draft.settings
    unclean = image.topics[topic_partition.topic].unclean
    replicas = image.replicas(topic_partition)
    return Circumstances(
        replicas=replicas,
        brokers=image.brokers,
        controller_epoch=settings.controller_epoch,
        minimum=draft.minimum_of(topic_partition.topic, replicas),
        absent=image.absent(topic_partition),
        offline=image.offline(topic_partition),
        unclean=settings.unclean if unclean is None else unclean,
        recovery=image.recoveries.get(topic_partition),
        epochs_skipped=0 if image.went_back is None else image.went_back.skipped,
    )
