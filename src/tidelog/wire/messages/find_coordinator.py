"""FindCoordinator (key 10), versions 0 to 6: the broker that coordinates a group or transaction.

Version 1 adds the kind of key (0 group, 1 transaction); version 3 is flexible. Version 4 names many
keys in one request and responds in `coordinators` (KIP-699). Version 5 may respond with
TRANSACTION_ABORTABLE (KIP-890). Version 6 adds the kind 2, for share groups, with keys `group:topic
id:partition` (KIP-932).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int8, int16, int32, string


@dataclass(slots=True)
class FindCoordinatorRequest:
    """The keys whose coordinators are requested: `key` up to version 3, then `coordinator_keys`."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: Sequence[str] = array("string", "4+")


@dataclass(slots=True)
class Coordinator:
    """The coordinator of one key, or the error."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", None, nullable="4+", ignorable=True)


@dataclass(slots=True)
class FindCoordinatorResponse:
    """The coordinators: a single coordinator in flat fields up to version 3, a list from 4 on."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", None, nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


API = Api(
    key=10,
    name="FindCoordinator",
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    min_version=0,
    max_version=6,
    first_flexible_version=3,
)
