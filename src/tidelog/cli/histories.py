"""`tidelog history`: checks of a recorded history of client operations.

The command `check` judges a history (docs/reference/history.md) in one reading, and keeps only the
line numbers of operations in anomalies. A second reading of the history fetches the lines of the
anomalies for the output.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import (
    OutputFormat,
    OutputOption,
    print_json,
    print_line,
    print_table,
    printable,
)

if TYPE_CHECKING:
    from tidelog.history import Anomaly, Report

app = CommandGroup("Histories of clients' operations.")

#: Without --every: maximum number of anomalies of the same kind that are printed.
_SHOWN_OF_EACH = 3


@app.callback()
def _group() -> None:
    """Keep the word `check`, which typer omits in a group with only one command."""


@app.command(epilog="Example: tidelog history check history.jsonl")
@prints(
    "an object with `file`, `operations`, `sent_records`, `acknowledged_records`,"
    " `polled_records`, `seconds`, `sound` (whether nothing was found that is not allowed),"
    " `forbidden` and `allowed` (anomaly to number) and `anomalies` (the first 100 of each name:"
    " `name`, `is_allowed`, `partition`, `what`, and `operations`, each with `line` and the"
    " fields of the line)."
)
def check(
    file: Annotated[
        str, typer.Argument(help="A history: JSON lines, one operation each.", show_default=False)
    ],
    final_read: Annotated[
        bool,
        typer.Option(
            help="Every partition was read to its end after the last operation, so an acknowledged"
            " record that was not polled is missing."
        ),
    ] = True,
    every: Annotated[
        bool, typer.Option("--every", help="Print 100 anomalies of each name, allowed ones too.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check a history for anomalies; exit code 1 for an anomaly that is not allowed."""
    from tidelog.history import HistoryChecker, MalformedHistory, read_history

    started = time.monotonic()
    checker = HistoryChecker(has_final_read=final_read)
    # Python's cycle collector would take a third of the time, and a history has no reference
    # cycles.
    gc.disable()
    try:
        with open(file, "rb") as lines:
            for number, operation in read_history(lines):
                checker.add(operation, number)
    except MalformedHistory as error:
        raise MalformedHistory(f"{file}: {error}") from None
    finally:
        gc.enable()
    report = checker.finish()
    seconds = time.monotonic() - started
    if output is OutputFormat.JSON:
        _print_document(file, report, seconds)
    else:
        _print_report(file, report, seconds, every)
    if not report.is_sound:
        raise typer.Exit(1)


def _print_document(file: str, report: Report, seconds: float) -> None:
    from tidelog.history import document_of

    involved = _involved(file, report.anomalies)
    anomalies: list[dict[str, Any]] = []
    for each in report.anomalies:
        document = asdict(each)
        document["operations"] = [
            {"line": line, **document_of(involved[line])} for line in document.pop("lines")
        ]
        anomalies.append(document)
    print_json(
        {
            "file": file,
            "operations": report.operations,
            "sent_records": report.sent_records,
            "acknowledged_records": report.acknowledged_records,
            "polled_records": report.polled_records,
            "seconds": round(seconds, 3),
            "sound": report.is_sound,
            "forbidden": report.forbidden,
            "allowed": report.allowed,
            "anomalies": anomalies,
        }
    )


def _print_report(file: str, report: Report, seconds: float, every: bool) -> None:
    from tidelog.history import ANOMALIES, describe

    print_line(
        f"{report.operations} operations: {report.sent_records} records sent,"
        f" {report.acknowledged_records} acknowledged, {report.polled_records} polled"
        f" ({seconds:.1f} s)"
    )
    shown = _shown(report, every)
    involved = _involved(file, shown)
    for each in shown:
        print_line(f"\n{'allowed' if each.is_allowed else 'NOT ALLOWED'}  {printable(str(each))}")
        for line in each.lines:
            operation = printable(describe(involved[line], report.begin))
            print_line(f"    line {line}: {operation}")
    rows = [
        (name, count, word, meaning.allowed, meaning.text)
        for name, meaning in ANOMALIES.items()
        for word, counts in (("NO", report.forbidden), ("yes", report.allowed))
        if (count := counts.get(name, 0))
    ]
    if rows:
        print_line("")
        print_table(["anomaly", "number", "allowed here", "allowed", "meaning"], rows)
    total = sum(report.forbidden.values())
    if total:
        print_line(f"\n{total} anomalies that are not allowed")
    else:
        print_line("\nnothing that is not allowed" if rows else "nothing is anomalous")


def _shown(report: Report, every: bool) -> list[Anomaly]:
    if every:
        return report.anomalies
    counts: dict[str, int] = {}
    shown = []
    for each in report.forbidden_anomalies:
        counts[each.name] = counts.get(each.name, 0) + 1
        if counts[each.name] <= _SHOWN_OF_EACH:
            shown.append(each)
    return shown


def _involved(file: str, anomalies: Iterable[Anomaly]) -> dict[int, Any]:
    """Return the operations on the lines that anomalies name, by line number."""
    from tidelog.history import parse

    wanted = {line for each in anomalies for line in each.lines}
    if not wanted:
        return {}
    with open(file, "rb") as lines:
        return {
            number: parse(line, number) for number, line in enumerate(lines, 1) if number in wanted
        }
