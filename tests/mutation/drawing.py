"""The draw of mutants: which of all possible changes a seed takes.

Packages take turns, and so do the kinds of changes within a package: there are hundreds of
constants to change for each `not`. Within a package and a kind, the hash of the seed and the
mutant's id decides the order. So a draw of more begins with the draw of fewer, and a commit that
changes one function leaves the order of all other mutants as it was.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from tests.mutation.changes import KINDS, Change, changes
from tests.support.mutants.lines import ROOT

#: The packages below src/tidelog whose functions are changed.
PACKAGES: Final = ("replication", "controller", "log", "group")
_ID_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class DrawnMutant:
    """One change of a function below src/."""

    #: The name of its module and a hash of the change: the same as long as the function has it.
    id: str
    #: As of `LineMutant`, below src/.
    file: str
    change: Change
    old: str

    @property
    def package(self) -> str:
        """The package below src/tidelog."""
        return self.file.split("/")[1]

    def applied(self, text: str) -> str:
        """Return the text of the file with the change."""
        data, change = text.encode(), self.change
        return (data[: change.start] + change.new.encode() + data[change.end :]).decode()

    def diff(self, text: str) -> str:
        """Return the change of the file's text as a unified diff."""
        name = f"src/{self.file}"
        before, after = text.splitlines(keepends=True), self.applied(text).splitlines(keepends=True)
        return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", n=2))

    def __str__(self) -> str:
        old, new = (" ".join(words.split()) for words in (self.old, self.change.new))
        change = f"{self.change.kind}: {old} -> {new}" if old else f"{self.change.kind}: {new}"
        return f"{self.id} {self.file}:{self.change.line} {self.change.function}, {change}"


def mutants_of(file: str, text: str) -> list[DrawnMutant]:
    """Return all mutants of one file, whose path is below src/."""
    found: list[DrawnMutant] = []
    seen: Counter[str] = Counter()
    data = text.encode()
    for change in changes(text):
        old = data[change.start : change.end].decode()
        line = text.splitlines()[change.line - 1].strip()
        key = "\n".join((file, change.function, change.kind, line, old, change.new))
        seen[key] += 1
        digest = hashlib.sha256(f"{key}\n{seen[key]}".encode()).hexdigest()
        found.append(DrawnMutant(f"{Path(file).stem}-{digest[:_ID_DIGITS]}", file, change, old))
    return found


def candidates(root: Path = ROOT, packages: Sequence[str] = PACKAGES) -> list[DrawnMutant]:
    """Return all mutants of these packages of a checkout."""
    found: list[DrawnMutant] = []
    for package in packages:
        for path in sorted((root / "src" / "tidelog" / package).rglob("*.py")):
            file = path.relative_to(root / "src").as_posix()
            found += mutants_of(file, path.read_text(encoding="utf-8"))
    return found


def draw(all_mutants: Sequence[DrawnMutant], seed: str, count: int) -> list[DrawnMutant]:
    """Return so many of the mutants, drawn by a seed; all where there are no more."""
    packages = dict.fromkeys(mutant.package for mutant in all_mutants)
    turns = [
        _kinds_in_turn([mutant for mutant in all_mutants if mutant.package == package], seed)
        for package in packages
    ]
    return list(islice(_in_turn(turns), count))


def _kinds_in_turn(mutants: Sequence[DrawnMutant], seed: str) -> Iterator[DrawnMutant]:
    """Yield the mutants of a package, of each kind in turn."""

    def place(mutant: DrawnMutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.id}".encode()).digest()

    ordered = sorted(mutants, key=place)
    return _in_turn([iter([m for m in ordered if m.change.kind == kind]) for kind in KINDS])


def _in_turn(turns: Sequence[Iterator[DrawnMutant]]) -> Iterator[DrawnMutant]:
    """Yield one of each in turn, until none has any left."""
    left = list(turns)
    while left:
        for turn in list(left):
            mutant = next(turn, None)
            if mutant is None:
                left.remove(turn)
            else:
                yield mutant
