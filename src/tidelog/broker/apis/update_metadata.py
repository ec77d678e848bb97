"""UpdateMetadata (key 6), versions 6 to 8: the controller publishes the cluster's state.

The request carries published state for this broker's view (V17, V82). The broker refuses a request
of an older controller with STALE_CONTROLLER_EPOCH, and a request for an earlier registration of
this broker with STALE_BROKER_EPOCH. A request that arrives after a later command of the same
controller gets OPERATION_NOT_ATTEMPTED (V30).
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import CLUSTER_ACTION
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

CARD = Card(api_key=6, min_version=6, max_version=8, inter_broker=True, rights=(CLUSTER_ACTION,))


def handle(context: ApiContext, request: Request[UpdateMetadataRequest]) -> UpdateMetadataResponse:
    """Apply the controller's published state to this broker's view."""
    message = request.message
    if context.replicas.is_overtaken(request):
        return UpdateMetadataResponse(error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    error = context.replicas.check_controller(
        message.controller_id, message.controller_epoch, message.broker_epoch
    )
    if not error:
        before = context.services.view.brokers
        gone = context.services.view.apply(message)
        if context.services.view.brokers.keys() != before.keys():
            context.services.tracer.event(
                "brokers_told", brokers=tuple(context.services.view.brokers)
            )
        context.alter_partition_manager.controller_changed()
        context.foreign_isr_changes.published(message)
        context.controlled_shutdown.view_changed()
        context.store_marked(message.store_mark)
        context.replicas.view_changed()
        context.held_answers.view_changed(before)
        if not context.admission.is_open:
            context.admission.changed()
        context.groups.ended(gone)
    return UpdateMetadataResponse(error_code=error)
