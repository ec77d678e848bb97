"""MarkLogDirsBad (key 20006), version 0: take log directories offline as if they had failed (D12).

This API is tidelog's own; brokers serve and advertise it on the inter-broker listener only (G5).
The replicas in a directory that was taken offline stay offline until the broker restarts; the
controller elects other replicas as leaders. A directory that has already failed gets no error, and
an unknown directory gets LOG_DIR_NOT_FOUND. A request that names all remaining good directories
gets INVALID_REQUEST, because the broker would halt without a directory. If one directory of the
request is refused, all directories are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import ALTER_CLUSTER
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.mark_log_dirs_bad import (
    MarkedLogDir,
    MarkLogDirsBadRequest,
    MarkLogDirsBadResponse,
)

CARD = Card(api_key=20_006, min_version=0, max_version=0, rights=(ALTER_CLUSTER,))


def handle(context: ApiContext, request: Request[MarkLogDirsBadRequest]) -> MarkLogDirsBadResponse:
    """Take all of the directories offline, or none; only a restart brings a directory back."""
    paths = list(dict.fromkeys(request.message.log_dirs))
    refused = _refused(context, paths)
    if not refused:
        for directory in context.replicas.directories:
            if directory.path in paths and directory.path not in context.replicas.failed:
                directory.mark_bad()
        return MarkLogDirsBadResponse(results=[MarkedLogDir(path) for path in paths])
    first = next(iter(refused.values()))
    left = ErrorCode.INVALID_REQUEST, f"nothing is given up: {first.error_message}"
    return MarkLogDirsBadResponse(
        results=[
            MarkedLogDir(path)
            if path in context.replicas.failed
            else refused.get(path) or MarkedLogDir(path, *left)
            for path in paths
        ]
    )


def _refused(context: ApiContext, paths: Sequence[str]) -> dict[str, MarkedLogDir]:
    """Return the error of each path that cannot be taken offline."""
    replicas = context.replicas
    good = [each.path for each in replicas.directories if each.path not in replicas.failed]
    broker = f"broker {context.services.broker_id}"
    refused = {}
    for path in paths:
        if path not in good and path not in replicas.failed:
            why = f"{broker} has no log directory {path}: {', '.join(good)}"
            refused[path] = MarkedLogDir(path, ErrorCode.LOG_DIR_NOT_FOUND, why)
    if good and set(good) <= set(paths):
        last = (
            f"{good[0]} is the last good log directory"
            if len(good) == 1
            else f"{', '.join(good)} are all good log directories"
        )
        why = (
            f"{last} of {broker}, which would end: move its replicas to other brokers and stop it"
            " instead"
        )
        refused |= {path: MarkedLogDir(path, ErrorCode.INVALID_REQUEST, why) for path in good}
    return refused
