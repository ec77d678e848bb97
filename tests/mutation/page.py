"""The page of drawn mutants, docs/internals/drawn-mutants.md: what noticed how many, and which not.

`keep` takes the verdicts of one draw into `verdicts.json`, so that the page follows from files of
the repository. `survivors.toml` has what a look at each survivor found: that the change makes no
difference (`equivalent`), that one is seen by a test now (`test`), or that it is a hole (`open`).
"""

from __future__ import annotations

import json
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.mutation.changes import KINDS
from tests.mutation.drawing import PACKAGES, DrawnMutant
from tests.mutation.judges import JUDGES
from tests.mutation.verdicts import Outcome, Verdict, verdict_of
from tests.support.mutants.lines import ROOT

PAGE = ROOT / "docs" / "internals" / "drawn-mutants.md"
KEPT = ROOT / "tests" / "mutation" / "verdicts.json"
SURVIVORS = ROOT / "tests" / "mutation" / "survivors.toml"
#: What a look at a survivor can find.
FINDINGS: Final = ("equivalent", "test", "open")
#: Judges of tests and judges of simulated worlds.
TESTS: Final = ("unit", "rules")
SIMULATED: Final = ("models", "small", "swarm")
_SHOWN_CHARS: Final = 90

_HEAD = """\
# Drawn mutants

The [mutants](mutants.md) of the rules are written by hand, by someone who knows the rules.
`python -m tests.mutation` draws others from all small changes that are possible in the functions of
{packages}, and writes this page ([ADR 0076](../adr/0076-drawn-mutants.md)).
Seed {seed} drew {drawn} of {candidates:,} mutants, and {judged} of them are judged. Packages take
turns, and so do the kinds of changes: a kind that is rare in the code is not rare here.

Each judge judges each mutant, whatever the others say, within CPU seconds:

- {judges}

A mutant is *killed* if an assertion of a test fails, a type is wrong, or a run violates what must
hold. It *crashed* if only an error of the code shows, as of an attribute that is missing. It *hung*
if a test or a run does not end. Each failure was repeated without the mutant, where it must not
appear; otherwise the verdict is *unproven*.

"""
_REPEAT = """\
## Repeat it

    python -m tests.mutation draw --seed {seed} --count {drawn} --diff
    python -m tests.mutation show {example}
    python -m tests.mutation judge --seed {seed} --count {drawn} --judges unit,swarm --cpu 600
    python -m tests.mutation page --seed {seed} --count {drawn}

Verdicts are kept below the user's cache, one line each, so a search that is ended goes on where it
stopped.
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """A mutant with its verdicts by judge."""

    row: Mapping[str, Any]
    verdicts: Mapping[str, Verdict]

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.row["mutant"])

    def is_judged_by(self, judges: Sequence[str]) -> bool:
        """Whether one of these judges has judged it."""
        return any(name in self.verdicts for name in judges)

    def is_noticed_by(self, judges: Sequence[str]) -> bool:
        """Whether one of these judges noticed it."""
        return any(v.is_noticed for name, v in self.verdicts.items() if name in judges)

    def is_killed_by(self, judges: Sequence[str]) -> bool:
        """Whether one of these judges killed it."""
        return any(
            v.outcome is Outcome.KILLED for name, v in self.verdicts.items() if name in judges
        )

    def change(self) -> str:
        """Return where the change is, and what it is, as two cells of a table."""
        place = f"`{self.row['file'].removeprefix('tidelog/')}` `{self.row['function']}`"
        if self.row["old"]:
            words = f"{_code(self.row['old'])} → {_code(self.row['new'])}"
        else:
            words = f"`return` before {_code(self.row['text'])}"
        return f"{place} | {self.row['kind']}: {words}"


def keep(
    seed: str,
    drawn: Sequence[DrawnMutant],
    rows: Mapping[tuple[str, str], Mapping[str, Any]],
    candidates: int,
) -> None:
    """Take the verdicts about these mutants, as far as there are any, into the repository."""
    found = []
    for mutant in drawn:
        judged = {judge: row for (name, judge), row in rows.items() if name == mutant.id}
        if judged:
            first = next(iter(judged.values()))
            about = ("mutant", "file", "function", "kind", "text", "old", "new")
            about_verdict = ("judge", "outcome", "by", "seen", "cpu_s", "limit_s")
            found.append(
                {name: first[name] for name in about}
                | {"verdicts": [{n: row[n] for n in about_verdict} for row in judged.values()]}
            )
    kept = {"seed": seed, "candidates": candidates, "drawn": len(drawn), "mutants": found}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def read() -> dict[str, Any]:
    """Return what is kept in the repository."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def judged(kept: Mapping[str, Any]) -> list[Judged]:
    """Return the mutants that are kept."""
    return [
        Judged(row, {each["judge"]: verdict_of(each) for each in row["verdicts"]})
        for row in kept["mutants"]
    ]


def findings() -> dict[str, tuple[str, str]]:
    """Return what a look at survivors found: the kind of finding and the words, by id."""
    tables = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    return {
        name: (kind, words) for kind in FINDINGS for name, words in tables.get(kind, {}).items()
    }


def write() -> None:
    """Write the page."""
    PAGE.write_text(render(read(), findings()), encoding="utf-8")


def render(kept: Mapping[str, Any], found: Mapping[str, tuple[str, str]]) -> str:
    """Return the page."""
    mutants = judged(kept)
    used = [name for name in JUDGES if any(name in mutant.verdicts for mutant in mutants)]
    head = _HEAD.format(
        packages=", ".join(f"`{name}/`" for name in PACKAGES),
        seed=kept["seed"],
        drawn=kept["drawn"],
        candidates=kept["candidates"],
        judged=len(mutants),
        judges="\n- ".join(_judge_line(name, mutants) for name in used),
    )
    lines = [head, *_by_judge(used, mutants), *_by_kind(mutants)]
    lines += _unnoticed(used, mutants, found)
    lines += _not_simulated(mutants)
    example = mutants[0].id if mutants else ""
    lines.append(_REPEAT.format(seed=kept["seed"], drawn=kept["drawn"], example=example))
    return "".join(lines)


def _judge_line(name: str, mutants: Sequence[Judged]) -> str:
    limits = {m.verdicts[name].limit_s for m in mutants if name in m.verdicts}
    seconds = " or ".join(f"{limit:,}" for limit in sorted(limits))
    return f"**{name}**: {JUDGES[name].meaning}, {seconds} CPU s"


def _by_judge(used: Sequence[str], mutants: Sequence[Judged]) -> Iterator[str]:
    yield "## By judge\n\n"
    yield "| judge | judged | killed | crashed | hung | survived | unproven | CPU s of a kill |\n"
    yield "|---|---|---|---|---|---|---|---|\n"
    for name in used:
        verdicts = [mutant.verdicts[name] for mutant in mutants if name in mutant.verdicts]
        counts = [sum(v.outcome is outcome for v in verdicts) for outcome in Outcome]
        spent_s = [v.cpu_s for v in verdicts if v.outcome is Outcome.KILLED]
        median = f"{statistics.median(spent_s):.1f}" if spent_s else ""
        yield f"| {name} | {len(verdicts)} | {' | '.join(map(str, counts))} | {median} |\n"
    tested = [m for m in mutants if m.is_killed_by(TESTS) and m.is_judged_by(SIMULATED)]
    simulated = [mutant for mutant in tested if mutant.is_noticed_by(SIMULATED)]
    yield (
        f"\nModels and simulation judged {len(tested)} mutants that an assertion of a unit or rule"
        f" test kills, and notice {len(simulated)} of them.\n\n"
    )


def _by_kind(mutants: Sequence[Judged]) -> Iterator[str]:
    yield "## By package and kind of change\n\n"
    yield "| what | judged | noticed by types | by tests | by models and simulation | by none |\n"
    yield "|---|---|---|---|---|---|\n"
    by_package = {
        f"`{name}/`": [mutant for mutant in mutants if mutant.row["file"].split("/")[1] == name]
        for name in PACKAGES
    }
    by_kind = {name: [mutant for mutant in mutants if mutant.row["kind"] == name] for name in KINDS}
    for title, chosen in (by_package | by_kind).items():
        counts = [
            f"{sum(mutant.is_noticed_by(judges) for mutant in chosen)}"
            f" of {sum(mutant.is_judged_by(judges) for mutant in chosen)}"
            for judges in (("types",), TESTS, SIMULATED)
        ]
        none = sum(not mutant.is_noticed_by(tuple(JUDGES)) for mutant in chosen)
        if chosen:
            yield f"| {title} | {len(chosen)} | {' | '.join(counts)} | {none} |\n"
    yield "\n"


def _unnoticed(
    used: Sequence[str], mutants: Sequence[Judged], found: Mapping[str, tuple[str, str]]
) -> Iterator[str]:
    survivors = [mutant for mutant in mutants if not mutant.is_noticed_by(tuple(used))]
    yield f"## Survivors of all judges: {len(survivors)}\n\n"
    yield "| mutant | where | change | what a look at it found |\n|---|---|---|---|\n"
    for mutant in survivors:
        kind, words = found.get(mutant.id, ("not looked at yet", ""))
        yield f"| {mutant.id} | {mutant.change()} | {kind}{': ' if words else ''}{words} |\n"
    yield "\n"


def _not_simulated(mutants: Sequence[Judged]) -> Iterator[str]:
    chosen = [
        mutant
        for mutant in mutants
        if mutant.is_killed_by(TESTS)
        and mutant.is_judged_by(SIMULATED)
        and not mutant.is_noticed_by(SIMULATED)
    ]
    yield f"## Killed by tests, not noticed by models and simulation: {len(chosen)}\n\n"
    yield "| mutant | where | change | killed by |\n|---|---|---|---|\n"
    for mutant in chosen:
        killed = [
            v for n, v in mutant.verdicts.items() if n in TESTS and v.outcome is Outcome.KILLED
        ]
        by = killed[0].by.rpartition("/")[2]
        yield f"| {mutant.id} | {mutant.change()} | `{by}` |\n"
    yield "\n"


def _code(text: str) -> str:
    """Return code as a cell of a table, in one line."""
    words = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    shown = words if len(words) <= _SHOWN_CHARS else words[: _SHOWN_CHARS - 1] + "…"
    return f"`{shown}`"
