"""Imports the modules of all kinds of churn, which register the kinds.

Other modules import the kinds of churn (changes by clients) from this module, so that no kind is
missing.
"""

from tidelog.sim.workload import (  # noqa: F401
    client_churn,
    crowd_churn,
    directory_churn,
    edit_churn,
    leader_churn,
    lookup_churn,
    move_churn,
    offset_churn,
    queue_churn,
    record_churn,
    topic_churn,
    topic_mishaps,
)
from tidelog.sim.workload.churning import CHURN, Churning, ChurnKind

__all__ = ["CHURN", "ChurnKind", "Churning"]
