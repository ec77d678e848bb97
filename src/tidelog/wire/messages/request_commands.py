"""RequestCommands (key 20003), version 0: a broker asks the controller to resend all commands.

Only tidelog has this flexible API (G5). A broker that restored a stray replica sends the request,
because the broker needs the replica's role (V35). The response comes before the resent commands.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, int16, int32, int64


@dataclass(slots=True)
class RequestCommandsRequest:
    """A broker's request that the controller resend all commands, fenced by its `broker_epoch`."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)


@dataclass(slots=True)
class RequestCommandsResponse:
    """The error code: NOT_CONTROLLER, STALE_BROKER_EPOCH, or NONE if all commands follow."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")


API = Api(
    key=20_003,
    name="RequestCommands",
    request=RequestCommandsRequest,
    response=RequestCommandsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
