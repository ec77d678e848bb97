"""Figures of a report as SVG, drawn by matplotlib without a screen.

Text in a figure stays text, so that a page can be searched and uses the reader's font. Drawing the
first figure loads matplotlib.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.errors import ConfigError
from tidelog.runtime.extras import install_command
from tidelog.spark.pipelines.report import Figure, Plot, PlotKind, Series, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH_IN: Final = 9.0
_HEIGHT_IN: Final = 3.6
#: Height in inches of a timeline's row; `_AXIS_IN` is the height of the axis.
_ROW_IN: Final = 0.22
_AXIS_IN: Final = 1.2
#: Maximum number of rows in a timeline; more would be too small to read.
MAX_ROWS: Final = 100
#: Maximum number of upright names on an x-axis; more names are slanted, because they would overlap.
_UPRIGHT_TICKS: Final = 6
#: The file has no dates, so that equal reports give equal bytes.
_METADATA: Final = {"Date": None, "Creator": None}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tidelog",
    "font.size": 9.0,
}
#: Colours that colour-blind people can distinguish (Okabe and Ito).
_COLOURS: Final = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
    "#f0e442",
    "#000000",
)


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element; raise ConfigError if matplotlib is missing."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise ConfigError(f"figures need matplotlib: {install_command('spark')}") from error
    with mpl.rc_context(_STYLE):
        rows = min(len(figure.rows), MAX_ROWS) if isinstance(figure, Timeline) else 0
        height = _AXIS_IN + _ROW_IN * rows if isinstance(figure, Timeline) else _HEIGHT_IN
        canvas = Canvas(figsize=(_WIDTH_IN, height), layout="constrained")
        axes = canvas.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        if isinstance(figure, Timeline):
            _timeline(axes, figure)
        else:
            _plot(axes, figure)
        text = io.StringIO()
        canvas.savefig(text, format="svg", metadata=_METADATA)
    found = text.getvalue()
    return found[found.index("<svg") :]


def _plot(axes: Axes, plot: Plot) -> None:
    drawers = {PlotKind.LINE: _line, PlotKind.STEP: _step, PlotKind.POINTS: _points}
    for index, series in enumerate(plot.series):
        colour = _COLOURS[index % len(_COLOURS)]
        if plot.kind is PlotKind.BAR:
            _bars(axes, series, index, len(plot.series), colour)
        else:
            drawers[plot.kind](axes, series, colour)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    if plot.is_log_y:
        axes.set_yscale("log")
    if plot.is_log_x:
        axes.set_xscale("log")
    if plot.ticks:
        axes.set_xticks(range(len(plot.ticks)), plot.ticks)
        if len(plot.ticks) > _UPRIGHT_TICKS:
            axes.tick_params(axis="x", rotation=30)
    if len(plot.series) > 1:
        axes.legend(fontsize="small", frameon=False)


def _line(axes: Axes, series: Series, colour: str) -> None:
    axes.plot(series.x, series.y, color=colour, label=series.label, linewidth=1.2)
    if series.low:
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.2)


def _step(axes: Axes, series: Series, colour: str) -> None:
    axes.step(series.x, series.y, where="post", color=colour, label=series.label, linewidth=1.2)


def _points(axes: Axes, series: Series, colour: str) -> None:
    axes.errorbar(
        series.x,
        series.y,
        yerr=_errors(series),
        fmt="o",
        markersize=4,
        capsize=3,
        color=colour,
        label=series.label,
    )


def _bars(axes: Axes, series: Series, index: int, count: int, colour: str) -> None:
    width = 0.8 / count
    places = [x - 0.4 + width * (index + 0.5) for x in series.x]
    axes.bar(
        places,
        series.y,
        width,
        yerr=_errors(series),
        capsize=3 if series.low else 0,
        color=colour,
        label=series.label,
    )


def _errors(series: Series) -> Any:
    if not series.low:
        return None
    below = [y - low for y, low in zip(series.y, series.low, strict=True)]
    above = [high - y for y, high in zip(series.y, series.high, strict=True)]
    return below, above


def _timeline(axes: Axes, timeline: Timeline) -> None:
    rows = timeline.rows[:MAX_ROWS]
    found = [span.kind for _, spans in timeline.rows for span in spans]
    kinds = dict.fromkeys([*timeline.kinds, *found])
    colours = {kind: _COLOURS[n % len(_COLOURS)] for n, kind in enumerate(kinds)}
    named: set[str] = set()
    for place, (_, spans) in enumerate(rows):
        for kind, colour in colours.items():
            bars = [
                (span.start, span.end - span.start)
                for span in spans
                if span.kind == kind and math.isfinite(span.start) and math.isfinite(span.end)
            ]
            if bars:
                label = kind if kind not in named else ""
                axes.broken_barh(bars, (place - 0.4, 0.8), facecolors=colour, label=label)
                named.add(kind)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize="small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    hidden = len(timeline.rows) - len(rows)
    more = f" ({hidden} more rows are in the data)" if hidden else ""
    axes.set_xlabel(timeline.x_label + more)
    if named:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, fontsize="small")
