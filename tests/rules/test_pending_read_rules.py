"""Rules of pending reads: F5 to F8, the golden case F10, and how often leaders look (F9).

Real fetches, sessions, leaders and ISR decisions over fake logs (`tests.support.broker.fakes`),
with time moved by hand. A slow disk is a read that the test completes.
"""

from __future__ import annotations

import pytest
from tests.rules.pending_read_harness import (
    KEY,
    LAG_MS,
    LEADER,
    OTHER,
    SLOW_SIDE,
    SOCKET_TIMEOUT_MS,
    Scene,
    run,
)
from tests.support.broker.fakes import (
    CONNECTION,
    TOPIC,
    TOPIC_ID,
    a_cluster,
    replicate,
)
from tests.support.replication import a_leader, fetch

from tidelog.broker.apis import fetch as fetch_api
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.core.topic_config import TopicConfig, validate_topic_configs
from tidelog.replication.pending_reads import PendingRead, PendingReads
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import (
    FetchRequest,
    ForgottenTopic,
    ReplicaState,
)
from tidelog.wire.registry import FETCH


@pytest.mark.rule("F10")
@pytest.mark.parametrize("enabled", [False, True])
def test_the_golden_case(enabled: bool) -> None:
    """Lag limit 10 s; offset 950 at tx finds LEO 1002; 1002 at ty finds 1100, served in 25 s."""

    async def story() -> None:
        scene = Scene(enabled=enabled)
        tx, ty, _ = await scene.golden()
        await scene.clock.advance(tx + LAG_MS - ty)
        assert scene.keeps(), "in sync up to tx + 10 s, by F2"
        await scene.clock.advance(1)
        assert scene.keeps() is enabled, "out of the ISR after tx + 10 s unless enabled"
        assert scene.keeps(OTHER)
        if not enabled:
            assert scene.cause() is ShrinkCause.LEADER_READ, "the leader's disk, not the follower"
            assert scene.leadership().followers[SLOW_SIDE].pending_reads(scene.clock.now_ms) == 1
            return
        await scene.clock.advance(ty + 25_000 - scene.clock.now_ms)
        assert scene.keeps()
        scene.disk_answers()
        assert scene.leadership().followers[SLOW_SIDE].caught_up_ms() == ty + 25_000
        await scene.clock.advance(LAG_MS)
        assert scene.keeps()
        await scene.clock.advance(1)
        assert not scene.keeps(), "no fetch for 10 s after the response"

    run(story())


@pytest.mark.rule("F10")
@pytest.mark.parametrize("enabled", [False, True])
def test_a_follower_that_gives_up_is_not_to_blame_while_the_disk_goes_on(enabled: bool) -> None:
    async def story() -> None:
        scene = Scene(enabled=enabled)
        _, _, waiting = await scene.golden()
        await scene.clock.advance(LAG_MS)
        waiting.cancel()
        await scene.clock.advance(1)
        assert not scene.keeps()
        assert scene.cause() is ShrinkCause.LEADER_READ
        assert scene.leadership().followers[SLOW_SIDE].pending_reads(scene.clock.now_ms) == 0
        scene.disk_answers()
        assert scene.cause() is ShrinkCause.NO_FETCH

    run(story())


@pytest.mark.rule("F5")
def test_a_fetch_below_the_end_of_the_fetch_before_is_not_kept_by_a_slow_read() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.begin(1000)
        scene.fetches(500)
        scene.slow()
        scene.fetches(999)
        await scene.clock.advance(LAG_MS + 1)
        assert not scene.keeps(), "999 is below the LEO 1000 that the fetch before found"

    run(story())


@pytest.mark.rule("F5")
def test_the_first_fetch_of_a_leadership_is_kept_by_a_slow_read() -> None:
    """A member counts as having the log up to its end when the leadership began."""

    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.begin(1000)
        scene.slow()
        scene.fetches(0)
        await scene.clock.advance(LAG_MS + 1)
        assert scene.keeps(), "the leadership began with an empty log"
        assert not scene.keeps(OTHER), "it does not fetch at all"

    run(story())


@pytest.mark.rule("F5")
@pytest.mark.parametrize(("offset", "is_kept"), [(999, False), (1000, True)])
def test_a_first_fetch_below_the_end_at_the_beginning_is_not_kept(
    offset: int, is_kept: bool
) -> None:
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=1000)
    leader.pending_reads_changed(True)
    leader.appended(2000, 1)
    reads = PendingReads(SOCKET_TIMEOUT_MS)
    leader.fetched(2, 102, offset, 0, 2, reads=reads)
    reads.begin(PendingRead(102, 2))
    assert leader.followers[2].has_pending_read(3) == is_kept


@pytest.mark.rule("F5")
def test_a_fetch_that_waits_for_new_records_is_not_pending() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.begin(10)
        scene.fetches(10)
        reads = scene.leadership().followers[SLOW_SIDE].reads
        assert reads is not None
        follower = scene.leadership().followers[SLOW_SIDE]
        assert not follower.has_pending_read(scene.clock.now_ms)
        scene.append(20)
        await scene.clock.advance(LAG_MS + 1)
        assert not scene.keeps()

    run(story())


@pytest.mark.rule("F5")
def test_a_slow_read_of_one_partition_keeps_the_follower_of_the_others_of_its_fetch() -> None:
    """The response waits for the slow read, so the follower cannot fetch the others either."""

    async def story() -> None:
        scene = Scene(enabled=True, partitions=2)
        await scene.begin(10)
        scene.slow()
        scene.fetches(10, 10)
        assert not scene.reads
        scene.append(20)
        scene.fetches(10, 10)
        assert len(scene.reads) == 1
        scene.append(20, 1)
        await scene.clock.advance(LAG_MS + 1)
        assert scene.keeps(partition=0) and scene.keeps(partition=1)
        assert not scene.keeps(OTHER), "it does not fetch at all"

    run(story())


@pytest.mark.rule("F5")
def test_a_partition_that_the_session_forgets_is_not_kept_by_reads_of_others() -> None:
    async def story() -> None:
        scene = Scene(enabled=True, partitions=2)
        await scene.begin(10)
        session = scene.fetches(10, 10).session_id
        scene.append(20)
        scene.append(20, 1)
        scene.slow()
        request = FetchRequest(
            replica_state=ReplicaState(SLOW_SIDE, 102),
            session_id=session, session_epoch=1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20,
        )  # fmt: skip
        request.forgotten_topics_data = [ForgottenTopic(TOPIC, TOPIC_ID, [1])]
        fetch_api.handle(
            scene.broker,  # type: ignore[arg-type]  # a fake broker
            Request(
                RequestHeader(FETCH, 17, 0, "follower"),
                request,
                CONNECTION,
                scene.clock.monotonic_ms(),
            ),
        )
        assert len(scene.reads) == 1
        await scene.clock.advance(LAG_MS + 1)
        assert scene.keeps(partition=0)
        assert not scene.keeps(partition=1)

    run(story())


@pytest.mark.rule("F5")
def test_the_key_is_off_by_default_and_a_topic_may_differ_from_its_cluster() -> None:
    plain = BrokerConfig.from_properties({"broker.id": "1"})
    on = BrokerConfig.from_properties({"broker.id": "1", KEY: "true"})
    assert not TopicConfig.of(plain, {}).follower_fetch_pending_reads_insync_enable
    assert TopicConfig.of(on, {}).follower_fetch_pending_reads_insync_enable
    assert not TopicConfig.of(on, {KEY: "false"}).follower_fetch_pending_reads_insync_enable
    with pytest.raises(ConfigError, match=rf"{KEY}=.perhaps. .*true or false"):
        validate_topic_configs({KEY: "perhaps"})


@pytest.mark.rule("F5")
def test_switching_it_off_ends_what_is_pending_at_once() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.golden()
        await scene.clock.advance(LAG_MS)
        assert scene.keeps()
        replica = scene.broker.partition()
        replica.configured(replica.log.config, 1, counts_pending_reads=False)
        assert not scene.keeps()

    run(story())


@pytest.mark.rule("F5")
@pytest.mark.parametrize("enabled", [False, True])
def test_no_read_is_remembered_when_it_is_done(enabled: bool) -> None:
    async def story() -> None:
        scene = Scene(enabled=enabled)
        await scene.golden()
        (session,) = [
            each
            for each in scene.broker.fetch_sessions._sessions.values()
            if each.reads is not None and each.replica_id == SLOW_SIDE and each.waiting is None
        ][-1:]
        assert session.reads is not None
        scene.disk_answers()
        assert session.reads.key()[1] == ()

    run(story())


@pytest.mark.rule("F6")
def test_the_caught_up_time_is_when_the_read_was_done() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        tx, ty, _ = await scene.golden()
        follower = scene.leadership().followers[SLOW_SIDE]
        assert follower.caught_up_ms() == tx, "not yet: the read is under way"
        await scene.clock.advance(7_000)
        scene.disk_answers()
        assert follower.caught_up_ms() == ty + 7_000
        # The next fetch does not reach the LEO of the fetch before: the time stays.
        await scene.clock.advance(1_000)
        scene.append(1300)
        scene.fetches(1050)
        assert follower.caught_up_ms() == ty + 7_000

    run(story())


@pytest.mark.rule("F7")
def test_pending_reads_vanish_when_the_connection_closes() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        tx, _, waiting = await scene.golden()
        await scene.clock.advance(tx + LAG_MS + 1 - scene.clock.now_ms)
        assert scene.keeps()
        waiting.cancel()
        assert not scene.keeps()
        scene.disk_answers()
        assert not scene.keeps(), "the read is done, and no follower gets it"

    run(story())


@pytest.mark.rule("F5", "F7")
def test_pending_reads_vanish_when_the_session_goes_on_without_their_fetch() -> None:
    async def story() -> None:
        scene = Scene(enabled=True, partitions=2)
        await scene.begin(10)
        session = scene.fetches(10, 10).session_id
        waiting = scene.fetches(session=(session, 1), max_wait_ms=5_000)
        scene.slow()
        scene.append(20)
        assert len(scene.reads) == 1, "the new records have woken the fetch, and its read begins"
        # News of the other partition: the session drops the fetch that reads.
        after = scene.fetches((1, 10), session=(session, 2), max_wait_ms=5_000)
        reads = scene.leadership().followers[SLOW_SIDE].reads
        assert reads is not None
        await scene.clock.advance(LAG_MS)
        while scene.reads:
            scene.disk_answers()
        for each in (waiting, after):
            if isinstance(each, Pending):
                each.cancel()
        assert reads.key()[1] == (), "no read is under way"
        await scene.clock.advance(LAG_MS + 1)
        assert not scene.keeps(), "the follower is gone"

    run(story())


@pytest.mark.rule("F7")
def test_a_request_older_than_the_socket_timeout_is_not_pending() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.golden()
        await scene.clock.advance(SOCKET_TIMEOUT_MS)
        assert scene.keeps()
        await scene.clock.advance(1)
        assert not scene.keeps()
        scene.disk_answers()
        assert not scene.keeps(), "the follower has given the request up"

    run(story())


@pytest.mark.rule("F7")
def test_pending_reads_vanish_with_the_followers_broker_epoch() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.golden()
        await scene.clock.advance(LAG_MS)
        assert scene.keeps()
        # The broker is back in another incarnation, and lacks nearly everything.
        scene.fetches(10, epoch=999)
        assert not scene.keeps()

    run(story())


@pytest.mark.rule("F7")
def test_reads_for_an_earlier_incarnation_of_the_follower_keep_no_later_one() -> None:
    reads = PendingReads(SOCKET_TIMEOUT_MS)
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10)
    leader.counts_pending_reads = True
    leader.fetched(2, 102, 10, 0, 1_000, reads=reads)
    earlier = PendingRead(102, 1_000)
    number = reads.begin(earlier)
    assert leader.followers[2].has_pending_read(1_000)
    leader.fetched(2, 999, 10, 0, 1_000, reads=reads)
    assert not leader.followers[2].has_pending_read(1_000)
    reads.done(number, earlier, 5_000)
    assert leader.followers[2].caught_up_ms() == 1_000


@pytest.mark.rule("F7")
def test_a_follower_that_the_controller_reports_gone_is_not_kept() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.golden()
        await scene.clock.advance(LAG_MS)
        assert scene.keeps()
        scene.broker.see(LEADER, OTHER)
        assert not scene.keeps()

    run(story())


@pytest.mark.rule("F7")
def test_reads_begun_under_an_earlier_leadership_keep_no_follower_of_the_next() -> None:
    reads = PendingReads(SOCKET_TIMEOUT_MS)
    number = reads.begin(PendingRead(102, 0))
    leader = a_leader(isr=(1, 2), replicas=(1, 2), log_end_offset=10, now_ms=1_000)
    leader.counts_pending_reads = True
    leader.fetched(2, 102, 10, 0, 2_000, reads=reads)
    follower = leader.followers[2]
    assert not follower.has_pending_read(2_000)
    reads.done(number, PendingRead(102, 0), 3_000)
    assert follower.caught_up_ms() == 2_000
    reads.begin(PendingRead(102, 2_000))
    assert follower.has_pending_read(2_000)


@pytest.mark.rule("F8")
def test_pending_reads_move_no_high_watermark() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        _, ty, _ = await scene.golden()
        leadership = scene.leadership()
        assert leadership.high_watermark == 1002, "the offset of the pending fetch, and no more"
        await scene.clock.advance(25_000)
        scene.append(1200)
        assert scene.keeps()
        assert leadership.high_watermark == 1002
        scene.disk_answers()
        assert scene.keeps()
        assert leadership.high_watermark == 1002, "what was sent is not what the follower has"
        assert scene.clock.now_ms == ty + 25_000

    run(story())


@pytest.mark.rule("F8")
def test_pending_reads_do_not_bring_a_replica_into_the_isr() -> None:
    leader = a_leader(
        isr=(1, 2), log_end_offset=100, high_watermark=90, epoch_start_offset=95, now_ms=0
    )
    leader.counts_pending_reads = True
    reads = PendingReads(SOCKET_TIMEOUT_MS)
    fetch(leader, 2, 100)
    for now_ms in (1, 2):
        leader.fetched(3, 103, 94, 0, now_ms, reads=reads)
        reads.begin(PendingRead(103, now_ms))
    assert leader.isr.queued is None
    assert leader.high_watermark == 100, "a replica outside the ISR holds nothing back"


# F9: how often leaders look


@pytest.mark.rule("F9")
def test_a_leader_examines_its_followers_each_half_of_the_lag_limit() -> None:
    # They fall behind when 0.6 of the limit has passed, and leave at the look that finds them more
    # than the limit behind: at 2.0, never later than 0.6 + 1.5.
    async def story() -> None:
        cluster = a_cluster(replica_lag_time_max_ms=str(LAG_MS))
        leader = cluster[1]
        await leader.open_replicas()
        await replicate(cluster)
        for follower in (cluster[2], cluster[3]):
            await follower.stop(leader_epoch=0, delete=False)
        await leader.clock.advance(LAG_MS * 6 // 10)
        leader.produce(1)
        await leader.clock.advance(LAG_MS)
        role = leader.partition().leadership
        assert role is not None and role.isr.queued is None
        await leader.clock.advance(LAG_MS // 2)
        assert role.isr.queued is not None and role.isr.queued.isr == (1,)
        await leader.tasks.close()

    run(story())
