"""Faults: the seed of a run determines their kinds, frequency, targets and duration.

`scheduler` decides when each fault happens. `kinds` is the registry of faults; the functions of
faults get a `context`, by which they act. The fault budget limits what a power loss may lose;
`sim/profiles` has the frequency of each kind of fault.

Modules of the kinds of faults: `network`, `store`, `clocks`, `processes`, `disks`, `log_dirs`,
`rogues`.

Scenarios are sequences of faults that would seldom happen if each fault were drawn independently:
`scenarios`, `leaderships`, `elections`, `restarts`, `stale_members`.
"""

from tidelog.sim.faults.kinds import KINDS, SCENARIOS, FaultKind
from tidelog.sim.faults.scheduler import Faults

__all__ = ["KINDS", "SCENARIOS", "Faults", "FaultKind"]
