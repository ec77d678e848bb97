"""UpdateMetadata (key 6), versions 6 to 8; from the controller.

Published state for this broker's view (V17, V82). A request of an older controller is refused
with STALE_CONTROLLER_EPOCH, one for an earlier registration of this broker with STALE_BROKER_EPOCH,
one that comes behind a later command of the same controller with OPERATION_NOT_ATTEMPTED (V30).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=6, min_version=6, max_version=8, inter_broker=True)


def handle(broker: Broker, request: Request) -> UpdateMetadataResponse:
    """Take over what the controller tells."""
    message: UpdateMetadataRequest = request.message
    if broker.replicas.is_overtaken(request):
        return UpdateMetadataResponse(error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    error = broker.replicas.check_controller(
        message.controller_id, message.controller_epoch, message.broker_epoch
    )
    if not error:
        before = broker.view.brokers.keys()
        gone = broker.view.apply(message)
        if broker.view.brokers.keys() != before:
            broker.tracer.event("brokers_told", brokers=tuple(broker.view.brokers))
        broker.replicas.view_changed()
        if not broker.admission.is_open:
            broker.admission.changed()
        if gone.topics:
            broker.groups.topics_deleted(gone.topics)
        if gone.partitions:
            broker.groups.partitions_removed(gone.partitions)
    return UpdateMetadataResponse(error_code=error)
