"""How partitions are shared out: by hand for examples, by many drawn groups for what must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.assignors import (
    ASSIGNORS,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    Shares,
)
from tidelog.core.types import TopicPartition

RANGE, STICKY = RangeAssignor(), CooperativeStickyAssignor()


def numbers(shares: Shares) -> dict[str, list[str]]:
    return {name: [f"{tp.topic}{tp.partition}" for tp in share] for name, share in shares.items()}


def subscribed(*topics: str, **more: Any) -> MemberSubscription:
    return MemberSubscription(topics, **more)


class TestRange:
    def test_the_first_members_get_one_more_of_each_topic(self) -> None:
        members = dict.fromkeys(("a", "b"), subscribed("t", "u"))
        assert numbers(RANGE.assign({"t": 3, "u": 3}, members)) == {
            "a": ["t0", "t1", "u0", "u1"],
            "b": ["t2", "u2"],
        }

    def test_more_members_than_partitions_leave_some_idle(self) -> None:
        members = dict.fromkeys(("a", "b", "c"), subscribed("t"))
        assert numbers(RANGE.assign({"t": 2}, members)) == {"a": ["t0"], "b": ["t1"], "c": []}

    def test_only_subscribers_get_a_topic_and_unknown_topics_are_nobodys(self) -> None:
        members = {"a": subscribed("t", "gone"), "b": subscribed("u")}
        assert numbers(RANGE.assign({"t": 1, "u": 2, "v": 5}, members)) == {
            "a": ["t0"],
            "b": ["u0", "u1"],
        }

    def test_static_members_keep_their_place_whatever_their_member_id(self) -> None:
        members = {
            "z": subscribed("t", instance_id="first"),
            "a": subscribed("t", instance_id="second"),
        }
        assert numbers(RANGE.assign({"t": 2}, members)) == {"z": ["t0"], "a": ["t1"]}


def settle(
    counts: Mapping[str, int], members: dict[str, MemberSubscription]
) -> tuple[dict[str, MemberSubscription], int]:
    """Rounds of joins as members make them, until nobody gives anything up; how many it took."""
    for rounds in range(1, 5):
        shares = STICKY.assign(counts, members)
        given_up = False
        for name, share in shares.items():
            before = members[name]
            given_up |= bool(before.owned - set(share))
            members[name] = MemberSubscription(before.topics, None, frozenset(share), rounds)
        if not given_up:
            return members, rounds
    raise AssertionError("the group does not come to rest")


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, MemberSubscription]]:
    counts = draw(st.dictionaries(st.sampled_from("tuv"), st.integers(1, 7), min_size=1))
    owned = {TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)}
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
    members = {}
    for name in names:
        mine = draw(st.sets(st.sampled_from(sorted(owned)))) if owned else set()
        owned -= mine
        members[name] = MemberSubscription(tuple(counts), None, frozenset(mine), 1)
    return counts, members


class TestCooperativeSticky:
    @given(groups())
    def test_in_the_end_all_is_shared_out_fairly_and_once(
        self, group: tuple[dict[str, int], dict[str, MemberSubscription]]
    ) -> None:
        counts, members = group
        settled, rounds = settle(counts, dict(members))
        shares = [each.owned for each in settled.values()]
        assert sum(len(share) for share in shares) == sum(counts.values())
        assert len(set().union(*shares)) == sum(counts.values())
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert rounds <= 2

    @given(groups())
    def test_no_round_gives_away_what_another_member_still_owns(
        self, group: tuple[dict[str, int], dict[str, MemberSubscription]]
    ) -> None:
        counts, members = group
        shares = STICKY.assign(counts, members)
        for name, share in shares.items():
            others = {tp for other, each in members.items() if other != name for tp in each.owned}
            assert not others & set(share)

    @given(groups())
    def test_who_has_a_fair_share_keeps_it(
        self, group: tuple[dict[str, int], dict[str, MemberSubscription]]
    ) -> None:
        counts, members = group
        settled, _ = settle(counts, dict(members))
        again = STICKY.assign(counts, settled)
        assert {name: frozenset(share) for name, share in again.items()} == {
            name: each.owned for name, each in settled.items()
        }

    def test_a_newcomer_costs_no_more_moves_than_its_share(self) -> None:
        everything = frozenset(TopicPartition("t", number) for number in range(6))
        members = {"a": subscribed("t", owned=everything, generation=3), "b": subscribed("t")}
        first = STICKY.assign({"t": 6}, members)
        assert (len(first["a"]), first["b"]) == (3, [])

    def test_a_claim_of_an_older_generation_is_void(self) -> None:
        tp = frozenset({TopicPartition("t", 0)})
        members = {
            "late": subscribed("t", owned=tp, generation=3),
            "now": subscribed("t", owned=tp, generation=5),
        }
        assert numbers(STICKY.assign({"t": 1}, members)) == {"late": [], "now": ["t0"]}

    def test_what_is_no_more_is_owned_by_nobody(self) -> None:
        gone = frozenset({TopicPartition("t", 9), TopicPartition("deleted", 0)})
        members = {"a": subscribed("t", owned=gone, generation=1)}
        assert numbers(STICKY.assign({"t": 1}, members)) == {"a": ["t0"]}


def test_assignors_are_found_by_kafkas_names() -> None:
    assert {name: each.is_cooperative for name, each in ASSIGNORS.items()} == {
        "range": False,
        "cooperative-sticky": True,
    }
