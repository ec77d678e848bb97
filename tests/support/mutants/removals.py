"""Mutants of partitions that are removed and added again (V71), and of replicas that return (V35).

Each forgets a former life: the controller its epochs, or a broker its records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tests.support.mutants.mutant import Catalogue

CATALOGUE: Final = Catalogue()
_breaks = CATALOGUE.breaks


@_breaks("V71", "tidelog.controller.lifecycle:first_state", profile="partition_removals")
def tombstone_forgotten(original: Any) -> Any:
    """A partition that is added again begins with the leader epoch of a new one."""

    def first_state(replicas: Any, brokers: Any, epoch: int, former: Any = None) -> Any:
        state = original(replicas, brokers, epoch)
        if state is None or former is None:
            return state
        return replace(state, partition_epoch=former.partition_epoch + 1)

    return first_state


@_breaks("V71", "tidelog.replication.commands:is_of_former_life", profile="partition_removals")
def former_life_continued(_: Any) -> Any:
    """A broker that was down during a removal uses its old replica for the new incarnation."""
    return lambda **known: False


@_breaks(
    "V35",
    "tidelog.broker.replicas.stray_recovery:StrayRecovery._check_latest",
    profile="mislaid_topics",
)
def older_stray_returns(_: Any) -> Any:
    """A stray is restored although the broker has a later one with more records."""

    async def check_latest(strays: Any, found: Any) -> None:
        return None

    return check_latest
