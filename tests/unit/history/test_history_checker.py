"""Histories of a few lines: each anomaly by its name, and what looks like one and is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.history import ANOMALIES, HistoryChecker, MalformedHistory, Operation, Report
from tidelog.history.anomalies import KEPT_OF_EACH
from tidelog.history.operations import FAIL, INFO, OK

Pairs = Sequence[Sequence[Any]]


class Story:
    """Operations one after the other, each 10 ns long, on partition t-0 if nothing else is said."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.now = 0

    def add(self, process: str, kind: str, **fields: Any) -> Story:
        begin = fields.pop("begin", self.now)
        end = fields.pop("end", begin + 10)
        self.now = max(self.now, begin if end is None else end) + 10
        self.operations.append(Operation(process, kind, begin, end, **fields))
        return self

    def send(
        self, records: Pairs, outcome: str = OK, process: str = "p", on: str = "t-0", **fields: Any
    ) -> Story:
        fields.setdefault("idempotent", True)
        return self.add(process, "send", records={on: records}, outcome=outcome, **fields)

    def poll(self, records: Pairs, process: str = "c", on: str = "t-0", **fields: Any) -> Story:
        return self.add(process, "poll", records={on: records}, **fields)

    def txn(self, *steps: tuple[str, str, Pairs], process: str = "x", **fields: Any) -> Story:
        told = [(kind, {on: records}) for kind, on, records in steps]
        return self.add(process, "txn", steps=told, **fields)

    def report(self, *, has_final_read: bool = True) -> Report:
        checker = HistoryChecker(has_final_read=has_final_read)
        for line, operation in enumerate(self.operations, 1):
            checker.add(operation, line)
        return checker.finish()


def forbidden(story: Story) -> dict[str, int]:
    return story.report().forbidden


def allowed(story: Story) -> dict[str, int]:
    report = story.report()
    assert report.is_sound, report.forbidden
    return report.allowed


def read(story: Story, last: int = 5) -> Story:
    """Acknowledged and polled without a fault: offsets 0 to `last`, values a, b, c …"""
    records = [[offset, "abcdefghij"[offset]] for offset in range(last + 1)]
    return story.send(records).poll(records)


def test_a_history_without_faults_has_nothing() -> None:
    report = read(Story()).report()
    assert (report.forbidden, report.allowed, report.anomalies) == ({}, {}, [])
    assert (report.operations, report.sent_records) == (2, 6)
    assert (report.acknowledged_records, report.polled_records) == (6, 6)


def test_an_empty_history_has_nothing() -> None:
    assert Story().report().is_sound


class TestLost:
    def test_lost_write(self) -> None:
        story = Story().send([[0, "a"]]).send([[1, "b"]]).poll([[1, "b"]])
        report = story.report()
        assert report.forbidden == {"lost-write": 1}
        (anomaly,) = report.anomalies
        assert anomaly.lines == (1, 3)
        assert str(anomaly) == (
            "lost-write: t-0: 'a' was acknowledged at offset 0 and never polled; 'b' was, at"
            " offset 1"
        )

    def test_unseen(self) -> None:
        story = Story().send([[0, "a"]]).poll([[0, "a"]]).send([[1, "b"]])
        assert forbidden(story) == {"unseen": 1}
        assert story.report(has_final_read=False).is_sound

    def test_a_partition_that_nobody_polled_is_unseen(self) -> None:
        assert forbidden(Story().send([[0, "a"]])) == {"unseen": 1}

    def test_acknowledged_at_an_offset_that_was_not_told(self) -> None:
        story = Story().send([[None, "a"]])
        assert forbidden(story) == {"unseen": 1}
        assert story.poll([[0, "a"]]).report().is_sound

    @pytest.mark.parametrize("outcome", [FAIL, INFO])
    def test_what_was_not_acknowledged_may_be_missing(self, outcome: str) -> None:
        assert not forbidden(Story().send([[None, "a"]], outcome).send([[0, "b"]]).poll([[0, "b"]]))

    def test_what_never_ended_may_be_missing(self) -> None:
        assert not forbidden(Story().send([[None, "a"]], INFO, end=None))

    def test_a_record_whose_outcome_is_not_known_may_come_late(self) -> None:
        story = Story().send([[0, "a"]]).send([[None, "late"]], INFO).send([[1, "b"]])
        assert not forbidden(story.poll([[0, "a"], [1, "b"], [2, "late"]]))

    @pytest.mark.parametrize("acks", [0, 1])
    def test_acks_of_a_leader_alone_promise_nothing(self, acks: int) -> None:
        story = Story().send([[0, "a"]], acks=acks).send([[0, "b"]]).poll([[0, "b"]])
        assert allowed(story) == {"unseen": 1}
        assert allowed(story.send([[1, "c"]]).poll([[1, "c"]])) == {"lost-write": 1}

    def test_retention_has_moved_the_start(self) -> None:
        story = Story().send([[0, "a"]]).send([[1, "b"]]).poll([[1, "b"]])
        story.add("admin", "log_start", partitions={"t-0": 1})
        assert not forbidden(story)
        story.send([[2, "c"]]).send([[3, "d"]]).poll([[3, "d"]])
        assert forbidden(story) == {"lost-write": 1, "poll-skip": 1}

    def test_a_topic_that_was_deleted_promises_nothing(self) -> None:
        story = Story().send([[0, "a"]]).add("admin", "delete", topics=["t"])
        assert not forbidden(story)

    def test_nor_does_one_whose_deletion_may_have_happened(self) -> None:
        story = Story().send([[0, "a"]]).add("admin", "delete", topics=["t"], outcome=INFO)
        assert not forbidden(story)

    def test_a_deletion_that_failed_takes_nothing(self) -> None:
        story = Story().send([[0, "a"]]).add("admin", "delete", topics=["t"], outcome=FAIL)
        assert forbidden(story) == {"unseen": 1}

    def test_a_topic_made_anew_begins_anew(self) -> None:
        story = Story().send([[0, "a"]], on="t@1-0").poll([[0, "a"]], on="t@1-0")
        story.add("admin", "delete", topics=["t@1"])
        story.send([[0, "b"]], on="t@2-0").poll([[0, "b"]], on="t@2-0")
        assert not forbidden(story)
        assert forbidden(story.send([[1, "c"]], on="t@2-0")) == {"unseen": 1}

    def test_who_knows_no_ids_sends_to_any_topic_of_the_name(self) -> None:
        story = Story().send([[None, "a"]], INFO).poll([[0, "a"]], on="t@1-0")
        assert not forbidden(story)


class TestCompacted:
    """Records with keys, in a topic that was said to be compacted."""

    def story(self, *records: Sequence[Any]) -> Story:
        return Story().add("admin", "compact", topics=["t"]).send(records)

    def test_a_record_with_a_later_one_of_its_key_may_be_gone(self) -> None:
        story = self.story([0, "a", "key"], [1, "b", "key"]).poll([[1, "b"]])
        assert not forbidden(story)

    def test_the_last_record_of_a_key_stays(self) -> None:
        story = self.story([0, "a", "key"], [1, "b", "other"]).poll([[1, "b"]])
        assert forbidden(story) == {"lost-write": 1}

    def test_a_record_without_a_key_stays(self) -> None:
        assert forbidden(self.story([0, "a"], [1, "b", "k"]).poll([[1, "b"]])) == {"lost-write": 1}

    def test_a_tombstone_may_be_gone(self) -> None:
        assert not forbidden(self.story([0, "a", "key", True], [1, "b", "k"]).poll([[1, "b"]]))

    def test_the_later_one_may_have_an_unknown_outcome(self) -> None:
        story = self.story([0, "a", "key"], [1, "b", "k"]).send([[None, "c", "key", True]], INFO)
        assert not forbidden(story.poll([[1, "b"]]))

    def test_but_not_have_failed(self) -> None:
        story = self.story([0, "a", "key"], [1, "b", "k"]).send([[None, "c", "key"]], FAIL)
        assert forbidden(story.poll([[1, "b"]])) == {"lost-write": 1}

    def test_other_topics_are_not_compacted(self) -> None:
        records = [[0, "a", "key"], [1, "b", "key"]]
        assert forbidden(Story().send(records).poll([[1, "b"]])) == {"lost-write": 1}

    def test_a_consumer_passes_over_what_may_be_gone(self) -> None:
        story = self.story([0, "x", "k"], [1, "a", "key"], [2, "b", "key"])
        story.poll([[0, "x"], [1, "a"]], "early").poll([[0, "x"], [2, "b"]])
        assert not forbidden(story)
        story.send([[3, "y", "last"], [4, "z", "k"]]).poll([[4, "z"]], process="early")
        assert forbidden(story) == {"lost-write": 1, "poll-skip": 1}


class TestDuplicates:
    def test_duplicate(self) -> None:
        story = Story().send([[0, "a"]]).poll([[0, "a"], [1, "a"]])
        report = story.report()
        assert report.forbidden == {"duplicate": 1}
        assert "polled at offset 0 and at offset 1" in report.anomalies[0].what

    def test_acknowledged_at_one_offset_and_polled_at_another(self) -> None:
        assert forbidden(Story().send([[0, "a"]]).poll([[1, "a"]])) == {"duplicate": 1}

    def test_in_two_partitions(self) -> None:
        story = Story().send([[0, "a"]]).poll([[0, "a"]]).poll([[0, "a"]], on="t-1")
        assert forbidden(story) == {"duplicate": 1}

    def test_is_told_once_however_often_it_is_polled(self) -> None:
        story = Story().send([[0, "a"]])
        for number in range(3):
            story.poll([[0, "a"], [1, "a"]], f"c{number}")
        assert forbidden(story) == {"duplicate": 1}

    def test_repetitions_without_idempotence_are_allowed(self) -> None:
        story = Story().send([[0, "a"]], idempotent=False).poll([[0, "a"], [1, "a"]])
        assert allowed(story) == {"duplicate": 1}

    def test_a_send_that_names_no_incarnation_may_stand_once_in_each(self) -> None:
        story = Story().send([[None, "a"]], INFO)
        story.poll([[7, "a"]], on="t@1-0").poll([[0, "a"]], "other", on="t@2-0")
        assert allowed(story) == {"duplicate": 1}
        story.poll([[1, "a"]], on="t@2-0")
        assert forbidden(story) == {"duplicate": 1}

    @pytest.mark.parametrize(("sent", "polled"), [("t@1-0", "t@2-0"), ("t-0", "t@2-1")])
    def test_any_other_send_may_not(self, sent: str, polled: str) -> None:
        story = Story().send([[None, "a"]], INFO, on=sent)
        story.poll([[7, "a"]], on="t@1-0").poll([[0, "a"]], "other", on=polled)
        assert forbidden(story)["duplicate"] == 1

    def test_reading_a_record_again_is_none(self) -> None:
        story = read(Story())
        story.add("c", "seek", partitions={"t-0": 0})
        story.poll([[0, "a"], [1, "b"]]).poll([[0, "a"]], "other")
        assert not forbidden(story)


class TestInconsistentOffsets:
    def test_two_polls(self) -> None:
        story = Story().send([[None, "a"]], INFO).send([[None, "b"]], INFO)
        report = story.poll([[0, "a"]], "c1").poll([[0, "b"]], "c2").report()
        assert report.forbidden == {"inconsistent-offsets": 1}
        assert report.anomalies[0].lines == (1, 3, 4)
        assert "offset 0 held 'a' and 'b'" in report.anomalies[0].what

    def test_an_acknowledgement_and_a_poll(self) -> None:
        story = Story().send([[None, "a"]], INFO).send([[0, "b"]]).poll([[0, "a"], [1, "b"]])
        assert "inconsistent-offsets" in forbidden(story)

    def test_two_acknowledgements(self) -> None:
        story = Story().send([[0, "a"]]).send([[0, "b"]], process="q").poll([[0, "b"]])
        assert "inconsistent-offsets" in forbidden(story)

    def test_the_place_of_what_a_lone_leader_had_may_be_taken(self) -> None:
        story = Story().send([[0, "a"]], acks=1).send([[0, "b"]]).poll([[0, "b"]])
        assert not forbidden(story)

    def test_equal_offsets_of_other_partitions_are_other_places(self) -> None:
        story = Story().send([[0, "a"]]).send([[0, "b"]], on="t-1")
        assert not forbidden(story.poll([[0, "a"]]).poll([[0, "b"]], on="t-1"))


class TestAborted:
    def test_a_failed_send_was_polled(self) -> None:
        assert forbidden(Story().send([[None, "a"]], FAIL).poll([[0, "a"]])) == {"G1a": 1}

    def test_polled_before_it_failed(self) -> None:
        assert forbidden(Story().poll([[0, "a"]]).send([[None, "a"]], FAIL)) == {"G1a": 1}

    def test_an_aborted_transaction_was_polled(self) -> None:
        story = Story().txn(("send", "t-0", [[0, "a"]]), outcome=FAIL).poll([[0, "a"]])
        assert forbidden(story) == {"G1a": 1}

    def test_an_aborted_transaction_that_nobody_polled(self) -> None:
        story = Story().send([[0, "x"]]).txn(("send", "t-0", [[1, "a"]]), outcome=FAIL)
        assert not forbidden(story.send([[3, "b"]]).poll([[0, "x"], [3, "b"]]))

    def test_one_whose_outcome_is_not_known_may_be_polled(self) -> None:
        story = Story().txn(("send", "t-0", [[None, "a"]]), outcome=INFO).poll([[0, "a"]])
        assert not forbidden(story)
        assert not forbidden(Story().send([[None, "a"]], INFO).poll([[0, "a"]]))

    def test_precommitted_read(self) -> None:
        story = Story().txn(("send", "t-0", [[0, "a"]]), ("poll", "t-0", [[0, "a"]]))
        assert forbidden(story) == {"precommitted-read": 1}

    def test_a_transaction_may_poll_what_another_one_had_committed(self) -> None:
        story = Story().txn(("send", "t-0", [[0, "a"]]))
        assert not forbidden(
            story.txn(("poll", "t-0", [[0, "a"]]), ("send", "u-0", [[0, "b"]])).poll(
                [[0, "b"]], on="u-0"
            )
        )


class TestNeverSent:
    def test_by_nobody(self) -> None:
        assert forbidden(Story().poll([[0, "a"]])) == {"never-sent": 1}

    def test_to_another_partition(self) -> None:
        story = Story().send([[0, "a"]]).poll([[0, "a"]], on="t-1")
        assert forbidden(story) == {"never-sent": 1}


class TestPolls:
    def test_poll_skip(self) -> None:
        story = read(Story()).poll([[0, "a"], [1, "b"]], "d").poll([[4, "e"]], "d")
        report = story.report()
        assert report.forbidden == {"poll-skip": 1}
        assert report.anomalies[0].lines == (3, 4, 1, 2)
        assert "from offset 2 on to 4 and passed over 'c' at offset 2" in report.anomalies[0].what

    def test_int_poll_skip(self) -> None:
        assert forbidden(read(Story()).poll([[0, "a"], [2, "c"]], "d")) == {"int-poll-skip": 1}

    def test_nonmonotonic_poll(self) -> None:
        story = read(Story()).poll([[0, "a"], [1, "b"]], "d").poll([[1, "b"]], "d")
        assert forbidden(story) == {"nonmonotonic-poll": 1}

    def test_int_nonmonotonic_poll(self) -> None:
        story = read(Story()).poll([[1, "b"], [0, "a"]], "d")
        assert forbidden(story) == {"int-nonmonotonic-poll": 1}

    def test_steps_of_a_transaction_are_one_operation(self) -> None:
        story = read(Story()).txn(("poll", "t-0", [[0, "a"]]), ("poll", "t-0", [[2, "c"]]))
        assert forbidden(story) == {"int-poll-skip": 1}
        story = read(Story()).txn(("poll", "t-0", [[1, "b"]]), ("poll", "t-0", [[0, "a"]]))
        assert forbidden(story) == {"int-nonmonotonic-poll": 1}

    @pytest.mark.parametrize("within", [True, False])
    def test_what_nobody_knows_to_be_there_is_not_passed_over(self, within: bool) -> None:
        story = Story().send([[0, "a"]]).send([[None, "failed"]], FAIL)
        story.send([[None, "unknown"]], INFO).send([[5, "b"]])
        if within:
            story.poll([[0, "a"], [5, "b"]])
        else:
            story.poll([[0, "a"]]).poll([[5, "b"]])
        assert not forbidden(story)

    def test_an_unknown_send_that_somebody_polled_is_passed_over(self) -> None:
        story = Story().send([[0, "a"]]).send([[None, "unknown"]], INFO).send([[2, "b"]])
        story.poll([[0, "a"], [2, "b"]]).poll([[1, "unknown"]], "other")
        assert forbidden(story) == {"int-poll-skip": 1}

    def test_what_retention_took_is_not_passed_over(self) -> None:
        story = read(Story()).poll([[0, "a"]], "d").poll([[4, "e"]], "d")
        assert not forbidden(story.add("admin", "log_start", partitions={"t-0": 4}))

    @pytest.mark.parametrize("start", [1, 0], ids=["taken", "still there"])
    def test_what_retention_took_may_be_appended_once_more(self, start: int) -> None:
        """Brokers know a producer by what is in their logs."""
        story = Story().poll([[0, "a"]]).send([[4, "a"]])
        story.add("admin", "log_start", partitions={"t-0": start})
        assert forbidden(story) == ({} if start else {"duplicate": 1})
        story = Story().send([[0, "a"]]).poll([[0, "a"]]).poll([[4, "a"]], "d")
        story.add("admin", "log_start", partitions={"t-0": start})
        assert forbidden(story) == ({} if start else {"duplicate": 1})

    @pytest.mark.parametrize("first", [0, 3])
    def test_with_subscribe_rebalances_move_consumers(self, first: int) -> None:
        story = read(Story()).add("d", "subscribe", topics=["t"], group="g")
        story.poll([[0, "a"], [1, "b"]], "d").poll([[first, "abcd"[first]]], "d")
        name = "poll-skip" if first else "nonmonotonic-poll"
        assert allowed(story) == {name: 1}

    def test_but_not_within_one_operation(self) -> None:
        story = read(Story()).add("d", "subscribe", topics=["t"])
        assert forbidden(story.poll([[0, "a"], [2, "c"]], "d")) == {"int-poll-skip": 1}

    def test_assigned_after_subscribed_counts_again(self) -> None:
        story = read(Story()).add("d", "subscribe", topics=["t"])
        story.add("d", "assign", partitions={"t-0": 0}).poll([[0, "a"]], "d").poll([[2, "c"]], "d")
        assert forbidden(story) == {"poll-skip": 1}

    def test_an_assignment_tells_where_it_begins(self) -> None:
        story = read(Story()).add("d", "assign", partitions={"t-0": 2})
        assert forbidden(story.poll([[3, "d"]], "d")) == {"poll-skip": 1}
        story = read(Story()).add("d", "assign", partitions={"t-0": 2})
        assert forbidden(story.poll([[1, "b"]], "d")) == {"nonmonotonic-poll": 1}

    def test_one_that_does_not_tell_begins_anywhere(self) -> None:
        story = read(Story()).add("d", "assign", partitions={"t-0": None})
        assert not forbidden(story.poll([[3, "d"]], "d"))

    def test_a_partition_that_stays_assigned_is_read_on(self) -> None:
        story = read(Story()).poll([[0, "a"]], "d")
        story.add("d", "assign", partitions={"t-0": None, "t-1": None})
        assert forbidden(story.poll([[2, "c"]], "d")) == {"poll-skip": 1}

    def test_one_that_was_given_up_is_not(self) -> None:
        story = read(Story()).poll([[0, "a"]], "d")
        story.add("d", "assign", partitions={}).add("d", "assign", partitions={"t-0": None})
        assert not forbidden(story.poll([[2, "c"]], "d"))

    def test_a_seek_moves_on_purpose(self) -> None:
        story = read(Story()).poll([[0, "a"]], "d").add("d", "seek", partitions={"t-0": 4})
        assert not forbidden(story.poll([[4, "e"]], "d"))
        assert forbidden(story.poll([[3, "d"]], "d")) == {"nonmonotonic-poll": 1}

    def test_after_a_seek_to_somewhere_it_begins_anywhere(self) -> None:
        story = read(Story()).poll([[0, "a"]], "d").add("d", "seek", partitions={"t-0": None})
        assert not forbidden(story.poll([[4, "e"]], "d"))

    def test_after_a_poll_of_which_nothing_is_known_it_goes_on_anywhere(self) -> None:
        story = read(Story()).poll([[0, "a"]], "d").add("d", "poll", outcome=INFO)
        assert not forbidden(story.poll([[4, "e"]], "d"))

    def test_after_one_that_failed_it_goes_on_where_it_was(self) -> None:
        story = read(Story()).poll([[0, "a"]], "d").add("d", "poll", outcome=FAIL)
        assert forbidden(story.poll([[4, "e"]], "d")) == {"poll-skip": 1}

    @pytest.mark.parametrize("outcome", [FAIL, INFO])
    def test_nor_is_it_known_where_an_aborted_transaction_leaves_off(self, outcome: str) -> None:
        story = read(Story()).txn(("poll", "t-0", [[0, "a"]]), outcome=outcome)
        assert not forbidden(story.poll([[4, "e"]], "x"))

    @pytest.mark.parametrize(("outcome", "found"), [(FAIL, {"poll-skip": 1}), (INFO, {})])
    def test_a_seek_that_failed_went_nowhere_one_that_did_not_end_anywhere(
        self, outcome: str, found: dict[str, int]
    ) -> None:
        story = read(Story()).poll([[0, "a"]], "d")
        story.add("d", "seek", partitions={"t-0": 4}, outcome=outcome)
        assert forbidden(story.poll([[4, "e"]], "d")) == found

    def test_an_empty_poll_changes_nothing(self) -> None:
        story = read(Story()).poll([[0, "a"]], "d").poll([], "d").poll([[1, "b"]], "d")
        assert not forbidden(story)
        assert forbidden(story.poll([], "d").poll([[3, "d"]], "d")) == {"poll-skip": 1}


class TestSends:
    def test_nonmonotonic_send(self) -> None:
        story = Story().send([[1, "a"]]).send([[0, "b"]]).poll([[0, "b"], [1, "a"]])
        report = story.report()
        assert report.forbidden == {"nonmonotonic-send": 1}
        assert report.anomalies[0].lines == (1, 2)

    def test_an_idempotent_producer_keeps_the_order_of_what_is_in_flight(self) -> None:
        story = Story().send([[1, "a"]], begin=0, end=50).send([[0, "b"]], begin=10, end=20)
        assert forbidden(story.poll([[0, "b"], [1, "a"]])) == {"nonmonotonic-send": 1}

    def test_others_keep_the_order_of_what_is_over(self) -> None:
        def story(second: int) -> Story:
            told = Story().send([[1, "a"]], begin=0, end=50, idempotent=False)
            told.send([[0, "b"]], begin=second, end=90, idempotent=False)
            return told.poll([[0, "b"], [1, "a"]])

        assert not forbidden(story(second=49))
        assert forbidden(story(second=51)) == {"nonmonotonic-send": 1}

    def test_processes_and_partitions_have_no_order_between_them(self) -> None:
        story = Story().send([[1, "a"]]).send([[0, "b"]], process="q").send([[0, "c"]], on="t-1")
        story.poll([[0, "b"], [1, "a"]]).poll([[0, "c"]], on="t-1")
        assert not forbidden(story)

    def test_what_was_not_acknowledged_has_no_order(self) -> None:
        story = Story().send([[None, "a"]], INFO).send([[0, "b"]]).poll([[0, "b"], [1, "a"]])
        assert not forbidden(story)

    def test_int_nonmonotonic_send(self) -> None:
        story = Story().send([[1, "a"], [0, "b"]]).poll([[0, "b"], [1, "a"]])
        assert forbidden(story) == {"int-nonmonotonic-send": 1}

    def test_which_is_allowed_without_idempotence(self) -> None:
        story = Story().send([[1, "a"], [0, "b"]], idempotent=False).poll([[0, "b"], [1, "a"]])
        assert allowed(story) == {"int-nonmonotonic-send": 1}

    def test_int_send_skip_is_allowed(self) -> None:
        story = (
            Story()
            .send([[1, "other"]], process="q")
            .txn(("send", "t-0", [[0, "a"]]), ("send", "t-0", [[2, "b"]]))
        )
        assert allowed(story.poll([[0, "a"], [1, "other"], [2, "b"]])) == {"int-send-skip": 1}

    def test_a_gap_without_a_record_is_no_other_writer(self) -> None:
        story = Story().send([[0, "a"], [2, "b"]]).poll([[0, "a"], [2, "b"]])
        assert story.report().allowed == {}


class TestCircles:
    def polled(self, story: Story) -> Story:
        """Everything that was sent is polled in the end."""
        places: dict[str, list[Any]] = {}
        for operation in story.operations:
            for kind, records in operation.steps:
                for name, listed in records.items():
                    places.setdefault(name, []).extend(listed if kind == "send" else [])
        for name, listed in places.items():
            story.poll(sorted(listed), "reader", on=name)
        return story

    def test_g0(self) -> None:
        story = Story().txn(("send", "t-0", [[0, "a"]]), ("send", "u-0", [[1, "b"]]), process="x")
        story.txn(("send", "t-0", [[1, "c"]]), ("send", "u-0", [[0, "d"]]), process="y")
        report = self.polled(story).report()
        assert (report.forbidden, report.allowed) == ({}, {"G0": 1})
        assert report.anomalies[0].lines in ((1, 2), (2, 1))

    def test_writes_in_one_order_are_no_circle(self) -> None:
        story = Story().txn(("send", "t-0", [[0, "a"]]), ("send", "u-0", [[0, "b"]]), process="x")
        story.txn(("send", "t-0", [[1, "c"]]), ("send", "u-0", [[1, "d"]]), process="y")
        assert self.polled(story).report().allowed == {}

    def g1c(self, second: str = OK) -> Story:
        story = Story().txn(("send", "t-0", [[0, "a"]]), ("poll", "u-0", [[0, "b"]]), process="x")
        return story.txn(
            ("send", "u-0", [[0, "b"]]), ("poll", "t-0", [[0, "a"]]), process="y", outcome=second
        )

    def test_g1c_of_reads_alone(self) -> None:
        assert self.polled(self.g1c()).report().forbidden == {"G1c": 1}
        assert self.polled(self.g1c(INFO)).report().forbidden == {"G1c": 1}

    def test_an_aborted_transaction_is_in_no_circle(self) -> None:
        assert "G1c" not in self.g1c(FAIL).report().forbidden

    def test_g1c_with_an_order_of_writes_is_allowed(self) -> None:
        story = Story().txn(("send", "t-0", [[1, "a"]]), ("send", "u-0", [[0, "b"]]), process="x")
        story.txn(("poll", "u-0", [[0, "b"]]), ("send", "t-0", [[0, "c"]]), process="y")
        assert allowed(self.polled(story)) == {"G1c": 1}

    def test_a_long_circle_is_found_without_recursion(self) -> None:
        count = 5_000
        story = Story()
        for number in range(count):
            story.txn(
                ("send", f"t-{number}", [[0, number]]),
                ("poll", f"t-{(number + 1) % count}", [[0, (number + 1) % count]]),
                process=f"x{number}",
            )
        report = story.report()
        assert report.forbidden == {"G1c": 1}
        assert len(report.anomalies[0].lines) == count


class TestContradictions:
    def fails(self, story: Story, *words: str) -> None:
        with pytest.raises(MalformedHistory) as caught:
            story.report()
        for word in words:
            assert word in str(caught.value)

    def test_a_value_is_sent_once(self) -> None:
        self.fails(Story().send([[0, "a"]]).send([[1, "a"]]), "line 2", "'a'", "line 1")

    def test_a_number_is_another_value_than_its_digits(self) -> None:
        assert not forbidden(Story().send([[0, 1]]).send([[1, "1"]]).poll([[0, 1], [1, "1"]]))

    def test_a_consumer_does_one_thing_at_a_time(self) -> None:
        story = Story().poll([], begin=0, end=50).poll([], begin=40, end=60)
        self.fails(story, "line 2", "begins this poll at 40", "line 1", "50")

    def test_a_producer_may_do_many(self) -> None:
        story = Story().send([[0, "a"]], begin=0, end=50).send([[1, "b"]], begin=40, end=45)
        assert not forbidden(story.poll([[0, "a"], [1, "b"]]))


def test_all_anomalies_are_counted_and_the_first_ones_told() -> None:
    story = Story()
    for number in range(KEPT_OF_EACH + 20):
        story.poll([[number, number]])
    report = story.report()
    assert report.forbidden == {"never-sent": KEPT_OF_EACH + 20}
    assert len(report.anomalies) == KEPT_OF_EACH


def test_commits_are_read_and_judged_elsewhere() -> None:
    story = read(Story()).add("c", "commit", partitions={"t-0": 3}, group="g")
    assert not forbidden(story)


def test_every_anomaly_has_a_meaning_and_says_when_it_is_allowed() -> None:
    assert len(ANOMALIES) == 16
    assert all(each.text and each.allowed for each in ANOMALIES.values())
