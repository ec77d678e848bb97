"""ListStrays (key 20001), version 0: the replicas that a broker has set aside (V35).

An API of tidelog's own: Kafka deletes its strays and lists none (G5). Flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string, uuid
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class ListStraysRequest:
    """All strays of the receiving broker."""


@dataclass(slots=True)
class ListedStray:
    """A stray; `name` is that of its directory.

    Where its partition or topic id is not known, they are empty and -1, or zeros. Times are wall
    clock, ms; `delete_at_ms` is -1 where its deletion waits for an operator's decision.
    `is_restorable`: its recovery point is known.
    """

    name: str = string("0+")
    topic: str = string("0+")
    partition: int = int32("0+", -1)
    topic_id: bytes = uuid("0+")
    since_ms: int = int64("0+")
    size_bytes: int = int64("0+")
    delete_at_ms: int = int64("0+", -1)
    is_restorable: bool = boolean("0+")


@dataclass(slots=True)
class ListedStrayDirectory:
    """A log directory and its strays, or the reason why it cannot be read."""

    log_dir: str = string("0+")
    error_code: int = int16("0+")
    strays: list[ListedStray] = array(ListedStray, "0+")


@dataclass(slots=True)
class ListStraysResponse:
    """By log directory."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[ListedStrayDirectory] = array(ListedStrayDirectory, "0+")


API = Api(
    key=20_001,
    name="ListStrays",
    request=ListStraysRequest,
    response=ListStraysResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
