"""Faults drawn from the seed: which kinds a run has, how often, whom they strike, for how long.

`scheduler` decides when and which; each kind is a function of one of the families `network`,
`store`, `clocks`, `processes` and `disks`, registered by its name (`kinds`), and acts through its
`context`. `scenarios` are sequences that no single draw brings about. What a power loss may take is
decided by the fault budget; `sim/profiles` has the weights.
"""

from tidelog.sim.faults.kinds import KINDS, SCENARIOS, Kind
from tidelog.sim.faults.scheduler import Faults

__all__ = ["KINDS", "SCENARIOS", "Faults", "Kind"]
