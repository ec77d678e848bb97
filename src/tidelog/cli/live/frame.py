"""One look at a cluster as a document: what `tidelog top --json` prints.

Null means a value that is not known: a rate before the second look, or a number that only an admin
port has. A rate is the average between the two latest looks. At the first look, the rate of a
broker with an admin port is the latest value of the history that the broker keeps.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TopBroker:
    """A broker; `state` is `ready`, `not_ready`, `up` (without an admin port) or `down`.

    `reason` says why the broker is not ready, or why its own numbers are missing. `cpu_cores` is
    its use of processors. `loop_turn_p99_ms` is the 99th percentile of the time of a turn of its
    event loop, and `loop_busy` the share of time in which its loop does not wait. `connections` are
    open on all listeners. `session_losses` counts the lost sessions with the metadata store.
    """

    broker: int
    state: str
    reason: str
    controller: bool
    address: str | None
    admin: str | None
    cpu_cores: float | None
    loop_turn_p99_ms: float | None
    loop_busy: float | None
    connections: int | None
    session_losses: int | None
    memory_bytes: int | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    leaders: int
    replicas: int
    out_of_sync: int


@dataclass(frozen=True, slots=True)
class TopPartition:
    """A partition and its traffic; `bytes_in_per_s` is the growth of its log if the leader has no
    admin port.
    """

    topic: str
    partition: int
    leader: int | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    records_in_per_s: float | None
    high_watermark: int | None


@dataclass(frozen=True, slots=True)
class TopGroup:
    """A group.

    `lag_records` is the sum over all partitions, and `lag_s` the greatest lag of one partition.
    """

    group: str
    state: str
    members: int | None
    coordinator: int
    lag_records: int | None
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class TopMove:
    """A reassignment; `state` is its step, or `queued`, with the `reason` of the wait."""

    topic: str
    partition: int
    state: str
    target: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    done_bytes: int | None
    left_bytes: int | None
    bytes_per_s: float | None
    left_ms: int | None
    never: bool
    throttle: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class TopUnderReplicated:
    """A partition with fewer ISR members than replicas; `out` has the replicas outside the ISR."""

    topic: str
    partition: int
    state: str
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    out: list[TopOutReplica]


@dataclass(frozen=True, slots=True)
class TopOutReplica:
    """A replica out of the ISR; `cause` is a word such as `slow`, or null if it is not known."""

    broker: int
    cause: str | None
    sentence: str
    lag_records: int | None
    out_since_ms: int | None


@dataclass(frozen=True, slots=True)
class TopFrame:
    """A cluster at one time; `notes` are sentences about what could not be read.

    Each table has at most as many rows as `--rows` says. `partitions_total` and the other totals
    also count what the tables leave out.
    """

    time_ms: int
    cluster_id: str | None
    controller: int | None
    partitions_total: int
    under_replicated_total: int
    leaderless_total: int
    groups_total: int
    moves_total: int
    queued_total: int
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    notes: list[str]
    brokers: list[TopBroker]
    partitions: list[TopPartition]
    groups: list[TopGroup]
    moves: list[TopMove]
    under_replicated: list[TopUnderReplicated]
