"""Writes of a decision to the store, and their outcomes.

Each concern of the controller (topics, partitions, elections, ...) defines its writes.
`tidelog.broker.controller` turns each write into operations on the store and reports the outcomes
in order. An outcome is `Written`, or `Conflict` with the present content of the node.
"""

from __future__ import annotations

from tidelog.controller.records import LastProducerId
from tidelog.controller.settlement import Settlement
from tidelog.core.dataclass import dataclass
from tidelog.core.types import PartitionState


@dataclass(frozen=True, slots=True)
class Written:
    """Outcome of a durable write; `mzxid` is the transaction that wrote the state node, if any."""

    mzxid: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """Outcome of a write that the store rejected, because the node was not as expected.

    `state` is the content of a state node, None if the node is gone or cannot be read (`reason`).
    `producer_ids` is the content of the node of producer ids, None if this node is gone or cannot
    be read.
    """

    state: PartitionState | None = None
    producer_ids: LastProducerId | None = None
    reason: str = "the node has gone"


Outcome = Written | Conflict


class Write:
    """A conditional write to the store, which a decision requests."""

    __slots__ = ()

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Apply the outcome to the image, if the image has the written object."""
