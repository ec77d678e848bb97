"""Fetch (key 1), versions 4 to 17.

Reads record batches for consumers (up to the high watermark) and followers (up to the log end),
with incremental sessions (KIP-227), topic ids from version 13, followers' broker epochs from 15,
leader hints from 16. A fetch without a session is a session that ends with its answer.
Not supported yet: reading from followers (KIP-392), transactions (the last stable offset is the
high watermark).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.fetch_reader import FetchWait, note_follower
from tidelog.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    SessionPartition,
)
from tidelog.broker.requests import Card, Pending, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

CARD = Card(api_key=1, min_version=4, max_version=17, note="no fetching from followers yet")

_TOPIC_ID_VERSION = 13
_REPLICA_STATE_VERSION = 15


def handle(broker: Broker, request: Request) -> FetchResponse | Pending:
    """Bring the session up to date, tell partitions what their follower has, read, maybe wait."""
    message: FetchRequest = request.message
    version = request.header.api_version
    if version >= _REPLICA_STATE_VERSION:
        replica_id = message.replica_state.replica_id
        broker_epoch = message.replica_state.replica_epoch
    else:
        replica_id = message.replica_id
        broker_epoch = -1
    now_ms = request.received_ms
    session, error = _session(broker, message, version, replica_id, now_ms)
    if session is None:
        return FetchResponse(error_code=error)
    incremental = message.session_epoch > INITIAL_EPOCH
    if replica_id >= 0:
        listed = list(session.dirty) if not incremental else _listed(session, message, version)
        for item in listed:
            note_follower(broker, item, replica_id, broker_epoch, now_ms)
    limit = broker.config.fetch_max_bytes if replica_id < 0 else message.max_bytes
    fetch = FetchWait(
        broker,
        session,
        version,
        broker_epoch,
        message.min_bytes,
        max(min(message.max_bytes, limit), 0),
        all_partitions=not incremental,
    )
    return fetch.start(message.max_wait_ms)


def _session(
    broker: Broker, message: FetchRequest, version: int, replica_id: int, now_ms: int
) -> tuple[FetchSession | None, ErrorCode]:
    """The session of a fetch, made or updated (the rules of KIP-227)."""
    sessions = broker.fetch_sessions
    uses_topic_ids = version >= _TOPIC_ID_VERSION
    if message.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if message.session_id:
            sessions.remove(message.session_id)
        session = FetchSession(replica_id, uses_topic_ids, now_ms)
        _update(broker, session, message)
        if message.session_epoch == INITIAL_EPOCH and session.partitions:
            sessions.add(session, broker.ports.random.randrange(1, 0x7FFFFFFF), now_ms)
        return session, ErrorCode.NONE
    existing = sessions.get(message.session_id)
    if existing is None:
        return None, ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if existing.epoch != message.session_epoch or existing.replica_id != replica_id:
        return None, ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if existing.uses_topic_ids != uses_topic_ids:
        return None, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    existing.next_epoch()
    existing.last_used_ms = now_ms
    size_before = len(existing.partitions)
    _update(broker, existing, message)
    sessions.resized(existing, size_before)
    return existing, ErrorCode.NONE


def _update(broker: Broker, session: FetchSession, message: FetchRequest) -> None:
    """Take over listed and forgotten partitions; the listed ones are dirty."""
    by_id = session.uses_topic_ids
    for topic in message.topics:
        name_or_id = topic.topic_id if by_id else topic.topic
        name = broker.topic_name(topic.topic_id) if by_id else topic.topic
        for wanted in topic.partitions:
            key = (name_or_id, wanted.partition)
            item = session.partitions.get(key)
            if item is None:
                item = session.partitions[key] = SessionPartition(session, key, name)
            item.fetch_offset = wanted.fetch_offset
            item.last_fetched_epoch = wanted.last_fetched_epoch
            item.log_start_offset = wanted.log_start_offset
            item.max_bytes = wanted.partition_max_bytes
            item.current_leader_epoch = wanted.current_leader_epoch
            session.dirty[item] = None
    for forgotten in message.forgotten_topics_data:
        name_or_id = forgotten.topic_id if by_id else forgotten.topic
        for partition in forgotten.partitions:
            session.remove((name_or_id, partition))


def _listed(session: FetchSession, message: FetchRequest, version: int) -> list[SessionPartition]:
    """The session's partitions that this request names."""
    by_id = version >= _TOPIC_ID_VERSION
    found = (
        session.partitions.get((topic.topic_id if by_id else topic.topic, wanted.partition))
        for topic in message.topics
        for wanted in topic.partitions
    )
    return [item for item in found if item is not None]
