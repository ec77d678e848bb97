"""What models of a whole cluster have in common: replicas, their logs, what was committed."""

from __future__ import annotations

from tests.support.models.explorer import State, Table
from tests.support.models.moving_replicas import MovingReplica
from tests.support.models.replicas import Log, Replica, Replicas

from tidelog.controller.commands import Commands
from tidelog.core.types import BrokerInfo

#: The number of a part that is not there.
NOTHING = -1


class ClusterStates:
    """Tables of the parts that the states of such a model name by their numbers."""

    def __init__(self) -> None:
        #: Records that were committed.
        self.logs: Table[Log] = Table()
        #: Invariants that were found broken on the way.
        self.faults: Table[tuple[str, ...]] = Table()
        self.replicas = Replicas(one_life=False)
        self.commands: Table[Commands] = Table()
        self._infos: dict[int, dict[int, BrokerInfo]] = {}

    def keep(self, replica: Replica | None) -> int:
        """The number of a broker's replica, NOTHING for none."""
        return NOTHING if replica is None else self.replicas.keep(replica)

    def replica(self, part: int) -> MovingReplica | None:
        """The replica of a number."""
        if part == NOTHING:
            return None
        found = self.replicas.values[part]
        assert isinstance(found, MovingReplica)
        return found

    def faults_with(self, faults: int, name: str) -> int:
        """The number of the broken invariants, with one more."""
        found = tuple(dict.fromkeys((*self.faults.values[faults], name)))
        return self.faults.number(found, found)

    def committed_with(self, committed: int, part: int) -> int | None:
        """The number of what is committed, with what a replica as leader commits.

        None where the leader has other records than those.
        """
        replica = self.replica(part)
        if replica is None or replica.leading is None:
            return committed
        now, known = replica.committed(), self.logs.values[committed]
        shared = min(len(now), len(known))
        if now[:shared] != known[:shared]:
            return None
        return self.logs.number(now, now) if len(now) > len(known) else committed

    def canonical(self, state: State) -> State:
        """Return a state as it is: no two states are equivalent."""
        return state
