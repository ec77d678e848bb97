"""Fetch (key 1), versions 4 to 17: record batches for followers and consumers.

A follower reads up to the log end. A consumer reads up to the high watermark, or with
read_committed up to the last stable offset. The broker supports incremental fetch sessions
(KIP-227), topic ids from version 13 on, followers' broker epochs from version 15 on, and the new
leader's address in error responses from version 16 on. A fetch without a session gets a temporary
session, which ends when the broker has responded. Transactions are not supported yet, so the last
stable offset is the high watermark. Fetching from followers (KIP-392) is not supported yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.replica_ids import note_replica
from tidelog.broker.replicas.fetching.delayed_fetch import DelayedFetch
from tidelog.broker.replicas.fetching.fetch_checks import note_follower
from tidelog.broker.replicas.fetching.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    SessionPartition,
)
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core.authorization import CLUSTER_ACTION, READ_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.replication.pending_reads import PendingReads
from tidelog.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext
    from tidelog.broker.replicas.hosting.partition import Partition

CARD = Card(
    api_key=1,
    min_version=4,
    max_version=17,
    note="no fetching from followers yet",
    rights=(READ_TOPIC, CLUSTER_ACTION),
)

_TOPIC_ID_VERSION = 13
_REPLICA_STATE_VERSION = 15


def handle(context: ApiContext, request: Request[FetchRequest]) -> FetchResponse | Pending:
    """Update the session, report the follower's progress, then read or wait for records."""
    message = request.message
    version = request.header.api_version
    if version >= _REPLICA_STATE_VERSION:
        replica_id = message.replica_state.replica_id
        broker_epoch = message.replica_state.replica_epoch
    else:
        replica_id = message.replica_id
        broker_epoch = NO_BROKER_EPOCH
    now_ms = request.received_ms
    found = _session(context, message, version, replica_id, now_ms)
    if isinstance(found, ErrorCode):
        return FetchResponse(error_code=found)
    session, listed = found
    session.isolation_level = message.isolation_level
    checked: dict[SessionPartition, Partition] = {}
    if replica_id >= 0:
        note_replica(context.services, request, replica_id)
        if broker_epoch != session.broker_epoch or broker_epoch == NO_BROKER_EPOCH:
            # The follower re-registered and kept its log: re-check every partition of its session,
            # or an idle replica could never rejoin the ISR (V63). A follower that sends no broker
            # epoch can join the ISR by its fetches alone, so the leader checks every partition of
            # its session at each fetch, as in Kafka.
            session.broker_epoch = broker_epoch
            listed = list(session.partitions.values())
        for item in listed:
            partition = note_follower(context.replicas, session, item, now_ms)
            if partition is not None:
                checked[item] = partition
    limit = context.services.config.fetch_max_bytes if replica_id < 0 else message.max_bytes
    fetch = DelayedFetch(
        context.services,
        context.replicas,
        session,
        version,
        message.min_bytes,
        max(min(message.max_bytes, limit), 0),
        all_partitions=message.session_epoch <= INITIAL_EPOCH,
        connection=request.connection,
        received_ms=now_ms,
    )
    return fetch.start(message.max_wait_ms, checked)


def _session(
    context: ApiContext, message: FetchRequest, version: int, replica_id: int, now_ms: int
) -> tuple[FetchSession, list[SessionPartition]] | ErrorCode:
    """Return a fetch's session, created or updated as in KIP-227, and the request's partitions."""
    sessions = context.fetch_sessions
    uses_topic_ids = version >= _TOPIC_ID_VERSION
    if message.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if message.session_id:
            sessions.remove(message.session_id)
        reads = None
        if replica_id >= 0:
            reads = PendingReads(context.services.config.replica_socket_timeout_ms)
        session = FetchSession(replica_id, uses_topic_ids, now_ms, reads)
        listed = _update(context, session, message)
        if message.session_epoch == INITIAL_EPOCH and session.partitions:
            sessions.add(session, context.services.ports.random.randrange(1, 0x7FFFFFFF), now_ms)
        return session, listed
    existing = sessions.get(message.session_id)
    if existing is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if existing.is_outdated:
        sessions.remove(message.session_id)
        context.services.tracer.mark("fetch_session_outdated")
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if existing.epoch != message.session_epoch or existing.replica_id != replica_id:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if existing.uses_topic_ids != uses_topic_ids:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    existing.next_epoch()
    existing.last_used_ms = now_ms
    size_before = len(existing.partitions)
    listed = _update(context, existing, message)
    if not sessions.resized(existing, size_before, now_ms):
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    return existing, listed


def _update(
    context: ApiContext, session: FetchSession, message: FetchRequest
) -> list[SessionPartition]:
    """Add, update and remove the session's partitions; return the partitions to fetch now."""
    by_id = session.uses_topic_ids
    partitions = session.partitions
    dirty = session.dirty
    listed: dict[SessionPartition, None] = {}
    for topic in message.topics:
        name_or_id = topic.topic_id if by_id else topic.topic
        for wanted in topic.partitions:
            key = (name_or_id, wanted.partition)
            item = partitions.get(key)
            if item is None:
                name = (
                    context.replicas.published_topic_name(topic.topic_id) if by_id else topic.topic
                )
                item = partitions[key] = SessionPartition(session, key, name)
            item.fetch_offset = wanted.fetch_offset
            item.last_fetched_epoch = wanted.last_fetched_epoch
            item.log_start_offset = wanted.log_start_offset
            item.is_synced = wanted.is_synced
            item.max_bytes = wanted.partition_max_bytes
            item.current_leader_epoch = wanted.current_leader_epoch
            dirty[item] = listed[item] = None
    for forgotten in message.forgotten_topics_data:
        name_or_id = forgotten.topic_id if by_id else forgotten.topic
        for partition in forgotten.partitions:
            item = session.remove((name_or_id, partition))
            if item is not None:
                listed.pop(item, None)
    return list(listed)
