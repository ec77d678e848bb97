"""Coverage of searches over seeds: which faults met which changes by clients (churn), and which
interesting states runs reached.

Coverage is summed over runs and searches, and stored as a JSON file to which further searches add.
It includes the number of runs, because few runs prove little. A state that no run reached was not
tested at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.sometimes import SOMETIMES
from tidelog.sim.results import COUNTED, RunResult, Sums, sum_up

VERSION: Final = 1
#: Stands for a kind of churn (changes by clients) in the coverage of runs without churn.
NO_CHURN: Final = "none"
_SHOWN_CHARS: Final = 60
#: Fields of a profile's coverage that are single numbers.
_NUMBERS: Final = ("runs", "violations", "events", "simulated_ns")


class CoverageFileError(TidelogError):
    """The error for a file that has no coverage in the format of this version."""


@dataclass(slots=True)
class ProfileCoverage(Sums):
    """Sums over the runs of one profile."""

    #: Number of runs with a violation.
    violations: int = 0


@dataclass(slots=True)
class Pair:
    """What the runs reached that had a certain kind of fault and a certain kind of churn."""

    runs: int = 0
    #: Number of runs with this pair of fault and churn that reached each interesting state.
    marks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Coverage:
    """Coverage of any number of runs; none of them has a mutant."""

    profiles: dict[str, ProfileCoverage] = field(default_factory=dict)
    #: Coverage of each pair of a kind of fault and a kind of churn.
    pairs: dict[str, dict[str, Pair]] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """Number of runs of all profiles together."""
        return sum(each.runs for each in self.profiles.values())

    def marks(self) -> dict[str, int]:
        """Return how often all runs together reached each interesting state."""
        found: dict[str, int] = {}
        for profile in self.profiles.values():
            sum_up(found, profile.marks)
        return found

    def file_errors(self) -> dict[tuple[str, str], int]:
        """Return how many file calls failed in all runs, by errno and call."""
        found: dict[tuple[str, str], int] = {}
        for profile in self.profiles.values():
            for counter, count in profile.counters.items():
                if counter.startswith("files: "):
                    _, error, call = counter.split(" ")
                    found[error, call] = found.get((error, call), 0) + count
        return found

    def never_reached(self) -> list[str]:
        """Return the interesting states that no run reached."""
        return [name for name in SOMETIMES if name not in self.marks()]

    def add(self, result: RunResult) -> None:
        """Add a run."""
        profile = self.profiles.setdefault(result.profile, ProfileCoverage())
        profile.add(result)
        profile.violations += bool(result.violation)
        sum_up(profile.counters, {f"files: {each}": n for each, n in result.file_errors.items()})
        churn = [kind for kind, count in result.churn.items() if count] or [NO_CHURN]
        for fault in [kind for kind, count in result.faults.items() if count]:
            for kind in churn:
                pair = self.pairs.setdefault(fault, {}).setdefault(kind, Pair())
                pair.runs += 1
                sum_up(pair.marks, dict.fromkeys(result.marks, 1))

    def add_all(self, other: Coverage) -> None:
        """Add the runs of another search."""
        for name, theirs in other.profiles.items():
            ours = self.profiles.setdefault(name, ProfileCoverage())
            for part in _NUMBERS:
                setattr(ours, part, getattr(ours, part) + getattr(theirs, part))
            for part in COUNTED:
                sum_up(getattr(ours, part), getattr(theirs, part))
        for fault, by_churn in other.pairs.items():
            for kind, theirs_too in by_churn.items():
                pair = self.pairs.setdefault(fault, {}).setdefault(kind, Pair())
                pair.runs += theirs_too.runs
                sum_up(pair.marks, theirs_too.marks)

    # Files

    def to_json(self) -> str:
        """Return the coverage as the text of a file."""
        document = {
            "version": VERSION,
            "profiles": {
                name: {part: getattr(one, part) for part in (*_NUMBERS, *COUNTED)}
                for name, one in sorted(self.profiles.items())
            },
            "pairs": {
                fault: {
                    kind: {"runs": pair.runs, "marks": pair.marks}
                    for kind, pair in sorted(by_churn.items())
                }
                for fault, by_churn in sorted(self.pairs.items())
            },
        }
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, name: str) -> Coverage:
        """Return the coverage in the text of a file called `name`.

        Raises CoverageFileError for a text without coverage of this version.
        """
        try:
            document = json.loads(text)
        except RecursionError:
            raise CoverageFileError(f"{name} is nested too deeply for coverage") from None
        except ValueError as error:
            raise CoverageFileError(f"{name} is no JSON: {error}") from None
        version = document.get("version") if isinstance(document, dict) else None
        if version != VERSION:
            raise CoverageFileError(
                f"{name} holds no coverage of version {VERSION}, its version is {version!r}: name"
                " another file, or move it away"
            )
        try:
            return _read(document)
        except _CoverageError as wrong:
            raise CoverageFileError(
                f"{name} holds no coverage: {wrong}; name another file, or move it away"
            ) from None


class _CoverageError(ValueError):
    """The error for a place at which a document differs from the format of `to_json`, with the
    expected value.
    """


def _read(document: Any) -> Coverage:
    """Return the coverage in a whole document."""
    coverage = Coverage()
    parts = _parts(document, "", ("profiles", "pairs"))
    for name, value in _parts(parts["profiles"], "profiles").items():
        where = f"profiles.{name}"
        sums = _parts(value, where, (*_NUMBERS, *COUNTED))
        found = coverage.profiles[name] = ProfileCoverage()
        for part in _NUMBERS:
            setattr(found, part, _count(sums[part], f"{where}.{part}"))
        for part in COUNTED:
            setattr(found, part, _counts(sums[part], f"{where}.{part}"))
    for fault, by_churn in _parts(parts["pairs"], "pairs").items():
        coverage.pairs[fault] = pairs = {}
        for kind, value in _parts(by_churn, f"pairs.{fault}").items():
            where = f"pairs.{fault}.{kind}"
            pair = _parts(value, where, ("runs", "marks"))
            runs, marks = _count(pair["runs"], f"{where}.runs"), pair["marks"]
            pairs[kind] = Pair(runs, _counts(marks, f"{where}.marks"))
    return coverage


def _parts(value: Any, where: str, wanted: Iterable[str] = ()) -> dict[str, Any]:
    """Return a JSON object's values by key; raise _CoverageError if a `wanted` key is missing."""
    if not isinstance(value, dict):
        raise _CoverageError(f"{where} is {_short(value)}, an object expected")
    for key in wanted:
        if key not in value:
            raise _CoverageError(f"{where or 'it'} has no {key!r}")
    return value


def _counts(value: Any, where: str) -> dict[str, int]:
    """Return the JSON object at the place `where` of a coverage file, as numbers by key."""
    return {name: _count(each, f"{where}.{name}") for name, each in _parts(value, where).items()}


def _count(value: Any, where: str) -> int:
    """Return the JSON value at the place `where` of a coverage file, as a number."""
    if type(value) is not int or value < 0:
        raise _CoverageError(f"{where} is {_short(value)}, a whole number from 0 expected")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
