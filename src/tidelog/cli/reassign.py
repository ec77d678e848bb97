"""`tidelog reassign`: move partitions to other brokers, and show the progress.

Files are those of Kafka's kafka-reassign-partitions: {"version":1,"partitions":[{"topic":"t",
"partition":0,"replicas":[1,2,3]}]}; the first replica is the preferred leader. Moves continue in
the cluster whether a command waits for them or not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.cli.documents import MoveBegun, MoveListed, MoveVerified, prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import OutputFormat, OutputOption, print_document, print_table, say
from tidelog.cli.target import (
    BootstrapOption,
    DryRunOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
)
from tidelog.cli.waiting import wait_for
from tidelog.client.cluster import ClusterMetadata
from tidelog.client.moving import MoveAsked, MoveUnderWay
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

app = CommandGroup("Move partitions to other brokers.")

#: A day: a move takes as long as the copy of a partition's data.
_PATIENCE_S = 86_400.0
_EXPECTED = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}'

Targets = dict[TopicPartition, tuple[int, ...]]
FileArgument = Annotated[
    Path | None,
    typer.Argument(help="File of Kafka's form; - is standard input.", show_default=False),
]
JsonOption = Annotated[
    str | None, typer.Option("--json", help="The content of such a file.", show_default=False)
]


class ReassignmentFileError(TidelogError):
    """The error of a file without valid targets; the message names the place and the reason."""


@app.command(epilog="Example: tidelog reassign execute moves.json --wait")
@prints(list[MoveBegun])
def execute(
    file: FileArgument = None,
    text: JsonOption = None,
    dry_run: DryRunOption = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every move is done.")
    ] = False,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Move partitions to the brokers that a file names.

    A partition on the move is redirected to its new target. The exit code is 1 if a move was
    refused; the others continue.
    """
    where, targets = _read(file, text)
    with choose_target(bootstrap, directory).client(timeout) as client:
        before = _partitions_of(client, targets, where)
        results = dict.fromkeys(targets, MoveAsked(ErrorCode.NONE, ""))
        if not dry_run:
            results = client.reassign(targets)
        begun = [tp for tp in targets if results[tp].error is ErrorCode.NONE]
        if wait and begun and not dry_run:
            _await(client, begun)
    rows = [
        MoveBegun(
            tp.topic,
            tp.partition,
            _word(results[tp].error, dry_run),
            before[tp],
            targets[tp],
            results[tp].message,
        )
        for tp in targets
    ]
    if output is OutputFormat.JSON:
        print_document(rows)
    else:
        print_table(
            ("topic", "partition", "result", "replicas before", "replicas", "reason"),
            (
                (
                    each.topic,
                    each.partition,
                    each.result,
                    _ids(each.replicas_before),
                    _ids(each.replicas),
                    each.message or None,
                )
                for each in rows
            ),
        )
    if len(begun) < len(targets):
        say(f"tidelog: {len(targets) - len(begun)} of {len(targets)} moves were refused")
        raise typer.Exit(1)


@app.command("list", epilog="Example: tidelog reassign list")
@prints(list[MoveListed])
def list_moves(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """List the partitions on the move, with the replicas that are added and removed."""
    with choose_target(bootstrap, directory).client(timeout) as client:
        found = client.list_reassignments()
    rows = [
        MoveListed(
            tp.topic,
            tp.partition,
            found[tp].replicas,
            found[tp].adding,
            found[tp].removing,
            found[tp].target,
        )
        for tp in sorted(found)
    ]
    if output is OutputFormat.JSON:
        print_document(rows)
    elif rows:
        print_table(
            ("topic", "partition", "replicas", "adding", "removing"),
            (
                (
                    each.topic,
                    each.partition,
                    _ids(each.replicas),
                    _ids(each.adding),
                    _ids(each.removing),
                )
                for each in rows
            ),
        )
    else:
        say("no partition is being moved")


@app.command(epilog="Example: tidelog reassign verify moves.json")
@prints(list[MoveVerified])
def verify(
    file: FileArgument = None,
    text: JsonOption = None,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 30.0,
) -> None:
    """Show whether partitions are where a file wants them. Exit code 1 unless all of them are."""
    where, targets = _read(file, text)
    with choose_target(bootstrap, directory).client(timeout) as client:
        # In this order, a move that ends in between counts as under way and not as lost.
        moving = client.list_reassignments(targets)
        replicas = _partitions_of(client, targets, where)
    rows = [
        MoveVerified(
            tp.topic,
            tp.partition,
            _state(targets[tp], replicas[tp], moving.get(tp)),
            replicas[tp],
            targets[tp],
        )
        for tp in targets
    ]
    if output is OutputFormat.JSON:
        print_document(rows)
    else:
        print_table(
            ("topic", "partition", "state", "replicas", "wanted"),
            (
                (
                    each.topic,
                    each.partition,
                    each.state,
                    _ids(each.replicas),
                    _ids(each.replicas_wanted),
                )
                for each in rows
            ),
        )
    missing = sum(each.state != "done" for each in rows)
    if missing:
        say(f"tidelog: {missing} of {len(rows)} partitions are not where they are wanted")
        raise typer.Exit(1)


def _state(target: tuple[int, ...], replicas: tuple[int, ...], move: MoveUnderWay | None) -> str:
    if move is None:
        return "done" if replicas == target else "elsewhere"
    return "moving" if move.target == target else "moving_elsewhere"


def _word(error: ErrorCode, dry_run: bool) -> str:
    if error is not ErrorCode.NONE:
        return error.name
    return "would_move" if dry_run else "accepted"


def _ids(replicas: tuple[int, ...]) -> str:
    return ",".join(map(str, replicas))


def _await(client: BlockingClient, begun: list[TopicPartition]) -> None:
    def done() -> int:
        return len(begun) - len(client.list_reassignments(begun))

    wait_for("moves", len(begun), done, _PATIENCE_S)


def _partitions_of(
    client: BlockingClient, targets: Targets, where: str
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of each partition now; an error names the first missing partition."""
    metadata: ClusterMetadata = client.metadata(sorted({tp.topic for tp in targets}))
    found = {}
    for tp in targets:
        partition = metadata.partition(tp)
        if partition is None:
            raise ReassignmentFileError(f"{where}: there is no partition {tp}")
        found[tp] = tuple(partition.replicas)
    return found


def _read(file: Path | None, text: str | None) -> tuple[str, Targets]:
    """Return the content of a file or of `--json`, and its name for messages."""
    if (file is None) == (text is None):
        raise typer.BadParameter("give FILE, or --json with what it would hold")
    where = "--json" if file is None else str(file)
    try:
        if text is None:
            assert file is not None
            text = sys.stdin.read() if where == "-" else file.read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        raise ReassignmentFileError(f"{where}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ReassignmentFileError(f"{where} is not JSON: {error}") from error
    return where, targets_of(document, where)


def targets_of(document: Any, where: str) -> Targets:
    """Return the targets in a document of Kafka's form; ReassignmentFileError."""
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ReassignmentFileError(f"{where} lists no partitions: {_EXPECTED} expected")
    if document.get("version", 1) != 1:
        raise ReassignmentFileError(f"{where} is of version {document['version']!r}: 1 expected")
    targets: Targets = {}
    for index, entry in enumerate(entries):
        tp, replicas = _entry(entry, f"{where}: partitions[{index}]")
        if tp in targets:
            raise ReassignmentFileError(f"{where} names {tp} more than once")
        targets[tp] = replicas
    return targets


def _entry(entry: Any, where: str) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise ReassignmentFileError(f"{where} is no object: {_EXPECTED} expected")
    topic, partition, replicas = (entry.get(key) for key in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not topic:
        raise ReassignmentFileError(f"{where} names no topic")
    if type(partition) is not int or partition < 0:
        raise ReassignmentFileError(f"{where}: partition is {partition!r}: a number expected")
    if (
        not isinstance(replicas, list)
        or not replicas
        or any(type(each) is not int or each < 0 for each in replicas)
    ):
        raise ReassignmentFileError(f"{where}: replicas is {replicas!r}: broker ids expected")
    directories = entry.get("log_dirs")
    if directories is not None and directories != ["any"] * len(replicas):
        raise ReassignmentFileError(
            f"{where}: log_dirs is {directories!r}: brokers choose directories themselves, leave it"
            ' out or write "any" for each replica'
        )
    return TopicPartition(topic, partition), tuple(replicas)
