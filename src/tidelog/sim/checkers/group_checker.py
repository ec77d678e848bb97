"""What members of groups were told, compared with each other: commits, generations, ownership.

An acknowledged commit counts until a later one replaces it: whoever takes a partition over in the
newest generation is never told less. A commit of an older generation is not acknowledged once a
newer one was handed out, nor one of a process whose place another one has taken, under the same
instance id (KIP-345). A generation that was handed out has one leader and one assignment, in which
a partition has one owner. Times are those at which clients sent and heard; where an outcome is not
known, both ways are allowed. Knows neither brokers nor logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.sim.client_history import Outcome

#: Nothing was committed for a partition.
NO_OFFSET: Final = -1
_NEVER: Final = 1 << 62


@dataclass(slots=True, eq=False)
class Commit:
    """One partition's offset, sent once."""

    group: str
    partition: int
    #: -1 for a committer that is no member.
    generation: int
    offset: int
    begin_ns: int
    end_ns: int = -1
    outcome: Outcome = Outcome.OPEN
    topic: str = ""
    #: Who sent it, as histories name it.
    process: str = ""
    #: The member that it speaks for, and its instance id where it is static.
    member: str = ""
    instance: str | None = None

    def __str__(self) -> str:
        return (
            f"commit of offset {self.offset} for partition {self.partition} by group {self.group}"
            f" generation {self.generation} ({self.outcome.value}, sent at"
            f" {self.begin_ns / 1e9:.6f} s, answered at {self.end_ns / 1e9:.6f} s)"
        )


@dataclass(slots=True)
class _Generation:
    """A generation whose assignment somebody was given."""

    handed_out_ns: int
    #: Owner of each partition.
    owners: dict[int, str] = field(default_factory=dict)


class _Place(NamedTuple):
    """A static member's place in a group, as one process held it."""

    member: str
    #: When it asked for the place, and when it was told what it was given.
    asked_ns: int
    taken_ns: int


@dataclass(slots=True)
class _Group:
    generations: dict[int, _Generation] = field(default_factory=dict)
    #: Leader by generation and term of the coordinator.
    leaders: dict[tuple[int, int], str] = field(default_factory=dict)
    #: By instance id, in the order in which they were taken.
    places: dict[str, list[_Place]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.generations, default=-1)


class GroupChecker:
    """Follows what members report, and which broker coordinates which partition.

    A term is one load of a partition by one broker: what is decided in one term must agree, while
    an earlier coordinator may have told others what it never wrote down.
    """

    def __init__(
        self,
        violate: Callable[[str], None],
        now_ns: Callable[[], int],
        partitions: int,
        promise: Callable[[str], None] | None = None,
    ) -> None:
        """`promise` hears what breaks the promise of an acknowledgement; without it, `violate`."""
        self.acknowledged_commits = 0
        #: Loads by another broker than the one before.
        self.coordinator_moves = 0
        #: Called when a member is given its part: (group, generation, member, partitions).
        self.on_synced: list[Callable[[str, int, str, list[int]], None]] = []
        #: Called when as much is known of a commit as ever will be.
        self.on_commit_ended: list[Callable[[Commit], None]] = []
        self._partition_count = partitions
        self._terms: dict[tuple[int, int], int] = {}
        self._last_term = 0
        self._last_coordinator: dict[int, int] = {}
        #: Every commit, by group and partition.
        self.commits: dict[tuple[str, int], list[Commit]] = {}
        self._violate = violate
        self._promise = promise or violate
        self._now_ns = now_ns
        self._groups: dict[str, _Group] = {}

    @property
    def rebalances(self) -> int:
        """Generations that were handed out."""
        return sum(len(group.generations) for group in self._groups.values())

    def _group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    # Who coordinates

    def partition_of(self, group: str) -> int:
        """The partition that owns a group, by Java's hash of its name (G2), which is ASCII here."""
        value = 0
        for byte in group.encode("ascii"):
            value = (31 * value + byte) & 0xFFFF_FFFF
        return (value & 0x7FFF_FFFF) % self._partition_count

    def term(self, group: str, node_id: int) -> int:
        """The number of the term in which a broker coordinates a group now; -1: in none."""
        return self._terms.get((node_id, self.partition_of(group)), -1)

    def loaded(self, node_id: int, partition: int) -> None:
        """A broker says that it has loaded a partition."""
        self._last_term += 1
        self._terms[(node_id, partition)] = self._last_term
        if self._last_coordinator.get(partition, node_id) != node_id:
            self.coordinator_moves += 1
        self._last_coordinator[partition] = node_id

    def unloaded(self, node_id: int, partition: int) -> None:
        """A broker says that it coordinates a partition no longer."""
        self._terms.pop((node_id, partition), None)

    def died(self, node_id: int) -> None:
        """A broker is gone, and with it all that it coordinated."""
        for key in [key for key in self._terms if key[0] == node_id]:
            del self._terms[key]

    # What members report

    def joined(self, group: str, generation: int, leader: str, term: int) -> None:
        """A member of a group without static ones was told of a generation, in that term."""
        if term < 0:
            return
        known = self._group(group).leaders.setdefault((generation, term), leader)
        if known != leader:
            self._violate(
                f"group {group} generation {generation}: {known} leads it and {leader} does"
            )

    def synced(self, group: str, generation: int, owner: str, partitions: list[int]) -> None:
        """A member was given its part of a generation."""
        for callback in self.on_synced:
            callback(group, generation, owner, partitions)
        generations = self._group(group).generations
        found = generations.setdefault(generation, _Generation(self._now_ns()))
        for partition in partitions:
            known = found.owners.setdefault(partition, owner)
            if known != owner:
                self._promise(
                    f"group {group} generation {generation}: partition {partition} was given to"
                    f" {known} and to {owner}"
                )
        given_before = [each for each, known in found.owners.items() if known == owner]
        if sorted(given_before) != sorted(partitions):
            self._promise(
                f"group {group} generation {generation}: {owner} was given {given_before}, then"
                f" {partitions}"
            )

    def place_taken(self, group: str, instance: str, member: str, asked_ns: int) -> None:
        """A static member that asked to join at that time was given its part just now: that is
        in the log, and so is whose place it took."""
        places = self._group(group).places.setdefault(instance, [])
        if all(place.member != member for place in places):
            places.append(_Place(member, asked_ns, self._now_ns()))

    def commit_begins(
        self,
        group: str,
        partition: int,
        generation: int,
        offset: int,
        topic: str = "",
        process: str = "",
        member: str = "",
        instance: str | None = None,
    ) -> Commit:
        """An offset, which no other commit of the group has, is about to be sent."""
        commit = Commit(
            group, partition, generation, offset, self._now_ns(),
            topic=topic, process=process, member=member, instance=instance,
        )  # fmt: skip
        self.commits.setdefault((group, partition), []).append(commit)
        return commit

    def commit_ends(self, commit: Commit, outcome: Outcome) -> None:
        """As much is known of a commit as ever will be."""
        commit.outcome = outcome
        commit.end_ns = self._now_ns()
        for callback in self.on_commit_ended:
            callback(commit)
        if outcome is not Outcome.DONE:
            return
        self.acknowledged_commits += 1
        if commit.generation < 0:
            return
        for number, generation in self._group(commit.group).generations.items():
            if number > commit.generation and generation.handed_out_ns < commit.begin_ns:
                self._promise(
                    f"acknowledged although generation {number} was handed out at"
                    f" {generation.handed_out_ns / 1e9:.6f} s: {commit}"
                )
        self._check_place(commit)

    def _check_place(self, commit: Commit) -> None:
        """Who took the place after this member had it, and was told so before it committed, is
        the one who may commit."""
        places = self._group(commit.group).places.get(commit.instance or "", [])
        own = next((place for place in places if place.member == commit.member), None)
        if own is None:
            return
        for place in places:
            if own.taken_ns < place.asked_ns and place.taken_ns < commit.begin_ns:
                self._promise(
                    f"acknowledged although member {place.member} took the place of"
                    f" {commit.member} as {commit.instance} at {place.taken_ns / 1e9:.6f} s:"
                    f" {commit}"
                )

    def fetched(
        self, group: str, generation: int, partition: int, offset: int, asked_ns: int
    ) -> None:
        """The owner of a partition was told where to go on, by whom its assignment is of.

        In a generation that is not the newest any more it may have been told by a coordinator that
        does not know yet that it was replaced; what it commits then is refused.
        """
        if self._group(group).newest == generation:
            self._check(group, partition, offset, asked_ns, "the owner of the partition was told")

    def fetched_last(self, group: str, partition: int, offset: int, asked_ns: int) -> None:
        """All is healed: somebody asked for a group's offset."""
        self._check(group, partition, offset, asked_ns, "at the end it is")

    # What must hold

    def _check(self, group: str, partition: int, offset: int, asked_ns: int, where: str) -> None:
        commits = self.commits.get((group, partition), [])
        told = next((commit for commit in commits if commit.offset == offset), None)
        if told is None and offset != NO_OFFSET:
            self._promise(
                f"group {group}, partition {partition}: nobody ever committed offset {offset}"
            )
            return
        if told is not None and told.outcome is Outcome.REFUSED:
            self._promise(f"in force although it was refused: {told}")
            return
        latest_ns = NO_OFFSET if told is None else self._latest_ns(told)
        for commit in commits:
            if (
                commit.outcome is Outcome.DONE
                and commit.end_ns < asked_ns
                and commit.begin_ns > latest_ns
            ):
                self._promise(
                    f"group {group}, partition {partition}: {where} offset {offset}, which was"
                    f" replaced by an acknowledged {commit}"
                )
                return

    def _latest_ns(self, commit: Commit) -> int:
        """When it took effect at the latest. One that was not answered may come into the log until
        a newer generation is there, which fences it."""
        if commit.outcome is Outcome.DONE:
            return commit.end_ns
        if commit.generation < 0:
            return _NEVER
        fences = [
            generation.handed_out_ns
            for number, generation in self._group(commit.group).generations.items()
            if number > commit.generation
        ]
        return min(fences, default=_NEVER)
