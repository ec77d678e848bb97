"""States of a replica that must never be: each is built here, and the replica objects."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.replication import a_follower, a_leader, accept, fetch, proposed, send

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import ErrorCode
from tidelog.core.types import EpochEnd
from tidelog.replication import isr as isr_rules
from tidelog.replication import watermark
from tidelog.replication.effects import APPEND
from tidelog.replication.isr import Awaits, IsrChange, IsrState

JOIN = IsrChange((1, 2), (101, 102), leader_epoch=5, partition_epoch=10)


class TestLeader:
    def test_its_epoch_begins_within_its_log(self) -> None:
        with pytest.raises(AssertionError, match="begins at the log end"):
            a_leader(epoch_start_offset=5, log_end_offset=4)

    @pytest.mark.rule("V60")
    def test_it_begins_with_no_high_watermark_above_its_log(self) -> None:
        with pytest.raises(AssertionError, match="only records of the log"):
            a_leader(log_end_offset=4, high_watermark=5)

    def test_it_is_assigned(self) -> None:
        with pytest.raises(AssertionError, match="a leader is assigned"):
            a_leader(isr=(1, 2), replicas=(2, 3))
        leader = a_leader()
        with pytest.raises(AssertionError, match="a leader is assigned"):
            leader.commanded((1, 2), (2, 3), 11, lambda _: True, 0)

    def test_it_is_a_member_of_the_confirmed_isr(self) -> None:
        with pytest.raises(AssertionError, match="member of its ISR"):
            a_leader(isr=(2, 3))
        leader = a_leader()
        with pytest.raises(AssertionError, match="member of its ISR"):
            leader.commanded((2, 3), (1, 2, 3), 11, lambda _: True, 0)

    @pytest.mark.rule("A9")
    def test_its_partition_epoch_never_goes_back(self) -> None:
        leader = a_leader()
        with pytest.raises(AssertionError, match="no older state"):
            leader._commit((1, 2), 9, lambda _: True, 0)

    def test_its_log_does_not_shrink_while_it_leads(self) -> None:
        leader = a_leader(log_end_offset=4)
        with pytest.raises(AssertionError, match="does not truncate"):
            leader.appended(3, 0)

    @pytest.mark.rule("V60")
    def test_its_high_watermark_stays_within_its_log(self, monkeypatch: pytest.MonkeyPatch) -> None:
        leader = a_leader()
        monkeypatch.setattr(watermark, "high_watermark", lambda *_: 5)
        with pytest.raises(AssertionError, match="only records of the log"):
            leader.appended(4, 0)

    @pytest.mark.rule("V60")
    def test_its_high_watermark_does_not_fall(self) -> None:
        leader = a_leader(log_end_offset=4, high_watermark=4)
        fetch(leader, 2, 1)
        fetch(leader, 3, 1)
        leader.examine(0)
        assert leader.high_watermark == 4

    @pytest.mark.rule("F2")
    def test_no_follower_has_more_than_it_was_sent(self) -> None:
        leader = a_leader(log_end_offset=4)
        leader.followers[2].log_end_offset = 5
        with pytest.raises(AssertionError, match="a follower has no more"):
            leader.examine(0)

    @pytest.mark.rule("A1")
    def test_it_does_not_propose_to_leave(self) -> None:
        leader = a_leader()
        with pytest.raises(AssertionError, match="does not propose to leave"):
            leader._propose((2, 3), 0)


class TestIsr:
    @pytest.mark.rule("A6")
    def test_the_maximal_isr_includes_the_confirmed_one(self) -> None:
        shrink = replace(JOIN, isr=(1,), isr_epochs=(101,))
        assert isr_rules.maximal_isr(IsrState((1, 2), 10, queued=shrink)) == (1, 2)

    @pytest.mark.rule("A8")
    @pytest.mark.parametrize("awaits", [Awaits.RESPONSE, Awaits.COMMAND])
    def test_one_request_is_with_the_controller_at_a_time(self, awaits: Awaits) -> None:
        busy = IsrState((1,), 10, in_flight=(JOIN,), awaits=awaits)
        with pytest.raises(AssertionError, match="one request is with the controller"):
            isr_rules.queue(busy, JOIN)
        with pytest.raises(AssertionError, match="the one that waits"):
            isr_rules.sent(replace(busy, queued=JOIN), JOIN)

    @pytest.mark.rule("A2")
    def test_only_a_request_can_stay_without_a_response(self) -> None:
        with pytest.raises(AssertionError, match="only a request can stay"):
            isr_rules.unanswered(IsrState((1,), 10, queued=JOIN))

    @pytest.mark.rule("A1")
    def test_a_change_builds_on_the_confirmed_state(self) -> None:
        with pytest.raises(AssertionError, match="builds on the state"):
            isr_rules.queue(IsrState((1,), 11), JOIN)

    @pytest.mark.rule("A8")
    def test_only_a_change_that_waits_is_sent_or_withdrawn(self) -> None:
        with pytest.raises(AssertionError, match="the one that waits"):
            isr_rules.sent(IsrState((1,), 10), JOIN)
        with pytest.raises(AssertionError, match="only a change that waits"):
            isr_rules.withdraw(IsrState((1,), 10))

    def test_a_leader_keeps_all_of_it_through_a_change(self) -> None:
        leader = a_leader(isr=(1, 2), log_end_offset=4)
        change = send(leader, fetch(leader, 3, 4))
        assert isr_rules.maximal_isr(leader.isr) == (1, 2, 3)
        accept(leader, change)
        assert leader.isr == IsrState((1, 2, 3), 11)
        with pytest.raises(ValueError):
            proposed(leader.examine(0))


class TestFollower:
    def test_its_log_begins_before_it_ends(self) -> None:
        with pytest.raises(AssertionError, match="begins before it ends"):
            a_follower(log_start_offset=5, log_end_offset=4)

    @pytest.mark.rule("V61")
    def test_its_high_watermark_stays_within_its_log(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(AssertionError, match="only records of the log"):
            a_follower(log_end_offset=4, high_watermark=5)
        follower = a_follower(log_end_offset=4, high_watermark=4)
        monkeypatch.setattr(watermark, "on_follower", lambda told, start, end: told)
        with pytest.raises(AssertionError, match="only records of the log"):
            follower.answered(follower.position, 0, None, LeaderEpochs(), 5, 0, False)

    @pytest.mark.rule("V33")
    def test_its_log_changes_for_one_answer_at_a_time(self) -> None:
        follower = a_follower(log_end_offset=4)
        with pytest.raises(AssertionError, match="appended for one answer"):
            follower.appended(5, 5)
        with pytest.raises(AssertionError, match="truncated for one answer"):
            follower.truncated(0, 3, 5)

    @pytest.mark.rule("V32")
    def test_an_append_does_not_truncate(self) -> None:
        follower = a_follower(log_end_offset=4)
        effects = follower.answered(follower.position, 0, None, LeaderEpochs(), 4, 0, True)
        assert effects is APPEND
        with pytest.raises(AssertionError, match="does not truncate"):
            follower.appended(3, 5)

    @pytest.mark.rule("V32")
    def test_it_truncates_to_an_offset_of_its_log(self) -> None:
        follower = a_follower(log_start_offset=2, log_end_offset=4, high_watermark=2)
        for offset in (1, 5):
            with pytest.raises(AssertionError, match="it is in the log"):
                follower._truncate_to(offset)
        diverging = EpochEnd(5, 1)
        follower.answered(follower.position, 0, diverging, LeaderEpochs(), 4, 0, False)
        assert follower.is_busy, "an end below the log start begins the log again"
        with pytest.raises(AssertionError, match="begins before it ends"):
            follower.truncated(5, 4, 5)

    def test_an_effect_that_failed_lets_no_append_follow(self) -> None:
        follower = a_follower(log_end_offset=4)
        follower.answered(follower.position, 0, None, LeaderEpochs(), 4, 0, True)
        follower.failed(ErrorCode.KAFKA_STORAGE_ERROR)
        with pytest.raises(AssertionError, match="appended for one answer"):
            follower.appended(5, 5)
