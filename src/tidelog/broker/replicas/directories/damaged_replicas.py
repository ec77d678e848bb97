"""Damaged replicas that this broker offers to the controller as offline (V68).

Kafka's controllers do not know the request to give a role up (`Relinquishing`). They do know
replicas in failed log directories. So the broker gives up the one replica, as if its directory had
failed: its role ends, and the controller gets KAFKA_STORAGE_ERROR for it. It elects another leader,
takes the replica out of the ISR, and stops it.

Then the broker reports once more. The controller's next command says that the replica is no member:
it truncates its log before the damage and refetches, and is online again. The broker and its other
replicas go on throughout. Where no other member is left meanwhile, the replica leads again with
what it has.
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
    """The damaged replicas of one broker whose controller cannot be asked to replace them."""

    def __init__(
        self, services: Services, rest: Callable[[Partition], None], reports: OfflineReports
    ) -> None:
        """`rest` ends a replica's role."""
        self._services = services
        self._rest = rest
        self._reports = reports

    def give_up(self, partition: Partition) -> None:
        """End the role of a damaged replica until the controller says that it is no member."""
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
        """Have the controller command a replica again that it stopped as offline."""
        if partition.is_given_up:
            self._reports.report("a damaged replica has left its ISR")
