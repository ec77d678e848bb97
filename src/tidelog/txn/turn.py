"""One turn of a transaction coordinator: the handling of one request or event, with its effects.

A `Coordinated` is one transactional id. Its stored state is what the last committed record has; a
transition whose record has no outcome yet is pending, and each id has at most one (T14). Every
decision uses the stored state.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from tidelog.core.coordinator_shard import CoordinatorAppend, Now, Reply, SetTimer
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.core.types import TopicPartition
from tidelog.txn.asked import TransactionAsked, refusal
from tidelog.txn.effects import (
    NeedProducerId,
    SendMarkers,
    StopMarkers,
    TransactionEffect,
    TransactionTimer,
)
from tidelog.txn.records import Transaction, TransactionRecord, record_version
from tidelog.txn.settings import TransactionSettings
from tidelog.txn.states import TransactionPhase, check_transition


class Purpose(Enum):
    """Why a record is appended; it decides what happens when the append has an outcome."""

    #: An InitProducerId gives the id and epoch of the record.
    INITIALISE = "initialise"
    #: Partitions join the transaction.
    ADD = "add"
    #: An EndTxn decides the transaction.
    END = "end"
    #: The coordinator aborts the transaction of a new producer's predecessor, or after a timeout.
    FENCE = "fence"
    #: All markers are written.
    COMPLETE = "complete"
    #: The id is removed.
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class PendingTransition:
    """A transition whose record has no outcome yet."""

    number: int
    #: The state that the record stores; None for a tombstone.
    value: Transaction | None
    purpose: Purpose
    #: The request that waits for the record; None if no request waits, or no longer (T15).
    asked: TransactionAsked[Any] | None
    is_overdue: bool = False


class Coordinated:
    """One transactional id with its stored state, its pending transition and its open markers."""

    __slots__ = ("marking", "pending", "stored", "transactional_id", "unmarked", "waiting")

    def __init__(self, transactional_id: str, stored: Transaction | None = None) -> None:
        self.transactional_id = transactional_id
        #: None until the first record of the id is committed.
        self.stored = stored
        self.pending: PendingTransition | None = None
        #: The partitions whose marker is not yet written, while the transaction is decided.
        self.unmarked: set[TopicPartition] = set()
        #: The number of the last `SendMarkers`.
        self.marking: int | None = None
        #: Adds that wait for a pending add of the same producer (T26).
        self.waiting: tuple[TransactionAsked[Any], ...] = ()

    def copy(self) -> Coordinated:
        """Return an independent copy."""
        other = Coordinated(self.transactional_id, self.stored)
        other.pending, other.waiting = self.pending, self.waiting
        other.unmarked, other.marking = set(self.unmarked), self.marking
        return other

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value."""
        return (
            self.transactional_id,
            None if self.stored is None else self.stored.key(),
            self.pending,
            tuple(sorted(self.unmarked)),
            self.marking,
            self.waiting,
        )


@dataclass(frozen=True, slots=True)
class Want:
    """A decision that waits for a new producer id.

    The decision is about the request `asked`, or is an abort after a timeout if `asked` is None.
    """

    transactional_id: str
    asked: TransactionAsked[Any] | None


class TransactionLedger:
    """A coordinator's open work: appends without an outcome, decisions without a producer id."""

    __slots__ = ("appends", "next_number", "wants")

    def __init__(self) -> None:
        self.next_number = 0
        #: The transactional id of each append without an outcome, in the order of the log.
        self.appends: dict[int, str] = {}
        self.wants: dict[int, Want] = {}

    def take_number(self) -> int:
        """Return the number of a new append, want or decision."""
        self.next_number += 1
        return self.next_number - 1

    def transactional_id_of(self, number: int) -> str:
        """Return the transactional id of the append `number`; raise InvariantError if unknown."""
        found = self.appends.get(number)
        if found is None:
            raise InvariantError(f"append {number} is settled already, or was never asked for")
        return found

    def copy(self) -> TransactionLedger:
        """Return an independent copy."""
        other = TransactionLedger()
        other.next_number = self.next_number
        other.appends, other.wants = dict(self.appends), dict(self.wants)
        return other

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value."""
        return (self.next_number, tuple(self.appends.items()), tuple(self.wants.items()))


class TransactionTurn:
    """The handling of one request, one fired timer or one outcome of an append."""

    __slots__ = ("effects", "fresh_id", "ids", "leader_epoch", "ledger", "level", "now", "settings")

    def __init__(
        self,
        now: Now,
        settings: TransactionSettings,
        level: int,
        leader_epoch: int,
        ids: dict[str, Coordinated],
        ledger: TransactionLedger,
        fresh_id: int | None = None,
    ) -> None:
        self.now = now
        self.settings = settings
        #: The cluster's `transaction.version`: 0, 1 or 2.
        self.level = level
        #: The leader epoch of the coordinator, which markers carry as coordinator epoch (T1).
        self.leader_epoch = leader_epoch
        self.ids = ids
        self.ledger = ledger
        #: A new producer id that the broker has given for this turn (T5).
        self.fresh_id = fresh_id
        self.effects: list[TransactionEffect] = []

    def reply(self, asked: TransactionAsked[Any], answer: Any) -> None:
        """Answer a request."""
        self.effects.append(Reply(asked.ticket, answer))

    def refuse(self, asked: TransactionAsked[Any] | None, error: ErrorCode) -> None:
        """Answer a request with an error, if a request waits."""
        if asked is not None:
            self.reply(asked, refusal(asked, error))

    def append(
        self,
        coordinated: Coordinated,
        value: Transaction | None,
        purpose: Purpose,
        asked: TransactionAsked[Any] | None = None,
    ) -> None:
        """Append the record of a transition, which is pending until the append has an outcome."""
        assert coordinated.pending is None, "each id has at most one pending transition (T14)"
        stored = coordinated.stored
        if stored is not None and value is not None:
            check_transition(stored.phase, value.phase, raises=not value.partitions)
        number = self.ledger.take_number()
        self.ledger.appends[number] = coordinated.transactional_id
        coordinated.pending = PendingTransition(number, value, purpose, asked)
        version = 0 if value is None else record_version(value, self.level)
        record = TransactionRecord(coordinated.transactional_id, value, version)
        self.effects.append(CoordinatorAppend(number, self.leader_epoch, (record,)))

    def want_id(self, coordinated: Coordinated, asked: TransactionAsked[Any] | None = None) -> None:
        """Ask the broker for a new producer id; the decision is repeated when the id comes."""
        number = self.ledger.take_number()
        self.ledger.wants[number] = Want(coordinated.transactional_id, asked)
        self.effects.append(NeedProducerId(number))

    def send_markers(self, coordinated: Coordinated) -> None:
        """Have the open markers of a decided transaction written, under this leader epoch."""
        stored = coordinated.stored
        assert stored is not None and stored.phase.is_prepared, "markers follow a decision (T50)"
        coordinated.marking = self.ledger.take_number()
        self.effects.append(
            SendMarkers(
                coordinated.marking,
                coordinated.transactional_id,
                stored.producer_id,
                stored.producer_epoch,
                self.leader_epoch,
                stored.phase is TransactionPhase.PREPARE_COMMIT,
                stored.client_version,
                frozenset(coordinated.unmarked),
            )
        )

    def stop_markers(self, coordinated: Coordinated) -> None:
        """Let the broker stop sending markers of the id."""
        self.effects.append(StopMarkers(coordinated.transactional_id))

    def set_timer(self, name: TransactionTimer, after_ms: int) -> None:
        """Set a timer to `after_ms` from now."""
        self.effects.append(SetTimer(name, self.now.monotonic_ms + after_ms))
