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

    `state` is the content that the partition's state node has instead of the expected content.
    `state` is None if the node is gone or cannot be read; `reason` then says why. `producer_ids` is
    the same for a write to the node of producer ids.
    """

    state: PartitionState | None = None
    producer_ids: LastProducerId | None = None
    reason: str = "the node has gone"


Outcome = Written | Conflict


class Write:
    """A conditional write to the store, which a decision requests."""

    __slots__ = ()

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Apply the outcome of this write to the image, if the image has the written object."""
