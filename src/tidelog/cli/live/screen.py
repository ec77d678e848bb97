"""The screen of `tidelog top`, drawn with textual (extra "top").

A thread looks at the cluster, so that keys respond at once also while a broker hangs. The screen
draws the latest frame: one table at a time, the summary above it, and below it the whole of the
chosen row, whose columns a narrow terminal cannot show.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import DataTable, Footer, Static

from tidelog.cli.live.frame import TopFrame
from tidelog.cli.live.views import (
    VIEWS,
    FrameView,
    ViewColumn,
    cell_text,
    sorted_rows,
    summary_text,
)
from tidelog.cli.output import printable

#: Maximum number of notes that the screen shows; one more line has the number of further notes.
_NOTES: Final = 3


class TopScreen(App[None]):
    """The live view; `take` returns the next frame, and is called in a thread of its own."""

    CSS = """
    #summary, #notes, #row { height: auto; padding: 0 1; }
    #summary { text-style: bold; }
    #notes { color: $warning; }
    #row { border-top: solid $primary; max-height: 8; }
    DataTable { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(view.key, f"view('{view.name}')", view.name) for view in VIEWS),
        Binding("tab", "next_view", "next", show=False, priority=True),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("space", "pause", "pause"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, take: Callable[[], TopFrame], interval_s: float) -> None:
        super().__init__()
        self._take = take
        self._interval_s = interval_s
        self._ends = threading.Event()
        self._looking: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._frame: TopFrame | None = None
        self._view: FrameView = VIEWS[0]
        #: By view: the column by which rows are sorted (None keeps the order of the frame), and
        #: whether the order is descending.
        self._sorts: dict[str, tuple[ViewColumn | None, bool]] = {}
        self._rows: list[Any] = []
        self._drawn: tuple[str, int] | None = None
        self.is_paused = False

    def compose(self) -> ComposeResult:
        """Return the widgets of the screen, from top to bottom."""
        yield Static("The first look is under way.", id="summary", markup=False)
        yield Static("", id="title", markup=False)
        yield DataTable(id="table", cursor_type="row", zebra_stripes=True)
        yield Static("", id="row", markup=False)
        yield Static("", id="notes", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start the thread that looks at the cluster."""
        self.query_one(DataTable).focus()
        self._looking = threading.Thread(target=self._look, name="top", daemon=True)
        self._looking.start()

    def on_unmount(self) -> None:
        """Have the thread end after its present look at the cluster."""
        self._ends.set()

    def finish(self, timeout_s: float) -> None:
        """Wait for the end of the present look, and raise the error that ended the looks."""
        self._ends.set()
        if self._looking is not None:
            self._looking.join(timeout_s)
        if self._failure is not None:
            raise self._failure

    def _look(self) -> None:
        while not self._ends.is_set():
            try:
                frame = self._take()
            except BaseException as error:
                # The screen ends, because a screen that went on showing its last frame would hide
                # the defect.
                self._failure = error
                self._pass_on(self.exit)
                return
            self._pass_on(self.show, frame)
            self._ends.wait(self._interval_s)

    def _pass_on(self, call: Callable[..., object], *args: object) -> None:
        """Call a method on the screen's loop, unless the screen has ended."""
        loop = self._loop
        if loop is not None and not loop.is_closed() and not self._ends.is_set():
            loop.call_soon_threadsafe(call, *args)

    # -- drawing --------------------------------------------------------------------------------

    def show(self, frame: TopFrame) -> None:
        """Draw a frame, unless the screen is paused or ends."""
        if self.is_paused or self._ends.is_set():
            return
        self._frame = frame
        try:
            self._draw()
        except Exception as error:
            # The event loop calls this method outside of textual, and would only log an error, so
            # the screen ends.
            self._frame, self._failure = None, error
            self.exit()

    def on_resize(self, event: Resize) -> None:
        """Draw as many columns as the new width has room for."""
        if self._frame is not None:
            self._draw()

    def _draw(self) -> None:
        frame, view = self._frame, self._view
        if frame is None:
            return
        column, descending = self._sorts.get(view.name, (None, False))
        self._rows = sorted_rows(view.rows(frame), column, descending)
        paused = "PAUSED  " if self.is_paused else ""
        self.query_one("#summary", Static).update(f"{paused}{summary_text(frame)}")
        order = "" if column is None else f", by {column.title}{' descending' * descending}"
        total = view.total(frame)
        more = f" (the first {len(self._rows):,} of {total:,})" if total > len(self._rows) else ""
        empty = "" if self._rows else f": {view.empty}"
        self.query_one("#title", Static).update(f" {view.title}{order}{more}{empty}")
        self._draw_table(view)
        self._draw_row()
        notes = [printable(each) for each in frame.notes[:_NOTES]]
        if len(frame.notes) > _NOTES:
            notes.append(f"and {len(frame.notes) - _NOTES} more notes")
        self.query_one("#notes", Static).update("\n".join(notes))

    def _draw_table(self, view: FrameView) -> None:
        table = self.query_one(DataTable)
        cursor, scroll_y = table.cursor_row, table.scroll_y
        columns = view.shown_columns(self.size.width)
        drawn = (view.name, len(columns))
        table.clear(columns=drawn != self._drawn)
        if drawn != self._drawn:
            for column in columns:
                table.add_column(Text(column.title))
            cursor, scroll_y = 0 if self._drawn and self._drawn[0] != view.name else cursor, 0
            self._drawn = drawn
        for row in self._rows:
            table.add_row(
                *(
                    Text(
                        cell_text(column, row),
                        style=column.style(row),
                        justify="right" if column.is_number else "left",
                    )
                    for column in columns
                )
            )
        if self._rows:
            table.move_cursor(row=min(cursor, len(self._rows) - 1), animate=False, scroll=False)
            table.scroll_to(y=scroll_y, animate=False)

    def _draw_row(self) -> None:
        cursor = self.query_one(DataTable).cursor_row
        words: list[str] = []
        if 0 <= cursor < len(self._rows):
            row = self._rows[cursor]
            words = [
                f"{column.title} {text}"
                for column in self._view.columns
                if (text := cell_text(column, row)) not in ("", "-")
            ]
        self.query_one("#row", Static).update(", ".join(words))

    def on_data_table_row_highlighted(self, _event: DataTable.RowHighlighted) -> None:
        """Show the whole row that the cursor has reached."""
        self._draw_row()

    # -- keys -----------------------------------------------------------------------------------

    def action_view(self, name: str) -> None:
        """Show another table."""
        self._view = next(each for each in VIEWS if each.name == name)
        self._draw()

    def action_next_view(self) -> None:
        """Show the table after the present one."""
        self._view = VIEWS[(VIEWS.index(self._view) + 1) % len(VIEWS)]
        self._draw()

    def action_sort(self) -> None:
        """Sort by the next shown column; after the last one, by the frame's own order again."""
        columns: list[ViewColumn | None] = [None, *self._view.shown_columns(self.size.width)]
        column, _ = self._sorts.get(self._view.name, (None, False))
        after = columns.index(column) + 1 if column in columns else 0
        chosen = columns[after % len(columns)]
        # Columns of numbers begin with the largest number, columns of names with the first name.
        self._sorts[self._view.name] = (chosen, chosen is not None and chosen.is_number)
        self._draw()

    def action_reverse(self) -> None:
        """Reverse the order of the rows; if no column is chosen, sort by the first column."""
        column, descending = self._sorts.get(self._view.name, (None, False))
        self._sorts[self._view.name] = (column or self._view.columns[0], not descending)
        self._draw()

    def action_pause(self) -> None:
        """Keep the present frame, or go on; the looks continue, so that rates stay right."""
        self.is_paused = not self.is_paused
        self._draw()
