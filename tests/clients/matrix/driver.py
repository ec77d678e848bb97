"""What every client under test can be asked to do, whatever language it is written in.

A check (checks_*.py) is written once against this and run with each client; a client's module
fulfils it in the client's own words. What a client lacks is said in table.py, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tests.support.clients.samples import Record

PATIENCE_S = 60.0

#: Instead of a timestamp, in `Driver.offset`.
EARLIEST = "earliest"
LATEST = "latest"


class Refused(Exception):
    """The client raised the broker's error; the message holds the error's name or text."""


class PartitionInfo(NamedTuple):
    """A partition as the client's admin calls or metadata show it."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class GroupMember(NamedTuple):
    """A member as the client's description of a group shows it."""

    client_id: str
    partitions: frozenset[int]


class GroupInfo(NamedTuple):
    """A group as the client describes it; of the protocol only the name."""

    state: str
    protocol: str
    members: tuple[GroupMember, ...]


class Received(NamedTuple):
    """A record that a member of a group was given."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a member has seen until now."""

    assigned: frozenset[int]
    received: tuple[Received, ...]
    #: What was taken away, in order; a whole assignment at a time with eager protocols.
    revoked: tuple[frozenset[int], ...]
    #: How many times partitions were handed out, also when they were the same.
    rebalances: int


class Member(Protocol):
    """A consumer in a group, which polls in the background from the moment it is made."""

    def state(self) -> MemberState: ...

    def commit(self) -> None:
        """Commit what was received, and return when it is committed."""

    def close(self) -> None:
        """End it; a dynamic member leaves, a static one does not."""


class Writer(Protocol):
    """An idempotent producer that sends 0, 1, 2, ... to one partition until it is told to stop."""

    def stop(self) -> int:
        """Wait until everything is acknowledged; how many numbers were sent. Raises Refused."""


class Driver(Protocol):
    """One client. Calls raise Refused for what a broker refuses."""

    version: str

    def write(
        self, topic: str, partition: int, codec: str, records: Sequence[Record]
    ) -> list[Record]:
        """Send, wait for all acknowledgements; what was sent, as the client can send it."""

    def read(self, topic: str, partition: int) -> list[Record]:
        """All of an assigned partition."""

    def read_values(self, topic: str, partition: int, offset: int) -> list[bytes]:
        """Values from an offset, which is sought, to the end."""

    def read_values_since(self, topic: str, partition: int, timestamp_ms: int) -> list[bytes]:
        """Values from the first record that is not older."""

    def offset(self, topic: str, partition: int, at: str | int) -> int:
        """EARLIEST, LATEST or the first of at least a timestamp; -1 where there is none."""

    def start_writer(self, topic: str, partition: int) -> Writer: ...

    def init_transactions(self, transactional_id: str) -> None:
        """Begin with transactions, as a producer of this id; waits for PATIENCE_S at most."""

    def join(
        self, group: str, topic: str, *, cooperative: bool = False, instance_id: str | None = None
    ) -> Member: ...

    def create_topic(
        self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]
    ) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def list_topics(self) -> list[str]: ...

    def describe_topic(self, topic: str) -> dict[int, PartitionInfo]: ...

    def create_partitions(self, topic: str, total: int) -> None: ...

    def describe_configs(self, topic: str) -> dict[str, str | None]: ...

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """The new start of the log."""

    def describe_cluster(self) -> tuple[frozenset[int], int]:
        """Brokers, and the controller."""

    def elect_preferred_leader(self, topic: str, partition: int) -> None: ...

    def log_dir_sizes(self, broker: int, topic: str) -> dict[int, int]:
        """Bytes of each partition of a topic on a broker."""

    def list_groups(self) -> list[str]: ...

    def describe_group(self, group: str) -> GroupInfo: ...

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Committed offsets by partition, those that there are."""

    def set_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None: ...

    def delete_group(self, group: str) -> None: ...

    def close(self) -> None: ...


def eventually(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    """Ask until it holds; says what there was instead when it never did."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"it did not come about: {what()}"
        time.sleep(0.02)
