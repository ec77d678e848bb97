"""Phases after the faults: a part of the cluster stays broken, and the other parts must work.

Without such phases, the final checks would always see all brokers up and all directories working. A
profile may have the name of a phase, which `sim.run` then plays before the final phase.

`stage` has the parts of a run that phases use, and waits with a limit. The phases: `absence` (of a
host, or of a directory), `full_directory`, `slow_directory`. `rereading` has consumers, for several
phases, that read every partition again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.sim.phases import absence, full_directory, slow_directory
from tidelog.sim.phases.stage import LIVENESS_LIMIT_NS, Stage

__all__ = ["LIVENESS_LIMIT_NS", "PHASES", "Stage"]

#: By the name of a phase in profiles, the function that plays the phase. The function returns False
#: after a violation.
PHASES: Final[Mapping[str, Callable[[Stage], bool]]] = {
    "absence": absence.play_host,
    "offline directory": absence.play_directory,
    "full directory": full_directory.play,
    "slow directory": slow_directory.play,
}
