"""Phases after the faults: a part of the cluster stays broken, and the other parts must work.

Without phases in which a part stays broken, every run would end with all brokers up and all
directories good. A profile names its phase, and `sim.run` plays it before the final phase.

`stage` has the parts of a run and the waits that all phases use. The phases: `absence` (of a host,
or of a directory), `full_directory`, `slow_directory`. `rereading` serves several phases: its
consumers read every partition again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.sim.phases import absence, full_directory, slow_directory
from tidelog.sim.phases.stage import LIVENESS_LIMIT_NS, Stage

__all__ = ["LIVENESS_LIMIT_NS", "PHASES", "Stage"]

#: Function that plays each phase, by its name in profiles; it returns whether no invariant was
#: violated.
PHASES: Final[Mapping[str, Callable[[Stage], bool]]] = {
    "absence": absence.play_host,
    "offline directory": absence.play_directory,
    "full directory": full_directory.play,
    "slow directory": slow_directory.play,
}
