"""Churn of drains and balancing: an operator sets them, and takes them back (D12, D15).

As `tidelog log-dirs drain` does, the operator sets a drain and a cordon in one request, of brokers
that are in trouble too, and ends both later. Balancing is enabled and disabled, with limits that
change. After the faults some directories stay drained, and must be empty in the end.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final

from tidelog.client.configs import (
    BROKER,
    ConfigAdmin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
)
from tidelog.core.errors import TidelogError
from tidelog.core.throttle_keys import DIRECTORY_MOVE_RATE
from tidelog.sim.workload.churning import ChurnKind, Work, churn

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


@churn
class DirectoriesDrained(ChurnKind):
    """Drains of log directories, their ends, and balancing that comes and goes."""

    name: ClassVar[str] = "directories_drained"
    is_drawn: ClassVar[bool] = False

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._configs = ConfigAdmin(self.client.router)
        #: The directories that stay drained in the end, by broker.
        self._drained: dict[int, str] = {}

    async def run(self) -> None:
        draw, brokers = self.draw, list(self.work.cluster.brokers)
        while not self.stopping:
            await self.pause(50, 900)
            broker_id, roll = draw.choice(brokers), draw.random()
            if roll < _DRAINS:
                path = self._path()
                cordoned = dict.fromkeys([path, *self._paths()])
                values = {_CORDONED: ",".join(cordoned), _DRAINING: path}
                await self._set(broker_id, values)
            elif roll < _DRAINS + _CANCELS:
                await self._set(broker_id, {_CORDONED: "", _DRAINING: ""})
            elif roll < _DRAINS + _CANCELS + _CORDONS:
                await self._set(broker_id, {_CORDONED: ",".join(self._paths())})
            else:
                enable = draw.choice(("true", "true", "false"))
                rate = str(draw.choice(_RATES))
                await self._set(broker_id, {_BALANCE: enable, DIRECTORY_MOVE_RATE: rate})
        for broker_id in brokers:
            # The only directory of a broker cannot be drained.
            is_drained = draw.random() < _DRAINED and self.work.cluster.settings.log_dirs > 1
            path = self._path() if is_drained else ""
            values = {_CORDONED: path, _DRAINING: path}
            values |= {_BALANCE: "true", DIRECTORY_MOVE_RATE: str(_LAST_RATE)}
            while not await self._set(broker_id, values):
                self.client.router.forget()
                await self.pause(50, 300)
            if path:
                self._drained[broker_id] = path
        self.is_done = True

    def _path(self) -> str:
        return self.draw.choice(self.work.cluster.settings.log_directories)

    def _paths(self) -> list[str]:
        """Return some directories, seldom all, mostly none."""
        directories = self.work.cluster.settings.log_directories
        return self.draw.sample(directories, max(0, self.draw.randrange(-2, len(directories) + 1)))

    async def _set(self, broker_id: int, values: dict[str, str]) -> bool:
        """Set keys of a broker in one request; return whether that is acknowledged."""
        changes = [ConfigChange(ConfigOperation.SET, name, value) for name, value in values.items()]
        resource = ConfigResource(BROKER, str(broker_id))
        try:
            await self.client.run(self._configs.alter(resource, changes, False))
        except TidelogError as error:
            self.failed(f"{values} of broker {broker_id}", error)
            return False
        self.succeeded(f"{values} of broker {broker_id}")
        return True

    def unsettled(self) -> str:
        for broker_id, node in self.work.cluster.brokers.items():
            if node.broker is None:
                continue
            drained = self._drained.get(broker_id)
            for directory in node.broker.replicas.directories:
                for tp in directory.future_logs.found:
                    return f"broker {broker_id} has a future replica of {tp} in {directory.path}"
                if directory.path == drained and directory.logs:
                    tp = next(iter(directory.logs))
                    return f"broker {broker_id} has {tp} in {directory.path}, which is drained"
        return ""
