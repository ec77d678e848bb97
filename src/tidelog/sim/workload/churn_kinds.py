"""All kinds of churn; the import of their modules registers them.

Other modules import churn from here, so that no kind is missing.
"""

from tidelog.sim.workload import (  # noqa: F401
    client_churn,
    crowd_churn,
    description_churn,
    directory_churn,
    drain_churn,
    edit_churn,
    leader_churn,
    leader_lookups,
    lookup_churn,
    move_churn,
    offset_churn,
    queue_churn,
    record_churn,
    recreated_offset_churn,
    reread_churn,
    throttle_churn,
    topic_churn,
    topic_flushes,
    topic_mishaps,
    untimed_churn,
    view_churn,
)
from tidelog.sim.workload.churning import CHURN, Churning, ChurnKind

__all__ = ["CHURN", "ChurnKind", "Churning"]
