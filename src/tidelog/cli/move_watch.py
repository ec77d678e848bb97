"""`tidelog reassign list`: the moves under way with their progress, once or until they end (R16).

On a terminal, `--watch` draws a bar for each move; in a file or a pipe, each sample has a line for
each move. With `-o json` each sample is one line.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from tidelog.cli.documents import MoveListed, MovesSampled, document_of
from tidelog.cli.output import OutputFormat, print_line, print_rows, printed, say, size_text
from tidelog.cli.reassignment_files import ids
from tidelog.cli.throttles import configured_throttles, say_throttles
from tidelog.client.move_progress import MoveProgress, ProgressMeter
from tidelog.client.throttles import Throttle, rate_of
from tidelog.core.columns import Column
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.list_partition_reassignments import NO_REQUEST

#: Maximum number of progress bars on a screen; further moves are only counted.
_MOST_BARS = 20
#: Seconds between readings of the configured throttles: each reading asks every broker.
_THROTTLES_S = 10.0


def show_moves(client: BlockingClient, output: OutputFormat) -> None:
    """Print the moves under way, without rates: a rate needs two samples."""
    look = _Look(client, ProgressMeter())
    found, _ = look.take()
    if not printed([_row(each) for each in found], output):
        print_rows(found, _MOVE_COLUMNS, empty="no partition is being moved")
    say_throttles(look.throttles)


def _throttle_text(progress: MoveProgress) -> str | None:
    """Return a move's lowest rate limit as text; mark a configured throttle (KIP-73)."""
    own, configured = progress.move.throttle or None, progress.configured_rate
    if configured is not None and (own is None or configured < own):
        return f"{size_text(configured)}/s (configured)"
    return None if own is None else f"{size_text(own)}/s"


_MOVE_COLUMNS: tuple[Column, ...] = (
    ("topic", lambda each: each.tp.topic),
    ("partition", lambda each: each.tp.partition),
    ("state", lambda each: each.state.value),
    ("replicas", lambda each: ids(each.move.replicas)),
    ("adding", lambda each: ids(each.move.adding) or None),
    ("removing", lambda each: ids(each.move.removing) or None),
    ("before", lambda each: ids(each.move.original) or None),
    ("left", "left_bytes", size_text),
    ("throttle", _throttle_text),
)


def watch_moves(client: BlockingClient, output: OutputFormat, interval_s: float) -> None:
    """Print the moves under way every `interval_s` until no move is under way or queued."""
    look = _Look(client, ProgressMeter())
    with _screen(output) as screen:
        while True:
            found, has_queued = look.take()
            screen.show(found)
            if not found and not has_queued:
                break
            time.sleep(interval_s)
    say("no partition is being moved")
    say_throttles(look.throttles)


def progress_text(progress: MoveProgress) -> str:
    """Return the bytes, the rate and the remaining time of a move, for people."""
    if progress.total_bytes is None:
        return "bytes not known"
    if not progress.move.adding:
        return "nothing to copy"
    words = [f"{size_text(progress.done_bytes)} of {size_text(progress.total_bytes)}"]
    if progress.rate is not None:
        words.append(f"{size_text(round(progress.rate))}/s")
    throttle = _throttle_text(progress)
    if throttle is not None:
        words.append(f"throttled to {throttle} for each broker")
    if progress.is_never:
        words.append("never done: producers write as fast as it copies")
    elif progress.left_ms is not None:
        words.append(f"{duration_text(progress.left_ms)} left")
    return ", ".join(words)


def duration_text(duration_ms: int) -> str:
    """Return a duration for people: its two largest units."""
    seconds = -(-duration_ms // 1000)
    for unit_s, unit, smaller_s, smaller in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {unit} {seconds % unit_s // smaller_s} {smaller}"
    return f"{seconds} s"


class _Look:
    """The source of the samples that `--watch` shows; each broker without byte counts is reported
    once.
    """

    def __init__(self, client: BlockingClient, meter: ProgressMeter) -> None:
        self._client = client
        self._meter = meter
        self._named: dict[int, None] = {}
        #: The configured throttles at the last reading.
        self.throttles: list[Throttle] = []
        self._read_throttles_s = -_THROTTLES_S

    def take(self) -> tuple[list[MoveProgress], bool]:
        """Return the progress of each move, and whether any queued move is going to begin."""
        found = self._client.sample_moves()
        for broker, reason in found.silent.items():
            if broker not in self._named:
                self._named[broker] = None
                say(f"tidelog: broker {broker} does not report its bytes: {reason}")
        moves = self._meter.observe(time.monotonic_ns() // 1_000_000, found.samples)
        if time.monotonic() - self._read_throttles_s >= _THROTTLES_S:
            self._read_throttles_s = time.monotonic()
            self.throttles = configured_throttles(self._client)
        rated = [
            replace(each, configured_rate=rate_of(self.throttles, each.tp, each.move))
            for each in moves
        ]
        return rated, found.has_queued


class _Screen(Protocol):
    def show(self, found: Sequence[MoveProgress]) -> None:
        """Show one sample."""


class _JsonLines:
    """A display that prints each sample as one line of JSON."""

    def show(self, found: Sequence[MoveProgress]) -> None:
        """Print the sample."""
        sample = MovesSampled(time.time_ns() // 1_000_000, [_row(each) for each in found])
        print_line(json.dumps(asdict(sample)))
        typer.get_text_stream("stdout").flush()


class _Shown:
    """Base class of displays, which remembers the moves of the previous sample."""

    def __init__(self) -> None:
        self._shown: dict[TopicPartition, None] = {}

    def _ended(self, found: Sequence[MoveProgress]) -> list[TopicPartition]:
        """Return the moves that ended since the previous sample; remember this sample."""
        present = dict.fromkeys(each.tp for each in found)
        ended = [tp for tp in self._shown if tp not in present]
        self._shown = present
        return ended


class _Lines(_Shown):
    """A display that prints a line for each move under way, and for each move that ended."""

    def show(self, found: Sequence[MoveProgress]) -> None:
        """Print the moves of the sample, and the moves that ended since the previous sample."""
        for tp in self._ended(found):
            print_line(f"{tp} ended")
        for each in found:
            print_line(f"{each.tp} {_title(each)}: {progress_text(each)}")


class _Bars(_Shown):
    """A display with a bar for each move under way; a move that ended becomes a line above."""

    def __init__(self, bars: Progress) -> None:
        super().__init__()
        self._bars = bars
        self._tasks: dict[TopicPartition, TaskID] = {}
        self._rest: TaskID | None = None

    def show(self, found: Sequence[MoveProgress]) -> None:
        """Draw the bars of one sample."""
        for tp in self._ended(found):
            self._bars.console.print(f"{tp} ended", markup=False, highlight=False)
            if tp in self._tasks:
                self._bars.remove_task(self._tasks.pop(tp))
        if self._rest is not None:
            self._bars.remove_task(self._rest)
            self._rest = None
        self._draw(found)
        if len(found) > len(self._tasks):
            title = f"and {len(found) - len(self._tasks)} more"
            self._rest = self._bars.add_task("", total=1, visible=True, title=title, text="")

    def _draw(self, found: Sequence[MoveProgress]) -> None:
        room = _MOST_BARS - len(self._tasks)
        for each in found:
            if each.tp not in self._tasks:
                if room <= 0:
                    continue
                room -= 1
                self._tasks[each.tp] = self._bars.add_task("", total=None, title="", text="")
            self._bars.update(
                self._tasks[each.tp],
                total=max(1, each.total_bytes or 0),
                completed=1 if each.left_bytes == 0 and not each.done_bytes else each.done_bytes,
                title=f"{each.tp} {_title(each)}",
                text=progress_text(each),
            )


@contextlib.contextmanager
def _screen(output: OutputFormat) -> Iterator[_Screen]:
    if output is OutputFormat.JSON:
        yield _JsonLines()
        return
    console = Console()
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)


def _title(progress: MoveProgress) -> str:
    brokers = ids(progress.move.adding or progress.move.removing)
    return f"{progress.state.value} {brokers}".strip()


def _row(progress: MoveProgress) -> MoveListed:
    move = progress.move
    return document_of(
        MoveListed,
        move,
        topic=progress.tp.topic,
        partition=progress.tp.partition,
        state=progress.state.value,
        done_bytes=progress.done_bytes,
        left_bytes=progress.left_bytes,
        bytes_per_s=None if progress.rate is None else round(progress.rate),
        left_ms=progress.left_ms,
        never=progress.is_never,
        throttle=move.throttle or None,
        throttle_configured=progress.configured_rate,
        request_id=None if move.request_id == NO_REQUEST else move.request_id,
    )
