"""AlterStrays (key 20002), version 0: delete or restore replicas that were set aside (V35).

An API of ours, served and advertised on the listener between brokers only (G5). Each stray has its
own outcome; a restored one takes its role with the controller's next command, which is asked for.
Not supported: strays without the file that tells how far they were flushed are deleted only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.wire.messages.alter_strays import AlterStraysRequest

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=20_002, min_version=0, max_version=0)


def handle(context: ApiContext, request: Request[AlterStraysRequest]) -> Pending:
    """One after the other, between two commands of the controller."""
    return context.dispatcher.answer_from(context.strays.alter(request.message), request)
