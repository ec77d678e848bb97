"""The replication throttle: R15.

Real leaders, fetchers and fetch sessions over fake logs; a record is one byte, so rates are in
records a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    T0,
    TOPIC,
    FakeBroker,
    a_cluster,
    settle,
    state,
)

from tidelog.broker.configs.config_requests import BROKER_RESOURCE, ConfigOutcome, Resource, alter
from tidelog.broker.configs.config_store import Change
from tidelog.broker.replicas.fetching.fetch_sessions import FetchSession, SessionPartition
from tidelog.broker.replicas.metrics import (
    FOLLOWER_REPLICATION_BYTE_RATE,
    LEADER_REPLICATION_BYTE_RATE,
)
from tidelog.core.config import BrokerConfig
from tidelog.core.dynamic_config import Alteration, dynamic_keys
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.wire.messages.fetch import FetchRequest
from tidelog.wire.registry import FETCH

LEADER_RATE, FOLLOWER_RATE = (
    "leader_replication_throttled_rate",
    "follower_replication_throttled_rate",
)
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
#: The windows over which the rate is measured.
SPAN_MS = 11_000
T1 = TopicPartition(TOPIC, 1)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def configure(cluster: dict[int, FakeBroker], **lists: str) -> None:
    """The topic's lists are set, and every broker with a replica applies them."""
    keys = {"leaders": LEADERS, "followers": FOLLOWERS}
    settings = {keys[name]: text for name, text in lists.items()}
    for broker in cluster.values():
        broker.store.nodes[layout.config_path("topics", TOPIC)] = layout.encode_config(settings)
        if broker.replicas.topics():
            await broker.replicas.load_configs([TOPIC])
            broker.replicas.configs_changed([TOPIC])


def set_rate(broker: FakeBroker, **rates: str) -> None:
    """The broker's rates change while it runs."""
    dynamic = {key.replace("_", "."): value for key, value in rates.items()}
    broker.config = broker.config.with_dynamic(dynamic)
    broker.replicas.defaults_changed()


async def moving(
    lists: dict[str, str],
    config: dict[str, str],
    *,
    partitions: int = 1,
    records: int = 100,
    throttle: int = 0,
    paused: tuple[int, ...] = (),
) -> dict[int, FakeBroker]:
    """Broker 1 leads partitions with records, 2 is in sync, and 3 begins to copy them.

    A `throttle` comes with the move that adds broker 3; moves of the `paused` partitions wait.
    """
    settings = {"replica_fetch_max_bytes": "10", "min_insync_replicas": "1", **config}
    cluster = a_cluster(3, **settings)
    states = [
        state(partition=number, isr=(1, 2), is_new=True, partition_epoch=1)
        for number in range(partitions)
    ]
    for broker_id in (1, 2):
        await cluster[broker_id].command(*states)
    await settle()
    for number in range(partitions):
        fill(cluster[1], records, TopicPartition(TOPIC, number))
    await settle()
    await configure(cluster, **lists)
    if throttle:
        states = [replace(each, adding_replicas=(3,), throttle=throttle) for each in states]
        for broker_id in (1, 2):
            await cluster[broker_id].command(*states)
    for number in paused:
        states[number].idle = (3,)
    await cluster[3].command(*states)
    await settle()
    return cluster


def fill(broker: FakeBroker, count: int, topic_partition: TopicPartition = T0) -> None:
    partition = broker.partition(topic_partition)
    partition.role.append(b"r" * count, 1, 0)
    partition.flush_appends()


def end(broker: FakeBroker, topic_partition: TopicPartition = T0) -> int:
    return broker.log(topic_partition).log_end_offset


# who waits, and for how much


@pytest.mark.rule("R15")
@pytest.mark.parametrize("side", ["leaders", "followers"])
def test_a_replica_outside_the_isr_gets_what_the_rate_allows(side: str) -> None:
    async def story() -> None:
        rate = {"leaders": LEADER_RATE, "followers": FOLLOWER_RATE}[side]
        cluster = await moving({side: "*"}, {rate: "10"})
        assert end(cluster[2]) == 100
        # The first window's credit, and one read.
        begun = end(cluster[3])
        assert 10 <= begun <= 20
        clock, got = cluster[3].clock, []
        for _ in range(6):
            await clock.advance(1_000)
            got.append(end(cluster[3]) - begun)
        allowed = [(10 * (second - 1), 10 * second) for second in range(7)]
        assert all(low <= count <= high for count, (low, high) in zip(got, allowed, strict=False))
        await clock.advance(4_000)
        assert end(cluster[3]) == 100

    run(story())


@pytest.mark.rule("R15")
@pytest.mark.parametrize("side", ["leaders", "followers"])
def test_a_member_of_the_isr_is_never_throttled(side: str) -> None:
    async def story() -> None:
        rates = {LEADER_RATE: "1", FOLLOWER_RATE: "1"}
        cluster = await moving({side: "*"}, rates)
        assert end(cluster[2]) == 100
        assert end(cluster[3]) < 100
        fill(cluster[1], 50)
        await settle()
        assert end(cluster[2]) == 150
        assert cluster[1].partition().high_watermark == 150

    run(story())


@pytest.mark.rule("R15")
def test_a_replica_that_joins_the_isr_waits_no_longer() -> None:
    """It joined at the high watermark, and lacks the records behind it while it waits."""

    async def story() -> None:
        cluster = await moving({"leaders": "*"}, {LEADER_RATE: "1"})
        got = end(cluster[3])
        assert got < 100
        for broker in (cluster[1], cluster[3]):
            await broker.command(state(isr=(1, 2, 3), partition_epoch=2))
        await settle()
        assert end(cluster[3]) == 100

    run(story())


@pytest.mark.rule("R15")
def test_a_follower_that_published_state_has_in_the_isr_waits_no_longer() -> None:
    async def story() -> None:
        cluster = await moving({"followers": "*"}, {FOLLOWER_RATE: "1"})
        assert end(cluster[3]) < 100
        cluster[3].show(1, 0)
        await cluster[3].clock.advance(600)
        assert end(cluster[3]) < 100  # that state has no ISR
        topic = cluster[3].view.topics[TOPIC]
        topic.partitions[0] = replace(topic.partitions[0], isr=(1, 2, 3))
        await cluster[3].clock.advance(600)
        assert end(cluster[3]) == 100

    run(story())


@pytest.mark.rule("R15")
@pytest.mark.parametrize(
    ("lists", "throttled"),
    [
        ({"leaders": "0:1"}, (True, False)),
        ({"leaders": "1:1,0:2"}, (False, True)),
        ({"followers": "0:3"}, (True, False)),
        ({"followers": "0:1,1:3"}, (False, True)),
        ({"leaders": "0:1", "followers": "1:3"}, (True, True)),
        ({"leaders": "0:3,1:3", "followers": "0:1,1:1"}, (False, False)),
        ({}, (False, False)),
    ],
)
def test_only_listed_replicas_wait(lists: dict[str, str], throttled: tuple[bool, bool]) -> None:
    async def story() -> None:
        rates = {LEADER_RATE: "1", FOLLOWER_RATE: "1"}
        cluster = await moving(lists, rates, partitions=2)
        assert tuple(end(cluster[3], each) < 100 for each in (T0, T1)) == throttled
        assert end(cluster[2], T0) == end(cluster[2], T1) == 100

    run(story())


@pytest.mark.rule("R15")
def test_one_read_exceeds_the_rate_and_not_one_of_each_partition() -> None:
    async def story() -> None:
        cluster = await moving({"leaders": "*"}, {LEADER_RATE: "1"}, partitions=5)
        ends = [end(cluster[3], TopicPartition(TOPIC, number)) for number in range(5)]
        assert sum(ends) == 10

    run(story())


@pytest.mark.rule("R15")
def test_one_read_exceeds_the_followers_rate_while_another_move_pauses() -> None:
    """The pause holds partitions back before the rate is exceeded."""

    async def story() -> None:
        limited = {"replica_fetch_response_max_bytes": "10", FOLLOWER_RATE: "1"}
        lists = {"followers": "1:3,2:3,3:3"}
        cluster = await moving(lists, limited, partitions=4, paused=(0,))
        assert end(cluster[3]) == 0
        ends = [end(cluster[3], TopicPartition(TOPIC, number)) for number in (1, 2, 3)]
        assert sum(ends) == 10
        # The rate allows reads again, and is exceeded again by one of them.
        await cluster[3].clock.advance(SPAN_MS)
        ends = [end(cluster[3], TopicPartition(TOPIC, number)) for number in (1, 2, 3)]
        assert sum(ends) == 20

    run(story())


@pytest.mark.rule("R10")
def test_a_replica_that_a_repeated_role_lets_pause_stops_copying_and_goes_on_later() -> None:
    async def story() -> None:
        cluster = await moving({"followers": "0:3"}, {FOLLOWER_RATE: "1"})
        begun = end(cluster[3])
        assert begun < 100
        paused = state(isr=(1, 2), partition_epoch=1)
        paused.idle = (3,)
        await cluster[3].command(paused)
        await configure(cluster)
        await cluster[3].clock.advance(SPAN_MS)
        assert end(cluster[3]) == begun
        await cluster[3].command(state(isr=(1, 2), partition_epoch=1))
        await settle()
        assert end(cluster[3]) == 100

    run(story())


@pytest.mark.rule("R10")
def test_a_pause_holds_a_replica_at_the_high_watermark_and_no_member_of_the_isr() -> None:
    """Too few are in sync: the high watermark stands still, and acks=1 makes the log grow."""

    async def story() -> None:
        cluster = await moving({}, {})
        assert end(cluster[3]) == 100
        paused = state(isr=(1, 2), partition_epoch=1)
        paused.idle = (3,)
        await cluster[3].command(paused)
        fill(cluster[1], 5)
        await settle()
        assert end(cluster[3]) in (100, 105), "what was under way may still come"
        begun = end(cluster[3])
        fill(cluster[1], 5)
        await cluster[3].clock.advance(1_000)
        assert end(cluster[3]) == begun
        cluster[3].show(1, 0)
        topic = cluster[3].view.topics[TOPIC]
        topic.partitions[0] = replace(topic.partitions[0], isr=(1, 2, 3))
        await cluster[3].clock.advance(1_000)
        assert end(cluster[3]) == 110

    run(story())


@pytest.mark.rule("R10")
def test_the_leader_proposes_no_replica_that_a_pause_keeps_from_copying() -> None:
    """What it knows of one that does not fetch may be of an earlier life: it would be refused."""

    async def story() -> None:
        cluster = await moving({}, {})
        leadership = cluster[1].partition().leadership
        assert leadership is not None
        assert leadership.followers[3].is_eligible
        paused = state(isr=(1, 2), partition_epoch=1)
        paused.idle = (3,)
        await cluster[1].command(paused)
        assert not leadership.followers[3].is_eligible
        assert leadership.followers[2].is_eligible
        # Others come and go meanwhile, and the leader is elected again.
        cluster[1].see(1, 3)
        assert not leadership.followers[3].is_eligible
        again = state(isr=(1, 2), partition_epoch=2, leader_epoch=1)
        again.idle = (3,)
        await cluster[1].command(again)
        anew = cluster[1].partition().leadership
        assert anew is not None
        assert not anew.followers[3].is_eligible
        await cluster[1].command(state(isr=(1, 2), partition_epoch=2, leader_epoch=1))
        assert anew.followers[3].is_eligible

    run(story())


@pytest.mark.rule("R15")
@pytest.mark.parametrize("side", ["leaders", "followers"])
def test_every_throttled_partition_has_its_turn(side: str) -> None:
    async def story() -> None:
        rates = {LEADER_RATE: "5", FOLLOWER_RATE: "5"}
        limited = {"replica_fetch_response_max_bytes": "10", **rates}
        # The fifth partition is fetched meanwhile, so that the session goes on without the others.
        lists = {"leaders": "0:1,1:1,2:1,3:1", "followers": "0:3,1:3,2:3,3:3"}
        cluster = await moving({side: lists[side]}, limited, partitions=5)
        assert end(cluster[3], TopicPartition(TOPIC, 4)) == 100
        await cluster[3].clock.advance(20_000)
        ends = [end(cluster[3], TopicPartition(TOPIC, number)) for number in range(4)]
        assert max(ends) - min(ends) <= 10
        assert min(ends) >= 20

    run(story())


@pytest.mark.rule("R15")
def test_partitions_that_waited_come_before_those_that_were_read() -> None:
    session = FetchSession(3, True, 0)
    items = [SessionPartition(session, (TOPIC, number), TOPIC) for number in range(3)]
    session.dirty[items[0]] = None
    for waiting in (items[2], items[1], items[2]):
        session.throttle(waiting)
    session.unthrottle()
    assert list(session.dirty) == [items[2], items[1], items[0]]
    assert not session.throttled


@pytest.mark.rule("R15")
def test_a_throttled_fetch_waits_and_goes_on_when_the_rate_allows() -> None:
    """It does not respond at once with nothing, which would keep the follower asking."""

    async def story() -> None:
        cluster = await moving({"leaders": "*"}, {LEADER_RATE: "10"})
        before = len(fetches(cluster[3]))
        await cluster[3].clock.advance(400)
        assert len(fetches(cluster[3])) <= before + 1
        await cluster[3].clock.advance(2_000)
        assert "throttled_fetch_resumed" in cluster[1].tracer.marks
        assert "follower_throttled_by_leader" in cluster[1].tracer.marks

    run(story())


@pytest.mark.rule("R15")
def test_a_follower_that_has_all_records_waits_for_none_of_them() -> None:
    """A fetch that overtook the last records of the response before it began to wait for them."""

    async def story() -> None:
        cluster = await moving({"leaders": "*"}, {LEADER_RATE: "1"})
        leader = cluster[1]
        [session] = [each for each in leader.fetch_sessions.all() if each.replica_id == 3]
        [waiting] = session.throttled
        assert leader.replicas.throttles.leader_is_exceeded()
        waiting.fetch_offset = end(leader)
        leader.partition().watchers.log_end_moved()
        assert not session.throttled

    run(story())


def fetches(broker: FakeBroker) -> list[FetchRequest]:
    return broker.peers.requests(FETCH)


@pytest.mark.rule("R15")
def test_a_follower_leaves_throttled_partitions_out_of_its_fetches() -> None:
    async def story() -> None:
        cluster = await moving({"followers": "0:3"}, {FOLLOWER_RATE: "1"}, partitions=2)
        [left] = [
            one.forgotten_topics_data[0].partitions
            for one in fetches(cluster[3])
            if one.forgotten_topics_data
        ]
        assert list(left) == [0]
        fill(cluster[1], 5, T1)
        await settle()
        assert end(cluster[3], T1) == 105
        assert "follower_throttled_itself" in cluster[3].tracer.marks

    run(story())


# changes while the brokers run


@pytest.mark.rule("R15")
@pytest.mark.parametrize("side", ["leaders", "followers"])
def test_a_removed_or_raised_rate_holds_at_once(side: str) -> None:
    async def story() -> None:
        rate = {"leaders": LEADER_RATE, "followers": FOLLOWER_RATE}[side]
        cluster = await moving({side: "*"}, {rate: "0"})
        assert end(cluster[3]) == 10
        await cluster[3].clock.advance(5 * SPAN_MS)
        assert end(cluster[3]) == 10
        throttler = cluster[1] if side == "leaders" else cluster[3]
        set_rate(throttler, **{rate: str(2**63 - 1)})
        if side == "leaders":  # with the next look of the fetch that waits
            await cluster[3].clock.advance(600)
        await settle()
        assert end(cluster[3]) == 100

    run(story())


@pytest.mark.rule("R15")
@pytest.mark.parametrize("side", ["leaders", "followers"])
def test_a_removed_list_holds_at_once(side: str) -> None:
    async def story() -> None:
        rates = {LEADER_RATE: "1", FOLLOWER_RATE: "1"}
        cluster = await moving({side: "*"}, rates)
        assert end(cluster[3]) < 100
        await configure(cluster)
        await cluster[3].clock.advance(600)
        assert end(cluster[3]) == 100

    run(story())


@pytest.mark.rule("R15")
def test_a_replica_that_leaves_takes_its_throttle_along() -> None:
    """Later changes of the topic are not read here; its configuration is when it comes back."""

    async def story() -> None:
        cluster = await moving({"leaders": "*"}, {LEADER_RATE: "1"})
        assert cluster[1].replicas.throttles.leader.is_active
        assert await cluster[1].stop(leader_epoch=1) == 0
        assert not cluster[1].replicas.throttles.leader.is_active

    run(story())


@pytest.mark.rule("R15")
def test_the_rates_are_metrics_under_kafkas_names() -> None:
    async def story() -> None:
        rates = {LEADER_RATE: "10", FOLLOWER_RATE: "1000"}
        cluster = await moving({"leaders": "*", "followers": "*"}, rates)
        await cluster[3].clock.advance(3_000)
        leader, follower = cluster[1].metrics, cluster[3].metrics
        assert leader.value(LEADER_REPLICATION_BYTE_RATE) >= 10
        assert 5 <= follower.value(FOLLOWER_REPLICATION_BYTE_RATE) <= 20
        assert follower.value(LEADER_REPLICATION_BYTE_RATE) == 0

    run(story())


# a rate that is too low


async def watched(
    cluster: dict[int, FakeBroker], broker: FakeBroker, per_second: int, seconds: int
) -> list[str]:
    """Producers write while a broker examines its replicas; return its warnings."""
    upkeep = broker.replicas.upkeep
    upkeep.start()
    for _ in range(seconds):
        fill(cluster[1], per_second)
        await cluster[1].clock.advance(1_000)
    upkeep.close()
    await broker.tasks.close()
    return [line for line in broker.tracer.lines if "falls behind" in line]


@pytest.mark.rule("R15")
def test_a_leaders_rate_below_the_produce_rate_is_warned_about() -> None:
    async def story() -> None:
        cluster = await moving({"leaders": "*"}, {LEADER_RATE: "20"})
        [line] = await watched(cluster, cluster[1], 30, 50)
        assert line == (
            "partition t-0: follower 3 falls behind: producers write 30 bytes/s,"
            " leader.replication.throttled.rate allows 20 bytes/s: it never catches up, and its"
            " reassignment never finishes; raise the rate"
        )

    run(story())


@pytest.mark.rule("R15")
def test_a_followers_rate_below_the_produce_rate_is_warned_about() -> None:
    async def story() -> None:
        cluster = await moving({"followers": "*"}, {FOLLOWER_RATE: "20"})
        [line] = await watched(cluster, cluster[3], 30, 50)
        assert "this follower of leader 1 falls behind" in line
        assert "follower.replication.throttled.rate allows 20 bytes/s: it never catches up" in line

    run(story())


@pytest.mark.rule("R15")
@pytest.mark.parametrize("configured", [None, "1000"])
def test_the_warning_names_the_throttle_of_the_move_where_that_is_the_lowest(
    configured: str | None,
) -> None:
    async def story() -> None:
        lists = {} if configured is None else {"leaders": "*"}
        rates = {} if configured is None else {LEADER_RATE: configured}
        cluster = await moving(lists, rates, throttle=20)
        [line] = await watched(cluster, cluster[1], 30, 50)
        assert "the --throttle of reassignments allows 20 bytes/s: it never catches up" in line

    run(story())


@pytest.mark.rule("R15")
def test_a_sufficient_rate_is_not_warned_about() -> None:
    async def story() -> None:
        rates = {LEADER_RATE: "200", "replica_fetch_max_bytes": "100"}
        cluster = await moving({"leaders": "*"}, rates, records=2_000)
        assert await watched(cluster, cluster[1], 30, 40) == []

    run(story())


# keys


class StoredConfigs:
    """The settings of entities, changed as the store does."""

    def __init__(self) -> None:
        self.settings: dict[tuple[str, str], dict[str, str]] = {}

    async def change(
        self, entity_type: str, entity: str, change: Change, validate_only: bool
    ) -> None:
        key = (entity_type, entity)
        after = change(self.settings.get(key, {}))
        if not validate_only:
            self.settings[key] = after


async def altered(
    stored: StoredConfigs, broker: FakeBroker, name: str, **keys: str
) -> ConfigOutcome:
    """Broker 1 is asked to set keys of a broker."""
    alterations = [Alteration(key.replace("_", "."), 0, value) for key, value in keys.items()]
    [outcome] = await alter(
        broker.services,
        stored,  # type: ignore[arg-type]  # no store is behind it
        broker.config,
        [Resource(BROKER_RESOURCE, name, alterations)],
        replace=False,
        validate_only=False,
    )
    return outcome


@pytest.mark.rule("R15")
def test_any_broker_takes_the_rates_of_a_broker_that_is_down() -> None:
    async def story() -> None:
        stored = StoredConfigs()
        stored.settings["brokers", "2"] = {"message.max.bytes": "7"}
        broker = a_cluster(1)[1]
        rates = {LEADER_RATE: "5", FOLLOWER_RATE: "6"}
        assert (await altered(stored, broker, "2", **rates)).error is ErrorCode.NONE
        assert stored.settings["brokers", "2"] == {
            "message.max.bytes": "7",
            "leader.replication.throttled.rate": "5",
            "follower.replication.throttled.rate": "6",
        }
        assert (await altered(stored, broker, "1", **rates)).error is ErrorCode.NONE
        assert (await altered(stored, broker, "", **rates)).error is ErrorCode.NONE
        assert len(stored.settings["brokers", layout.DEFAULT_ENTITY]) == 2

    run(story())


@pytest.mark.rule("R15")
@pytest.mark.parametrize(
    ("name", "keys", "reason"),
    [
        ("2", {LEADER_RATE: "-1"}, "leader.replication.throttled.rate='-1' is not valid"),
        ("2", {LEADER_RATE: "5", "message_max_bytes": "7"}, "ask that broker"),
        ("two", {LEADER_RATE: "5"}, "ask that broker"),
        ("02", {LEADER_RATE: "5"}, "ask that broker"),
        ("2", {}, "ask that broker"),
    ],
)
def test_no_other_key_of_another_broker_is_taken(
    name: str, keys: dict[str, str], reason: str
) -> None:
    async def story() -> None:
        stored = StoredConfigs()
        outcome = await altered(stored, a_cluster(1)[1], name, **keys)
        assert outcome.error is ErrorCode.INVALID_REQUEST
        assert reason in (outcome.message or "")
        assert stored.settings == {}

    run(story())


@pytest.mark.rule("R15")
def test_rates_change_while_brokers_run_and_windows_do_not() -> None:
    names = dynamic_keys()
    assert LEADER_RATE.replace("_", ".") in names
    assert FOLLOWER_RATE.replace("_", ".") in names
    assert "replication.quota.window.num" not in names
    config = BrokerConfig.from_properties(
        {
            "broker.id": "1",
            "replication.quota.window.num": "3",
            "replication.quota.window.size.seconds": "2",
        }
    )
    assert not [line for line in config.warnings if "quota" in line]
    assert (config.replication_quota_window_num, config.replication_quota_window_size_seconds) == (
        3,
        2,
    )
