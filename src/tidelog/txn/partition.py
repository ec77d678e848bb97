"""The coordinator of the transactional ids of one partition of `__transaction_state`.

It coordinates under one leader epoch, which is its coordinator epoch, and appends only under it
(T1). To load, the broker replays the partition's records in order up to the log end; until then the
coordinator rejects requests. The coordinator neither accesses the log nor encodes records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.core.coordinator_shard import CoordinatorPhase, Now
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.txn import adding, clean_up, ending, initialising, listing, settling
from tidelog.txn.asked import TransactionAsked
from tidelog.txn.effects import (
    LoadAgain,
    TransactionEffects,
    TransactionTimer,
    TransactionTimerKind,
)
from tidelog.txn.records import TransactionRecord
from tidelog.txn.settings import TransactionSettings
from tidelog.txn.turn import Coordinated, TransactionLedger, TransactionTurn
from tidelog.wire.messages import list_transactions
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest


class TransactionPartition:
    """The transactional ids of one partition."""

    def __init__(
        self, partition: int, leader_epoch: int, settings: TransactionSettings, level: int
    ) -> None:
        """`level` is the cluster's `transaction.version`; it may be set at any time (T90)."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.settings = settings
        self.level = level
        self.phase = CoordinatorPhase.LOADING
        self.ids: dict[str, Coordinated] = {}
        self._ledger = TransactionLedger()

    @property
    def size(self) -> int:
        """Number of transactional ids that the partition holds."""
        return len(self.ids)

    # Loading (T56).

    def replay(self, record: TransactionRecord) -> None:
        """Apply a record of the partition's log, in order, while the partition loads."""
        assert self.phase is CoordinatorPhase.LOADING, (
            "records are replayed before the partition is loaded"
        )
        if record.value is None:
            self.ids.pop(record.transactional_id, None)
        else:
            name = record.transactional_id
            self.ids[name] = Coordinated(name, record.value)

    def loaded(self, now: Now) -> TransactionEffects:
        """End the load, because all replayed records are committed; accept requests from now on.

        Resumes the markers of decided transactions with this coordinator epoch (T53).
        """
        assert self.phase is CoordinatorPhase.LOADING, "the partition is loaded already"
        self.phase = CoordinatorPhase.ACTIVE
        turn = self._turn(now)
        for coordinated in self.ids.values():
            stored = coordinated.stored
            assert stored is not None, "a replayed id has a stored state"
            if stored.phase.is_prepared:
                settling.resume(turn, coordinated)
        settings = self.settings
        turn.set_timer(
            TransactionTimer(TransactionTimerKind.TIMEOUTS), settings.timeout_interval_ms
        )
        turn.set_timer(
            TransactionTimer(TransactionTimerKind.EXPIRY), settings.expiration_interval_ms
        )
        return tuple(turn.effects)

    def unload(self) -> TransactionEffects:
        """End the leadership: respond NOT_COORDINATOR to waiting requests, and forget all (T57).

        Outcomes and producer ids that the broker reports after `unload` have no effect.
        """
        turn = self._turn(Now(0, 0))
        for coordinated in self.ids.values():
            pending = coordinated.pending
            if pending is not None:
                turn.refuse(pending.asked, ErrorCode.NOT_COORDINATOR)
            for each in coordinated.waiting:
                turn.refuse(each, ErrorCode.NOT_COORDINATOR)
            if coordinated.unmarked:
                turn.stop_markers(coordinated)
        for want in self._ledger.wants.values():
            turn.refuse(want.asked, ErrorCode.NOT_COORDINATOR)
        self.phase = CoordinatorPhase.UNLOADED
        self.ids, self._ledger = {}, TransactionLedger()
        return tuple(turn.effects)

    # Requests.

    def ask(self, asked: TransactionAsked[Any], now: Now) -> TransactionEffects:
        """Handle a request for one id; the answer may come with a later call's effects."""
        turn = self._turn(now)
        error = self._refuses(asked)
        if error is ErrorCode.NONE:
            self._decide(turn, asked)
        else:
            turn.refuse(asked, error)
        return tuple(turn.effects)

    def _refuses(self, asked: TransactionAsked[Any]) -> ErrorCode:
        """Return why a request is not decided: the first rows of the tables (T3, T16, T17)."""
        if isinstance(asked.message, InitProducerIdRequest):
            error = initialising.invalid(asked.message, self.settings)
            if error is not ErrorCode.NONE:
                return error
        elif not asked.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if self.phase is CoordinatorPhase.UNLOADED:
            return ErrorCode.NOT_COORDINATOR
        is_loading = self.phase is CoordinatorPhase.LOADING
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE

    def _decide(self, turn: TransactionTurn, asked: TransactionAsked[Any]) -> None:
        coordinated = self.ids.get(asked.transactional_id)
        match asked.message:
            case InitProducerIdRequest():
                initialising.initialise(turn, coordinated, asked)
            case AddPartitionsToTxnTransaction(verify_only=True):
                adding.verify(turn, coordinated, asked)
            case AddPartitionsToTxnTransaction() | AddOffsetsToTxnRequest():
                adding.add(turn, coordinated, asked)
            case EndTxnRequest():
                ending.end(turn, coordinated, asked)
            case _:
                assert isinstance(asked.message, DescribeTransactionsRequest)
                listing.describe(turn, coordinated, asked)

    def list_ids(
        self,
        state_titles: Sequence[str],
        producer_ids: Sequence[int],
        longer_than_ms: int,
        wall_ms: int,
    ) -> list[list_transactions.TransactionState]:
        """Return the ids that match all filters (`listing.list_ids`)."""
        return listing.list_ids(self.ids, state_titles, producer_ids, longer_than_ms, wall_ms)

    # Producer ids (T5).

    def producer_id_given(
        self, number: int, producer_id: int | None, now: Now
    ) -> TransactionEffects:
        """Decide again what waited for a new producer id; None means that none came in time."""
        want = self._ledger.wants.pop(number, None)
        turn = self._turn(now, producer_id)
        if want is None:
            return ()
        if producer_id is None:
            turn.refuse(want.asked, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        elif want.asked is not None:
            self._decide(turn, want.asked)
        else:
            coordinated = self.ids.get(want.transactional_id)
            if coordinated is not None and clean_up.has_timed_out(coordinated, now.wall_ms):
                assert coordinated.stored is not None, "an id with a transaction has a stored state"
                ending.abort(turn, coordinated, coordinated.stored)
        return tuple(turn.effects)

    # Markers.

    def marked(
        self,
        transactional_id: str,
        number: int,
        partitions: frozenset[TopicPartition],
        now: Now,
    ) -> TransactionEffects:
        """Note partitions whose marker is written or that the store no longer has (T42, T43).

        `number` is that of the `SendMarkers`. A late report about an earlier transaction of the id
        has no effect.
        """
        coordinated = self._marking(transactional_id, number)
        turn = self._turn(now)
        if coordinated is not None:
            settling.marked(turn, coordinated, partitions)
        return tuple(turn.effects)

    def marker_fenced(self, transactional_id: str, number: int) -> TransactionEffects:
        """Stop the markers of an id, because a leader knows a later coordinator (table 6, T57)."""
        coordinated = self._marking(transactional_id, number)
        turn = self._turn(Now(0, 0))
        if coordinated is not None:
            turn.stop_markers(coordinated)
            turn.effects.append(LoadAgain())
        return tuple(turn.effects)

    def _marking(self, transactional_id: str, number: int) -> Coordinated | None:
        """Return an id with open markers of this decision; None if it has none."""
        coordinated = self.ids.get(transactional_id)
        if coordinated is None or not coordinated.unmarked or coordinated.marking != number:
            return None
        return coordinated

    # Timers and outcomes.

    def timer_fired(
        self, name: TransactionTimer, _deadline_ms: int, now: Now
    ) -> TransactionEffects:
        """Handle a timer; timers of the whole partition are set again."""
        if self.phase is not CoordinatorPhase.ACTIVE:
            return ()
        turn = self._turn(now)
        match name.kind:
            case TransactionTimerKind.TIMEOUTS:
                clean_up.abort_timed_out(turn)
                turn.set_timer(name, self.settings.timeout_interval_ms)
            case TransactionTimerKind.EXPIRY:
                clean_up.remove_unused(turn)
                turn.set_timer(name, self.settings.expiration_interval_ms)
            case _:
                settling.complete_again(turn, self.ids.get(name.transactional_id))
        return tuple(turn.effects)

    def committed(self, number: int, now: Now) -> TransactionEffects:
        """Apply an append that the high watermark has passed; callers report appends in log order.

        Raises InvariantError if this append is already settled, or an earlier one is not.
        """
        turn = self._turn(now)
        if self.phase is CoordinatorPhase.ACTIVE:
            settling.committed(turn, number)
        return tuple(turn.effects)

    def failed(self, number: int, error: ErrorCode, now: Now) -> TransactionEffects:
        """Drop an append that was rejected: its record is not in the log."""
        turn = self._turn(now)
        if self.phase is CoordinatorPhase.ACTIVE:
            settling.failed(turn, number, error)
        return tuple(turn.effects)

    def timed_out(self, number: int, error: ErrorCode, now: Now) -> TransactionEffects:
        """Answer the request of an append that is in the log but was not replicated in time."""
        turn = self._turn(now)
        if self.phase is CoordinatorPhase.ACTIVE:
            settling.timed_out(turn, number, error)
        return tuple(turn.effects)

    # Internals.

    def _turn(self, now: Now, fresh_id: int | None = None) -> TransactionTurn:
        return TransactionTurn(
            now, self.settings, self.level, self.leader_epoch, self.ids, self._ledger, fresh_id
        )

    # The following methods serve the model checker.

    def copy(self) -> TransactionPartition:
        """Return an independent copy."""
        other = TransactionPartition(self.partition, self.leader_epoch, self.settings, self.level)
        other.phase = self.phase
        other.ids = {name: each.copy() for name, each in self.ids.items()}
        other._ledger = self._ledger.copy()
        return other

    def key(self) -> tuple[object, ...]:
        """Return a hashable value, equal for coordinators that will make the same decisions."""
        ids = tuple(self.ids[name].key() for name in sorted(self.ids))
        return (self.leader_epoch, self.level, self.phase, ids, self._ledger.key())
