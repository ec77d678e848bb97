"""PlanLogDirMoves (key 20007), version 0: preview moves between log directories (D12, D15).

This API is tidelog's own; brokers serve and advertise it on the inter-broker listener only (G5). A
drain moves every replica out of some directories; balancing evens out the space of the volumes. The
broker computes the plan as for real moves, but starts no move. The drain of an unknown directory
gets LOG_DIR_NOT_FOUND. The response is INVALID_REQUEST if a directory to drain has failed, if no
other directory can take the replicas, or if the threshold is not a percentage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.log_dir_keys import takes_no_new
from tidelog.wire.messages.plan_log_dir_moves import (
    OWN_THRESHOLD,
    PlanLogDirMovesRequest,
    PlanLogDirMovesResponse,
    PlannedLogDirMove,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=20_007, min_version=0, max_version=0, rights=(DESCRIBE_CLUSTER,))

_MOST_PERCENT = 100


def handle(context: ApiContext, request: Request[PlanLogDirMovesRequest]) -> Pending:
    """Read the sizes of the volumes, and plan moves of replicas between log directories."""
    return context.dispatcher.answer_from(_plan(context, request.message), request)


async def _plan(context: ApiContext, message: PlanLogDirMovesRequest) -> PlanLogDirMovesResponse:
    replicas = context.replicas
    try:
        if message.log_dirs:
            check_drain(context, message.log_dirs)
            planned = await replicas.drains.preview(message.log_dirs)
        else:
            planned = await replicas.balance.preview(_threshold(message))
    except KafkaError as error:
        return PlanLogDirMovesResponse(error_code=error.code, error_message=error.message)
    return PlanLogDirMovesResponse(
        moves=[
            PlannedLogDirMove(
                topic=each.replica.topic,
                partition=each.replica.partition,
                source=each.source,
                target=each.target,
                size_bytes=each.size_bytes,
                reason=each.reason,
            )
            for each in planned
        ]
    )


def _threshold(message: PlanLogDirMovesRequest) -> int | None:
    percent = message.threshold_percent
    if percent == OWN_THRESHOLD:
        return None
    if not 1 <= percent <= _MOST_PERCENT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the threshold {percent} is no percentage: 1 to {_MOST_PERCENT} expected",
        )
    return percent


def check_drain(context: ApiContext, paths: Sequence[str]) -> None:
    """Raise KafkaError unless other directories can take the replicas of these directories."""
    replicas, config = context.replicas, context.services.config
    broker = f"broker {context.services.broker_id}"
    good = [each.path for each in replicas.directories if each.path not in replicas.failed]
    for path in paths:
        if path in replicas.failed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"log directory {path} of {broker} has failed, and its replicas are offline: take"
                " it out of log.dirs, and they are made again elsewhere",
            )
        if path not in good:
            raise KafkaError(
                ErrorCode.LOG_DIR_NOT_FOUND,
                f"{broker} has no log directory {path:.300}: {', '.join(good)}",
            )
    others = [path for path in good if path not in paths]
    if not others:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{', '.join(paths)} cannot be drained: {broker} has no other good log directory; move"
            " its replicas to other brokers with `tidelog reassign`",
        )
    cordoned, draining = config.cordoned_log_dirs, config.draining_log_dirs
    if all(takes_no_new(path, cordoned, draining) for path in others):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{', '.join(paths)} cannot be drained: all other good log directories of {broker} are"
            f" cordoned or drained: {', '.join(others)}; uncordon one first",
        )
