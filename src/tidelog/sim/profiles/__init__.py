"""Profiles: named settings of a run that make certain rare events frequent.

Each seed draws which of its profile's kinds of faults happen, and how often. `sim/faults` defines
the kinds of faults; a test compares their names with the names in profiles.

`profile` defines the class `Profile`, and default weights for kinds of faults that a profile does
not name. The other modules contain profiles, by subject: `general_profiles`, `topic_profiles`,
`replica_profiles`, `controller_profiles`, `disk_profiles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.sim.profiles.controller_profiles import CONTROLLERS
from tidelog.sim.profiles.disk_profiles import DISKS
from tidelog.sim.profiles.general_profiles import GENERAL
from tidelog.sim.profiles.profile import Pace, Profile
from tidelog.sim.profiles.replica_profiles import REPLICAS
from tidelog.sim.profiles.topic_profiles import TOPICS

__all__ = ["PROFILES", "SWARM", "Pace", "Profile"]

#: Name of the profile from which each seed draws another profile (`sim/swarm`).
SWARM: Final = "swarm"

#: The position of a profile in this list determines which seeds have it under `--profile mixed`:
#: append, never reorder.
_ORDER: Final = (
    "default", "topic_churn", "thinned_logs", "partition_removals", "mislaid_topics",
    "late_commands", "quick_restarts", "slow_catch_up", "slow_followers", "compaction",
    "topic_changes", "late_roles", "late_isr", "slow_store", "controller_moves", "lost_answers",
    "everything", "beyond", "controller_writes", "busy_leaders", "reassignments", "full_disks",
    "lookups", "shutdowns", "failing_disks", "damaged_disks", "unreadable_topic",
    "unreadable_partition", "unlucky_elections", "missing_directory", "leader_returns",
    "early_follower", "unheard_of_return", "two_terms_lost", "unanswered_controllers",
    "told_events", "edited_nodes", "unclean_elections", "balance", "refused_batches", "pauses",
    "last_replica_standing", "every_member_ends", "recompressed", "a_host_stays_away",
    "power_failures", "flush_policies", "superseded_changes", "held_expansions", "slow_leaders",
    "slow_leaders_unaided", "dead_followers", "hung_leaders", "removed_registrations",
    "described_replicas", "direct", "direct_slow_store", "direct_quick_restarts", "mixed_levels",
    "direct_moves", "direct_last_replica", "direct_member_ends", "direct_unregistered_fetches",
    "overtaken_batches", "older_disks", "damaged_leaders", "rolled_segments", "queued_moves",
    "throttled_moves", "jbod", "directory_moves", "full_directories", "damaged_leaders_offline",
    "slow_directories", "drained_directories", "leaders_end", "recreated_offsets",
    "untimed_records", "hanging_directories", "readers_led_on", "older_stores", "patient_fetches",
    "rogue_isr_changes", "crowded", "redirected_moves", "short_sessions", "split_frames",
    SWARM,
)  # fmt: skip
_GROUPS: Final = (GENERAL, TOPICS, REPLICAS, CONTROLLERS, DISKS)
_BY_NAME: Final = {profile.name: profile for group in _GROUPS for profile in group}
_BY_NAME[SWARM] = Profile(SWARM, has_all_kinds=True)
assert sorted(_BY_NAME) == sorted(_ORDER)

PROFILES: Final[Mapping[str, Profile]] = {name: _BY_NAME[name] for name in _ORDER}
