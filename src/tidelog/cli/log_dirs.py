"""`tidelog log-dirs`: the log directories of brokers, and the replicas in them.

Each broker reports its own directories: bytes of replicas, size and free space of the volume, and
the lag of each replica. A future replica is being copied into the directory; its lag is counted
from the current replica (D11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Annotated

import typer

from tidelog.cli.balancing import balance
from tidelog.cli.completion import BrokerOption, BrokersOption, topic_names
from tidelog.cli.cordons import cordon, mark_bad, uncordon
from tidelog.cli.directory_moves import (
    PLACE_COLUMNS,
    FoundReplica,
    ReplicaPlace,
    Wanted,
    carry_out,
    check_known,
    described,
    present,
    say_refused,
)
from tidelog.cli.documents import DirectoryMoveEntry, LastKnownReplica, LogDirDescribed, prints
from tidelog.cli.drains import drain
from tidelog.cli.help import CommandGroup
from tidelog.cli.move_execution import some
from tidelog.cli.names import (
    NotFoundError,
    PartitionWord,
    broker_named,
    partition_numbers,
    partition_word,
    partitions_named,
    topics_named,
)
from tidelog.cli.output import print_line, print_rows, print_table, say, size_text
from tidelog.cli.target import ClusterOptions, DryRunOption
from tidelog.client.upkeep import LogDirDescription
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local.lost_replicas import last_known

app = CommandGroup("Show log directories, move replicas between them, take them out of use.")
app.command(epilog="Example: tidelog log-dirs cordon --broker 1 /disks/b")(cordon)
app.command(epilog="Example: tidelog log-dirs uncordon --broker 1 /disks/b")(uncordon)
app.command("mark-bad", epilog="Example: tidelog log-dirs mark-bad --broker 1 /disks/b")(mark_bad)
app.command(epilog="Example: tidelog log-dirs drain --broker 1 /disks/b --wait")(drain)
app.command(epilog="Example: tidelog log-dirs balance --broker 1 --dry-run")(balance)


@app.command(
    "describe", epilog="Example: tidelog log-dirs describe --broker 1 --topic flights --replicas"
)
@prints(list[LogDirDescribed])
def describe_log_dirs(
    cluster: ClusterOptions,
    broker: BrokersOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Replicas of this topic only.", autocompletion=topic_names),
    ] = None,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Show a table of every replica, too.")
    ] = False,
) -> None:
    """Show the log directories of the brokers: errors, sizes, free space, replicas."""
    with cluster.client() as client:
        for each in broker or []:
            broker_named(client, each)
        if topic:
            topics_named(client, topic)
        described_dirs = [
            directory
            for broker_id in (broker or client.metadata([]).brokers)
            for directory in client.describe_log_dirs(broker_id)
        ]
        metadata = client.metadata() if any(each.error for each in described_dirs) else None
    found = [
        _log_dir(each, topic, last_known(each, described_dirs, metadata)) for each in described_dirs
    ]
    if cluster.printed(found):
        return
    _print_described(found, replicas)


def _replicas(found: LogDirDescribed) -> object:
    return f"{len(found.last_known)} offline" if found.last_known else len(found.replicas)


def _print_described(found: list[LogDirDescribed], replicas: bool) -> None:
    print_rows(found, _DIRECTORY_COLUMNS)
    for failed in found:
        if failed.last_known:
            names = some([TopicPartition(it.topic, it.partition) for it in failed.last_known])
            say(f"{failed.log_dir} of broker {failed.broker} held {names}: offline, last known")
    if replicas:
        print_line("")
        print_table(
            ("broker", "log directory", "topic", "partition", "bytes", "offset lag", "future"),
            (
                (each.broker, each.log_dir, *astuple(replica))
                for each in found
                for replica in each.replicas
            ),
        )


@app.command(
    epilog="Example: tidelog log-dirs move --broker 1 --topic-partition flights-0 --to /b --wait"
)
@prints(list[DirectoryMoveEntry])
def move(
    cluster: ClusterOptions,
    broker: BrokerOption,
    partitions: Annotated[
        list[str],
        typer.Option(
            "--topic-partition", help="A replica: t-0, or t:0,2-4, or t for all; may be repeated."
        ),
    ],
    to: Annotated[str, typer.Option("--to", help="The log directory, as its broker names it.")],
    dry_run: DryRunOption = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the replicas are there.")
    ] = False,
) -> None:
    """Move replicas of a broker to another of its log directories.

    Each replica is copied to the directory, at most at
    replica.alter.log.dirs.io.max.bytes.per.second of the broker, and the copy then replaces the
    replica. Producers and consumers continue during the move. A move to a replica's present
    directory cancels the replica's earlier move. The exit code is 1 if a move was refused; the
    other moves go on.
    """
    with cluster.client() as client:
        broker_named(client, broker)
        named = partitions_named(client, [_replica_word(word) for word in partitions])
        known = described(client, [broker])
        there = present(known)
        wanted: Wanted = {
            place: to
            for tp in named
            if (place := ReplicaPlace(broker, tp)) in there or _is_word_of_one(partitions)
        }
        if not wanted:
            raise NotFoundError(f"broker {broker} has no replica of these partitions")
        check_known(known, wanted)
        outcomes = carry_out(client, wanted, dry_run=dry_run, wait=wait)
    done = "would_move" if dry_run else "done" if wait else "accepted"
    rows = [_moved(place, to, there.get(place), outcomes[place], done) for place in wanted]
    print_rows(rows, PLACE_COLUMNS, cluster.output)
    if say_refused(outcomes, may_be_missing=False):
        raise typer.Exit(1)


def _replica_word(word: str) -> PartitionWord:
    """Parse t-0 (Kafka's form of partition 0 of topic t), or t:0,2-4."""
    topic, dash, number = word.rpartition("-")
    if ":" not in word and dash and topic and number.isdecimal():
        return PartitionWord(topic, partition_numbers(number))
    return partition_word(word)


def _is_word_of_one(words: list[str]) -> bool:
    """Return whether every word names single partitions; False if a word names a whole topic."""
    return all(_replica_word(word).partitions is not None for word in words)


def _moved(
    place: ReplicaPlace, to: str, found: FoundReplica | None, error: ErrorCode, done: str
) -> DirectoryMoveEntry:
    return DirectoryMoveEntry(
        place.broker_id,
        *place.tp,
        done if error is ErrorCode.NONE else error.name,
        None if found is None else found.log_dir,
        to,
        0 if found is None else found.size_bytes,
    )


def _state(found: LogDirDescribed) -> str:
    if found.error:
        return found.error
    states = [
        ("read-only", found.read_only),
        ("slow", found.slow),
        ("draining", found.draining and bool(found.replicas)),
        ("drained", found.draining and not found.replicas),
        ("cordoned", found.cordoned and not found.draining),
    ]
    return ", ".join(name for name, holds in states if holds) or "ok"


_DIRECTORY_COLUMNS = (
    "broker",
    ("log directory", "log_dir"),
    ("state", _state),
    ("replicas", _replicas),
    ("size", "size_bytes", size_text),
    ("free", "usable_bytes", size_text),
    ("of", "total_bytes", size_text),
)


def _log_dir(
    found: LogDirDescription, topics: list[str] | None, lost: Mapping[TopicPartition, int | None]
) -> LogDirDescribed:
    replicas = [each for each in found.replicas if not topics or each.topic in topics]
    return LogDirDescribed(
        broker=found.broker_id,
        log_dir=found.path,
        error=None if found.error is ErrorCode.NONE else found.error.name,
        size_bytes=sum(each.size_bytes for each in replicas),
        usable_bytes=found.usable_bytes if found.usable_bytes >= 0 else None,
        total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
        read_only=found.is_read_only,
        cordoned=found.is_cordoned,
        slow=found.is_slow,
        draining=found.is_draining,
        replicas=replicas,
        last_known=[
            LastKnownReplica(*tp, size_bytes)
            for tp, size_bytes in lost.items()
            if not topics or tp.topic in topics
        ],
    )
