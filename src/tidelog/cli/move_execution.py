"""Display and execution of plans of moves, for all commands that plan moves.

A dry run prints Kafka's reassignment document on standard output, and each move with its bytes and
reason on standard error. Without a dry run, each request states the replicas that the plan expects.
The controller refuses moves of partitions whose replicas changed since the plan (R18).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.documents import MovePlanned
from tidelog.cli.move_files import MOVE_COLUMNS, ThrottleOption
from tidelog.cli.output import OutputFormat, print_json, print_rows, say, size_text
from tidelog.cli.reassignment_files import ReassignmentFileError, Targets, ids, rollback, save
from tidelog.cli.waiting import wait_for
from tidelog.client.moving import MoveAsked, Moves, MoveUnderWay
from tidelog.client.planning.moves import MovePlan, PlannedMove
from tidelog.client.upkeep import ElectionType
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.core.wording import counted
from tidelog.runtime.blocking import BlockingClient

#: Time limit of a wait for moves: one day, because a move lasts until the partition is copied.
PATIENCE_S = 86_400.0
#: Seconds for which a broker's response may be out of date, because brokers learn the end of a move
#: one after the other.
_SETTLING_S = 5.0
_POLL_S = 0.1
#: Seconds after which a move that waits for a dead broker is reported; the restart of a broker
#: takes less.
_STALLED_S = 10.0
_MOST_NAMED = 5
#: The message about all moves that a freeze refuses, instead of a message for each move.
FROZEN = "reassignments are frozen: none begins before tidelog reassign unfreeze"

SaveRollbackOption = Annotated[
    Path | None,
    typer.Option(
        "--save-rollback",
        help="Write a file that moves the partitions back once they are moved.",
        show_default=False,
    ),
]
AdditionalOption = Annotated[
    bool, typer.Option("--additional", help="Add to the moves that are under way.")
]
MovesDryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print Kafka's reassignment JSON, and what it copies; change nothing."
    ),
]
WaitForMovesOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until every move is done.")
]
QueueOption = Annotated[
    bool,
    typer.Option("--queue", help="Queue the moves: each begins when the limits of brokers allow."),
]
RacksOption = Annotated[
    bool, typer.Option("--racks/--no-racks", help="Spread replicas over racks, or ignore racks.")
]


@dataclass(frozen=True, slots=True)
class Execution:
    """The options that all commands with plans share: how to execute the plan."""

    save_rollback: SaveRollbackOption = None
    additional: AdditionalOption = False
    #: Bytes a second for each broker (R4); None sets no throttle.
    throttle: ThrottleOption = None
    #: Whether the moves go to the queue (R8).
    queue: QueueOption = False
    racks: RacksOption = True
    dry_run: MovesDryRunOption = False
    wait: WaitForMovesOption = False

    @property
    def is_of_moves(self) -> bool:
        """Return whether any option that applies only to moves is set."""
        return (
            self.save_rollback is not None
            or self.additional
            or self.throttle is not None
            or self.queue
            or self.wait
        )


def carry_out(client: BlockingClient, plan: MovePlan, how: Execution, output: OutputFormat) -> None:
    """Request the moves of a plan, or show them.

    With `how.wait`, returns when the moves are done and their preferred replicas lead. Raises
    ReassignmentFileError if other moves are under way, unless `how.additional`. Raises typer.Exit
    with code 1 if a move or an election was refused.
    """
    if plan.moves:
        moves_beside(client, how.additional)
    if how.dry_run:
        show_document(plan)
        return
    if plan.moves and how.save_rollback is not None:
        save(how.save_rollback, rollback(plan.expected))
    results = {}
    if plan.moves:
        with way_back_on_error(plan.expected, how.save_rollback):
            results = client.reassign(
                plan.targets, plan.expected, queued=how.queue, throttle=how.throttle
            )
    if is_frozen(results.values()) and output is OutputFormat.TABLE:
        say(f"tidelog: {FROZEN}; none of the {len(plan.moves)} moves began")
        raise typer.Exit(1)
    begun = [move for move in plan.moves if results[move.tp].error is ErrorCode.NONE]
    say_way_back({move.tp: plan.expected[move.tp] for move in begun}, how.save_rollback)
    lost: dict[TopicPartition, MoveAsked] = {}
    if how.wait and begun:
        lost = await_targets(client, {move.tp: move.after for move in begun})
    print_moves([_row(move, {**results, **lost}[move.tp]) for move in plan.moves], output)
    say_failed(len(plan.moves) - len(begun), len(lost), len(plan.moves))
    led = _elect(client, [move for move in begun if move.tp not in lost], how.wait)
    if len(begun) < len(plan.moves) or lost or not led:
        raise typer.Exit(1)


def is_frozen(results: Collection[MoveAsked]) -> bool:
    """Return whether every move was refused because reassignments are frozen (R11)."""
    return bool(results) and all(each.error is ErrorCode.POLICY_VIOLATION for each in results)


def show_document(plan: MovePlan) -> None:
    """Print the document that executes a plan, and the moves of the plan on standard error."""
    print_json(plan.document())
    for move in plan.moves:
        to = f"broker{'s' if len(move.added) > 1 else ''} {ids(move.added)}"
        copies = f"{size_text(move.moved_bytes)} to {to}" if move.added else "no copy"
        say(f"{move.tp}: {ids(move.before)} becomes {ids(move.after)} ({copies}): {move.reason}")
    say_total(plan)


def say_total(plan: MovePlan) -> None:
    """Print the number of moves of a plan, and the bytes that the moves copy."""
    moves = counted(len(plan.moves), "move", "copies", "copy")
    say(f"{moves} {size_text(plan.moved_bytes)} ({plan.moved_bytes} bytes)")


def planned_rows(plan: MovePlan) -> list[MovePlanned]:
    """Return the table rows of a plan that is shown and not executed."""
    return [_row(move, None) for move in plan.moves]


def print_moves(rows: list[MovePlanned], output: OutputFormat) -> None:
    """Print moves with their bytes and reasons."""
    copied = ("copied", "moved_bytes", size_text)
    why = ("why", lambda row: row.message or row.reason)
    print_rows(rows, (*MOVE_COLUMNS, copied, why), output, "there is nothing to move")


def await_moves(client: BlockingClient, moving: Collection[TopicPartition]) -> None:
    """Wait until none of these partitions is on the move or queued; NotYetError after a day.

    A message names a dead broker for which moves wait; no broker is named twice.
    """
    named: dict[int, None] = {}
    looked = time.monotonic()

    def done() -> int:
        nonlocal looked
        moves = client.reassignments(moving)
        if time.monotonic() - looked >= _STALLED_S:
            looked = time.monotonic()
            say_stalled(client, moves, named)
        return len(moving) - len({**moves.queued, **moves.under_way})

    wait_for("moves", len(moving), done, PATIENCE_S)


def say_stalled(client: BlockingClient, moves: Moves, named: dict[int, None]) -> None:
    """Name the dead brokers for which moves wait, except the brokers in `named`."""
    live = client.metadata([]).brokers
    waiting: dict[int, list[TopicPartition]] = {}
    for tp, move in sorted(moves.under_way.items()):
        for broker in move.adding:
            if broker not in live and broker not in named:
                waiting.setdefault(broker, []).append(tp)
    for broker, partitions in sorted(waiting.items()):
        named[broker] = None
        verb = "waits" if len(partitions) == 1 else "wait"
        say(
            f"tidelog: {some(partitions)} {verb} for broker {broker}, which is not alive: start it,"
            f" or cancel the moves to it (tidelog reassign cancel --broker {broker})"
        )


def some(partitions: list[TopicPartition]) -> str:
    """Return the first partitions as text, with the number of partitions that the text omits."""
    more = f" and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else ""
    return ", ".join(map(str, partitions[:_MOST_NAMED])) + more


def await_targets(
    client: BlockingClient, targets: Mapping[TopicPartition, tuple[int, ...]]
) -> dict[TopicPartition, MoveAsked]:
    """Wait until these moves end; return the moves that missed their targets, with the reason.

    A move misses its target if another operator cancelled it or gave it another target. Raises
    NotYetError after a day.
    """
    await_moves(client, targets)
    deadline = time.monotonic() + _SETTLING_S
    names = sorted({tp.topic for tp in targets})
    while True:
        metadata = client.metadata(names)
        lost = {}
        for tp, target in targets.items():
            partition = metadata.partition(tp)
            if partition is None:
                lost[tp] = _lost("the partition was deleted meanwhile")
            elif tuple(partition.replicas) != target:
                has = ids(tuple(partition.replicas))
                lost[tp] = _lost(f"it was cancelled or replaced meanwhile; the replicas are {has}")
        if not lost or time.monotonic() > deadline:
            return lost
        time.sleep(_POLL_S)


def _lost(reason: str) -> MoveAsked:
    return MoveAsked(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"accepted, but {reason}")


def say_failed(refused: int, lost: int, total: int) -> None:
    """Report the number of refused moves and of moves that missed their targets, if any."""
    if refused:
        say(f"tidelog: {refused} of {total} moves were refused")
    if lost:
        say(f"tidelog: {lost} of {total} moves did not reach their targets")


def moves_beside(client: BlockingClient, additional: bool) -> dict[TopicPartition, MoveUnderWay]:
    """Return the moves under way.

    Without `additional`, any move under way raises ReassignmentFileError.
    """
    moving = client.list_reassignments()
    if moving and not additional:
        raise ReassignmentFileError(
            f"partitions are on the move already ({len(moving)}, the first is {min(moving)}):"
            " wait for them (tidelog reassign list), cancel them, or give --additional"
        )
    return moving


@contextlib.contextmanager
def way_back_on_error(back: Targets, saved: Path | None) -> Iterator[None]:
    """Print the rollback document if a request fails: its moves may have begun nevertheless."""
    try:
        yield
    except TidelogError:
        say_way_back(back, saved)
        raise


def say_way_back(back: Targets, saved: Path | None, dry_run: bool = False) -> None:
    """Print the rollback document, which moves partitions back to the replicas in `back`.

    Prints nothing in a dry run, or if the document was written to the file `saved`.
    """
    if back and saved is None and not dry_run:
        say(f"to move them back once they are moved, execute: {rollback(back)}")


def _elect(client: BlockingClient, begun: list[PlannedMove], is_over: bool) -> bool:
    """Elect the preferred replicas that do not lead yet; return False if any election was refused.

    Before a move is over, its preferred replica can lead only if the move copies nothing (R21).
    """
    changed = [move for move in begun if move.needs_election]
    now = [move.tp for move in changed if is_over or set(move.after) == set(move.before)]
    if len(now) < len(changed):
        leaders = counted(len(changed) - len(now), "leader", "changes", "change")
        say(
            f"{leaders} when the move is done: by the brokers' leader balance, or at once by"
            " tidelog leaders elect --all"
        )
    return not elect_preferred(client, now)


def elect_preferred(client: BlockingClient, partitions: list[TopicPartition]) -> int:
    """Elect preferred replicas; name and count the partitions that keep another leader."""
    if not partitions:
        return 0
    results = client.elect_leaders(ElectionType.PREFERRED, partitions)
    refused = [tp for tp in sorted(results) if not results[tp].holds]
    for tp in refused:
        result = results[tp]
        say(f"tidelog: {tp} keeps its leader: {result.message or result.error.name}")
    return len(refused)


def _row(move: PlannedMove, result: MoveAsked | None) -> MovePlanned:
    word = "planned"
    if result is not None:
        word = "accepted" if result.error is ErrorCode.NONE else result.error.name
    return MovePlanned(
        *move.tp,
        word,
        move.before,
        move.after,
        move.moved_bytes,
        move.reason,
        "" if result is None else result.message,
    )
