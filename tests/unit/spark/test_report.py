"""Reports: data that fits together, the JSON document, the page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from tidelog.spark.pipelines.html import page, shown
from tidelog.spark.pipelines.report import (
    Cell,
    PipelineReport,
    Plot,
    PlotKind,
    Series,
    Span,
    Table,
    Timeline,
)

SERIES = Series("a < b", (0.0, 1.0, 2.0), (1.0, 2.0, 4.0))
BARRED = Series("c", (0.0, 1.0, 2.0), (1.0, 2.0, 4.0), (0.5, 1.5, 3.0), (1.5, 2.5, 5.0))
TIMELINE = Timeline(
    "Availability",
    "s",
    (("t-0", (Span(0, 4, "led"), Span(4, 5, "no leader"))), ("t-1", (Span(0, 5, "led"),))),
)


def report(*figures: Plot | Timeline, holds: bool = True) -> PipelineReport:
    table = Table("Rows & more", ("name", "count"), (("<x>", 1_234_567), ("y", None)), "A note.")
    facts: tuple[tuple[str, Cell], ...] = (("records", 12_000), ("share", 0.25), ("bad", False))
    return PipelineReport("The <title>", "12 & no more", holds, facts, (table,), figures)


def test_a_row_with_another_number_of_cells_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"table 'x': \(1, 2\) has not 1 cells"):
        Table("x", ("a",), ((1, 2),))


@pytest.mark.parametrize(
    ("y", "low", "high"),
    [((1.0,), (), ()), ((1.0, 2.0), (1.0, 2.0), ()), ((1.0, 2.0), (), (1.0,))],
)
def test_a_series_with_parts_of_different_lengths_is_an_error(
    y: tuple[float, ...], low: tuple[float, ...], high: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="series 's' has parts of different lengths"):
        Series("s", (0.0, 1.0), y, low, high)


def test_the_document_has_everything_and_is_json_for_every_reader() -> None:
    infinite = Table("t", ("n",), ((float("inf"),), (float("nan"),), (True,)))
    found = PipelineReport(
        "r", "v", False, (("f", float("nan")),), (infinite,), (TIMELINE,)
    ).to_json()
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text) == found
    assert found["holds"] is False
    assert found["facts"] == {"f": None}
    assert found["tables"][0]["rows"] == [{"n": None}, {"n": None}, {"n": True}]
    assert found["figures"][0]["rows"][0]["spans"][1] == {
        "start": 4,
        "end": 5,
        "kind": "no leader",
    }


class _Tags(HTMLParser):
    """Collects text, and fails on tags that do not close in order."""

    EMPTY = ("meta", "link", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("kind", PlotKind)
def test_the_page_is_whole_and_needs_nothing_from_elsewhere(kind: PlotKind) -> None:
    plot = Plot("A plot", "s", "records/s", (SERIES, BARRED), kind, ticks=("p", "q", "r"))
    text = page(report(plot, TIMELINE))
    parser = _Tags()
    parser.feed(text)
    assert parser.open == []
    assert {"svg", "table", "dl"} <= parser.seen
    assert not {"script", "link", "img", "iframe"} & parser.seen
    fetched = re.findall(r"""(?:src|href)=["'](?!#)([^"']+)""", text)
    assert fetched == []
    for expected in ("The <title>", "12 & no more", "<x>", "1,234,567", "a < b", "no leader"):
        assert expected in parser.text
    assert text == page(report(plot, TIMELINE))


def test_a_verdict_that_does_not_hold_looks_different() -> None:
    assert 'class="verdict bad"' in page(report(holds=False))
    assert 'class="verdict good"' in page(report())


def test_a_figure_without_points_can_be_drawn() -> None:
    empty = Plot("e", "x", "y", (Series("s", (), ()),))
    assert "<svg" in page(report(empty, Timeline("t", "s", ())))


def test_a_long_timeline_says_how_much_it_leaves_out() -> None:
    rows = tuple((f"t-{n}", (Span(0, 1, "led"),)) for n in range(130))
    assert "(30 more rows are in the data)" in page(report(Timeline("t", "s", rows)))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, ""),
        (True, "yes"),
        (1234, "1,234"),
        (0.12345, "0.1235"),
        (123456.7, "123,457"),
        ("a", "a"),
    ],
)
def test_cells_as_people_read_them(cell: Cell, text: str) -> None:
    assert shown(cell) == text
