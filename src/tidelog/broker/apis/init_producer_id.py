"""InitProducerId (key 22), versions 0 to 5: an id for an idempotent producer (G3).

The broker refuses transactional ids with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, like
FindCoordinator. A producer that sends its id and epoch (from version 3 on, KIP-360) gets a new id,
because the broker never has to fence a producer without a transactional id. If the controller
grants no block of ids in time, the error is COORDINATOR_LOAD_IN_PROGRESS, after which clients
retry.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

CARD = Card(
    api_key=22,
    min_version=0,
    max_version=5,
    rights=(WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE, WRITE_TOPIC),
)

_FIRST_EPOCH = 0
_NO_EPOCH = -1


def handle(
    context: ApiContext, request: Request[InitProducerIdRequest]
) -> Pending | InitProducerIdResponse:
    """Return an id from the current block, or wait for the next block."""
    message = request.message
    if message.transactional_id is not None:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (message.producer_id == -1) != (message.producer_epoch == _NO_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    taken = context.producer_ids.take()
    if taken is not None:
        return _granted(taken)
    return context.dispatcher.answer_from(_wait(context), request)


async def _wait(context: ApiContext) -> InitProducerIdResponse:
    taken = await context.producer_ids.wait()
    if taken is None:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return _granted(taken)


def _granted(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=_FIRST_EPOCH)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=_NO_EPOCH)
