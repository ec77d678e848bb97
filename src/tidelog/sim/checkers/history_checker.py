"""A run's clients, as a history that anybody could have recorded; judged when the run ends.

What `tidelog.history` finds is found from outside: from what clients sent and were told alone. A
producer names no topic id, so a topic that was deleted and made anew takes part by what is sure: a
batch begun when its newest incarnation was known to be there, and answered before anybody asked for
its deletion. Any other batch for such a topic counts as one whose outcome is not known. Partitions
that were removed take no part: a number says nothing of which life was meant, and what is read and
acknowledged of each is compared with what was committed there, when it happens.
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
#: What is wrong however much was lost: a refused record was read, one poll jumps or goes back.
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
    """All operations of a run in the order of their begins; `topics` are those that are there in
    the end, `is_compacted` says that records have keys and compaction removes some, `compacted`
    names the topics of which that is so where it is not so of all."""
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
            # One that is gone although nobody asked: by a deletion that was asked for before.
            begin_ns = max(life.deletion_begun_ns, 0)
            found.append(Operation(_ADMINISTRATOR, "delete", begin_ns, None, INFO, topics=[name]))
        if is_compacted or life.name in compacted:
            found.append(Operation(_ADMINISTRATOR, "compact", 0, 0, topics=[name]))
    return sorted(found, key=lambda each: each.begin)


def _without(operation: Operation, removed: Collection[tuple[str, int]]) -> Operation:
    """An operation without what it says of these partitions."""
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
    """(topic, number) of a partition's name in histories."""
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
    """The incarnation of the topic that a batch surely went to, or would have gone to."""
    lives = [life for life in history.topics.values() if life.name == produce.topic]
    for life in reversed(lives):
        if life.created_ns <= produce.begin_ns:
            # An open one has no end: a deletion may still meet it.
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
    told: Sequence[Operation], violate: Callable[[str], None], *, is_promised: bool = True
) -> Report:
    """Judge a run; everything that was committed has been read. Each anomaly that is not allowed
    is told with the operations involved; where nothing is promised to stay, those alone that no
    loss explains."""
    checker = HistoryChecker()
    for line, operation in enumerate(told, 1):
        checker.add(operation, line)
    report = checker.finish()
    for anomaly in report.forbidden_anomalies:
        if not is_promised and anomaly.name not in _WITHOUT_PROMISES:
            continue
        involved = "; ".join(describe(told[line - 1]) for line in anomaly.lines)
        violate(f"{anomaly} ({involved})")
    return report
