"""Settings, records and messages of the small world of one partition's replicas (`replica_set`).

All are immutable, so that copies of the world share them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.types import EpochEnd
from tidelog.replication.follower import FetchPosition
from tidelog.replication.isr import IsrChange

#: `replica.lag.time.max.ms` of the small world; SOCKET_TIMEOUT_MS is its
#: `replica.socket.timeout.ms`. The world's clock moves only by steps, so small numbers suffice.
MAX_LAG_MS: Final = 10
SOCKET_TIMEOUT_MS: Final = 30
#: Maximum number of records in one response to a fetch.
MAX_FETCHED: Final = 2

#: A step of a history: its kind and its arguments.
Step = tuple[str | int, ...]


class ReplicaSetSettings(NamedTuple):
    """The settings of a history, which are drawn before its first step."""

    replicas: tuple[int, ...] = (1, 2, 3)
    #: The ISR at the beginning; broker 1 leads.
    first_isr: tuple[int, ...] = (1, 2, 3)
    #: `min.insync.replicas` as the controller knows it. `leader_minimum` is the value that leaders
    #: know, which may be an earlier one (E1).
    minimum: int = 2
    leader_minimum: int = 2
    flush_before_ack: bool = False
    counts_pending_reads: bool = False
    #: `replica.lag.max.bytes`, where each record has one byte; -1 for no limit.
    max_lag_bytes: int = -1
    #: Brokers whose fetches carry no broker epoch, because their protocol version is too old.
    without_epochs: tuple[int, ...] = ()
    #: The kinds of faults that exist in this history.
    faults: tuple[str, ...] = ()
    length: int = 60

    def __str__(self) -> str:
        parts = [f"replicas {list(self.replicas)}", f"first ISR {list(self.first_isr)}"]
        parts += [f"min.insync.replicas {self.minimum}"]
        if self.leader_minimum != self.minimum:
            parts[-1] += f" (leaders {self.leader_minimum})"
        if self.flush_before_ack:
            parts.append("flush.before.ack")
        if self.counts_pending_reads:
            parts.append("pending reads count")
        if self.max_lag_bytes >= 0:
            parts.append(f"at most {self.max_lag_bytes} bytes of lag")
        if self.without_epochs:
            parts.append(f"no broker epochs from {list(self.without_epochs)}")
        return ", ".join(parts)


class SmallRecord(NamedTuple):
    """A record: the leader epoch in which it was written, and a value that no other record has."""

    leader_epoch: int
    value: int

    def __str__(self) -> str:
        return f"{self.leader_epoch}:{self.value}"


class SmallCommand(NamedTuple):
    """A LeaderAndIsr command for the partition of the small world."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    #: Eligible replicas outside the ISR; `replicas` are the assigned replicas.
    eligible: tuple[int, ...]
    replicas: tuple[int, ...]


class SmallFetch(NamedTuple):
    """A follower's Fetch request."""

    replica_id: int
    broker_epoch: int
    position: FetchPosition
    log_start_offset: int
    is_synced: bool


class SmallResponse(NamedTuple):
    """A leader's response to a fetch."""

    position: FetchPosition
    error: int = 0
    diverging: EpochEnd | None = None
    records: tuple[SmallRecord, ...] = ()
    high_watermark: int = 0
    log_start_offset: int = 0


class SmallRequest(NamedTuple):
    """An AlterPartition request; `number` differs for each request of a history."""

    number: int
    sender: int
    sender_epoch: int
    change: IsrChange


class SmallVerdict(NamedTuple):
    """The controller's response to the AlterPartition request `number`.

    `state` is the state after an accepted change. `held` means that the response omits the change,
    because the controller holds it back (A11).
    """

    number: int
    receiver: int
    change: IsrChange
    error: ErrorCode = ErrorCode.NONE
    state: SmallState | None = None
    held: bool = False


class SmallState(NamedTuple):
    """The state of the partition as the controller published it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    #: Recorded broker epochs of the ISR, parallel to `isr`.
    isr_epochs: tuple[int, ...]
    partition_epoch: int
    #: Eligible replicas with their recorded broker epochs (E1).
    elr: tuple[tuple[int, int], ...] = ()
    #: The assigned replicas.
    replicas: tuple[int, ...] = ()
    #: Number of the transaction that wrote this state.
    written: int = 0

    def recorded(self) -> dict[int, int]:
        """Return the recorded broker epoch of each member of the ISR and each eligible replica."""
        return {**dict(self.elr), **dict(zip(self.isr, self.isr_epochs, strict=True))}
