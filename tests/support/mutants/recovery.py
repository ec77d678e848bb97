"""Mutants of eligible leader replicas and of recovery by proof.

Rules E1, E2, E6 and E7. Each trusts a replica that nothing proves, or forgets one. The docstring of
a mutant describes the defect, and appears in docs/internals/mutants.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tests.support.mutants.mutant import Catalogue

from tidelog.core.eligible_replicas import EligibleReplicas
from tidelog.core.types import NO_BROKER_EPOCH

CATALOGUE: Final = Catalogue()
_breaks = CATALOGUE.breaks


@_breaks("E1", "tidelog.core.eligible_replicas:after", profile="last_replica_standing")
def eligible_replicas_forgotten(_: Any) -> Any:
    """The controller forgets a replica that leaves a small ISR: only the last member counts."""
    return lambda *_, **__: EligibleReplicas()


@_breaks("E1", "tidelog.core.eligible_replicas:after", profile="every_member_ends")
def eligible_replicas_kept(original: Any) -> Any:
    """The controller keeps eligible replicas although the ISR has reached the minimum again."""

    def after(state: Any, isr: Any, minimum: int, *rest: Any, **more: Any) -> Any:
        return original(state, isr, len(isr) + 1, *rest, **more)

    return after


@_breaks("E2", "tidelog.controller.incarnations:proven_members", profile="every_member_ends")
def every_member_is_proven(original: Any) -> Any:
    """The controller takes every live member as proven, whatever it lost."""

    def proven_members(state: Any, brokers: Any) -> Any:
        members = (*state.isr, *state.elr)
        return {one: brokers[one].broker_epoch for one in members if one in brokers}

    return proven_members


@_breaks("E6", "tidelog.controller.elections.recovery:plan", profile="every_member_ends")
def one_log_is_enough(original: Any) -> Any:
    """The controller compares the logs of fewer than k members."""
    return lambda state, around: original(state, replace(around, minimum=1))


@_breaks("E6", "tidelog.controller.elections.recovery:_greatest", profile="every_member_ends")
def smallest_log_leads(original: Any) -> Any:
    """The controller elects the member with the smallest log."""

    def smallest(candidates: Any, heard: int, quorum: int, around: Any) -> Any:
        known = around.recovery.logs if around.recovery is not None else {}
        ends = [one for one in candidates if one in known]
        return min(ends, key=lambda one: known[one]) if ends else candidates[0]

    return smallest


@_breaks("E7", "tidelog.controller.incarnations:lost_nothing", profile="every_member_ends")
def any_proof_counts(_: Any) -> Any:
    """The controller takes a proof of another incarnation than the recorded one."""
    return lambda broker, recorded_epoch: broker.previous_broker_epoch != NO_BROKER_EPOCH


@_breaks("E6", "tidelog.controller.elections.waits:look_at", profile="described_replicas")
def wait_not_shown(_: Any) -> Any:
    """The controller sends no broker the members that a partition without a leader waits for."""
    return lambda *_, **__: None
