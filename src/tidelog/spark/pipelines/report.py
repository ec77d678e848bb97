"""The report of a pipeline: facts, tables and figures, for people and for programs.

A report is plain data, without Spark. `to_json` returns the document that `-o json` prints. The
function `page` of `html` makes one HTML file of the report, including its figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from tidelog.core.columns import Column, cells, headings
from tidelog.core.dataclass import dataclass

#: The value of a cell of a table. Not-a-number and infinity are null in JSON.
Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report: rows under column names; every row has one cell for each column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    #: A sentence below the table, about the meaning of its numbers or about omitted rows.
    note: str = ""

    @classmethod
    def of(
        cls, title: str, rows: Iterable[Any], columns: Sequence[Column], note: str = ""
    ) -> Table:
        """Return a table of `rows`, with a cell for each of the declared `columns`."""
        return cls(title, headings(columns), cells(rows, columns), note)

    def __post_init__(self) -> None:
        """Raise ValueError if a row has another length than the columns."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: {row} has not {len(self.columns)} cells")

    def to_json(self) -> dict[str, Any]:
        """Return the table as title, columns, rows as objects, note."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {**asdict(self), "rows": rows}


class PlotKind(StrEnum):
    """How the series of a plot are drawn."""

    LINE = "line"
    STEP = "step"
    BAR = "bar"
    POINTS = "points"


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one kind of bars of a plot: its points. `low` and `high` are the ends of error
    bars, or empty.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if coordinates and error bars of the series differ in length."""
        lengths = {len(self.x), len(self.y)}
        for bound in (self.low, self.high):
            lengths.add(len(bound) if self.low or self.high else len(self.x))
        if len(lengths) != 1:
            raise ValueError(f"series {self.label!r} has parts of different lengths")


@dataclass(frozen=True, slots=True)
class Plot:
    """Series over a common axis; `ticks` names the positions 0, 1, 2 ... of bars on the x-axis."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: PlotKind = PlotKind.LINE
    is_log_y: bool = False
    ticks: tuple[str, ...] = ()
    is_log_x: bool = False

    @classmethod
    def bars(
        cls,
        title: str,
        x_label: str,
        y_label: str,
        names: Sequence[object],
        heights: Mapping[str, Iterable[float]],
    ) -> Plot:
        """Return a bar chart over `names`; `heights` has the heights of each series, by label."""
        places = tuple(map(float, range(len(names))))
        series = tuple(
            Series(label, places, tuple(map(float, each))) for label, each in heights.items()
        )
        return cls(title, x_label, y_label, series, PlotKind.BAR, ticks=tuple(map(str, names)))

    def to_json(self) -> dict[str, Any]:
        """Return the plot's labels and points."""
        document = asdict(self)
        return {name: document[name] for name in ("title", "x_label", "y_label", "ticks", "series")}


@dataclass(frozen=True, slots=True)
class Span:
    """A piece `[start, end)` of a timeline's row, of one kind, such as a state."""

    start: float
    end: float
    kind: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A chart of time spans, with one row for each subject, such as a partition."""

    title: str
    x_label: str
    rows: tuple[tuple[str, tuple[Span, ...]], ...]
    #: Kinds of spans in the order of their colours; kinds not listed follow in order of appearance.
    kinds: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the timeline as JSON values: its rows with their spans."""
        rows = [{"label": label, "spans": list(map(asdict, spans))} for label, spans in self.rows]
        return {"title": self.title, "x_label": self.x_label, "rows": rows}


Figure = Plot | Timeline


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The outcome of a pipeline; `holds` is False if a check of the pipeline failed."""

    title: str
    #: One sentence: the last line that a command prints.
    verdict: str
    holds: bool
    facts: tuple[tuple[str, Cell], ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the whole report as one document."""
        document = {
            "title": self.title,
            "verdict": self.verdict,
            "holds": self.holds,
            "facts": dict(self.facts),
            "tables": [each.to_json() for each in self.tables],
            "figures": [each.to_json() for each in self.figures],
        }
        return {name: _plain(value) for name, value in document.items()}


def _plain(value: Any) -> Any:
    """Return a value for JSON: a list for a tuple, null for not-a-number and infinity."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
