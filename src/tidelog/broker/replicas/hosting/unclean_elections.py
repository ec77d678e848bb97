"""The data at risk from an unclean election, as far as the elected replica can know (V13).

Once the elected replica leads, it reports the data at risk in the log, in traces, and as a cluster
event. Committed records beyond the elected replica's log end are lost. The elected replica knows
the high watermark that the last leader reported to it. Records that the last leader committed later
may be lost, too, but the elected replica cannot know of them. Records between the elected replica's
high watermark and its log end stay, although they may never have been committed. The cluster event
of the leader change names the previous ISR members, which may still have the lost records.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.controller import cluster_events

if TYPE_CHECKING:
    from tidelog.broker.events.cluster_events import ClusterEvents
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services
    from tidelog.log.partition_log import PartitionLog
    from tidelog.replication.leader import LeaderReplica


def report(
    services: Services,
    events: ClusterEvents,
    partition: Partition,
    role: LeaderReplica,
    latest_epoch: int,
) -> None:
    """Report a leadership that began with an unclean election.

    `latest_epoch` is the leader epoch of the log's last records, -1 for an empty log.
    """
    log = partition.log
    fields = {
        "leader": services.broker_id,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": role.log_end_offset,
        "high_watermark": role.high_watermark,
        "told_high_watermark": partition.told_high_watermark,
        "latest_epoch": latest_epoch,
        "latest_timestamp_ms": _latest_timestamp_ms(log),
    }
    tracer = services.tracer
    tracer.event(
        "unclean_leader",
        partition=str(partition.topic_partition),
        leader_epoch=role.leader_epoch,
        **fields,
    )
    tracer.log(
        "state_change",
        logging.WARNING,
        f"unclean election: broker {services.broker_id} leads {partition.topic_partition} from"
        f" outside the ISR, epoch {role.leader_epoch}, after epoch {latest_epoch} of its log"
        f" [{log.log_start_offset}, {role.log_end_offset}): {_lost(partition, role)}; from offset"
        f" {role.high_watermark} on it is not known whether others had the same",
    )
    events.record(
        [
            cluster_events.unclean_election(
                partition.topic_partition, partition.topic_id, role.leader_epoch, fields
            )
        ]
    )


def _lost(partition: Partition, role: LeaderReplica) -> str:
    end, high_watermark = role.log_end_offset, partition.told_high_watermark
    if high_watermark > end:
        return (
            f"records from offset {end} up to {high_watermark} were committed and are lost,"
            " and what came after them"
        )
    return f"records from offset {end} on are lost if there were any"


def _latest_timestamp_ms(log: PartitionLog) -> int:
    """Return the greatest timestamp of any record, -1 for an empty log."""
    return max((segment.max_timestamp_ms for segment in log.segments), default=-1)
