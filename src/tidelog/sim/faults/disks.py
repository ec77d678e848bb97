"""Faults of brokers' disks."""

from __future__ import annotations

from typing import Final

from tidelog.sim.cluster import SimBroker
from tidelog.sim.faults.kinds import kind
from tidelog.sim.faults.stage import Stage

#: Where a directory is that was taken away.
_AWAY: Final = "/away"


def take_away(stage: Stage, broker: SimBroker, name: str) -> bool:
    """A broker that is down finds a directory of its log directory missing when it begins; False
    where it had none of that name."""
    disk = broker.logs.disk
    path = f"{disk.root}/{name}"
    if disk.find(path) is None:
        return False
    stage.note(f"{path} of {broker.node_id} is away")
    _move(broker, path, f"{_AWAY}/{name}")
    return True


def put_back(stage: Stage, broker: SimBroker, name: str) -> None:
    """What was taken away from a broker, which is down, is there again."""
    path = f"{broker.logs.disk.root}/{name}"
    stage.note(f"{path} of {broker.node_id} is back")
    _move(broker, f"{_AWAY}/{name}", path)


def _move(broker: SimBroker, old: str, new: str) -> None:
    """No power loss takes it back."""
    disk = broker.logs.disk
    disk.make_directories(_AWAY)
    disk.rename(old, new)
    for directory in ("/", _AWAY, disk.root):
        disk.sync_directory(directory)


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
        disk.slow = False

    stage.later(stage.draw.uniform(100, 2_500), quick)
    stage.at_end(quick)
    return True
