"""MarkLogDirsBad (key 20006), version 0: log directories are given up as if they had failed (D12).

tidelog's own API, served and advertised on the listener between brokers only (G5). The replicas in
such a directory are offline until the broker restarts; others lead. A directory that has failed
already gets no error, one that the broker does not have LOG_DIR_NOT_FOUND, and its last good one
INVALID_REQUEST: the broker would end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.mark_log_dirs_bad import (
    MarkedLogDir,
    MarkLogDirsBadRequest,
    MarkLogDirsBadResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=20_006, min_version=0, max_version=0)


def handle(context: ApiContext, request: Request[MarkLogDirsBadRequest]) -> MarkLogDirsBadResponse:
    """Give the directories up, one after the other."""
    return MarkLogDirsBadResponse(
        results=[_mark(context, path) for path in dict.fromkeys(request.message.log_dirs)]
    )


def _mark(context: ApiContext, path: str) -> MarkedLogDir:
    replicas = context.replicas
    if path in replicas.failed:
        return MarkedLogDir(path)
    good = [each for each in replicas.directories if each.path not in replicas.failed]
    found = next((each for each in good if each.path == path), None)
    broker = f"broker {context.services.broker_id}"
    if found is None:
        known = ", ".join(each.path for each in good)
        return MarkedLogDir(
            path, ErrorCode.LOG_DIR_NOT_FOUND, f"{broker} has no log directory {path}: {known}"
        )
    if len(good) == 1:
        return MarkedLogDir(
            path,
            ErrorCode.INVALID_REQUEST,
            f"{path} is the last good log directory of {broker}, which would end: move its"
            " replicas to other brokers and stop it instead",
        )
    found.mark_bad()
    return MarkedLogDir(path)
