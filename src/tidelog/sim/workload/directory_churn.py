"""Churn of replicas' log directories: an administrator moves them within their brokers (D11).

Requests go to all brokers at any time: for other directories, for the present one, for replicas
that are not there, for directories that do not exist. Rates are set and changed meanwhile. After
the faults the rates are removed, and every move must end: no broker has a future replica any more.
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
from tidelog.client.directory_moves import DirectoryMoveAdmin
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.throttle_keys import DIRECTORY_MOVE_RATE
from tidelog.sim.workload.churning import ChurnKind, Work, churn

#: Bytes a second; 0 holds all moves until it changes.
_RATES: Final = (0, 3_000, 20_000, 200_000)
_RATE_SHARE: Final = 0.1
_UNKNOWN_SHARE: Final = 0.05


@churn
class DirectoriesChanged(ChurnKind):
    """Moves of any replicas between the log directories of their brokers."""

    name: ClassVar[str] = "directories_changed"
    is_drawn: ClassVar[bool] = False

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._admin = DirectoryMoveAdmin(self.client.router)
        self._configs = ConfigAdmin(self.client.router)

    async def run(self) -> None:
        while not self.stopping:
            await self.pause(5, 600)
            broker_id = self.draw.choice(list(self.work.cluster.brokers))
            if self.draw.random() < _RATE_SHARE:
                await self._set_rate(broker_id, str(self.draw.choice(_RATES)))
                continue
            await self._move(broker_id)
        for broker_id in self.work.cluster.brokers:
            while not await self._set_rate(broker_id, None):
                self.client.router.forget()
                await self.pause(50, 300)
        self.is_done = True

    async def _move(self, broker_id: int) -> None:
        draw, broker = self.draw, self.work.cluster.brokers[broker_id]
        known = dict.fromkeys([*self.work.steady, *(name for name, _ in broker.hosted())])
        some = draw.sample(list(known), draw.randrange(1, min(4, len(known)) + 1))
        asked = {each: self._path() for each in some}
        try:
            outcomes = await self.client.run(self._admin.move(broker_id, asked))
        except TidelogError as error:
            self.failed(f"moves within broker {broker_id}", error)
            self.client.router.forget()
            return
        begun = [str(tp) for tp, outcome in outcomes.items() if outcome is ErrorCode.NONE]
        self.succeeded(f"broker {broker_id}: {begun} of {len(asked)}")
        for tp, outcome in outcomes.items():
            is_known = asked[tp] in self.work.cluster.settings.log_directories
            if (outcome is ErrorCode.LOG_DIR_NOT_FOUND) == is_known:
                self.work.cluster.simulator.violate(f"{tp} to {asked[tp]}: {outcome.name} (D11)")

    def _path(self) -> str:
        if self.draw.random() < _UNKNOWN_SHARE:
            return "/nowhere"
        return self.draw.choice(self.work.cluster.settings.log_directories)

    async def _set_rate(self, broker_id: int, rate: str | None) -> bool:
        """Set or remove the rate of a broker; return whether that is acknowledged."""
        operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET
        change = ConfigChange(operation, DIRECTORY_MOVE_RATE, rate)
        resource = ConfigResource(BROKER, str(broker_id))
        try:
            await self.client.run(self._configs.alter(resource, [change], False))
        except TidelogError as error:
            self.failed(f"the rate of moves of broker {broker_id}", error)
            return False
        self.succeeded(f"the rate of moves of broker {broker_id}: {rate}")
        return True

    def unsettled(self) -> str:
        for broker_id, node in self.work.cluster.brokers.items():
            if node.broker is None:
                continue
            for directory in node.broker.replicas.directories:
                for tp in directory.future_logs.found:
                    return f"broker {broker_id} has a future replica of {tp} in {directory.path}"
        return ""
