"""The report of a search: violations with their smallest seeds, runs, and policies compared.

Plain rows in, a report out. Violations are grouped by profile, policy and kind: the first words of
the violation without names and numbers. The command beside each makes its smallest seed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.sim.outcomes import OUTCOMES
from tidelog.sim.policies import POLICIES
from tidelog.sim.shrink import kind_of
from tidelog.spark.pipelines.report import Cell, PipelineReport, Plot, PlotKind, Series, Table
from tidelog.spark.pipelines.simulate.paired import PairedDifference, compare
from tidelog.spark.pipelines.simulate.run_table import Row

_NS_PER_S: Final = 1_000_000_000
#: Digits of a mean behind the point: microseconds of times.
_DIGITS: Final = 3


def report_of(
    rows: Sequence[Row], policies: Sequence[str], made: int, seconds: float
) -> PipelineReport:
    """Return the report of the rows of one search; the first of `policies` is the base.

    `made` runs were made now, in `seconds`; the others are from earlier searches.
    """
    violated = [row for row in rows if row["violation"]]
    failed = [row for row in rows if row["failure"]]
    differences = [
        difference
        for policy in policies[1:]
        for difference in compare(_outcomes(rows, policies[0]), _outcomes(rows, policy), policy)
    ]
    tables = [_violations(violated), _runs(rows)]
    if failed:
        tables.insert(0, _failures(failed))
    if len(policies) > 1:
        tables += [_policies(policies), _differences(differences, policies[0])]
    return PipelineReport(
        "Simulated clusters",
        _verdict(rows, violated, failed),
        not violated and not failed,
        _facts(rows, policies, made, seconds),
        tuple(tables),
        tuple(_plots(differences, policies)),
    )


def _verdict(rows: Sequence[Row], violated: Sequence[Row], failed: Sequence[Row]) -> str:
    if failed:
        return f"{len(failed)} of {len(rows)} runs could not be made: {failed[0]['command']}"
    if not violated:
        return f"{len(rows)} runs, no violation"
    first = min(violated, key=lambda row: (row["seed"], row["profile"]))
    return f"{len(violated)} of {len(rows)} runs show a violation; {first['command']} repeats one"


def _facts(
    rows: Sequence[Row], policies: Sequence[str], made: int, seconds: float
) -> tuple[tuple[str, Cell], ...]:
    return (
        ("runs", len(rows)),
        ("made now", made),
        ("kept from earlier searches", len(rows) - made),
        ("seeds", len({(row["profile"], row["seed"]) for row in rows})),
        ("policies", ", ".join(policies)),
        ("violations", sum(bool(row["violation"]) for row in rows)),
        ("events", sum(row["events"] for row in rows)),
        ("simulated seconds", sum(row["simulated_ns"] for row in rows) / _NS_PER_S),
        ("seconds of the search", round(seconds, 1)),
        ("seconds of all runs", round(sum(row["seconds"] for row in rows), 1)),
    )


def _failures(failed: Sequence[Row]) -> Table:
    return Table(
        "Runs that could not be made",
        ("command", "reason"),
        tuple((row["command"], row["failure"].splitlines()[-1]) for row in failed),
        "A run that raises is a defect of the simulator. A later search makes these runs again.",
    )


def _violations(violated: Sequence[Row]) -> Table:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in violated:
        key = (row["profile"], row["policy"], kind_of(row["violation"]))
        groups.setdefault(key, []).append(row)
    lines: list[tuple[Cell, ...]] = []
    for (profile, policy, _), found in sorted(groups.items()):
        smallest = min(found, key=lambda row: row["seed"])
        what = smallest["violation"].partition("\n")[0]
        lines.append((profile, policy, len(found), smallest["seed"], what, smallest["command"]))
    return Table(
        "Violations",
        ("profile", "policy", "runs", "smallest seed", "violation", "repeat with"),
        tuple(lines),
    )


def _runs(rows: Sequence[Row]) -> Table:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["profile"], row["policy"]), []).append(row)
    lines: list[tuple[Cell, ...]] = []
    for (profile, policy), found in sorted(groups.items()):
        events = sum(row["events"] for row in found)
        busy = sum(row["seconds"] for row in found)
        lines.append(
            (
                profile,
                policy,
                len(found),
                sum(bool(row["violation"]) for row in found),
                sum(sum(row["played"].values()) for row in found),
                sum(row["counters"].get("acknowledged records", 0) for row in found),
                events,
                round(events / busy) if busy else 0,
            )
        )
    return Table(
        "Runs",
        (
            "profile",
            "policy",
            "runs",
            "violations",
            "faults",
            "acknowledged records",
            "events",
            "events/s",
        ),
        tuple(lines),
    )


def _policies(policies: Sequence[str]) -> Table:
    return Table(
        "Policies",
        ("policy", "settings"),
        tuple((name, POLICIES[name].description) for name in policies),
        f"The base of the comparison is {policies[0]}.",
    )


def _differences(differences: Sequence[PairedDifference], base: str) -> Table:
    return Table.of(
        f"Differences from {base}",
        differences,
        (
            "outcome",
            ("unit", lambda each: OUTCOMES[each.outcome][0]),
            "policy",
            "pairs",
            (base, "base_mean", _rounded),
            *((name, name, _rounded) for name in ("mean", "difference", "low", "high")),
            "less",
            "more",
            "verdict",
        ),
        "A pair is one seed under both policies; low and high are the 95 % interval of the mean"
        " difference (bootstrap over pairs). Less is better in every outcome. Pairs with a"
        " violation are left out.",
    )


def _rounded(value: float) -> float:
    return round(value, _DIGITS)


def _plots(differences: Sequence[PairedDifference], policies: Sequence[str]) -> list[Plot]:
    """Return a plot for each outcome that differs somewhere."""
    plots = []
    for outcome, (unit, meaning) in OUTCOMES.items():
        found = [each for each in differences if each.outcome == outcome]
        if not any(each.low or each.high for each in found):
            continue
        series = Series(
            "difference",
            tuple(float(place) for place in range(len(found))),
            tuple(each.difference for each in found),
            tuple(each.low for each in found),
            tuple(each.high for each in found),
        )
        plots.append(
            Plot(
                f"{outcome}: {meaning}",
                f"policy, against {policies[0]}",
                f"difference in {unit} a run",
                (series,),
                PlotKind.POINTS,
                ticks=tuple(each.policy for each in found),
            )
        )
    return plots


def _outcomes(rows: Sequence[Row], policy: str) -> dict[tuple[str, int], dict[str, float]]:
    return {
        (row["profile"], row["seed"]): row["outcomes"]
        for row in rows
        if row["policy"] == policy and not row["violation"] and not row["failure"]
    }
