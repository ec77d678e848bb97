"""Verdicts: what a judge found about a mutant, as lines of JSON in a file outside the checkout.

A search is ended at any time and goes on with what it has: each verdict is a line, written at once.
A verdict counts as long as the file of the mutant is as it was, and another search with a higher
limit of CPU seconds judges again what no one noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.mutation.drawing import DrawnMutant

#: The verdicts by mutant and judge.
Verdicts = Mapping[str, Mapping[str, "Verdict"]]


class Outcome(StrEnum):
    """What a judge says of a mutant."""

    #: An assertion failed, a type is wrong, or a run violated what must hold.
    KILLED = "killed"
    #: Noticed by nothing but an error of the code, as by a name that is None.
    CRASHED = "crashed"
    #: A test or a run does not end, which ends without the mutant.
    HUNG = "hung"
    SURVIVED = "survived"
    #: What failed fails without the mutant as well, or the judge came to no end.
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one judge found about one mutant."""

    judge: str
    outcome: Outcome
    #: The test, the seed or the program that noticed it; why nothing was tried.
    by: str
    #: The failure in a line.
    seen: str
    #: CPU seconds that the judge took, without the proof that the sound code passes.
    cpu_s: float
    #: CPU seconds that it had.
    limit_s: int

    @property
    def is_noticed(self) -> bool:
        """Whether the judge noticed the mutant by whatever."""
        return self.outcome in (Outcome.KILLED, Outcome.CRASHED, Outcome.HUNG)


class VerdictFile:
    """The file of all verdicts, which grows by a line for each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the last line of each mutant and judge."""
        found = {}
        if self._path.exists():
            for line in self._whole_lines().splitlines():
                row = json.loads(line)
                found[row["mutant"], row["judge"]] = row
        return found

    def _whole_lines(self) -> bytes:
        """Return the file without a last line that was not written to its end."""
        data = self._path.read_bytes()
        return data[: data.rfind(b"\n") + 1]

    def add(self, mutant: DrawnMutant, text: str, verdict: Verdict) -> None:
        """Write a verdict about a mutant of a file with this text, at once."""
        row = {**describe(mutant, text), **asdict(verdict), "cpu_s": round(verdict.cpu_s, 2)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.truncate(len(self._whole_lines()))
            file.write(json.dumps(row).encode() + b"\n")

    def known(self, mutant: DrawnMutant, text: str) -> dict[str, Verdict]:
        """Return the verdicts about a mutant, as far as its file has this text, by judge."""
        return known(self.read(), mutant, text)


def known(
    rows: Mapping[tuple[str, str], Mapping[str, Any]], mutant: DrawnMutant, text: str
) -> dict[str, Verdict]:
    """Return the verdicts about a mutant among lines, as far as its file has this text."""
    here = digest(text)
    return {
        judge: verdict_of(row)
        for (name, judge), row in rows.items()
        if name == mutant.id and row["source"] == here
    }


def verdict_of(row: Mapping[str, Any]) -> Verdict:
    """Return the verdict in a line."""
    return Verdict(
        row["judge"], Outcome(row["outcome"]), row["by"], row["seen"], row["cpu_s"], row["limit_s"]
    )


def describe(mutant: DrawnMutant, text: str) -> dict[str, Any]:
    """Return what a line says of a mutant in a file with this text."""
    change = mutant.change
    return {
        "mutant": mutant.id,
        "file": mutant.file,
        "function": change.function,
        "kind": change.kind,
        "line": change.line,
        "text": text.splitlines()[change.line - 1].strip(),
        "old": mutant.old,
        "new": change.new,
        "source": digest(text),
    }


def digest(text: str) -> str:
    """Return what identifies the text of a file."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def remaining(
    verdicts: Mapping[str, Verdict], judges: Sequence[str], limits_s: Mapping[str, int]
) -> list[str]:
    """Return the judges that have not judged yet, or had less time and noticed nothing."""
    found = []
    for judge in judges:
        verdict = verdicts.get(judge)
        if verdict is None or (not verdict.is_noticed and verdict.limit_s < limits_s[judge]):
            found.append(judge)
    return found
