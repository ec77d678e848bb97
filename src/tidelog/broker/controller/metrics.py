"""The metrics of a controller, and of its commands to brokers.

The broker that is the controller counts these metrics during its term.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.metrics import BOUNDS_MS, counter, gauge, histogram

COMMANDS_OVERDUE: Final = gauge(
    "tidelog_controller_commands_overdue",
    "1 while a broker acknowledges no command for controller.socket.timeout.ms",
    "broker",
)
COMMANDS_REPEATED: Final = counter(
    "tidelog_controller_commands_repeated_total",
    "commands resent because a broker did not acknowledge them or rejected them",
    "broker",
)
COMMANDS_DROPPED: Final = counter(
    "tidelog_controller_commands_dropped_total",
    "command backlogs of a broker that were replaced by the full state",
    "broker",
)
PARTITIONS_UNLED: Final = gauge(
    "tidelog_controller_partitions_unled",
    "partitions whose published leader has not acknowledged its role yet",
)
ISR_SHRINKS: Final = counter(
    "tidelog_controller_isr_shrinks_total",
    "replicas that left an ISR, by cause; counted by the controller",
    "cause",
)
ISR_EXPANDS: Final = counter(
    "tidelog_controller_isr_expands_total", "replicas that joined an ISR; counted by the controller"
)
LEADERS_AWAITED: Final = counter(
    "tidelog_controller_leaders_awaited_total",
    "changes of what partitions without a leader wait for",
)
FAILOVER_MS: Final = histogram(
    "tidelog_controller_failover_ms",
    "duration of failovers by this controller, by phase; `detect` has those that were detected",
    "phase",
    bounds=BOUNDS_MS,
)
