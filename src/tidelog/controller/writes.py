"""What a decision writes to the store, and what became of it.

Each concern defines its writes. The writer turns each into operations on the store and reports an
outcome for each, in order: `Written`, or `Conflict` with what the node holds instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.controller.records import ProducerIds
from tidelog.controller.settlement import Settlement
from tidelog.core.types import PartitionState


@dataclass(frozen=True, slots=True)
class Written:
    """Durable; `mzxid` of the state node, by partition for a created topic."""

    mzxid: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """Not written: the node is not as expected. `state`: what a state node holds, None where it is
    gone or cannot be read (`reason`); `producer_ids` likewise."""

    state: PartitionState | None = None
    producer_ids: ProducerIds | None = None
    reason: str = "the node has gone"


Outcome = Written | Conflict


class Write:
    """A conditional write of a decision."""

    __slots__ = ()

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Take over what became of it; nothing where the image does not know the node."""
