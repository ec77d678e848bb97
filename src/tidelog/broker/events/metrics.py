"""The metrics of the topic of cluster events.

Every broker counts these metrics, even if cluster events are disabled.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.metrics import counter

EVENTS_DROPPED: Final = counter(
    "tidelog_cluster_events_dropped_total",
    "events missing in __cluster_events: too many waited, or none could be sent",
)
