"""Policies: named settings of the brokers that replace settings of a profile, for comparisons.

Under two policies, a seed has the same planned faults and the same workload, so the runs are the
same until the settings first matter. To add a policy, add an entry to `POLICIES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.sim.profiles import Profile

#: Protocol level below which leaders write the ISR into the store themselves (A12).
_DIRECT_LEVEL: Final = "2.6"
_PENDING: Final = "follower.fetch.pending.reads.insync.enable"
_MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy: settings of the brokers that replace settings of a run's profile."""

    name: str
    description: str
    #: Configuration of the brokers; its `min.insync.replicas` applies to the topics, too.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Protocol levels between brokers; None means the levels of the profile.
    protocol_levels: tuple[str, ...] | None = None

    def applied(self, profile: Profile) -> Profile:
        """Return the profile with the settings of this policy."""
        levels = profile.protocol_levels if self.protocol_levels is None else self.protocol_levels
        properties = {**profile.properties, **self.properties}
        return replace(profile, properties=properties, protocol_levels=levels)


#: The name of the policy that changes nothing: each profile's own settings.
UNCHANGED: Final = "unchanged"

POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (
        Policy(UNCHANGED, "the settings of the profile"),
        Policy(
            "pending_on",
            "a leader that reads slowly counts pending fetches of a follower as progress",
            {_PENDING: "true"},
        ),
        Policy(
            "pending_off",
            "only completed fetches count as a follower's progress",
            {_PENDING: "false"},
        ),
        Policy(
            "alter_partition",
            "leaders request ISR changes from the controller (AlterPartition)",
            protocol_levels=(),
        ),
        Policy(
            "direct",
            "leaders write ISR changes into the store themselves",
            protocol_levels=(_DIRECT_LEVEL,),
        ),
        Policy("min_isr_1", "min.insync.replicas is 1", {_MIN_ISR: "1"}),
        Policy("min_isr_2", "min.insync.replicas is 2", {_MIN_ISR: "2"}),
        Policy("min_isr_3", "min.insync.replicas is 3", {_MIN_ISR: "3"}),
    )
}


def under_policy(profile: Profile, policy: str) -> Profile:
    """Return a profile under a named policy; the profile itself for an empty name."""
    return POLICIES[policy].applied(profile) if policy else profile
