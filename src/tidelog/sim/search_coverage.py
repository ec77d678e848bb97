"""What searches went through, added up over runs and over programs: which faults met which churn,
and which interesting states were reached then.

A file of it is JSON that further searches add to. Numbers of runs tell how sure one may be; a state
that was never reached was not tested at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.core.errors import TidelogError
from tidelog.core.sometimes import SOMETIMES
from tidelog.sim.results import RunResult

VERSION: Final = 1
#: Stands beside kinds of churn for runs in which nothing was changed.
NO_CHURN: Final = "none"
_SHOWN_CHARS: Final = 60


class CoverageFileError(TidelogError):
    """A file that holds no coverage of this version."""


@dataclass(slots=True)
class ProfileCoverage:
    """Sums over the runs of one profile."""

    runs: int = 0
    violations: int = 0
    events: int = 0
    simulated_ns: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    churn: dict[str, int] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Pair:
    """Runs that had a kind of fault and a kind of churn."""

    runs: int = 0
    #: In how many of them each interesting state was reached.
    marks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Coverage:
    """Of any number of runs, without mutants."""

    profiles: dict[str, ProfileCoverage] = field(default_factory=dict)
    #: By kind of fault, then by kind of churn.
    pairs: dict[str, dict[str, Pair]] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """All runs."""
        return sum(each.runs for each in self.profiles.values())

    def marks(self) -> dict[str, int]:
        """How often each interesting state was reached, in all."""
        found: dict[str, int] = {}
        for profile in self.profiles.values():
            _sum_up(found, profile.marks)
        return found

    def never_reached(self) -> list[str]:
        """Interesting states that no run reached."""
        return [name for name in SOMETIMES if name not in self.marks()]

    def add(self, result: RunResult) -> None:
        """Count a run."""
        profile = self.profiles.setdefault(result.profile, ProfileCoverage())
        profile.runs += 1
        profile.violations += bool(result.violation)
        profile.events += result.events
        profile.simulated_ns += result.simulated_ns
        _sum_up(profile.counters, result.counters)
        _sum_up(profile.faults, result.faults)
        _sum_up(profile.churn, result.churn)
        _sum_up(profile.marks, result.marks)
        churn = [kind for kind, count in result.churn.items() if count] or [NO_CHURN]
        for fault in [kind for kind, count in result.faults.items() if count]:
            for kind in churn:
                pair = self.pairs.setdefault(fault, {}).setdefault(kind, Pair())
                pair.runs += 1
                _sum_up(pair.marks, dict.fromkeys(result.marks, 1))

    def add_all(self, other: Coverage) -> None:
        """Count the runs of another search."""
        for name, theirs in other.profiles.items():
            ours = self.profiles.setdefault(name, ProfileCoverage())
            ours.runs += theirs.runs
            ours.violations += theirs.violations
            ours.events += theirs.events
            ours.simulated_ns += theirs.simulated_ns
            for part in ("counters", "faults", "churn", "marks"):
                _sum_up(getattr(ours, part), getattr(theirs, part))
        for fault, by_churn in other.pairs.items():
            for kind, theirs_too in by_churn.items():
                pair = self.pairs.setdefault(fault, {}).setdefault(kind, Pair())
                pair.runs += theirs_too.runs
                _sum_up(pair.marks, theirs_too.marks)

    # Files

    def to_json(self) -> str:
        """The text of a file."""
        document = {
            "version": VERSION,
            "profiles": {
                name: {part: getattr(one, part) for part in ProfileCoverage.__slots__}
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
        """What a file called `name` holds; CoverageFileError for another one."""
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
            return _Reader(document).coverage()
        except _WrongError as wrong:
            raise CoverageFileError(
                f"{name} holds no coverage: {wrong}; name another file, or move it away"
            ) from None


class _WrongError(ValueError):
    """Where a document is not as `to_json` writes one, and what would be right."""


class _Reader:
    """Part of a document of coverage, and where it stands."""

    def __init__(self, value: Any, where: str = "") -> None:
        self._value = value
        self._where = where

    def coverage(self) -> Coverage:
        """All of it."""
        return Coverage(
            {name: each.profile() for name, each in self.of("profiles").items()},
            {
                fault: {kind: pair.pair() for kind, pair in by_churn.items()}
                for fault, by_churn in self.of("pairs").items()
            },
        )

    def profile(self) -> ProfileCoverage:
        """The sums of one profile."""
        found = ProfileCoverage()
        for part in ("runs", "violations", "events", "simulated_ns"):
            setattr(found, part, self.of(part).count())
        for part in ("counters", "faults", "churn", "marks"):
            setattr(found, part, self.of(part).counts())
        return found

    def pair(self) -> Pair:
        """The sums of a fault and a churn."""
        return Pair(self.of("runs").count(), self.of("marks").counts())

    def of(self, key: str) -> _Reader:
        """The part of this name."""
        parts = dict(self.items())
        if key not in parts:
            raise _WrongError(f"{self._where or 'it'} has no {key!r}")
        return parts[key]

    def items(self) -> Iterable[tuple[str, _Reader]]:
        """All parts, by name."""
        if not isinstance(self._value, dict):
            raise _WrongError(f"{self._where} is {self._short()}, an object expected")
        prefix = f"{self._where}." if self._where else ""
        return [(name, _Reader(each, f"{prefix}{name}")) for name, each in self._value.items()]

    def counts(self) -> dict[str, int]:
        """Numbers by name."""
        return {name: each.count() for name, each in self.items()}

    def count(self) -> int:
        """A number."""
        if type(self._value) is not int or self._value < 0:
            raise _WrongError(f"{self._where} is {self._short()}, a whole number from 0 expected")
        return self._value

    def _short(self) -> str:
        text = json.dumps(self._value)
        return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def _sum_up(into: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        into[name] = into.get(name, 0) + count
