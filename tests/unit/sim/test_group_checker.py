"""The checker of groups tells what must not be from what faults explain."""

from __future__ import annotations

import pytest
from tests.support.sim import checked

from tidelog.core.string_hash import coordinating_partition
from tidelog.sim.checkers.group_checker import NO_OFFSET, Commit, GroupChecker
from tidelog.sim.client_history import Outcome


class Story:
    """A checker with a clock that is moved by each step."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.violations: list[str] = []
        self.checker = GroupChecker(checked(self.violations, self._tick), 3)

    def _tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def commit(
        self, offset: int, generation: int = 1, outcome: Outcome | None = Outcome.DONE
    ) -> Commit:
        commit = Commit("g", 0, generation, offset)
        self.checker.commit_begins(commit)
        if outcome is not None:
            self.checker.commit_ends(commit, outcome)
        return commit

    def sync(self, generation: int, owner: str = "m", partitions: tuple[int, ...] = (0,)) -> None:
        self.checker.synced("g", generation, owner, list(partitions))

    def fetch(self, offset: int, generation: int = 1) -> None:
        self.checker.fetched("g", generation, 0, offset, self._tick())


@pytest.fixture
def story() -> Story:
    return Story()


def test_what_was_acknowledged_last_is_told(story: Story) -> None:
    story.sync(1)
    story.fetch(NO_OFFSET)
    story.commit(1)
    story.commit(2)
    story.fetch(2)
    assert story.violations == []
    assert story.checker.acknowledged_commits == 2
    assert story.checker.rebalances == 1


@pytest.mark.parametrize("told", [NO_OFFSET, 1])
def test_an_offset_that_was_replaced_is_a_violation(story: Story, told: int) -> None:
    story.sync(1)
    story.commit(1)
    story.commit(2)
    story.fetch(told)
    (violation,) = story.violations
    assert "replaced by an acknowledged commit of offset" in violation


def test_an_unanswered_commit_may_come_later_until_it_is_fenced(story: Story) -> None:
    story.sync(1)
    story.commit(1, outcome=Outcome.UNKNOWN)
    story.commit(2)
    story.fetch(1)
    assert story.violations == []
    story.sync(2, "n")
    story.commit(3, generation=2)
    story.fetch(1, generation=2)
    (violation,) = story.violations
    assert "received offset 1" in violation


def test_a_commit_that_is_under_way_may_be_seen_or_not(story: Story) -> None:
    story.sync(1)
    story.commit(1)
    story.commit(2, outcome=None)
    story.fetch(1)
    story.fetch(2)
    assert story.violations == []


def test_a_refused_commit_is_never_in_force(story: Story) -> None:
    story.sync(1)
    story.commit(1, outcome=Outcome.REFUSED)
    story.fetch(1)
    assert story.violations[0].startswith("in force although it was refused")


def test_an_offset_of_nobody_is_a_violation(story: Story) -> None:
    story.sync(1)
    story.fetch(7)
    assert "no client ever committed offset 7" in story.violations[0]


def test_a_member_of_an_older_generation_may_be_told_what_was(story: Story) -> None:
    story.sync(1)
    story.commit(1)
    story.sync(2, "n")
    story.commit(2, generation=2)
    story.fetch(1, generation=1)
    assert story.violations == []
    story.checker.fetched_last("g", 0, 1, story.now_ns + 1)
    assert "at the end it is offset 1" in story.violations[0]


def test_an_old_generation_is_not_acknowledged(story: Story) -> None:
    story.sync(1)
    late = story.commit(1, outcome=None)
    story.sync(2, "n")
    story.checker.commit_ends(late, Outcome.DONE)
    assert story.violations == [], "it was sent before"
    story.commit(2, generation=1)
    assert "although generation 2 was handed out" in story.violations[0]


def test_a_process_whose_place_was_taken_is_not_acknowledged(story: Story) -> None:
    def commit(offset: int, member: str, outcome: Outcome | None = Outcome.DONE) -> Commit:
        begun = Commit("g", 0, 1, offset, member=member, instance="i")
        story.checker.commit_begins(begun)
        if outcome is not None:
            story.checker.commit_ends(begun, outcome)
        return begun

    story.checker.place_taken("g", "i", "i-1", asked_ns=story._tick())
    story.checker.place_taken("g", "other", "o-1", asked_ns=story._tick())
    commit(1, "i-1")
    asked_ns = story._tick()
    late = commit(2, "i-1", None)
    story.checker.place_taken("g", "i", "i-2", asked_ns)
    story.checker.commit_ends(late, Outcome.DONE)
    commit(3, "i-2")
    assert story.violations == [], "it was sent before anybody was told"
    commit(4, "i-1", Outcome.REFUSED)
    assert story.violations == []
    commit(5, "i-1")
    assert "although member i-2 took the place of i-1 as i at" in story.violations[0]


def test_who_took_a_place_first_is_not_known_of_two_that_asked_at_once(story: Story) -> None:
    first_ns, second_ns = story._tick(), story._tick()
    story.checker.place_taken("g", "i", "i-2", second_ns)
    story.checker.place_taken("g", "i", "i-1", first_ns)
    for offset, member in enumerate(("i-1", "i-2"), 1):
        commit = Commit("g", 0, 1, offset, member=member, instance="i")
        story.checker.commit_begins(commit)
        story.checker.commit_ends(commit, Outcome.DONE)
    assert story.violations == []


def test_a_committer_without_membership_has_no_generation(story: Story) -> None:
    story.sync(1)
    story.commit(1, generation=-1)
    story.checker.fetched_last("g", 0, 1, story.now_ns + 1)
    assert story.violations == []


def test_a_partition_has_one_owner_in_a_generation(story: Story) -> None:
    story.sync(1, "m", (0, 1))
    story.sync(1, "n", (2,))
    story.sync(2, "n", (0, 1, 2))
    assert story.violations == []
    story.sync(2, "m", (1,))
    assert "partition 1 was assigned to n and to m" in story.violations[0]


def test_an_assignment_stays_what_it_was(story: Story) -> None:
    story.sync(1, "m", (0, 1))
    story.sync(1, "m", (0,))
    assert "m was assigned [0, 1], then [0]" in story.violations[0]


def test_a_generation_has_one_leader_in_a_term(story: Story) -> None:
    checker = story.checker
    checker.loaded(1, 0)
    checker.joined("g", 1, "m", 1)
    checker.joined("g", 1, "n", 2)
    checker.joined("g", 1, "n", -1)
    assert story.violations == []
    checker.joined("g", 1, "n", 1)
    assert story.violations == ["group g generation 1: m leads it and n does"]


def test_terms_and_moves_follow_what_brokers_say(story: Story) -> None:
    checker = story.checker
    partition = checker.partition_of("g")
    assert partition == coordinating_partition("g", 3)
    assert checker.term("g", 1) == -1
    checker.loaded(1, partition)
    first = checker.term("g", 1)
    checker.loaded(1, partition)
    assert checker.term("g", 1) > first
    assert checker.coordinator_moves == 0
    checker.loaded(2, partition)
    assert checker.coordinator_moves == 1
    checker.unloaded(2, partition)
    checker.died(1)
    assert checker.term("g", 1) == checker.term("g", 2) == -1
