"""The tables of a frame for people: columns, and a plain text for any width.

A column has a level: the wider the terminal is, the more levels are shown, so that 40 columns still
show the names and the most important number of each row. The screen of textual shows the same
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from tidelog.cli.live.frame import TopFrame, TopOutReplica
from tidelog.cli.move_watch import duration_text
from tidelog.cli.output import DOUBTFUL, WRONG, printable, size_text
from tidelog.core.dataclass import dataclass
from tidelog.core.wording import counted

_NONE: Final = "-"
#: Maximum number of characters in a cell. A client may choose a group's name of 32,767 bytes, and a
#: table with such a name would take seconds to draw.
_CELL_CHARS: Final = 400
#: (level, width of a terminal from which the columns of this level are shown).
_LEVEL_WIDTHS: Final = ((1, 0), (2, 70), (3, 110))


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view."""

    title: str
    text: Callable[[Any], str]
    #: The value by which rows are sorted; None comes last.
    value: Callable[[Any], Any]
    level: int = 1
    is_number: bool = False
    #: The colour of a cell on the screen; empty for none.
    style: Callable[[Any], str] = lambda row: ""


@dataclass(frozen=True, slots=True)
class FrameView:
    """One table of `tidelog top`; the user opens the table by pressing `key`."""

    name: str
    key: str
    title: str
    rows: Callable[[TopFrame], Sequence[Any]]
    total: Callable[[TopFrame], int]
    columns: tuple[ViewColumn, ...]
    #: A sentence that is shown instead of a table without rows.
    empty: str

    def shown_columns(self, width: int | None) -> list[ViewColumn]:
        """Return the columns for a width; None is an unlimited width."""
        level = max(each for each, least in _LEVEL_WIDTHS if width is None or width >= least)
        return [each for each in self.columns if each.level <= level]


def cell_text(column: ViewColumn, row: Any) -> str:
    """Return the text of a cell, shortened if it is too long to draw."""
    text = column.text(row)
    return text if len(text) <= _CELL_CHARS else f"{text[: _CELL_CHARS - 1]}…"


def sorted_rows(rows: Sequence[Any], column: ViewColumn | None, descending: bool) -> list[Any]:
    """Return rows in the order of a column; without a column, rows keep their order."""
    if column is None:
        return list(rows)
    known = [each for each in rows if column.value(each) is not None]
    unknown = [each for each in rows if column.value(each) is None]
    return sorted(known, key=column.value, reverse=descending) + unknown


def _name(title: str, field: str, level: int = 1) -> ViewColumn:
    return ViewColumn(
        title,
        lambda row: printable(str(getattr(row, field) or _NONE)),
        lambda row: str(getattr(row, field) or "") or None,
        level,
    )


def _number(
    title: str,
    field: str,
    level: int = 1,
    show: Callable[[Any], str] = "{:,}".format,
    style: Callable[[Any], str] = lambda row: "",
    none: str = _NONE,
) -> ViewColumn:
    def text(row: Any) -> str:
        value = getattr(row, field)
        return none if value is None else show(value)

    return ViewColumn(title, text, lambda row: getattr(row, field), level, True, style)


def _ids(title: str, field: str, level: int = 1) -> ViewColumn:
    return ViewColumn(
        title,
        lambda row: ",".join(map(str, getattr(row, field))) or _NONE,
        lambda row: getattr(row, field),
        level,
    )


def rate_text(rate: float) -> str:
    """Return a rate in bytes a second as text with a unit, such as `1.5 MiB/s`."""
    return f"{size_text(round(rate))}/s"


def _traffic(title: str, field: str, level: int) -> ViewColumn:
    """Return a column of bytes a second, whose unknown values cannot be taken for no traffic."""
    return _number(title, field, level, rate_text, none="unknown")


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 60 else duration_text(round(value * 1000))


_STATE_STYLES: Final = {"down": WRONG, "no leader": WRONG, "below min ISR": WRONG,
                        "not_ready": DOUBTFUL, "out of sync": DOUBTFUL}  # fmt: skip
_STATE: Final = ViewColumn(
    "state",
    lambda row: printable(row.state.replace("_", " ")),
    lambda row: row.state,
    style=lambda row: _STATE_STYLES.get(row.state, ""),
)
_PARTITION: Final = ViewColumn(
    "partition",
    lambda row: printable(f"{row.topic}-{row.partition}"),
    lambda row: (row.topic, row.partition),
)


def _out_text(out: Sequence[TopOutReplica]) -> str:
    return "; ".join(f"{each.broker}: {each.sentence}" for each in out)


def _progress(row: Any) -> str:
    if row.done_bytes is None or row.left_bytes is None:
        return _NONE
    whole = row.done_bytes + row.left_bytes
    return _percent(row.done_bytes / whole) if whole else _percent(1.0)


BROKERS: Final = FrameView(
    "brokers", "b", "Brokers", lambda frame: frame.brokers, lambda frame: len(frame.brokers),
    (
        _number("broker", "broker", show=str),
        _STATE,
        ViewColumn("role", lambda row: "controller" if row.controller else "",
                   lambda row: not row.controller, 3),
        _number("CPU", "cpu_cores", show=_percent),
        _number("loop p99", "loop_turn_p99_ms", show=lambda ms: f"{ms:.1f} ms"),
        _number("loop busy", "loop_busy", 2, _percent),
        _number("conns", "connections", 2),
        _number("sessions lost", "session_losses", 3),
        _traffic("bytes in", "bytes_in_per_s", 2),
        _traffic("bytes out", "bytes_out_per_s", 2),
        _number("memory", "memory_bytes", 3, size_text),
        _number("leads", "leaders", 3),
        _number("replicas", "replicas", 3),
        _number("out", "out_of_sync", 2,
                style=lambda row: DOUBTFUL if row.out_of_sync else ""),
        _name("why", "reason", 3),
    ),
    "The brokers are not known.",
)  # fmt: skip
PARTITIONS: Final = FrameView(
    "partitions", "p", "Hottest partitions",
    lambda frame: frame.partitions, lambda frame: frame.partitions_total,
    (
        _PARTITION,
        _traffic("bytes in", "bytes_in_per_s", 1),
        _traffic("bytes out", "bytes_out_per_s", 1),
        _number("records in", "records_in_per_s", 2, lambda rate: f"{rate:,.0f}/s"),
        _number("leader", "leader", 2, str),
        _number("high watermark", "high_watermark", 3),
    ),
    "The cluster has no partition.",
)  # fmt: skip
GROUPS: Final = FrameView(
    "groups", "g", "Groups", lambda frame: frame.groups, lambda frame: frame.groups_total,
    (
        _name("group", "group"),
        _number("lag", "lag_records"),
        _number("lag in time", "lag_s", show=_seconds),
        _number("members", "members", 2),
        ViewColumn("state", lambda row: printable(row.state), lambda row: row.state, 2),
        _number("coordinator", "coordinator", 3, str),
    ),
    "The cluster has no group.",
)  # fmt: skip
MOVES: Final = FrameView(
    "moves", "m", "Moves", lambda frame: frame.moves,
    lambda frame: frame.moves_total + frame.queued_total,
    (
        _PARTITION,
        _STATE,
        ViewColumn("done", _progress, lambda row: row.done_bytes, is_number=True),
        _number("rate", "bytes_per_s", 2, rate_text),
        ViewColumn("time left", lambda row: "never" if row.never else _NONE
                   if row.left_ms is None else duration_text(row.left_ms),
                   lambda row: row.left_ms, is_number=True),
        _number("left", "left_bytes", 2, size_text),
        _ids("adding", "adding", 2),
        _ids("removing", "removing", 3),
        _number("throttle", "throttle", 3, rate_text),
        _name("why", "reason", 3),
    ),
    "No partition moves now.",
)  # fmt: skip
UNDER_REPLICATED: Final = FrameView(
    "under-replicated", "u", "Under-replicated partitions",
    lambda frame: frame.under_replicated, lambda frame: frame.under_replicated_total,
    (
        _PARTITION,
        _STATE,
        _number("leader", "leader", 2, str),
        _ids("ISR", "isr", 2),
        ViewColumn("why", lambda row: printable(_out_text(row.out)),
                   lambda row: _out_text(row.out)),
    ),
    "All replicas are in sync.",
)  # fmt: skip
VIEWS: Final = (BROKERS, PARTITIONS, GROUPS, MOVES, UNDER_REPLICATED)


def summary_text(frame: TopFrame) -> str:
    """Return the first line of a frame."""
    live = sum(each.state != "down" for each in frame.brokers)
    at = datetime.fromtimestamp(frame.time_ms / 1000, UTC).strftime("%H:%M:%SZ")
    words = [
        f"{at} {live} of {counted(len(frame.brokers), 'broker')}",
        f"{frame.partitions_total:,} partitions",
        f"{frame.under_replicated_total:,} under-replicated",
        f"{frame.leaderless_total:,} without leader",
    ]
    if frame.bytes_in_per_s is not None and frame.bytes_out_per_s is not None:
        words.append(
            f"in {rate_text(frame.bytes_in_per_s)}, out {rate_text(frame.bytes_out_per_s)}"
        )
    if frame.controller is None:
        words.append("no controller")
    return ", ".join(words)


def plain_lines(frame: TopFrame, width: int | None) -> Iterator[str]:
    """Yield the lines of a frame, each at most `width` columns long; None is no limit."""
    for line in _unlimited_lines(frame, width):
        if width is None or len(line) <= width:
            yield line
        else:
            yield line[: width - 1] + "…"


def _unlimited_lines(frame: TopFrame, width: int | None) -> Iterator[str]:
    yield summary_text(frame)
    for view in VIEWS:
        rows = view.rows(frame)
        total = view.total(frame)
        more = f" (the first {len(rows):,} of {total:,})" if total > len(rows) else ""
        yield ""
        yield f"{view.title}{more}"
        if rows:
            yield from _table_lines(view.shown_columns(width), rows)
        else:
            yield f"  {view.empty}"
    if frame.notes:
        yield ""
        yield from (f"note: {printable(note)}" for note in frame.notes)


def _table_lines(columns: Sequence[ViewColumn], rows: Sequence[Any]) -> Iterator[str]:
    cells = [
        [each.title for each in columns],
        *([cell_text(c, row) for c in columns] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        words = [
            word.rjust(wide) if column.is_number else word.ljust(wide)
            for word, wide, column in zip(line, widths, columns, strict=True)
        ]
        yield f"  {'  '.join(words)}".rstrip()
