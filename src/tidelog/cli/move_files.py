"""Helpers for the commands of `tidelog reassign` that read files.

The files have Kafka's form: see `reassignment_files`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.documents import MoveBegun
from tidelog.cli.output import OutputFormat, or_none, print_rows
from tidelog.cli.reassignment_files import ReassignmentFileError, Targets, ids
from tidelog.client.cluster import ClusterMetadata
from tidelog.client.moving import MoveAsked
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

FileArgument = Annotated[
    Path | None,
    typer.Argument(help="File of Kafka's form; - is standard input.", show_default=False),
]
JsonOption = Annotated[
    str | None, typer.Option("--json", help="The content of such a file.", show_default=False)
]
ThrottleOption = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        min=0,
        max=2**63 - 1,
        help="Bytes a second for each broker that the moves copy from or to. The throttle ends with"
        " the moves; 0 removes that of moves under way.",
        show_default=False,
    ),
]


#: Columns of the printed table of partitions whose move was requested.
MOVE_COLUMNS = (
    "topic",
    "partition",
    "result",
    ("replicas before", "replicas_before", ids),
    ("replicas", "replicas", ids),
)


def replicas_of(
    client: BlockingClient, targets: Targets, where: str
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the current replicas of the partitions in `targets`.

    Raises ReassignmentFileError for the first partition that does not exist; `where` names the file
    in the message.
    """
    metadata: ClusterMetadata = client.metadata(sorted({tp.topic for tp in targets}))
    found = {}
    for tp in targets:
        partition = metadata.partition(tp)
        if partition is None:
            raise ReassignmentFileError(f"{where}: there is no partition {tp}")
        found[tp] = tuple(partition.replicas)
    return found


def foreseen(
    client: BlockingClient, targets: Targets, is_queued: bool = False
) -> dict[TopicPartition, MoveAsked]:
    """Return, for a dry run, the controller's probable response to these moves."""
    live = client.metadata([]).brokers
    moves = client.reassignments()
    others = [tp for tp, each in moves.queued.items() if targets.get(tp) != each.target]
    results = {}
    for tp, replicas in targets.items():
        dead = [broker for broker in replicas if broker not in live]
        error, reason = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ""
        if len(set(replicas)) < len(replicas):
            reason = f"{tp} names a broker twice: {ids(replicas)}"
        elif dead:
            reason = f"{tp} names brokers {ids(tuple(dead))}, live brokers are {ids((*live,))}"
        elif moves.is_frozen and not is_queued:
            error, reason = ErrorCode.POLICY_VIOLATION, "reassignments are frozen"
        elif others and is_queued:
            error = ErrorCode.REASSIGNMENT_IN_PROGRESS
            reason = f"there is a queue of {len(moves.queued)} moves already"
        results[tp] = MoveAsked(error if reason else ErrorCode.NONE, reason)
    return results


def print_asked(
    targets: Targets,
    results: Mapping[TopicPartition, MoveAsked],
    before: Mapping[TopicPartition, tuple[int, ...]],
    word: str,
    output: OutputFormat,
) -> None:
    """Print the result of each requested move; the result of an accepted move is `word`."""
    rows = [
        MoveBegun(
            *tp,
            word if results[tp].error is ErrorCode.NONE else results[tp].error.name,
            before[tp],
            targets[tp],
            results[tp].message,
        )
        for tp in targets
    ]
    print_rows(rows, (*MOVE_COLUMNS, ("reason", "message", or_none)), output)
