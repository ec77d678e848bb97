"""Check of a run's client operations at the end of the run, by `tidelog.history`, which uses only
requests and responses of clients.

A Produce request names no topic id, so a batch for a recreated topic may belong to any incarnation
of the topic. If the response to a batch came before any deletion request, the batch certainly
belongs to the incarnation that clients knew when they sent it. If an acknowledged batch may belong
to several incarnations, its outcome counts as unknown.

A partition that was removed from its topic (by a request that only tidelog has) is not checked:
after the partition is added again, its number does not identify the incarnation. During
the run, `client_checker` compares the reads and acknowledgements of each partition incarnation with
its committed records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from tidelog.core.types import TopicId
from tidelog.history import HistoryChecker, Operation, Report, describe
from tidelog.history.operations import FAIL, INFO, OK
from tidelog.sim.batches import is_tombstone, key_of
from tidelog.sim.checkers.group_checker import Commit
from tidelog.sim.client_history import ClientHistory, Outcome, Produce, TopicLife

_OUTCOMES: Final = {
    Outcome.OPEN: INFO,
    Outcome.UNKNOWN: INFO,
    Outcome.REFUSED: FAIL,
    Outcome.DONE: OK,
}
#: Anomalies that even a permitted loss of data does not explain: a rejected record was read; a poll
#: skips offsets or goes back.
_WITHOUT_PROMISES: Final = ("G1a", "int-poll-skip", "int-nonmonotonic-poll")
_ADMINISTRATOR: Final = "administrator"


def operations(
    history: ClientHistory,
    commits: Iterable[Commit],
    topics: Collection[TopicId],
    *,
    is_compacted: bool = False,
    compacted: Collection[str] = (),
) -> list[Operation]:
    """Return all operations of a run in the order in which they began.

    `topics` are the topics that exist at the end of the run. With `is_compacted`, the records of
    all topics have keys, and compaction removes some records. Without `is_compacted`, only the
    topics in `compacted` are compacted.
    """
    found = [
        _send(history, produce, is_compacted or produce.topic in compacted)
        for produce in history.produces
    ]
    found += history.operations
    found = [_without(each, history.removed) for each in found]
    found += [_commit(commit) for commit in commits]
    for topic_id, life in history.topics.items():
        name = f"{life.name}@{topic_id.hex()}"
        if life.deletion_begun_ns >= 0 or topic_id not in topics:
            # A topic may disappear without a deletion request of its own: an earlier request for a
            # topic of the same name took effect late.
            begin_ns = max(life.deletion_begun_ns, 0)
            found.append(Operation(_ADMINISTRATOR, "delete", begin_ns, None, INFO, topics=[name]))
        if is_compacted or life.name in compacted:
            found.append(Operation(_ADMINISTRATOR, "compact", 0, 0, topics=[name]))
    return sorted(found, key=lambda each: each.begin)


def _without(operation: Operation, removed: Collection[tuple[str, int]]) -> Operation:
    """Return the operation without records in removed partitions."""
    if not removed or not operation.records:
        return operation
    kept = {
        name: records
        for name, records in operation.records.items()
        if _partition_of(name) not in removed
    }
    if len(kept) == len(operation.records):
        return operation
    return replace(operation, records=kept)


def _partition_of(name: str) -> tuple[str, int]:
    """Return (topic, number) from a partition's name in histories."""
    topic, _, number = name.rpartition("-")
    return topic.partition("@")[0], int(number)


def _send(history: ClientHistory, produce: Produce, is_keyed: bool) -> Operation:
    life = _life_of(history, produce)
    outcome = _OUTCOMES[produce.outcome]
    topic = produce.topic
    if life is not None:
        topic = f"{topic}@{life.topic_id.hex()}"
    elif outcome == OK:
        outcome = INFO
    first = produce.base_offset if outcome == OK else -1
    records = []
    for at, number in enumerate(produce.numbers):
        record: list[object] = [first + at if first >= 0 else None, number]
        if is_keyed:
            record += [str(key_of(number)), is_tombstone(number)]
        records.append(record)
    return Operation(
        f"producer-{produce.client}",
        "send",
        produce.begin_ns,
        None if produce.outcome is Outcome.OPEN else produce.end_ns,
        outcome,
        records={f"{topic}-{produce.partition}": records},
        acks=produce.acks,
        idempotent=produce.is_idempotent,
    )


def _life_of(history: ClientHistory, produce: Produce) -> TopicLife | None:
    """Return the incarnation of a topic to which a batch certainly belongs; None if unknown."""
    lives = [life for life in history.topics.values() if life.name == produce.topic]
    for life in reversed(lives):
        if life.created_ns <= produce.begin_ns:
            # A batch without a response is still open, so any later deletion may precede it.
            is_over = life.deletion_begun_ns >= 0 and (
                produce.end_ns < 0 or life.deletion_begun_ns <= produce.end_ns
            )
            return None if is_over else life
    return None


def _commit(commit: Commit) -> Operation:
    return Operation(
        commit.process or commit.group,
        "commit",
        commit.begin_ns,
        None if commit.outcome is Outcome.OPEN else commit.end_ns,
        _OUTCOMES[commit.outcome],
        partitions={f"{commit.topic}-{commit.partition}": commit.offset},
        group=commit.group,
    )


def check_history(
    history: Sequence[Operation], violate: Callable[[str], None], *, is_promised: bool = True
) -> Report:
    """Check a run in which consumers have read every committed record.

    Each forbidden anomaly is reported with its operations. Without `is_promised`, the run may lose
    data, and only anomalies that a loss does not explain are reported.
    """
    checker = HistoryChecker()
    for line, operation in enumerate(history, 1):
        checker.add(operation, line)
    report = checker.finish()
    for anomaly in report.forbidden_anomalies:
        if not is_promised and anomaly.name not in _WITHOUT_PROMISES:
            continue
        involved = "; ".join(describe(history[line - 1]) for line in anomaly.lines)
        violate(f"{anomaly} ({involved})")
    return report
