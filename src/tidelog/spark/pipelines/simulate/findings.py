"""The report of a search: violations with their smallest seeds, runs, comparisons of policies.

Violations are grouped by profile, policy and kind: the first words of the violation without names
and numbers. For each group of violations the report has a command that repeats the smallest seed.
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
#: Number of decimal digits of a mean, so that times have microseconds.
_DIGITS: Final = 3
_ACKNOWLEDGED: Final = "acknowledged records"


def report_of(
    rows: Sequence[Row], policies: Sequence[str], made: int, seconds: float
) -> PipelineReport:
    """Return the report of the rows of one search; the first of `policies` is the base.

    `made` is the number of runs that this search made, in `seconds`; earlier searches made the
    other runs.
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
        settings = tuple((name, POLICIES[name].description) for name in policies)
        note = f"The base of the comparison is {policies[0]}."
        tables.append(Table("Policies", ("policy", "settings"), settings, note))
        tables.append(_differences(differences, policies[0]))
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
        ("events", _total("events", rows)),
        ("simulated seconds", _total("simulated_ns", rows) / _NS_PER_S),
        ("seconds of the search", round(seconds, 1)),
        ("seconds of all runs", round(_total("seconds", rows), 1)),
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
    return Table.of(
        "Runs",
        [found for _, found in sorted(groups.items())],
        (
            ("profile", lambda found: found[0]["profile"]),
            ("policy", lambda found: found[0]["policy"]),
            ("runs", len),
            ("violations", lambda found: sum(bool(row["violation"]) for row in found)),
            ("faults", lambda found: sum(sum(row["played"].values()) for row in found)),
            (_ACKNOWLEDGED, _acknowledged),
            ("events", lambda found: _total("events", found)),
            ("events/s", _rate),
        ),
    )


def _total(name: str, rows: Sequence[Row]) -> int | float:
    total: int | float = sum(row[name] for row in rows)
    return total


def _acknowledged(rows: Sequence[Row]) -> int:
    return sum(row["counters"].get(_ACKNOWLEDGED, 0) for row in rows)


def _rate(rows: Sequence[Row]) -> int:
    busy_s = _total("seconds", rows)
    return round(_total("events", rows) / busy_s) if busy_s else 0


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
    """Return a plot for each outcome in which a policy differs from the base policy."""
    plots = []
    for outcome, (unit, meaning) in OUTCOMES.items():
        found = [each for each in differences if each.outcome == outcome]
        if not any(each.low or each.high for each in found):
            continue
        heights = ((each.difference, each.low, each.high) for each in found)
        places = tuple(map(float, range(len(found))))
        series = Series("difference", places, *zip(*heights, strict=True))
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
