"""A report as one HTML file without scripts and external resources, with a dark and a light theme.

The file can be mailed, kept beside a ticket, and opened without a network.
"""

from __future__ import annotations

from html import escape
from typing import Final

from tidelog.spark.pipelines.figures import svg
from tidelog.spark.pipelines.report import Cell, Figure, PipelineReport, Table

_CSS: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; --dim: #57606a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #15191f; --line: #3a424c; --dim: #9aa4af }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: .25rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.verdict { font-size: 1.1rem; padding: .5rem .75rem; border-left: .3rem solid }
.good { border-color: #009e73 } .bad { border-color: #d55e00 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.5rem }
dt { color: var(--dim) } dd { margin: 0; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top }
th { color: var(--dim); font-weight: 600 } .number { text-align: right }
.note { color: var(--dim); font-size: .9rem }
figure { margin: 0; background: #fff; border: 1px solid var(--line); padding: .5rem }
svg { width: 100%; height: auto }
"""


def page(report: PipelineReport) -> str:
    """Return a report as an HTML page; raise ConfigError if figures cannot be drawn."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(report.title)}</title><style>{_CSS}</style></head><body>",
        f"<h1>{escape(report.title)}</h1>",
        f'<p class="verdict {"good" if report.holds else "bad"}">{escape(report.verdict)}</p>',
        _facts(report),
        *(_figure(each) for each in report.figures),
        *(_table(each) for each in report.tables),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _facts(report: PipelineReport) -> str:
    rows = (
        f"<dt>{escape(name)}</dt><dd>{escape(shown(value))}</dd>" for name, value in report.facts
    )
    return f"<dl>{''.join(rows)}</dl>" if report.facts else ""


def _figure(figure: Figure) -> str:
    return f"<h2>{escape(figure.title)}</h2>\n<figure>{svg(figure)}</figure>"


def _table(table: Table) -> str:
    numeric = [
        bool(table.rows) and all(_is_number(row[index]) for row in table.rows)
        for index in range(len(table.columns))
    ]
    head = "".join(
        f"<th{_class(is_number)}>{escape(name)}</th>"
        for name, is_number in zip(table.columns, numeric, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td{_class(is_number)}>{escape(shown(cell))}</td>"
            for cell, is_number in zip(row, numeric, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    note = f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f"<h2>{escape(table.title)}</h2>\n"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _is_number(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool))


def shown(cell: Cell) -> str:
    """Return a cell's text for people: groups of thousands, and four digits of a fraction."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1e4 else f"{cell:,.0f}"
    return cell
