"""ListStrays (key 20001), version 0: the replicas that a broker has set aside (V35).

Only tidelog has this flexible API (G5), because Kafka deletes stray replicas and does not list
them. A broker sets a replica aside as a stray, instead of deleting it, when the controller's list
of the broker's replicas lacks the replica; the broker deletes a stray after
log.stray.delete.delay.ms.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string, uuid


@dataclass(slots=True)
class ListStraysRequest:
    """The request to list all strays of the receiving broker."""


@dataclass(slots=True)
class ListedStray:
    """A stray; `name` is the name of its directory.

    An unknown partition is an empty name and -1; an unknown topic id is all zeros. Times are wall
    clock in ms; `delete_at_ms` is -1 if the deletion waits for an operator's decision.
    `is_restorable` means that the recovery point is known.
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
    """A log directory with its strays, or the error of reading it."""

    log_dir: str = string("0+")
    error_code: int = int16("0+")
    strays: list[ListedStray] = array(ListedStray, "0+")


@dataclass(slots=True)
class ListStraysResponse:
    """The strays of the responding broker, by log directory."""

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
