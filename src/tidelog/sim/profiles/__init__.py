"""Profiles: named settings of a run that make certain rare events frequent.

Each seed draws which of its profile's kinds of faults happen, and how often. `sim/faults` defines
the kinds of faults; a test compares their names with the names in profiles.

`profile` defines the class `Profile`, and default weights for kinds of faults that a profile does
not name. `aimed_profiles` contains the profiles that searches play. `starting_points` contains
profiles that the swarm (`sim/swarm`: random profiles, each drawn from a seed) uses with some
settings changed. You can also run a starting point itself, by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.sim.profiles.aimed_profiles import AIMED
from tidelog.sim.profiles.profile import Pace, Profile
from tidelog.sim.profiles.starting_points import STARTS

__all__ = ["PROFILES", "STARTING_POINTS", "SWARM", "Pace", "Profile", "all_named", "named"]

#: Name of the profile from which each seed draws another profile (`sim/swarm`).
SWARM: Final = "swarm"

#: The position in this mapping determines a seed's profile under `--profile mixed`: append to the
#: aimed profiles, never reorder them.
PROFILES: Final[Mapping[str, Profile]] = {
    **{profile.name: profile for profile in AIMED},
    SWARM: Profile(SWARM, has_all_kinds=True),
}
STARTING_POINTS: Final[Mapping[str, Profile]] = {start.name: start for start in STARTS}
assert not PROFILES.keys() & STARTING_POINTS.keys()


def named(name: str) -> Profile:
    """Return a profile or a starting point by its name; raise KeyError for any other name."""
    return PROFILES[name] if name in PROFILES else STARTING_POINTS[name]


def all_named() -> list[str]:
    """Return the names of all profiles and starting points."""
    return [*PROFILES, *STARTING_POINTS]
