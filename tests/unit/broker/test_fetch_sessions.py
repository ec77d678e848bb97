"""Fetch sessions answer with news only, wait for what changes, and are bounded (KIP-227)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    CONNECTION,
    TOPIC,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    state,
)

from tidelog.broker.apis import fetch
from tidelog.broker.replicas.fetching.fetch_sessions import (
    EVICTION_MS,
    FetchSession,
    FetchSessions,
    SessionPartition,
)
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import QUEUED_RESPONSE_BYTES
from tidelog.core.ports import Buffer
from tidelog.core.response_budget import LEAST_GRANT_BYTES, MAX_TURN_BYTES
from tidelog.core.types import TopicPartition
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tidelog.wire.registry import FETCH

VERSION = 17


def ask(
    broker: FakeBroker,
    *partitions: FetchPartition,
    session: tuple[int, int] = (0, -1),
    topic_id: bytes = TOPIC_ID,
    version: int = VERSION,
    forgotten: tuple[int, ...] = (),
    **fields: Any,
) -> Any:
    """A consumer's fetch; returns the answer or Pending."""
    topics = [FetchTopic(TOPIC, topic_id, list(partitions))] if partitions else []
    message = FetchRequest(
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields},
    )
    if forgotten:
        message.forgotten_topics_data = [ForgottenTopic(TOPIC, topic_id, list(forgotten))]
    header = RequestHeader(FETCH, version, 0, "consumer")
    return fetch.handle(
        broker,  # type: ignore[arg-type]  # a fake broker; its records are in one piece
        Request(header, message, CONNECTION, broker.clock.monotonic_ms()),
    )


def wanted(offset: int, partition: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **fields}
    )


def parts(answer: Any) -> list[PartitionData]:
    return [partition for topic in answer.responses for partition in topic.partitions]


def records_of(part: PartitionData) -> bytes:
    records = part.records or b""
    return bytes(records) if isinstance(records, Buffer) else b"".join(records)


def completed(pending: Pending) -> list[Any]:
    answers: list[Any] = []
    pending.deliver_to(answers.append)
    return answers


async def leading(records: bytes = b"rr") -> FakeBroker:
    """A broker that alone leads one partition with these records."""
    broker = a_cluster()[1]
    await broker.command(state(isr=(1,), replicas=(1,), is_new=True, leader_epoch=1))
    append(broker, records)
    return broker


def append(broker: FakeBroker, records: bytes) -> None:
    if records:
        broker.partition().role.append(records, -1, 0)
        broker.partition().flush_appends()


def test_a_fetch_without_a_session_leaves_nothing_behind() -> None:
    async def story() -> None:
        broker = await leading()
        answer = ask(broker, wanted(0))
        assert bytes(parts(answer)[0].records) == b"\1\1"  # type: ignore[arg-type]  # a fake broker; its records are in one piece
        assert parts(answer)[0].high_watermark == 2
        assert answer.session_id == 0
        assert len(broker.fetch_sessions) == 0
        assert not broker.partition().watchers._consumers

    asyncio.run(story())


def test_an_incremental_fetch_is_answered_with_news_only() -> None:
    async def story() -> None:
        broker = await leading()
        first = ask(broker, wanted(2), session=(0, 0))
        assert first.session_id > 0
        assert len(parts(first)) == 1  # a full fetch is answered with every partition
        nothing = ask(broker, session=(first.session_id, 1))
        assert parts(nothing) == []
        append(broker, b"r")
        news = ask(broker, session=(first.session_id, 2))
        assert [records_of(part) for part in parts(news)] == [b"\1"]
        # What was not asked for again from further on is sent again.
        again = ask(broker, session=(first.session_id, 3))
        assert [records_of(part) for part in parts(again)] == [b"\1"]
        advanced = ask(broker, wanted(3), session=(first.session_id, 4))
        assert parts(advanced) == []

    asyncio.run(story())


@pytest.mark.rule("G4")
def test_wrong_ids_epochs_and_kinds_of_a_session_are_refused() -> None:
    async def story() -> None:
        broker = await leading()
        session_id = ask(broker, wanted(0), session=(0, 0)).session_id
        unknown = ask(broker, session=(session_id + 1, 1))
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        skipped = ask(broker, session=(session_id, 2))
        assert skipped.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        by_name = ask(broker, session=(session_id, 1), version=12)
        assert by_name.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        ask(broker, wanted(0), session=(session_id, -1))
        ended = ask(broker, session=(session_id, 1))
        assert ended.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    asyncio.run(story())


def test_a_forgotten_partition_is_read_no_more() -> None:
    async def story() -> None:
        broker = await leading()
        session_id = ask(broker, wanted(2), session=(0, 0)).session_id
        ask(broker, session=(session_id, 1), forgotten=(0,))
        append(broker, b"r")
        assert parts(ask(broker, session=(session_id, 2))) == []
        assert not broker.partition().watchers._consumers

    asyncio.run(story())


def test_a_waiting_fetch_is_answered_by_the_append_that_it_waits_for() -> None:
    async def story() -> None:
        broker = await leading()
        pending = ask(broker, wanted(2), max_wait_ms=500)
        answers = completed(pending)
        assert answers == []
        append(broker, b"r")
        assert bytes(parts(answers[0])[0].records) == b"\1"  # type: ignore[arg-type]  # a fake broker; its records are in one piece
        assert not broker.partition().watchers._consumers

    asyncio.run(story())


def test_a_waiting_fetch_is_answered_with_nothing_when_its_time_is_over() -> None:
    async def story() -> None:
        broker = await leading()
        answers = completed(ask(broker, wanted(2), max_wait_ms=500))
        await broker.clock.advance(499)
        assert answers == []
        await broker.clock.advance(30)
        assert [records_of(part) for part in parts(answers[0])] == [b""]

    asyncio.run(story())


def test_min_bytes_are_waited_for() -> None:
    async def story() -> None:
        broker = await leading(b"")
        answers = completed(ask(broker, wanted(0), max_wait_ms=500, min_bytes=3))
        append(broker, b"r")
        append(broker, b"r")
        assert answers == []
        append(broker, b"r")
        assert bytes(parts(answers[0])[0].records) == b"\1\1\1"  # type: ignore[arg-type]  # a fake broker; its records are in one piece

    asyncio.run(story())


def test_a_full_fetch_names_the_partitions_too_that_have_no_room() -> None:
    """A Java client throws away the answer to a full fetch that omits a partition, for ever."""

    async def story() -> None:
        broker = a_cluster()[1]
        alone: dict[str, Any] = {"isr": (1,), "replicas": (1,), "is_new": True, "leader_epoch": 1}
        await broker.command(*(state(partition=number, **alone) for number in range(3)))
        for number in range(2):
            partition = broker.partition(TopicPartition(TOPIC, number))
            partition.role.append(b"rrrr", -1, 0)
            partition.flush_appends()
        everything = [wanted(0, number) for number in range(3)]
        for epoch in (-1, 0):
            full = ask(broker, *everything, session=(0, epoch), max_bytes=4)
            assert {part.partition_index: len(part.records or b"") for part in parts(full)} == {
                0: 4,
                1: 0,
                2: 0,
            }
        rest = ask(broker, wanted(4), session=(full.session_id, 1), max_bytes=4)
        assert [(part.partition_index, len(part.records or b"")) for part in parts(rest)] == [
            (1, 4)
        ]

    asyncio.run(story())


@pytest.mark.rule("V61")
def test_a_consumer_hears_of_what_was_appended_before_and_is_committed_while_it_waits() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1, 2), replicas=(1, 2), is_new=True, leader_epoch=1))
        session = ask(broker, wanted(0), session=(0, 0), **follows(2, 102)).session_id
        append(broker, b"r")
        one = completed(ask(broker, wanted(0), max_wait_ms=500))
        two = completed(ask(broker, wanted(0), max_wait_ms=500, min_bytes=2))
        append(broker, b"r")
        assert one == two == []
        ask(broker, wanted(1), session=(session, 1), **follows(2, 102))
        assert [records_of(part) for part in parts(one[0])] == [b"\1"]
        assert two == []
        ask(broker, wanted(2), session=(session, 2), **follows(2, 102))
        assert [records_of(part) for part in parts(two[0])] == [b"\1\1"]

    asyncio.run(story())


def test_no_fetch_waits_for_more_bytes_than_it_takes() -> None:
    async def story() -> None:
        broker = await leading()
        answer = ask(broker, wanted(0), max_wait_ms=500, min_bytes=100, max_bytes=2)
        assert bytes(parts(answer)[0].records) == b"\1\1"  # type: ignore[arg-type]  # a fake broker; its records are in one piece

    asyncio.run(story())


def test_offsets_are_told_again_after_an_error() -> None:
    async def story() -> None:
        broker = await leading()
        first = ask(broker, wanted(9), session=(0, 0))
        assert parts(first)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        (part,) = parts(ask(broker, wanted(2), session=(first.session_id, 1)))
        assert (part.error_code, part.high_watermark) == (ErrorCode.NONE, 2)

    asyncio.run(story())


def test_losing_leadership_ends_a_waiting_fetch_with_the_reason() -> None:
    async def story() -> None:
        broker = await leading()
        answers = completed(ask(broker, wanted(2), max_wait_ms=500))
        broker.replicas.stop_leading("test")
        assert [part.error_code for part in parts(answers[0])] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    asyncio.run(story())


@pytest.mark.parametrize("leads_anew", [False, True])
def test_what_comes_from_the_disk_after_the_leadership_was_lost_is_not_handed_out(
    leads_anew: bool,
) -> None:
    async def story() -> None:
        broker = await leading()
        read: Completion[Any] = Completion()
        broker.log().read = lambda *asked, **named: read  # type: ignore[method-assign]  # replaced by the test
        answers = completed(ask(broker, wanted(0)))
        await broker.command(state(2, leader_epoch=2, isr=(1, 2), replicas=(1, 2)))
        if leads_anew:
            await broker.command(state(1, leader_epoch=3, isr=(1, 2), replicas=(1, 2)))
        assert answers == [], "it waits for the disk"
        read.resolve(SimpleNamespace(data=memoryview(b"rr")))
        (part,) = parts(answers[0])
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and not part.records

    asyncio.run(story())


def test_offsets_outside_the_log_and_wrong_epochs_are_refused_each_with_its_error() -> None:
    async def story() -> None:
        broker = await leading()
        assert [
            parts(ask(broker, partition))[0].error_code
            for partition in (
                wanted(3),
                wanted(0, current_leader_epoch=0),
                wanted(0, current_leader_epoch=2),
                wanted(0, partition=9),
            )
        ] == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    asyncio.run(story())


def follows(replica_id: int, broker_epoch: int) -> dict[str, Any]:
    """The fields of a follower's fetch."""
    return {"replica_state": ReplicaState(replica_id, broker_epoch)}


@pytest.mark.rule("V63")
def test_a_follower_that_does_not_count_gets_an_error_and_no_records() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1, 2), replicas=(1, 2), is_new=True, leader_epoch=1))
        append(broker, b"rr")
        for number, epoch, told, error in (
            (3, 103, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (3, 103, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (2, 102, 1, ErrorCode.NONE),
            (2, 101, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (2, 103, 1, ErrorCode.NONE),
            (2, 102, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            asked = wanted(0, current_leader_epoch=told)
            answer = ask(broker, asked, max_wait_ms=100, **follows(number, epoch))
            (part,) = parts(answer)
            assert part.error_code == error, (number, epoch, told)
            assert bool(part.records) is (error == ErrorCode.NONE)
        assert broker.partition().high_watermark == 0

    asyncio.run(story())


@pytest.mark.rule("V63")
def test_a_follower_that_is_taken_off_while_it_waits_is_told_so() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1, 2), is_new=True, leader_epoch=1, partition_epoch=1))
        first = ask(broker, wanted(0, current_leader_epoch=1), session=(0, 0), **follows(3, 103))
        waiting = ask(broker, session=(first.session_id, 1), max_wait_ms=10_000, **follows(3, 103))
        await broker.command(state(isr=(1, 2), replicas=(1, 2), leader_epoch=1, partition_epoch=2))
        append(broker, b"r")
        (answer,) = completed(waiting)
        (part,) = parts(answer)
        assert part.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH and not part.records

    asyncio.run(story())


@pytest.mark.rule("V63")
def test_a_session_under_a_new_registration_tells_it_of_every_partition() -> None:
    # The follower's session with the store has expired; it lives on and has all there is, so that
    # no incremental fetch would name the partition again.
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1, 2), replicas=(1, 2), is_new=True, leader_epoch=1))
        append(broker, b"rr")
        asked = wanted(2, current_leader_epoch=1, last_fetched_epoch=1)
        first = ask(broker, asked, session=(0, 0), **follows(2, 102))
        role = broker.partition().leadership
        assert role is not None
        assert role.followers[2].counted_broker_epoch == 102
        ask(broker, session=(first.session_id, 1), **follows(2, 104))
        assert role.followers[2].counted_broker_epoch == 104
        assert role.followers[2].log_end_offset == 2

    asyncio.run(story())


def test_a_topic_id_that_is_not_here_is_said_to_be_unknown() -> None:
    async def story() -> None:
        broker = await leading()
        answer = ask(broker, wanted(0), topic_id=b"?" * 16)
        assert parts(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    asyncio.run(story())


def a_session(size: int, replica_id: int = -1, now_ms: int = 0) -> FetchSession:
    session = FetchSession(replica_id, True, now_ms)
    for number in range(size):
        session.partitions[(b"", number)] = None  # type: ignore[assignment]  # a fake stands in
    return session


def closable(session: FetchSession) -> FetchSession:
    session.partitions.clear()
    return session


def test_sessions_are_bounded_and_the_smaller_gives_way_to_the_larger() -> None:
    sessions = FetchSessions(max_sessions=2)
    small, middle, large = a_session(0), a_session(2), a_session(3)
    assert sessions.add(small, 1, 0)
    assert sessions.add(middle, 2, 0)
    assert not sessions.add(a_session(0), 3, 0)
    assert sessions.add(large, 3, 0)
    assert sessions.get(1) is None
    assert sessions.partitions_total == 5
    assert sessions.evictions == 1


def test_a_session_that_grows_makes_smaller_ones_give_way_and_ends_where_none_does() -> None:
    sessions = FetchSessions(max_partitions=6)
    small, growing = a_session(2), a_session(3)
    assert sessions.add(small, 1, 0) and sessions.add(growing, 2, 0)
    for session in (small, growing):
        session.partitions = {
            key: SessionPartition(session, key, None) for key in session.partitions
        }
    assert grown(sessions, growing, 1) and len(sessions) == 2
    assert grown(sessions, growing, 2)
    assert sessions.get(1) is None and sessions.get(2) is growing
    assert (sessions.partitions_total, sessions.evictions) == (6, 1)
    assert not grown(sessions, growing, 1)
    assert (len(sessions), sessions.partitions_total, sessions.evictions) == (0, 0, 2)


def test_a_session_too_large_for_all_takes_nobody_elses_place() -> None:
    sessions = FetchSessions(max_partitions=6)
    assert sessions.add(closable(a_session(0)), 1, 0) and sessions.add(a_session(0, 2), 2, 0)
    follower = sessions.get(2)
    assert follower is not None
    assert not grown(sessions, follower, 7)
    assert sessions.get(1) is not None and sessions.get(2) is None


def grown(sessions: FetchSessions, session: FetchSession, count: int) -> bool:
    """An incremental fetch adds so many partitions."""
    before = len(session.partitions)
    for number in range(before, before + count):
        key = (b"", number)
        session.partitions[key] = SessionPartition(session, key, None)
    return sessions.resized(session, before, 0)


def test_an_incremental_fetch_for_which_there_is_no_room_must_begin_anew() -> None:
    async def story() -> None:
        broker = await leading()
        broker.fetch_sessions = FetchSessions(max_partitions=2)
        first = ask(broker, wanted(2), session=(0, 0))
        told = ask(broker, wanted(0, 1), session=(first.session_id, 1))
        assert told.error_code == ErrorCode.NONE and len(parts(told)) == 1
        refused = ask(broker, wanted(0, 2), session=(first.session_id, 2))
        assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(broker.fetch_sessions) == 0 and not broker.partition().watchers._consumers
        whole = ask(broker, *(wanted(0, number) for number in range(3)), session=(0, 0))
        assert (whole.session_id, len(parts(whole))) == (0, 3)

    asyncio.run(story())


def test_a_follower_never_gives_way_to_a_consumer_but_takes_its_place() -> None:
    sessions = FetchSessions(max_sessions=1)
    assert sessions.add(a_session(0, replica_id=2), 1, 0)
    assert not sessions.add(a_session(5), 2, 0)
    sessions = FetchSessions(max_sessions=1)
    assert sessions.add(closable(a_session(9)), 1, 0)
    assert sessions.add(a_session(1, replica_id=2), 2, 0)


def test_a_session_unused_for_two_minutes_gives_way_to_any() -> None:
    sessions = FetchSessions(max_sessions=1)
    assert sessions.add(closable(a_session(0, replica_id=2)), 1, 0)
    assert not sessions.add(a_session(0), 2, EVICTION_MS)
    assert sessions.add(a_session(0), 2, EVICTION_MS + 1)


def test_a_fetch_without_a_grant_waits_for_its_turn_also_with_max_wait_ms_of_zero() -> None:
    async def story() -> None:
        broker = await leading()
        room = broker.services.responses.clients
        room.read(MAX_TURN_BYTES)
        answers = completed(ask(broker, wanted(0)))
        again = completed(ask(broker, wanted(1)))
        assert (answers, again, room.waiting) == ([], [], 2)
        await broker.clock.advance(0)
        assert [records_of(part) for part in parts(answers[0])] == [b"\1\1"]
        assert [records_of(part) for part in parts(again[0])] == [b"\1"]
        assert room.waiting == 0

    asyncio.run(story())


def test_the_next_fetch_of_a_session_and_a_lost_connection_end_a_fetch_that_waits() -> None:
    async def story() -> None:
        broker = await leading()
        session = ask(broker, wanted(0), session=(0, 0)).session_id
        room = broker.services.responses.clients
        room.read(MAX_TURN_BYTES)
        first = completed(ask(broker, wanted(0), session=(session, 1), max_wait_ms=500))
        pending = ask(broker, wanted(1), session=(session, 2), max_wait_ms=500)
        assert (parts(first[0]), room.waiting) == ([], 1)
        pending.cancel()
        assert room.waiting == 0

    asyncio.run(story())


def test_beyond_the_limit_a_fetch_answers_without_records_when_its_time_is_over() -> None:
    async def story() -> None:
        broker = await leading()
        room = broker.services.responses.clients
        room.take(2 * QUEUED_RESPONSE_BYTES - 1)
        answers = completed(ask(broker, wanted(0), max_wait_ms=1_500))
        await broker.clock.advance(1_400)
        assert answers == []
        await broker.clock.advance(1_000)
        assert [records_of(part) for part in parts(answers[0])] == [b""]
        room.take(1 - 2 * QUEUED_RESPONSE_BYTES)
        assert [records_of(part) for part in parts(ask(broker, wanted(0)))] == [b"\1\1"]

    asyncio.run(story())


def test_records_are_not_held_while_a_fetch_waits_for_more_of_them() -> None:
    async def story() -> None:
        broker = await leading()
        pending = ask(broker, wanted(0), session=(0, 0), max_wait_ms=500, min_bytes=3)
        (session,) = broker.fetch_sessions._sessions.values()
        waiting: Any = session.waiting
        assert [answer.records for answer in waiting._answers.values()] == [b""]
        answers = completed(pending)
        append(broker, b"r")
        assert [records_of(part) for part in parts(answers[0])] == [b"\1\1\1"]

    asyncio.run(story())


def test_a_grant_below_min_bytes_is_enough() -> None:
    async def story() -> None:
        broker = await leading(b"r" * 2 * LEAST_GRANT_BYTES)
        broker.services.responses.clients.take(QUEUED_RESPONSE_BYTES - 1)
        large: dict[str, Any] = {"max_wait_ms": 500, "min_bytes": 1 << 30, "max_bytes": 1 << 30}
        answer = ask(broker, wanted(0, partition_max_bytes=1 << 30), **large)
        assert len(records_of(parts(answer)[0])) == LEAST_GRANT_BYTES

    asyncio.run(story())
