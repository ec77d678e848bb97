"""Lines of `tidelog events tail`."""

from __future__ import annotations

import json

import pytest
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    state,
    topic_id,
)

from tidelog.cli.events import event_line, json_text
from tidelog.client.event_sentences import read_event
from tidelog.controller import cluster_events
from tidelog.controller.cluster_events import ClusterEvent, StateChange
from tidelog.controller.failover import Failovers, LostLeaders, TurnTimes

#: 2026-01-02T03:04:05.006Z
TIME_MS = 1_767_323_045_006


def line(event: ClusterEvent | None) -> str:
    assert event is not None
    told = event_line(read_event(event.value(9, TIME_MS)))
    when, by, kind, rest = told.split(" ", 3)
    assert (when, by, kind) == ("2026-01-02T03:04:05.006Z", "9", event.kind)
    return rest


def test_changes_of_partitions() -> None:
    before, after = state((1, 2, 3)), state((2, 3), leader=2, leader_epoch=6, partition_epoch=11)
    change = StateChange(TP, topic_id("t"), before, after)
    leader = cluster_events.of_state(change, brokers(2, 3), 1, 7)
    assert line(leader) == "t-0 leader 1 -> 2 epoch 6 ISR [2,3] (leader_gone)"
    shrunk = StateChange(TP, topic_id("t"), before, state((1, 2), partition_epoch=11), True)
    isr = cluster_events.of_state(shrunk, brokers(1, 2, 3), 1, 7)
    assert line(isr) == "t-0 ISR [1,2,3] -> [1,2] leader 1 epoch 5 (fell_behind)"


def test_log_directories() -> None:
    slow = cluster_events.log_dir_slow(
        1, 9, "/d", 2, threshold_ms=50, longest_ms=80, operations=30, slow=12, action="demote"
    )
    assert line(slow) == (
        "broker 1 epoch 9: /d is slow: 12 of 30 operations took 50 ms or longer, up to 80 ms"
    )
    fast = cluster_events.log_dir_fast_again(1, 9, "/d", 2, 700)
    assert line(fast) == "broker 1 epoch 9: /d is fast again after 700 ms"
    assert slow.identity == fast.identity == "1/9//d/2"
    assert {slow.kind, fast.kind} < set(cluster_events.KINDS)


def test_failovers_and_fetches() -> None:
    turn = TurnTimes(9, 13, 14, 34)
    [failover] = Failovers(7).commanded(turn, 35, LostLeaders([1]), [])
    assert line(failover) == (
        "from brokers [1] (death): 0 partitions in 26 ms (read 4 ms, decide 1 ms, write 20 ms,"
        " command 1 ms, lead 0 ms), 0 unanswered"
    )
    [seen] = Failovers(7).commanded(turn, 35, LostLeaders([1], silent_since_ms=7), [])
    assert " (detect 2 ms before, read 4 ms" in line(seen)
    fields = {"leader": 2, "follower": 3, "first_fetch_ms": 15, "log_end_offset": 4}
    fetched = cluster_events.first_fetch(TP, topic_id("t"), 6, fields)
    assert line(fetched) == "t-0 epoch 6: broker 3 fetched from 2 after 15 ms"
    phases = {"connect": 4, "truncate": -1, "first_fetch": 5, "acknowledge": 9}
    over = {
        "leader": 2,
        "phases_ms": phases,
        "followers": [{"follower": 3}],
        "ended_by": "all_seen",
    }
    assert line(cluster_events.takeover(TP, topic_id("t"), 6, over)) == (
        "t-0 epoch 6 leader 2 followers [3]: connect after 4 ms, truncate -, first fetch after 5"
        " ms, acknowledge after 9 ms (all_seen)"
    )


@pytest.mark.parametrize(
    ("told", "lost"), [(9, "lost: 4 up to 9 and later"), (-1, "lost: from 4 on")]
)
def test_unclean_elections(told: int, lost: str) -> None:
    fields = {
        "leader": 2,
        "log_start_offset": 0,
        "log_end_offset": 4,
        "high_watermark": 3,
        "told_high_watermark": told,
        "latest_epoch": 5,
        "latest_timestamp_ms": 17,
    }
    event = cluster_events.unclean_election(TP, topic_id("t"), 6, fields)
    assert line(event) == f"t-0 leader 2 epoch 6 after epoch 5, {lost}; uncertain: from 3 on"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (cluster_events.ended(broker(2), 7), "broker 2 epoch 102"),
        (cluster_events.registered(broker(2), 7), "broker 2 epoch 102"),
        (cluster_events.controller_elected(2, 7), "broker 2 controller epoch 7"),
        (cluster_events.controller_resigned(2, 7, "tired"), "broker 2 controller epoch 7 (tired)"),
        (
            cluster_events.commands_behind(
                2, 17, 30_000, is_over=False, controller_epoch=7, number=1
            ),
            "broker 2 epoch 17 has not taken its commands for 30000 ms",
        ),
        (
            cluster_events.reassignment_begun(
                TP, topic_id("t"), (4, 1), (4,), (2,), (1, 2), zxid=91, controller_epoch=7
            ),
            "t-0 moves to [4,1]: adds [4], removes [2]",
        ),
        (
            cluster_events.reassignment_begun(
                TP, topic_id("t"), (1, 2), (), (4,), (1, 2), zxid=93, controller_epoch=7
            ),
            "t-0 returns to [1,2]: adds [], removes [4]",
        ),
        (
            cluster_events.reassignment_ended(
                TP, topic_id("t"), (1, 2), zxid=95, controller_epoch=7
            ),
            "t-0 is at [1,2]",
        ),
        (cluster_events.dropped(2, 17, 1, 5), "broker=2 broker_epoch=17 count=5"),
    ],
)
def test_brokers_and_controllers(event: ClusterEvent, text: str) -> None:
    assert line(event) == text


def test_what_is_no_event_or_one_of_a_later_version_is_shown_and_ends_nothing() -> None:
    assert event_line(read_event(b"\xff{")) == "- - unreadable value=\ufffd{"
    assert read_event(b"[" * 100_000)["kind"] == "unreadable"
    assert event_line(read_event(None)) == "- - unreadable value="
    later = json.dumps({"kind": "leader_change", "time_ms": TIME_MS, "told_by": 1, "who": 2})
    assert event_line(read_event(later.encode())).endswith("Z 1 leader_change who=2")
    assert json_text(read_event(b'{"kind":"x","a":[1]}')) == '{"kind":"x","a":[1]}'
