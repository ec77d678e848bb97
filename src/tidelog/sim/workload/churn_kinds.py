"""All kinds of churn, whatever module they stand in: importing them registers them.

Whoever runs churn imports it from here, so that none is missing.
"""

from tidelog.sim.workload import (  # noqa: F401
    client_churn,
    edit_churn,
    leader_churn,
    lookup_churn,
    move_churn,
    offset_churn,
    record_churn,
    topic_churn,
    topic_mishaps,
    view_churn,
)
from tidelog.sim.workload.churning import CHURN, Churning, ChurnKind, Work

__all__ = ["CHURN", "ChurnKind", "Churning", "Work"]
