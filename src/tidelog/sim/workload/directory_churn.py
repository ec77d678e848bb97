"""Churn of log directories: moves within brokers (D11), drains and balancing (D12, D15).

All brokers get requests to move replicas, also to the current directory, to directories that do not
exist, and for replicas that they do not have. Meanwhile, the rates of moves change. After the
faults the rates are removed, and every move must end: no broker has a future replica any more.

Like `tidelog log-dirs drain`, the operator sets a drain and a cordon of a directory in one request,
and later ends both. Faults of the broker do not keep the operator from this. Balancing is enabled
and disabled, with limits that change. Some directories stay drained after the faults, and must be
empty at the end.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from tidelog.client.configs import BROKER, ConfigResource
from tidelog.client.directory_moves import DirectoryMoveAdmin
from tidelog.core.errors import ErrorCode
from tidelog.core.throttle_keys import DIRECTORY_MOVE_RATE
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.work import Workload

#: Rates of moves in bytes a second; 0 stops all moves until the rate changes.
_MOVE_RATES: Final = (0, 3_000, 20_000, 200_000)
_RATE_SHARE: Final = 0.1
_UNKNOWN_SHARE: Final = 0.05
_CORDONED: Final = "cordoned.log.dirs"
_DRAINING: Final = "draining.log.dirs"
_BALANCE: Final = "log.dir.balance.enable"
#: Rates of balancing in bytes a second. The lowest rate is so low that a balancing move takes long.
_BALANCE_RATES: Final = (500, 5_000, 50_000)
_LAST_RATE: Final = 200_000
_DRAINS: Final = 0.45
_CANCELS: Final = 0.3
_CORDONS: Final = 0.1
#: Share of the brokers that have a drained directory at the end.
_DRAINED: Final = 0.6


@churn_of_profiles
class DirectoriesChanged(ChurnKind):
    """Requests to move random replicas between the log directories of their brokers."""

    pause_ms = 5, 600

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._moves = DirectoryMoveAdmin(self.client.router)

    async def act(self) -> None:
        broker_id = self.draw.choice(list(self.work.cluster.brokers))
        if self.draw.random() < _RATE_SHARE:
            await self._set_rate(broker_id, str(self.draw.choice(_MOVE_RATES)))
        else:
            await self._move(broker_id)

    async def finish(self) -> None:
        for broker_id in self.work.cluster.brokers:
            await self.until_done(partial(self._set_rate, broker_id, None))

    async def _move(self, broker_id: int) -> None:
        draw, broker = self.draw, self.work.cluster.brokers[broker_id]
        known = dict.fromkeys([*self.work.steady, *(name for name, _ in broker.hosted())])
        some = draw.sample(list(known), draw.randrange(1, min(4, len(known)) + 1))
        asked = {each: self._path() for each in some}
        with self.tried(f"moves within broker {broker_id}", forgets=True):
            outcomes = await self.client.run(self._moves.move(broker_id, asked))
            begun = [str(tp) for tp, outcome in outcomes.items() if outcome is ErrorCode.NONE]
            self.succeeded(f"broker {broker_id}: {begun} of {len(asked)}")
            for tp, outcome in outcomes.items():
                is_known = asked[tp] in self.work.cluster.settings.log_directories
                if (outcome is ErrorCode.LOG_DIR_NOT_FOUND) == is_known:
                    violation = f"{tp} to {asked[tp]}: {outcome.name} (D11)"
                    self.work.cluster.simulator.violate(violation)

    def _path(self) -> str:
        if self.draw.random() < _UNKNOWN_SHARE:
            return "/nowhere"
        return self.draw.choice(self.work.cluster.settings.log_directories)

    async def _set_rate(self, broker_id: int, rate: str | None) -> bool:
        """Set or remove the rate of a broker; return whether the request is acknowledged."""
        what = f"the rate of moves of broker {broker_id}"
        resource = ConfigResource(BROKER, str(broker_id))
        return await self.alter(resource, {DIRECTORY_MOVE_RATE: rate}, what, f": {rate}")

    def unsettled(self) -> str:
        return self.work.cluster.future_replica()


@churn_of_profiles
class DirectoriesDrained(ChurnKind):
    """Drains of log directories, and balancing between them, which begin and end at any time."""

    pause_ms = 50, 900

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._brokers = list(work.cluster.brokers)
        #: By broker, the directory that stays drained until the end.
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
            rate = str(draw.choice(_BALANCE_RATES))
            await self._set(broker_id, {_BALANCE: enable, DIRECTORY_MOVE_RATE: rate})

    async def finish(self) -> None:
        for broker_id in self._brokers:
            # If a broker has only one directory, it cannot be drained.
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
        """Return a random part of the log directories: often none, sometimes some, seldom all."""
        directories = self.work.cluster.settings.log_directories
        return self.draw.sample(directories, max(0, self.draw.randrange(-2, len(directories) + 1)))

    async def _set(self, broker_id: int, values: dict[str, str]) -> bool:
        """Set configuration keys of a broker in one request; return whether it is acknowledged."""
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
