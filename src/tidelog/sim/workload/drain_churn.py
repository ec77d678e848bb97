"""Churn of drains and balancing: an operator sets them, and takes them back (D12, D15).

As `tidelog log-dirs drain` does, the operator sets a drain and a cordon in one request, of brokers
that are in trouble too, and ends both later. Balancing is enabled and disabled, with limits that
change. After the faults some directories stay drained, and must be empty in the end.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from tidelog.client.configs import BROKER, ConfigResource
from tidelog.core.throttle_keys import DIRECTORY_MOVE_RATE
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.work import Workload

_CORDONED: Final = "cordoned.log.dirs"
_DRAINING: Final = "draining.log.dirs"
_BALANCE: Final = "log.dir.balance.enable"
#: Bytes a second; the first lets no move end in a while.
_RATES: Final = (500, 5_000, 50_000)
_LAST_RATE: Final = 200_000
_DRAINS: Final = 0.45
_CANCELS: Final = 0.3
_CORDONS: Final = 0.1
#: Share of the brokers that have a drained directory in the end.
_DRAINED: Final = 0.6


@churn_of_profiles
class DirectoriesDrained(ChurnKind):
    """Drains of log directories, their ends, and balancing that comes and goes."""

    pause_ms = 50, 900

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._brokers = list(work.cluster.brokers)
        #: The directories that stay drained in the end, by broker.
        self._drained: dict[int, str] = {}

    async def act(self) -> None:
        draw = self.draw
        broker_id, roll = draw.choice(self._brokers), draw.random()
        if roll < _DRAINS:
            path = self._path()
            cordoned = dict.fromkeys([path, *self._paths()])
            await self._set(broker_id, {_CORDONED: ",".join(cordoned), _DRAINING: path})
        elif roll < _DRAINS + _CANCELS:
            await self._set(broker_id, {_CORDONED: "", _DRAINING: ""})
        elif roll < _DRAINS + _CANCELS + _CORDONS:
            await self._set(broker_id, {_CORDONED: ",".join(self._paths())})
        else:
            enable = draw.choice(("true", "true", "false"))
            rate = str(draw.choice(_RATES))
            await self._set(broker_id, {_BALANCE: enable, DIRECTORY_MOVE_RATE: rate})

    async def finish(self) -> None:
        for broker_id in self._brokers:
            # The only directory of a broker cannot be drained.
            is_drained = self.draw.random() < _DRAINED and self.work.cluster.settings.log_dirs > 1
            path = self._path() if is_drained else ""
            values = {_CORDONED: path, _DRAINING: path}
            values |= {_BALANCE: "true", DIRECTORY_MOVE_RATE: str(_LAST_RATE)}
            await self.until_done(partial(self._set, broker_id, values))
            if path:
                self._drained[broker_id] = path

    def _path(self) -> str:
        return self.draw.choice(self.work.cluster.settings.log_directories)

    def _paths(self) -> list[str]:
        """Return some directories, seldom all, mostly none."""
        directories = self.work.cluster.settings.log_directories
        return self.draw.sample(directories, max(0, self.draw.randrange(-2, len(directories) + 1)))

    async def _set(self, broker_id: int, values: dict[str, str]) -> bool:
        """Set keys of a broker in one request; return whether that is acknowledged."""
        resource = ConfigResource(BROKER, str(broker_id))
        return await self.alter(resource, values, f"{values} of broker {broker_id}")

    def unsettled(self) -> str:
        for broker_id, node in self.work.cluster.brokers.items():
            drained = self._drained.get(broker_id)
            for directory in () if node.broker is None else node.broker.replicas.directories:
                if directory.path == drained and directory.logs:
                    tp = next(iter(directory.logs))
                    return f"broker {broker_id} has {tp} in {directory.path}, which is drained"
        return self.work.cluster.future_replica()
