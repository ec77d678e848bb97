"""`tidelog reassign`: moves of partitions to other brokers, their progress and their rollback.

Files have the format of Kafka's kafka-reassign-partitions: {"version":1,"partitions":[{"topic":"t",
"partition":0,"replicas":[1,2,3]}]}; the first replica is the preferred leader. Moves continue in
the cluster whether a command waits for them or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from tidelog.cli.directory_moves import (
    ReplicaPlace,
    Wanted,
    ask,
    await_all,
    check_known,
    described,
    is_begun,
    present,
    say_refused,
)
from tidelog.cli.documents import (
    MoveBegun,
    MoveCancelled,
    MoveListed,
    MoveVerified,
    ThrottleRemoved,
    prints,
)
from tidelog.cli.help import CommandGroup
from tidelog.cli.move_execution import (
    AdditionalOption,
    SaveRollbackOption,
    WaitForMovesOption,
    await_moves,
    await_targets,
    moves_beside,
    say_failed,
    say_way_back,
    way_back_on_error,
)
from tidelog.cli.move_files import (
    FileArgument,
    JsonOption,
    ThrottleOption,
    foreseen,
    print_asked,
    replicas_of,
)
from tidelog.cli.move_queue import freeze, queue, say_waiting, unfreeze
from tidelog.cli.move_watch import show_moves, watch_moves
from tidelog.cli.names import topics_named
from tidelog.cli.output import OutputFormat, or_none, print_rows, say
from tidelog.cli.parameters import finite
from tidelog.cli.planned_moves import plan, rebalance
from tidelog.cli.reassignment_files import check_expected, ids, read, rollback, save
from tidelog.cli.target import ClusterOptions, DryRunOption
from tidelog.cli.throttles import remove_throttles
from tidelog.client.moving import MoveAsked, Moves, MoveUnderWay
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient

app = CommandGroup("Move partitions to other brokers.")


@app.command(epilog="Example: tidelog reassign execute moves.json --wait")
@prints(list[MoveBegun])
def execute(
    cluster: ClusterOptions,
    file: FileArgument = None,
    text: JsonOption = None,
    save_rollback: SaveRollbackOption = None,
    additional: AdditionalOption = False,
    throttle: ThrottleOption = None,
    dry_run: DryRunOption = False,
    wait: WaitForMovesOption = False,
) -> None:
    """Move partitions to the brokers that a file names.

    While other moves are under way, --additional is needed; a partition that is on the move is
    redirected to its new target. A replica with a directory in the entry log_dirs moves to that
    directory of its broker, or is created there. The exit code is 1 if a move was refused, or with
    --wait did not reach its target; the other moves continue.
    """
    where, targets, expected, directories = read(file, text)
    with cluster.client() as client:
        before = replicas_of(client, targets, where)
        check_expected(where, expected, before)
        check_known(described(client, [place.broker_id for place in directories]), directories)
        moving = moves_beside(client, additional)
        former = {tp: moving[tp].original if tp in moving else before[tp] for tp in targets}
        unknown = [str(tp) for tp in targets if not former[tp]]
        back = {tp: replicas for tp, replicas in former.items() if replicas}
        if save_rollback is not None and not dry_run:
            save(save_rollback, rollback(back))
        placed: dict[ReplicaPlace, ErrorCode] = {}
        if dry_run:
            results = foreseen(client, targets)
        else:
            # As in Kafka, a broker remembers the requested log directory of a replica that does not
            # exist yet.
            placed = ask(client, directories)
            with way_back_on_error(back, save_rollback):
                results = client.reassign(targets, expected, throttle=throttle)
        begun = [tp for tp in targets if results[tp].error is ErrorCode.NONE]
        say_way_back({tp: back[tp] for tp in begun if tp in back}, save_rollback, dry_run)
        if unknown:
            names = ", ".join(unknown)
            say(f"the way back has no {names}: on the move, from where is not recorded")
        lost: dict[TopicPartition, MoveAsked] = {}
        if wait and begun and not dry_run:
            lost = await_targets(client, {tp: targets[tp] for tp in begun})
            results |= lost
            await_all(client, _of_begun(directories, placed, set(begun) - set(lost)))
    word = "would_move" if dry_run else "accepted"
    print_asked(targets, results, before, word, cluster.output)
    say_failed(len(targets) - len(begun), len(lost), len(targets))
    refused = say_refused(placed, may_be_missing=True)
    if len(begun) < len(targets) or lost or refused:
        raise typer.Exit(1)


def _of_begun(
    directories: Wanted, placed: Mapping[ReplicaPlace, ErrorCode], begun: Collection[TopicPartition]
) -> Wanted:
    """Return the requested log directories of the partitions whose moves have begun."""
    return {
        place: path
        for place, path in directories.items()
        if place.tp in begun and is_begun(placed[place], may_be_missing=True)
    }


@app.command(
    epilog="Example: tidelog reassign cancel --all\n\n"
    "Example: tidelog reassign cancel --throttles --dry-run"
)
@prints(list[MoveCancelled] | list[ThrottleRemoved])
def cancel(
    cluster: ClusterOptions,
    file: FileArgument = None,
    text: JsonOption = None,
    cancel_all: Annotated[bool, typer.Option("--all", help="Every move under way.")] = False,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Moves of this topic; may be repeated.")
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option("--broker", help="Moves that involve this broker.", show_default=False),
    ] = None,
    throttles: Annotated[
        bool,
        typer.Option(
            "--throttles",
            help="Configured throttles instead of moves: rates and lists of throttled replicas.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the added replicas are gone.")
    ] = False,
) -> None:
    """Cancel moves: partitions return to the replicas that they had, in that order.

    Queued moves are taken out of the queue. --broker cancels every move that adds, keeps or removes
    a replica on that broker. If a newer move has replaced a move to be cancelled, the newer move
    goes on, and the cancel is refused.

    A partition returns at once, and waits for no replica to catch up, unless fewer than
    min.insync.replicas of the former replicas are in sync. The exit code is 1 if a cancel was
    refused; the other cancels take effect.

    With --throttles the command cancels no move, but removes the throttles that Kafka's tools
    configure for moves and do not remove. Without --topic, --throttles removes the rates of all
    brokers and the lists of throttled replicas of all topics; with --topic, only the lists of these
    topics.
    """
    named = file is not None or text is not None
    if throttles and (named or cancel_all or broker is not None or wait):
        raise typer.BadParameter("--throttles goes with --topic and --dry-run only")
    if not throttles and named + cancel_all + bool(topics) + (broker is not None) != 1:
        raise typer.BadParameter("give one of FILE, --json, --all, --topic and --broker")
    listed = list(read(file, text).targets) if named else None
    with cluster.client() as client:
        if throttles:
            remove_throttles(client, topics or None, dry_run, cluster.output)
            return
        if topics:
            topics_named(client, topics)
        moves = client.reassignments(listed)
        if broker is not None:
            moves = _involving(broker, moves, client)
        moving = {**_waiting(moves), **moves.under_way}
        wanted = [tp for tp in listed or sorted(moving) if not topics or tp.topic in topics]
        nothing = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        results = {tp: MoveAsked(ErrorCode.NONE if tp in moving else nothing, "") for tp in wanted}
        if wanted and not dry_run:
            results = client.cancel_reassignments({tp: _targets(tp, moves) for tp in wanted})
        begun = [tp for tp in wanted if results[tp].error is ErrorCode.NONE]
        if wait and begun and not dry_run:
            await_moves(client, begun)
    rows = [_cancelled(tp, moving.get(tp), results[tp], dry_run) for tp in wanted]
    _print_cancelled(rows, len(moving), cluster.output)
    if len(begun) < len(wanted):
        say(f"tidelog: {len(wanted) - len(begun)} of {len(wanted)} cancels were refused")
        raise typer.Exit(1)


def _involving(broker: int, moves: Moves, client: BlockingClient) -> Moves:
    """Return the moves, under way and queued, that add, keep or remove a broker's replica."""
    known = client.metadata(sorted({tp.topic for tp in moves.queued})) if moves.queued else None

    def has(tp: TopicPartition) -> bool:
        partition = None if known is None else known.partition(tp)
        return partition is not None and broker in partition.replicas

    return replace(
        moves,
        under_way={
            tp: move
            for tp, move in moves.under_way.items()
            if broker in (*move.replicas, *move.original)
        },
        queued={
            tp: queued for tp, queued in moves.queued.items() if broker in queued.target or has(tp)
        },
    )


def _targets(tp: TopicPartition, moves: Moves) -> list[tuple[int, ...]]:
    """Return the targets of a partition's moves, under way and queued."""
    move, queued = moves.under_way.get(tp), moves.queued.get(tp)
    found = [] if move is None else [move.target]
    return found if queued is None else [*found, queued.target]


def _waiting(moves: Moves) -> dict[TopicPartition, MoveUnderWay]:
    """Return the queued moves in the form of moves under way."""
    return {
        tp: MoveUnderWay((*queued.target,), queued.target, ())
        for tp, queued in moves.queued.items()
    }


def _print_cancelled(rows: list[MoveCancelled], moving: int, output: OutputFormat) -> None:
    none_named = f"none of the {moving} partitions on the move or queued is among those named"
    target, reason = ("was going to", "target", ids), ("reason", "message", or_none)
    columns = ("topic", "partition", "result", ("replicas", "replicas", ids), target, reason)
    print_rows(rows, columns, output, none_named if moving else "no partition is being moved")


def _cancelled(
    tp: TopicPartition, move: MoveUnderWay | None, result: MoveAsked, dry_run: bool
) -> MoveCancelled:
    word = result.error.name
    if result.error is ErrorCode.NONE:
        word = "would_cancel" if dry_run else "cancelled"
    replicas, target = ((), ()) if move is None else (move.replicas, move.target)
    return MoveCancelled(*tp, word, replicas, target, result.message)


@app.command(
    "list", epilog="Example: tidelog reassign list\n\nExample: tidelog reassign list --watch"
)
@prints(list[MoveListed])
def list_moves(
    cluster: ClusterOptions,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until no partition is on the move.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", min=0.1, callback=finite, help="Seconds between two samples."),
    ] = 1.0,
) -> None:
    """List the partitions on the move: replicas that are added and removed, state, bytes left.

    With --watch, samples with rates and remaining times follow. A terminal shows a bar for each
    move; in a file or a pipe, each sample has a line for each move. With --watch, -o json prints
    each sample as a line: its time as time_ms, and the moves in the form of the output without
    --watch.
    """
    with cluster.client() as client:
        if watch:
            watch_moves(client, cluster.output, interval)
        else:
            show_moves(client, cluster.output)
        say_waiting(client.reassignments())


@app.command(epilog="Example: tidelog reassign verify moves.json")
@prints(list[MoveVerified])
def verify(
    cluster: ClusterOptions,
    file: FileArgument = None,
    text: JsonOption = None,
    requests: Annotated[
        list[int] | None,
        typer.Option(
            "--request-id",
            help="The move must be of this request: see request_id of reassign list -o json. May be"
            " repeated.",
        ),
    ] = None,
) -> None:
    """Show whether partitions have the replicas that a file names; exit code 1 unless all do."""
    where, targets, _, directories = read(file, text)
    with cluster.client() as client:
        # Moves are read before replicas, so that a move that ends in between counts as under way.
        moves = client.reassignments(targets)
        replicas = replicas_of(client, targets, where)
        there = present(described(client, [place.broker_id for place in directories]))
    astray = {
        place.tp
        for place, path in directories.items()
        if place not in there or there[place].log_dir != path
    }
    rows = [
        MoveVerified(
            *tp,
            _in_directories(
                _state(tp, targets[tp], replicas[tp], moves, requests or []), tp in astray
            ),
            replicas[tp],
            targets[tp],
        )
        for tp in targets
    ]
    replicas_now, wanted = ("replicas", "replicas", ids), ("wanted", "replicas_wanted", ids)
    columns = ("topic", "partition", "state", replicas_now, wanted)
    print_rows(rows, columns, cluster.output)
    if any(each.state == "in_place" for each in rows):
        say(
            "tidelog: in_place: the replicas are those that the file wants, and no move is under"
            " way. A request is recorded until its move is over, so whether it was one of those"
            " requests is not known"
        )
    missing = sum(each.state not in ("done", "in_place") for each in rows)
    if missing:
        say(f"tidelog: {missing} of {len(rows)} partitions are not where they are wanted")
        raise typer.Exit(1)


app.command(epilog="Example: tidelog reassign plan --rebalance -o json")(plan)
app.command(epilog="Example: tidelog reassign rebalance --wait")(rebalance)
app.command(epilog="Example: tidelog reassign queue moves.json --wait")(queue)
app.command(epilog="Example: tidelog reassign freeze")(freeze)
app.command(epilog="Example: tidelog reassign unfreeze")(unfreeze)


def _state(
    tp: TopicPartition,
    target: tuple[int, ...],
    replicas: tuple[int, ...],
    moves: Moves,
    requests: Sequence[int],
) -> str:
    queued, move = moves.queued.get(tp), moves.under_way.get(tp)
    if requests and (replicas != target if move is None else move.request_id not in requests):
        return "changed"
    if requests and move is None and queued is None:
        # The node of a request is deleted when its move ends, so another request may have set the
        # present replicas.
        return "in_place"
    if move is not None and move.target == target:
        return "moving"
    if queued is not None:
        return "queued" if queued.target == target else "queued_elsewhere"
    if move is None:
        return "done" if replicas == target else "elsewhere"
    return "moving_elsewhere"


def _in_directories(state: str, is_astray: bool) -> str:
    """Return `state`, but moving_directory if the partition is done and a replica is astray.

    A replica is astray if it is not yet in its requested log directory.
    """
    return "moving_directory" if state == "done" and is_astray else state
