"""Churn of replicas' log directories: an administrator moves them within their brokers (D11).

Requests go to all brokers at any time: for other directories, for the present one, for replicas
that are not there, for directories that do not exist. Rates are set and changed meanwhile. After
the faults the rates are removed, and every move must end: no broker has a future replica any more.
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

#: Bytes a second; 0 holds all moves until it changes.
_RATES: Final = (0, 3_000, 20_000, 200_000)
_RATE_SHARE: Final = 0.1
_UNKNOWN_SHARE: Final = 0.05


@churn_of_profiles
class DirectoriesChanged(ChurnKind):
    """Moves of any replicas between the log directories of their brokers."""

    pause_ms = 5, 600

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._moves = DirectoryMoveAdmin(self.client.router)

    async def act(self) -> None:
        broker_id = self.draw.choice(list(self.work.cluster.brokers))
        if self.draw.random() < _RATE_SHARE:
            await self._set_rate(broker_id, str(self.draw.choice(_RATES)))
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
        """Set or remove the rate of a broker; return whether that is acknowledged."""
        what = f"the rate of moves of broker {broker_id}"
        resource = ConfigResource(BROKER, str(broker_id))
        return await self.alter(resource, {DIRECTORY_MOVE_RATE: rate}, what, f": {rate}")

    def unsettled(self) -> str:
        return self.work.cluster.future_replica()
