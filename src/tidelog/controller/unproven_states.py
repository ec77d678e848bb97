"""Partition states that prove nothing, because the store lost its latest writes (E8).

In an unproven state every assigned replica is in the ISR or eligible, and the recorded broker
epochs belong to no registration. This module has pure functions. `store_went_back` decides which
states become unproven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidelog.core.eligible_replicas import BOUNCED_EPOCH
from tidelog.core.types import PartitionState

#: The `mzxid` of a state in the image that differs from its state node; the next decision writes
#: the state.
NOT_WRITTEN: Final = -1


def unproven(state: PartitionState, replicas: Sequence[int], epochs_skipped: int) -> PartitionState:
    """Return a state in which every assigned replica is a member, and no member is proven.

    The state's leader epoch is above all epochs that the store may have lost, so that no epoch is
    assigned twice.
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
