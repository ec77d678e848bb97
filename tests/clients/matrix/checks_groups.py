"""Checks of consumer groups, the same for every client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.clients.matrix.driver import Member, Received, eventually
from tests.clients.matrix.harness import ClientHarness, settled

PARTITIONS = 4
ALL = frozenset(range(PARTITIONS))


class Group:
    """Members of one group, which are ended with the check."""

    def __init__(self, harness: ClientHarness, cooperative: bool) -> None:
        self.world = harness
        self.id = harness.name()
        self.topic = harness.make_topic(PARTITIONS)
        self.cooperative = cooperative
        self.members: list[Member] = []
        self._filled = 0

    def join(self, instance_id: str | None = None) -> Member:
        member = self.world.driver.join(
            self.id, self.topic, cooperative=self.cooperative, instance_id=instance_id
        )
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.close()

    def await_shared(self) -> None:
        """Every member has something, nothing is owned twice, nothing is left out."""
        eventually(self._is_shared, lambda: [member.state() for member in self.members])

    def _is_shared(self) -> bool:
        shares = [member.state().assigned for member in self.members]
        return (
            all(shares)
            and sum(map(len, shares)) == PARTITIONS
            and frozenset().union(*shares) == ALL
        )

    def fill(self, count: int) -> None:
        """As many records to every partition."""
        for partition in range(PARTITIONS):
            self.world.fill(self.topic, partition, count, self._filled)
        self._filled += count

    def await_all_received(self, first: int) -> None:
        """Everything from an offset on has reached the members that there are."""
        wanted = {
            Received(partition, offset)
            for partition in range(PARTITIONS)
            for offset in range(first, self._filled)
        }
        eventually(lambda: wanted <= set(self.received()), lambda: len(self.received()))

    def received(self) -> list[Received]:
        return [each for member in self.members for each in member.state().received]


@contextmanager
def _group(harness: ClientHarness, cooperative: bool = False) -> Iterator[Group]:
    group = Group(harness, cooperative)
    try:
        yield group
    finally:
        for member in list(group.members):
            group.leave(member)


def eager(harness: ClientHarness) -> None:
    """A group grows, loses its coordinator by SIGKILL while it grows again, and shrinks."""
    _eager(harness, commits=True)


def eager_that_commits_by_itself(harness: ClientHarness) -> None:
    """The same with members that cannot be told when to commit."""
    _eager(harness, commits=False)


def _eager(harness: ClientHarness, commits: bool) -> None:
    with _group(harness) as group:
        group.join()
        group.await_shared()
        group.join()
        group.await_shared()
        group.fill(10)
        group.await_all_received(0)
        if commits:
            for member in group.members:
                member.commit()
        with harness.killed(harness.coordinator(group.id)):
            group.join()
            group.await_shared()
            group.fill(10)
            group.await_all_received(10)
        group.leave(group.members[0])
        group.await_shared()
        group.fill(10)
        group.await_all_received(20)


def cooperative(harness: ClientHarness) -> None:
    """Who keeps a partition keeps it all the time: only what moves is taken away."""
    with _group(harness, cooperative=True) as group:
        first = group.join()
        group.await_shared()
        group.join()
        group.await_shared()
        moved = ALL - first.state().assigned
        assert moved
        assert frozenset().union(*first.state().revoked) == moved
        with harness.killed(harness.coordinator(group.id)):
            group.fill(10)
            group.await_all_received(0)
            group.join()
            group.await_shared()
            group.fill(10)
            group.await_all_received(10)


def static_members(harness: ClientHarness) -> None:
    """A static member that comes back has what it had, and nobody else notices."""
    with _group(harness) as group:
        one, two = group.join("one"), group.join("two")
        group.await_shared()
        before, others = one.state(), two.state().assigned
        group.leave(two)
        settled(0.5)
        two = group.join("two")
        eventually(lambda: two.state().assigned == others, two.state)
        group.fill(5)
        group.await_all_received(0)
        after = one.state()
        assert (after.assigned, after.rebalances) == (before.assigned, before.rebalances)


def commit_and_resume(harness: ClientHarness) -> None:
    """What was committed is not read again, and what was not is, by a later member."""
    with _group(harness) as group:
        first = group.join()
        group.await_shared()
        group.fill(10)
        group.await_all_received(0)
        first.commit()
        group.fill(3)
        group.await_all_received(10)
        group.leave(first)
        with harness.killed(harness.coordinator(group.id)):
            group.join()
            group.await_all_received(10)
        assert {each.offset for each in group.received()} == {10, 11, 12}


def automatic_commit_and_resume(harness: ClientHarness) -> None:
    """A member that commits by itself, and when it ends: what it read is not read again."""
    with _group(harness) as group:
        first = group.join()
        group.await_shared()
        group.fill(10)
        group.await_all_received(0)
        group.leave(first)
        group.fill(3)
        with harness.killed(harness.coordinator(group.id)):
            group.join()
            group.await_all_received(10)
        assert {each.offset for each in group.received()} == {10, 11, 12}
