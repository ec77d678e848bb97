"""Faults drawn from the seed: the kinds of a run, their frequency, targets and duration.

`scheduler` decides when each fault happens. Each kind is a function of one of the families
`network`, `store`, `clocks`, `processes` and `disks`. It is registered by its name (`kinds`) and
acts through its `context`. `scenarios`, `leaderships`, `elections`, `sessions`, `stops` and
`unregistered` have sequences that no single draw brings about. The fault budget decides what a
power loss may lose; `sim/profiles` has the weights.
"""

from tidelog.sim.faults.kinds import KINDS, SCENARIOS, Kind
from tidelog.sim.faults.scheduler import Faults

__all__ = ["KINDS", "SCENARIOS", "Faults", "Kind"]
