"""Topic names: the allowed ones (rule V24), checked before any path is built from a name.

The rules are Kafka's (`org.apache.kafka.common.internals.Topic`), and so are the names of the
topics that brokers keep for themselves.
"""

from __future__ import annotations

import re

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MAX_TOPIC_NAME_CHARS

#: Committed offsets and group metadata; the states of transactions.
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
#: Cluster events (V80); tidelog's own.
CLUSTER_EVENTS = "__cluster_events"
_INTERNAL = (CONSUMER_OFFSETS, TRANSACTION_STATE, CLUSTER_EVENTS)

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal_topic(name: str) -> bool:
    """Return whether a topic of this name holds records of brokers: clients may read it."""
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
