"""Validation of topic names, done before any path is built from a name (rule V24).

The rules and the names of internal topics are Kafka's (`org.apache.kafka.common.internals.Topic`).
"""

from __future__ import annotations

import re

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MAX_TOPIC_NAME_CHARS

#: The topic of committed offsets and group metadata.
CONSUMER_OFFSETS = "__consumer_offsets"
#: The topic of transaction states.
TRANSACTION_STATE = "__transaction_state"
#: The topic of cluster events, which only tidelog has (V80).
CLUSTER_EVENTS = "__cluster_events"
_INTERNAL = (CONSUMER_OFFSETS, TRANSACTION_STATE, CLUSTER_EVENTS)

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal_topic(name: str) -> bool:
    """Return whether brokers write the topic of this name, so that clients may only read it."""
    return name in _INTERNAL


def validate_topic_name(name: str) -> None:
    """Raise KafkaError(INVALID_TOPIC_EXCEPTION), with the reason, unless the name is valid."""
    reason = _fault(name)
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {_shown(name)} is invalid: {reason}"
        )


def _fault(name: str) -> str | None:
    if not name:
        return "it is empty"
    if len(name) > MAX_TOPIC_NAME_CHARS:
        return f"it has {len(name)} characters, at most {MAX_TOPIC_NAME_CHARS} are allowed"
    if name in (".", ".."):
        return "it must not be '.' or '..'"
    if _ALLOWED.fullmatch(name) is None:
        return "only ASCII letters and digits, '.', '_' and '-' are allowed"
    return None


def _shown(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:57] + "...")
