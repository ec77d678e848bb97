"""Damaged replicas that this broker reports to the controller as offline (V68).

Kafka's controllers do not know the request to give up a role (`Relinquishing`), but they handle
replicas in failed log directories. Under a Kafka controller, the broker therefore handles a damaged
replica as if its directory had failed: it ends the replica's role, and responds KAFKA_STORAGE_ERROR
to the controller's commands for the replica. The controller elects another leader, removes the
replica from the ISR, and stops it.

After the controller has stopped the replica, the broker reports offline replicas a second time, and
the controller sends its commands again. If the command shows that the replica is not in the ISR,
the replica truncates its log before the damage and refetches. Meanwhile the broker and its other
replicas continue to work. If the ISR has no other member, the damaged replica leads again with its
current log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.replicas.directories.offline_reports import OfflineReports
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services


class DamagedReplicas:
    """The damaged replicas of one broker whose controller does not serve RelinquishLeadership."""

    def __init__(
        self, services: Services, rest: Callable[[Partition], None], reports: OfflineReports
    ) -> None:
        """`rest` is the function that ends the role of a replica as leader or follower."""
        self._services = services
        self._rest = rest
        self._reports = reports

    def give_up(self, partition: Partition) -> None:
        """End the role of a damaged replica until the controller has removed it from the ISR."""
        damage = partition.log.damage
        if damage is None or partition.is_given_up:
            return
        services = self._services
        partition.is_given_up = True
        self._rest(partition)
        services.tracer.mark("damaged_replica_given_up")
        services.tracer.log(
            "server",
            logging.ERROR,
            f"partition {partition.topic_partition}: controller {services.view.controller_id} does"
            " not serve RelinquishLeadership (key 20005), so it cannot be asked for another member"
            " in place of a damaged log. This replica is reported as offline instead, and is"
            f" truncated at offset {damage.offset} and refetched when it has left the ISR"
            f" ({damage.reason})",
        )
        self._reports.report("the log of a replica is damaged")

    def stopped(self, partition: Partition) -> None:
        """Request a new command for a damaged replica that the controller has stopped."""
        if partition.is_given_up:
            self._reports.report("a damaged replica has left its ISR")
