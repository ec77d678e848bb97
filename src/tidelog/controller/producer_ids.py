"""Allocation of producer id blocks to brokers (G3).

One write of a decision covers all brokers that request producer ids. If the write conflicts,
another writer has allocated ids, and the controller handles the requests again with the node's new
content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.controller.answers import Answer, Precedence, Result
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.records import LastProducerId
from tidelog.controller.settlement import Settlement
from tidelog.controller.writes import Conflict, Outcome, Write
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import PRODUCER_ID_BLOCK_SIZE
from tidelog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

_MAX_PRODUCER_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdsRead(Event):
    """Event: the controller has read `/latest_producer_id_block`; None if unreadable."""

    found: LastProducerId | None


@dataclass(frozen=True, slots=True)
class ProducerIdsAsked(Event):
    """A broker's request for a block of producer ids (G3)."""

    ticket: int
    request: AllocateProducerIdsRequest


@dataclass(frozen=True, slots=True)
class ProducerIdsFound(Change):
    """Change: `/latest_producer_id_block` has new content; None if the node cannot be read."""

    found: LastProducerId | None

    def apply(self, image: Image) -> None:
        """Keep the last allocated producer id."""
        image.producer_ids = self.found


@dataclass(frozen=True, slots=True)
class TakeProducerIds(Write):
    """Record in the store that producer ids up to `last` are allocated.

    Broker `broker_id` gets the ids from `first` to `last`.
    """

    broker_id: int
    first: int
    last: int
    expected_version: int

    def __post_init__(self) -> None:
        assert 0 <= self.first <= self.last <= _MAX_PRODUCER_ID, f"no block: {self}"

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Record the last allocated id in the image."""
        if isinstance(outcome, Conflict):
            settlement.apply(ProducerIdsFound(outcome.producer_ids))
        else:
            taken = LastProducerId(self.last, self.expected_version + 1)
            settlement.apply(ProducerIdsFound(taken))


def give_producer_ids(asked: Iterable[ProducerIdsAsked], draft: Draft) -> None:
    """Allocate a block to each request; one write covers all of them.

    If the write conflicts, the controller handles the requests again.
    """
    found = draft.image.producer_ids
    last = None if found is None else found.last_id
    taken: TakeProducerIds | None = None
    given: list[Result[int]] = []
    for event in asked:
        result = Result(0)  # the first id of the block
        answer = Answer[int](event.ticket, Precedence.PRODUCER_IDS, _response, again=event)
        answer.results.append(result)
        draft.answer(answer)
        sender = draft.image.brokers.get(event.request.broker_id)
        if sender is None:
            result.error = ErrorCode.BROKER_ID_NOT_REGISTERED
        elif sender.broker_epoch != event.request.broker_epoch:
            result.error = ErrorCode.STALE_BROKER_EPOCH
        elif last is None or found is None or last > _MAX_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
            result.error = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            result.subject = last + 1
            last += PRODUCER_ID_BLOCK_SIZE
            taken = TakeProducerIds(sender.broker_id, result.subject, last, found.version)
            given.append(result)
    if taken is not None:
        index = draft.add(taken)
        for result in given:
            result.write = index


def _response(results: Sequence[Result[int]]) -> AllocateProducerIdsResponse:
    [block] = results
    if block.error is not ErrorCode.NONE:
        return AllocateProducerIdsResponse(error_code=block.error)
    return AllocateProducerIdsResponse(
        producer_id_start=block.subject, producer_id_len=PRODUCER_ID_BLOCK_SIZE
    )
