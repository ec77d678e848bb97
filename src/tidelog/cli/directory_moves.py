"""Moves of replicas to the log directories that commands name (D11).

`tidelog log-dirs move` and the `log_dirs` of Kafka's reassignment files name the replicas and their
directories. A broker without the replica remembers the directory for the replica's creation. A move
begins when the broker accepts the request; it is done when the broker shows no future replica any
more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.cli.names import NotFoundError, nearest
from tidelog.cli.output import say, size_text
from tidelog.cli.waiting import wait_for
from tidelog.client.upkeep import LogDirDescription
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

#: Time limit of a wait for moves: one day, because a move lasts until the replica is copied.
PATIENCE_S = 86_400.0

#: Columns of the printed table of replicas that move between directories.
PLACE_COLUMNS = (
    "broker",
    "topic",
    "partition",
    "result",
    ("from", "log_dir_before"),
    ("to", "log_dir"),
    ("size", "size_bytes", size_text),
)


class ReplicaPlace(NamedTuple):
    """A replica, identified by its broker and its partition."""

    broker_id: int
    tp: TopicPartition


#: The wanted log directory of each replica.
Wanted = dict[ReplicaPlace, str]


class FoundReplica(NamedTuple):
    """A replica in a log directory."""

    log_dir: str
    size_bytes: int


def described(
    client: BlockingClient, brokers: Collection[int]
) -> dict[int, list[LogDirDescription]]:
    """Return the log directories of these brokers."""
    return {broker: client.describe_log_dirs(broker) for broker in sorted(set(brokers))}


def check_known(known: Mapping[int, list[LogDirDescription]], wanted: Wanted) -> None:
    """Raise NotFoundError for the first log directory that its broker lacks or that failed."""
    for place, path in wanted.items():
        found = {each.path: each.error for each in known[place.broker_id]}
        if path not in found:
            raise NotFoundError(
                f"broker {place.broker_id} has no log directory {path!r}{nearest(path, found)}"
            )
        if found[path] is not ErrorCode.NONE:
            raise NotFoundError(f"log directory {path} of broker {place.broker_id} has failed")


def present(known: Mapping[int, list[LogDirDescription]]) -> dict[ReplicaPlace, FoundReplica]:
    """Return the current directory of each replica; a future replica does not count."""
    return {
        ReplicaPlace(broker_id, replica.tp): FoundReplica(directory.path, replica.size_bytes)
        for broker_id, directories in known.items()
        for directory in directories
        for replica in directory.replicas
        if not replica.future
    }


def ask(client: BlockingClient, wanted: Wanted) -> dict[ReplicaPlace, ErrorCode]:
    """Have each broker begin the moves of its replicas; return the outcomes."""
    outcomes: dict[ReplicaPlace, ErrorCode] = {}
    for broker_id in sorted({place.broker_id for place in wanted}):
        of_it = {place.tp: path for place, path in wanted.items() if place.broker_id == broker_id}
        for tp, error in client.move_replicas(broker_id, of_it).items():
            outcomes[ReplicaPlace(broker_id, tp)] = error
    return outcomes


def is_begun(error: ErrorCode, *, may_be_missing: bool) -> bool:
    """Return whether the broker will have the replica in the requested directory.

    With `may_be_missing`, the result is True also for a broker without the replica, which remembers
    the directory for the replica's creation.
    """
    return error is ErrorCode.NONE or (may_be_missing and error is ErrorCode.REPLICA_NOT_AVAILABLE)


def await_all(client: BlockingClient, wanted: Wanted) -> None:
    """Wait until each replica is in its requested directory; raise NotYetError after a day.

    A broker that restarts forgets the directories requested for replicas that it does not have yet,
    so the request is repeated.
    """

    def count() -> int:
        there = present(described(client, [place.broker_id for place in wanted]))
        missing = {
            place: path
            for place, path in wanted.items()
            if place not in there or there[place].log_dir != path
        }
        elsewhere = {place: path for place, path in missing.items() if place in there}
        if elsewhere:
            for place, error in ask(client, elsewhere).items():
                if error not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                    raise NotFoundError(
                        f"{place.tp} on broker {place.broker_id} does not move to"
                        f" {elsewhere[place]}: {error.name}; the broker's log has the reason"
                    )
        return len(wanted) - len(missing)

    wait_for("moves between log directories", len(wanted), count, PATIENCE_S)


def carry_out(
    client: BlockingClient, wanted: Wanted, *, dry_run: bool, wait: bool
) -> dict[ReplicaPlace, ErrorCode]:
    """Have brokers begin the moves of present replicas; return the outcomes.

    A dry run sends no request, and its result is that all moves have begun. With `wait`, returns
    when the begun moves are done.
    """
    if dry_run:
        return dict.fromkeys(wanted, ErrorCode.NONE)
    outcomes = ask(client, wanted)
    begun = {place: wanted[place] for place in wanted if outcomes[place] is ErrorCode.NONE}
    if wait and begun:
        await_all(client, begun)
    return outcomes


def say_refused(outcomes: Mapping[ReplicaPlace, ErrorCode], *, may_be_missing: bool) -> int:
    """Print the refused moves; return how many there are."""
    refused = 0
    for place, error in outcomes.items():
        if not is_begun(error, may_be_missing=may_be_missing):
            refused += 1
            say(
                f"tidelog: {place.tp} does not move within broker {place.broker_id}: {error.name};"
                " the broker's log has the reason"
            )
    return refused
