"""DeleteTopics (key 20), versions 1 to 6: delete topics.

Version 4 is flexible, version 5 returns error messages, version 6 names topics by name or id
(`topics` instead of `topic_names`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, string, uuid


@dataclass(slots=True)
class DeleteTopicState:
    """A topic to delete, by name, or by id with a null name."""

    name: str | None = string("6+", None, nullable="6+")
    topic_id: bytes = uuid("6+")


@dataclass(slots=True)
class DeleteTopicsRequest:
    """The topics to delete: `topic_names` up to version 5, `topics` from version 6 on."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: Sequence[str] = array("string", "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


@dataclass(slots=True)
class DeletableTopicResult:
    """The outcome of deleting one topic."""

    name: str | None = string("0+", nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", None, nullable="5+", ignorable=True)


@dataclass(slots=True)
class DeleteTopicsResponse:
    """The outcomes of deleting topics, one per requested topic."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")


API = Api(
    key=20,
    name="DeleteTopics",
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    min_version=1,
    max_version=6,
    first_flexible_version=4,
)
