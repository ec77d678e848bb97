"""States of partitions of which nothing proves a replica, because the store went back (E8).

Every assigned replica is a member then, and the recorded epoch of each is one that no registration
has. Pure values: `store_went_back` decides which states these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidelog.core.eligible_replicas import BOUNCED_EPOCH
from tidelog.core.types import PartitionState

#: `mzxid` of a state that differs from its node: the next decision writes it.
NOT_WRITTEN: Final = -1


def unproven(state: PartitionState, replicas: Sequence[int], epochs_skipped: int) -> PartitionState:
    """Return the state whose members are all replicas, none of them proven.

    Its leader epoch is above all that the store may have lost, so that none is given twice.
    """
    others = tuple(replica for replica in replicas if replica not in state.isr)
    return replace(
        state,
        leader_epoch=state.leader_epoch + epochs_skipped,
        isr_epochs=(BOUNCED_EPOCH,) * len(state.isr),
        elr=others,
        elr_epochs=(BOUNCED_EPOCH,) * len(others),
        is_unproven=True,
        mzxid=NOT_WRITTEN,
    )
