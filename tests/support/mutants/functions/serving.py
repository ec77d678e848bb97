"""Mutants of responses to clients, and of deletions.

Each exposes uncommitted records, or lets a log begin at a wrong offset.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import mutant

_LATEST_TIMESTAMP: Final = -1
#: The offset that stands for the high watermark in DeleteRecords.
_EVERYTHING: Final = -1


@mutant(
    "V64",
    "tidelog.broker.replicas.hosting.purgatory:PartitionWatchers.wait_for_acks",
    profile="slow_followers",
)
def last_record_not_waited_for(original: Any) -> Any:
    """The leader responds to acks=all when all but the last record of the batch are committed."""
    return lambda watchers, offset, wait: original(watchers, offset - 1, wait)


@mutant("V36", "tidelog.broker.apis.list_offsets:_end", profile="lookups")
def latest_of_log_end(_: Any) -> Any:
    """The latest offset is the leader's log end, committed or not."""
    return lambda partition, role, request: role.log_end_offset


@mutant("V36", "tidelog.log.partition_log:PartitionLog.offset_for_timestamp", profile="lookups")
def search_beyond_high_watermark(original: Any) -> Any:
    """A search by time finds uncommitted records."""
    return lambda log, timestamp_ms, _: original(log, timestamp_ms, log.log_end_offset)


@mutant("V60", "tidelog.log.retention:segments_to_delete", profile="lookups")
def retention_of_uncommitted(original: Any) -> Any:
    """Retention removes segments with uncommitted records."""
    return lambda segments, config, start, end, _, *rest: original(
        segments, config, start, end, end, *rest
    )


@mutant(
    "V60",
    "tidelog.broker.replicas.hosting.leader_role:LeaderRole.delete_records_before",
    profile="lookups",
)
def deletion_to_log_end(original: Any) -> Any:
    """DeleteRecords of all records deletes uncommitted ones, too."""

    def delete_records_before(role: Any, offset: int) -> Any:
        if offset != _EVERYTHING:
            return original(role, offset)
        partition = role._partition
        wanted = partition.log.log_end_offset
        if partition.log.advance_log_start(wanted):
            partition.log_start_moved()
        return wanted

    return delete_records_before


@mutant("V83", "tidelog.broker.held_answers:HeldAnswers.answer", profile="leaders_end")
def response_of_its_request(original: Any) -> Any:
    """A response that waits for the next leader is made before it waits, from the old view."""

    def answer(held: Any, request: Any, ask: Any, make: Any) -> Any:
        made = make()
        return original(held, request, ask, lambda: made)

    return answer


@mutant("V83", "tidelog.broker.held_answers:HeldAnswers._due", profile="leaders_end")
def leader_waited_for_without_end(_: Any) -> Any:
    """A response waits for the next leader however long that takes."""
    return lambda held_answers, held: None


@mutant("V83", "tidelog.broker.held_answers:HeldAnswers._expected_until_ms", profile="leaders_end")
def every_leader_waited_for(_: Any) -> Any:
    """After any ending all responses wait, those that name leaders that live, too."""

    def expected_until_ms(held_answers: Any, question: Any, now_ms: int) -> int | None:
        expected = held_answers._ended.expected(now_ms, held_answers._max_ms())
        return max(expected.values(), default=None)

    return expected_until_ms


@mutant(
    "V67",
    "tidelog.broker.replicas.fetching.followed_partition:_EARLIEST_TIMESTAMP",
    profile="lookups",
)
def begins_at_leaders_end(_: Any) -> Any:
    """A follower that must restart its log starts at the leader's log end."""
    return _LATEST_TIMESTAMP


@mutant(
    "V61",
    "tidelog.broker.replicas.hosting.purgatory:PartitionWatchers.look_again",
    profile="patient_fetches",
)
def waits_survive_rolls(_: Any) -> Any:
    """A fetch that waits does not look again when the log rolls, or when the leader epoch rises."""
    return lambda watchers: None
