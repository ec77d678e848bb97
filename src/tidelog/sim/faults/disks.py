"""Faults of brokers' disks.

Disks become slow and quick again; what they lose with the power is the cluster's business (the
fault budget), and what of it survives `sim/disk` draws.
"""

from __future__ import annotations

from tidelog.sim.faults.kinds import kind
from tidelog.sim.faults.stage import Stage


@kind
def slow_disk(stage: Stage) -> bool:
    """Operations on a broker's disk take long for a while."""
    broker = stage.any_broker()
    if broker is None:
        return False
    disk = broker.logs.disk
    disk.slow = True
    stage.note(f"slow disk of {broker.node_id}")

    def quick() -> None:
        if disk.slow:
            disk.slow = False
            stage.note(f"disk of {broker.node_id} is quick again")

    stage.later(stage.draw.uniform(100, 2_500), quick)
    stage.at_end(quick)
    return True
