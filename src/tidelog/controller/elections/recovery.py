"""Recovery by proof: choosing a leader by comparing logs, if no live member is proven (E6).

The members of a partition are its ISR and its eligible leader replicas. When a record was
committed, all members had it. Let k be the effective minimum. The guarantee of acks=all assumes
that at most k - 1 members have lost unsynced data. Any k members thus include one that has kept all
its records. A log with a greater pair (last leader epoch, end offset) than another log has every
committed record of the other log. The greatest log of any k members therefore has every committed
record. The controller waits up to leader.recovery.wait.ms until all members are registered, and
then asks the registered members for their log ends. If the store lost its latest writes, all n
replicas are members, and n - k + 1 of them must be registered (E8).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.records import NO_LOG, UNREADABLE_LOG, Recovery
from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER, PartitionState


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The next step of a recovery."""

    members: tuple[int, ...]
    #: ISR members and eligible replicas whose brokers are not registered, are leaving, or cannot
    #: read their logs.
    missing: tuple[int, ...]
    #: Number of ISR members and eligible replicas whose brokers must be registered before any of
    #: them may lead.
    quorum: int
    #: The member that may lead now; NO_LEADER while that member is not known.
    leader: int = NO_LEADER
    #: Members whose log ends must be known before a member may lead.
    asked: tuple[int, ...] = ()
    #: Whether the recovery is under way, because enough members are registered.
    is_under_way: bool = False


def plan(state: PartitionState, around: Circumstances) -> RecoveryPlan:
    """Return the next step of a recovery, when no live member provably has all records."""
    recovery = around.recovery or Recovery()
    brokers = around.brokers
    members = tuple(
        member for member in eligible_replicas.members(state) if member in around.replicas
    )
    here = [
        member
        for member in members
        if member in brokers
        and not brokers[member].is_leaving
        and member not in around.offline
        and recovery.logs.get(member) != UNREADABLE_LOG
    ]
    missing = tuple(member for member in members if member not in here)
    quorum = _quorum(state, len(members), around.minimum)
    candidates = [member for member in here if member not in around.absent]
    if not candidates or len(here) < quorum:
        return RecoveryPlan(members, missing, quorum)
    if len(members) == 1:
        return RecoveryPlan(members, missing, quorum, leader=candidates[0], is_under_way=True)
    if missing and not recovery.is_due:
        return RecoveryPlan(members, missing, quorum, is_under_way=True)
    asked = tuple(
        member
        for member in candidates
        if brokers[member].reports_log_ends and member not in recovery.logs
    )
    leader = NO_LEADER
    heard = len(here) - len(asked)
    if not asked or (recovery.is_due and heard >= quorum):
        leader = _greatest([m for m in candidates if m not in asked], heard, quorum, around)
    is_under_way = bool(asked) or leader != NO_LEADER
    return RecoveryPlan(members, missing, quorum, leader, asked, is_under_way)


def _quorum(state: PartitionState, members: int, minimum: int) -> int:
    """Return how many members must be registered before an election.

    In a proven state this is `minimum`, the effective min.insync.replicas. In an unproven state all
    replicas are members, and each record was committed on at least `minimum` of them. If fewer than
    `minimum` members are missing, each committed record is therefore on a registered member (E8).
    """
    if state.is_unproven:
        return max(1, members - minimum + 1)
    return min(minimum, members)


def _greatest(candidates: Sequence[int], heard: int, quorum: int, around: Circumstances) -> int:
    """Return the member with the greatest log; among equals, the first of the assignment.

    `heard` is the number of members that reported their log end, or that count without a report
    because they lost the replica. Brokers of Kafka 3.9 report no log ends. If too few members
    report their log ends, the logs cannot be compared, and the first of `candidates` leads with
    only Kafka's guarantees.
    """
    known = {} if around.recovery is None else around.recovery.logs
    silent = [member for member in candidates if member not in known]
    logs = {member: known[member] for member in candidates if known.get(member, NO_LOG) != NO_LOG}
    if silent and (not logs or heard - len(silent) < quorum):
        return next(member for member in candidates if member in silent or member in logs)
    # Records below the start of a log were committed, so a log that ends below the greatest start
    # lacks committed records.
    start = max((log.start_offset for log in logs.values()), default=0)
    complete = [
        member for member in around.replicas if member in logs and logs[member].end_offset >= start
    ]
    return max(
        complete,
        key=lambda member: (logs[member].leader_epoch, logs[member].end_offset),
        default=NO_LEADER,
    )
