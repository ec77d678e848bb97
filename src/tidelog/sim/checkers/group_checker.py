"""Checks of the responses to group members: commits, generations, ownership.

An acknowledged offset commit holds until a later commit replaces it: a new owner of the partition
in the newest generation must never get an older offset. After a member got its assignment in a
newer generation, no coordinator may acknowledge a commit of an older generation. No coordinator may
acknowledge a commit of a static member after another process has taken its instance id (KIP-345). A
generation has one leader and one assignment, in which each partition has one owner.

The checker orders operations by the times at which clients sent requests and got responses. If the
outcome of an operation is unknown, the checker accepts both possibilities. The checker knows
neither brokers nor logs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import Final, NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.sim.checkers.checker import CheckedRun, Checker
from tidelog.sim.client_history import Outcome
from tidelog.sim.listeners import CallbackList

#: The offset in a response if the group has committed no offset for the partition.
NO_OFFSET: Final = -1
_NEVER: Final = 1 << 62


@dataclass(slots=True, eq=False)
class Commit:
    """One attempt to commit an offset of one partition."""

    group: str
    partition: int
    #: Generation of the committer; -1 if it is no member of the group.
    generation: int
    offset: int
    #: Time at which the client sent the commit; `end_ns` is the time at which it got the response.
    begin_ns: int = -1
    end_ns: int = -1
    outcome: Outcome = Outcome.OPEN
    topic: str = ""
    #: Name, in the clients' history, of the process that sent the commit.
    process: str = ""
    #: Member id of the committer; `instance` is its instance id if it is a static member.
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
    """One generation of a group, in which at least one member got its assignment."""

    handed_out_ns: int
    #: By partition: the member to which it is assigned.
    owners: dict[int, str] = field(default_factory=dict)


class _Place(NamedTuple):
    """A process that holds or has held the instance id of a static member."""

    member: str
    #: Time of the JoinGroup request; `taken_ns` is the time at which the member got its assignment.
    asked_ns: int
    taken_ns: int


@dataclass(slots=True)
class _Group:
    generations: dict[int, _Generation] = field(default_factory=dict)
    #: Leader of the group, by generation and by the term of the group's coordinator.
    leaders: dict[tuple[int, int], str] = field(default_factory=dict)
    #: Static members by instance id, in the order in which they took over the instance id.
    places: dict[str, list[_Place]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.generations, default=-1)


class GroupChecker(Checker):
    """Checker of the responses of group coordinators, as group members report them.

    A coordinator's term begins when a broker loads a partition of `__consumer_offsets`, and ends
    when the broker unloads the partition or dies. Within one term, all responses about a generation
    must agree. Different terms may disagree, because a coordinator may respond about a generation
    before it writes the generation to the log.
    """

    def __init__(self, run: CheckedRun, partitions: int) -> None:
        """Begin to check; `partitions` is the partition count of `__consumer_offsets`."""
        super().__init__(run)
        self.acknowledged_commits = 0
        #: Number of times that a new coordinator loaded a partition of `__consumer_offsets`.
        self.coordinator_moves = 0
        #: Called when a member gets its assignment: (group, generation, member, partitions).
        self.on_synced: CallbackList[[str, int, str, list[int]]] = CallbackList()
        #: Called when the outcome of a commit is final.
        self.on_commit_ended: CallbackList[[Commit]] = CallbackList()
        self._partition_count = partitions
        self._terms: dict[tuple[int, int], int] = {}
        self._last_term = 0
        self._last_coordinator: dict[int, int] = {}
        #: Every commit, by group and partition.
        self.commits: dict[tuple[str, int], list[Commit]] = {}
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)

    @property
    def rebalances(self) -> int:
        """Number of generations in which a member got its assignment."""
        return sum(len(group.generations) for group in self._groups.values())

    # Coordinators

    def partition_of(self, group: str) -> int:
        """Return the partition of `__consumer_offsets` for a group, by Java's hash of its name
        (G2); the name must be ASCII.
        """
        value = 0
        for byte in group.encode("ascii"):
            value = (31 * value + byte) & 0xFFFF_FFFF
        return (value & 0x7FFF_FFFF) % self._partition_count

    def term(self, group: str, node_id: int) -> int:
        """Return the term in which a broker now coordinates a group; -1 if it does not."""
        return self._terms.get((node_id, self.partition_of(group)), -1)

    def loaded(self, node_id: int, partition: int) -> None:
        """Record that a broker has loaded a partition of `__consumer_offsets`."""
        self._last_term += 1
        self._terms[(node_id, partition)] = self._last_term
        if self._last_coordinator.get(partition, node_id) != node_id:
            self.coordinator_moves += 1
        self._last_coordinator[partition] = node_id

    def unloaded(self, node_id: int, partition: int) -> None:
        """Record that a broker is no longer coordinator for a partition of `__consumer_offsets`."""
        self._terms.pop((node_id, partition), None)

    def died(self, node_id: int) -> None:
        """Record the death of a broker, which ends all its terms as group coordinator."""
        for key in [key for key in self._terms if key[0] == node_id]:
            del self._terms[key]

    # Reports of members

    def joined(self, group: str, generation: int, leader: str, term: int) -> None:
        """Check the group leader in a JoinGroup response.

        Callers report only groups without static members. Nothing is checked if `term` is -1,
        because the broker that responded no longer coordinates the group.
        """
        if term < 0:
            return
        known = self._groups[group].leaders.setdefault((generation, term), leader)
        if known != leader:
            self._violate(
                f"group {group} generation {generation}: {known} leads it and {leader} does"
            )

    def synced(self, group: str, generation: int, owner: str, partitions: list[int]) -> None:
        """Check the assignment that a member got in a generation."""
        self.on_synced(group, generation, owner, partitions)
        generations = self._groups[group].generations
        found = generations.setdefault(generation, _Generation(self._now_ns()))
        for partition in partitions:
            known = found.owners.setdefault(partition, owner)
            if known != owner:
                self._promise(
                    f"group {group} generation {generation}: partition {partition} was assigned to"
                    f" {known} and to {owner}"
                )
        given_before = [each for each, known in found.owners.items() if known == owner]
        if sorted(given_before) != sorted(partitions):
            self._promise(
                f"group {group} generation {generation}: {owner} was assigned {given_before}, then"
                f" {partitions}"
            )

    def place_taken(self, group: str, instance: str, member: str, asked_ns: int) -> None:
        """Record that a static member has just got its assignment and so holds its instance id.

        The member sent its JoinGroup request at `asked_ns`. Its assignment is in the coordinator's
        log, so it has replaced the former holder of the instance id for good.
        """
        places = self._groups[group].places.setdefault(instance, [])
        if all(place.member != member for place in places):
            places.append(_Place(member, asked_ns, self._now_ns()))

    def commit_begins(self, commit: Commit) -> None:
        """Record a commit before it is sent; clients commit each offset of a group only once."""
        commit.begin_ns = self._now_ns()
        self.commits.setdefault((commit.group, commit.partition), []).append(commit)

    def commit_ends(self, commit: Commit, outcome: Outcome) -> None:
        """Record the final outcome of a commit; check the commit if it is acknowledged."""
        commit.outcome = outcome
        commit.end_ns = self._now_ns()
        self.on_commit_ended(commit)
        if outcome is not Outcome.DONE:
            return
        self.acknowledged_commits += 1
        if commit.generation < 0:
            return
        for number, generation in self._groups[commit.group].generations.items():
            if number > commit.generation and generation.handed_out_ns < commit.begin_ns:
                self._promise(
                    f"acknowledged although generation {number} was handed out at"
                    f" {generation.handed_out_ns / 1e9:.6f} s: {commit}"
                )
        self._check_place(commit)

    def _check_place(self, commit: Commit) -> None:
        """Check that no later member held the committer's instance id when the commit was sent.

        A later member has the same instance id, and sent its JoinGroup request after the committer
        had got an assignment. Once the later member has its own assignment, the coordinator must
        reject the committer's commits.
        """
        places = self._groups[commit.group].places.get(commit.instance or "", [])
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
        """Check the committed offset that the owner of a partition fetched.

        Only fetches of the group's newest generation are checked. A coordinator that does not know
        of its successor may still respond with old offsets to members of an older generation; this
        is harmless, because their commits are rejected.
        """
        if self._groups[group].newest == generation:
            self._check(group, partition, offset, asked_ns, "the owner of the partition received")

    def fetched_last(self, group: str, partition: int, offset: int, asked_ns: int) -> None:
        """Check a group's committed offset that a client fetched after the cluster had
        recovered.
        """
        self._check(group, partition, offset, asked_ns, "at the end it is")

    # Invariants

    def _check(self, group: str, partition: int, offset: int, asked_ns: int, where: str) -> None:
        commits = self.commits.get((group, partition), [])
        commit = next((commit for commit in commits if commit.offset == offset), None)
        if commit is None and offset != NO_OFFSET:
            self._promise(
                f"group {group}, partition {partition}: no client ever committed offset {offset}"
            )
            return
        if commit is not None and commit.outcome is Outcome.REFUSED:
            self._promise(f"in force although it was refused: {commit}")
            return
        latest_ns = NO_OFFSET if commit is None else self._latest_ns(commit)
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
        """Return the latest time at which a commit can have taken effect.

        A commit without a response may still reach the log until a newer generation fences its
        member.
        """
        if commit.outcome is Outcome.DONE:
            return commit.end_ns
        if commit.generation < 0:
            return _NEVER
        fences = [
            generation.handed_out_ns
            for number, generation in self._groups[commit.group].generations.items()
            if number > commit.generation
        ]
        return min(fences, default=_NEVER)
