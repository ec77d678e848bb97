"""Descriptions of transactions for administrators (T86).

They show the stored state: a pending transition counts only when its record is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelog.core.errors import ErrorCode
from tidelog.txn.asked import TransactionAsked
from tidelog.txn.records import NOT_STARTED_MS
from tidelog.txn.states import BY_TITLE, TransactionPhase
from tidelog.txn.turn import Coordinated, TransactionTurn
from tidelog.wire.messages import list_transactions
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TopicData,
    TransactionState,
)


def describe(
    turn: TransactionTurn,
    coordinated: Coordinated | None,
    asked: TransactionAsked[DescribeTransactionsRequest],
) -> None:
    """Answer with the stored state of an id, and the partitions that have no marker yet."""
    stored = None if coordinated is None else coordinated.stored
    pending = None if coordinated is None else coordinated.pending
    is_dead = pending is not None and pending.value is None
    if stored is None or coordinated is None or is_dead:
        turn.refuse(asked, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return
    open_partitions = coordinated.unmarked if stored.phase.is_prepared else stored.partitions
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(open_partitions):
        topics.setdefault(topic, []).append(number)
    turn.reply(
        asked,
        TransactionState(
            transactional_id=asked.transactional_id,
            transaction_state=stored.phase.title,
            transaction_timeout_ms=stored.timeout_ms,
            transaction_start_time_ms=stored.started_ms,
            producer_id=stored.producer_id,
            producer_epoch=stored.producer_epoch,
            topics=[TopicData(topic, numbers) for topic, numbers in topics.items()],
        ),
    )


def unknown_states(titles: Iterable[str]) -> list[str]:
    """Return the names in a filter that are no states of a transaction."""
    return [title for title in titles if title not in BY_TITLE]


def list_ids(
    ids: Mapping[str, Coordinated],
    state_titles: Sequence[str],
    producer_ids: Sequence[int],
    longer_than_ms: int,
    wall_ms: int,
) -> list[list_transactions.TransactionState]:
    """Return the ids that match all filters; an empty filter matches every id.

    `longer_than_ms` matches transactions that began longer ago, and every id if it is below 0
    (KIP-994).
    """
    phases = {BY_TITLE[title] for title in state_titles if title in BY_TITLE}
    found: list[list_transactions.TransactionState] = []
    for name, coordinated in ids.items():
        stored, pending = coordinated.stored, coordinated.pending
        if stored is None:
            continue
        is_dead = pending is not None and pending.value is None
        phase = TransactionPhase.DEAD if is_dead else stored.phase
        is_long = longer_than_ms < 0 or (
            stored.started_ms != NOT_STARTED_MS and wall_ms - stored.started_ms > longer_than_ms
        )
        if (
            (not state_titles or phase in phases)
            and (not producer_ids or stored.producer_id in producer_ids)
            and is_long
        ):
            found.append(list_transactions.TransactionState(name, stored.producer_id, phase.title))
    return found
