"""What a cluster with single disks may lose, by enumeration over the real controller (D19).

Brokers with two log directories each, one replica of the partition in the first directory of each.
Every set of failed brokers and directories is played, in every order where there are few. After
each failure the leader, if there is one, drops dead members and commits something. The table in
docs/guide/disks.md is what the enumeration finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path

import pytest
from tests.support.controller.values import (
    TP,
    alter,
    brokers,
    loaded,
    one_partition,
    roles_answered,
    state,
    step,
)

from tidelog.controller.registrations import BrokersRead
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "disks.md"
#: (broker, None) is the broker, (broker, 0) and (broker, 1) are its directories.
Failure = tuple[int, int | None]
#: RAID-10 keeps each replica on two disks.
RAID_COPIES = 2 * 2


class Played:
    """One partition, and what has failed."""

    def __init__(self, replication_factor: int) -> None:
        self.replicas = tuple(range(1, replication_factor + 1))
        self.live = set(self.replicas)
        self.lost_disks: set[int] = set()
        published = state(self.replicas)
        self.controller = loaded(
            one_partition(published, self.replicas), live=brokers(*self.replicas)
        )
        self.holders = set(self.replicas)

    def fail(self, failure: Failure) -> None:
        """Let it fail, and the cluster react; then a record is committed where one can be."""
        broker_id, directory = failure
        if directory is None:
            self.live.discard(broker_id)
            step(self.controller, BrokersRead(brokers(*sorted(self.live))))
        elif directory == 0 and broker_id in self.live:
            self.lost_disks.add(broker_id)
            step(self.controller, roles_answered(broker_id, ErrorCode.KAFKA_STORAGE_ERROR))
        elif directory == 0:
            self.lost_disks.add(broker_id)
        self._commit()

    def _commit(self) -> None:
        now = self.controller.image.states[TP]
        if now.leader == NO_LEADER:
            return
        assert now.leader in self.holders, "the leader lacks committed records"
        assert self.serves(now.leader), "the leader cannot be reached"
        alive = [member for member in now.isr if self.serves(member)]
        if len(alive) < len(now.isr):
            step(
                self.controller,
                alter(
                    *alive,
                    sender=now.leader,
                    leader_epoch=now.leader_epoch,
                    partition_epoch=now.partition_epoch,
                ),
            )
        assert set(self.controller.image.states[TP].isr) == set(alive)
        self.holders = set(alive)

    def serves(self, broker_id: int) -> bool:
        """Whether the broker runs and its replica is readable."""
        return broker_id in self.live and broker_id not in self.lost_disks

    @property
    def is_available(self) -> bool:
        """Whether the partition has a leader."""
        return bool(self.controller.image.states[TP].leader != NO_LEADER)

    @property
    def is_kept(self) -> bool:
        """Whether a disk has all that was committed."""
        return not self.holders <= self.lost_disks


def things(replication_factor: int, kind: str) -> list[Failure]:
    """All brokers, or all directories, or both."""
    kinds: dict[str, list[int | None]]
    kinds = {"brokers": [None], "directories": [0, 1], "any": [None, 0, 1]}
    return [
        (broker_id, each) for broker_id in range(1, replication_factor + 1) for each in kinds[kind]
    ]


def orders(failures: Sequence[Failure]) -> Iterator[Sequence[Failure]]:
    """Every order of a few failures; both directions of many."""
    if len(failures) <= 3:
        yield from permutations(failures)
    else:
        yield failures
        yield failures[::-1]


def survived(replication_factor: int, kind: str, count: int) -> bool:
    """Whether the partition is available, and keeps all, whichever `count` things fail."""
    sound = True
    for failures in combinations(things(replication_factor, kind), count):
        for order in orders(failures):
            played = Played(replication_factor)
            for failure in order:
                played.fail(failure)
            assert played.is_kept or not played.is_available, f"lost, and served: {order}"
            assert played.is_available == any(map(played.serves, played.replicas)), order
            sound = sound and played.is_available and played.is_kept
    return sound


@pytest.mark.rule("D19")
@pytest.mark.parametrize("replication_factor", [2, 3, 4])
@pytest.mark.parametrize("kind", ["brokers", "directories", "any"])
def test_all_but_one_may_fail_whichever_they_are(replication_factor: int, kind: str) -> None:
    for count in range(1, replication_factor):
        assert survived(replication_factor, kind, count)
    assert not survived(replication_factor, kind, replication_factor)


@pytest.mark.rule("D19")
def test_the_table_of_the_guide_is_what_the_enumeration_finds() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for name, copies, replication_factor in (
        ("RAID-10, replication factor 2", RAID_COPIES, 2),
        *((f"single disks, replication factor {each}", each, each) for each in (2, 3, 4)),
    ):
        may_fail = 1
        while survived(replication_factor, "brokers", may_fail + 1):
            may_fail += 1
        space = 100 * (copies - RAID_COPIES) // RAID_COPIES
        assert f"| {name} | {may_fail} | {space} % |" in text
