"""The file of seeds that once showed a violation: a line with the version, then one line per seed
with its cause.

A line is `PROFILE SEED # cause`, or `PROFILE SEED faults=KIND,KIND # cause` for a run with chosen
faults. The reader raises an error at an invalid line instead of skipping the line, because a
skipped seed would no longer be tested.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.sim.suggestions import nearest_first

VERSION: Final = 1
_VERSION_LINE: Final = re.compile(r"# known seeds, version (\S+)")
_FIRST_LINE: Final = f"# known seeds, version {VERSION}"
_FORM: Final = "PROFILE SEED [faults=KIND,...] # cause"
_FAULTS: Final = "faults="
_CAUSE_CHARS: Final = 110


class SeedsFileError(TidelogError):
    """The error for an invalid line of a seeds file: place, fault and expected form."""


@dataclass(frozen=True, slots=True)
class KnownSeed:
    """One line of the file of known seeds."""

    profile: str
    seed: int
    cause: str
    #: Chosen kinds of faults; empty for the kinds of the profile.
    faults: tuple[str, ...] = ()


def read_seeds(
    lines: Iterable[str], name: str, profiles: Collection[str], faults: Collection[str]
) -> list[KnownSeed]:
    """Return the seeds of a file called `name`; raise SeedsFileError at the first invalid line."""
    found: dict[tuple[object, ...], int] = {}
    seeds: list[KnownSeed] = []
    has_version = False
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        text = line.strip()
        if not has_version:
            _check_version(text, where)
            has_version = True
        elif text and not text.startswith("#"):
            seed = _read_line(text, where, profiles, faults)
            key = (seed.profile, seed.seed, seed.faults)
            if key in found:
                raise SeedsFileError(f"{where}: as line {found[key]}; one line a seed is enough")
            found[key] = number
            seeds.append(seed)
    if not has_version:
        raise SeedsFileError(f"{name} is empty: its first line should be {_FIRST_LINE!r}")
    return seeds


def line_to_add(profile: str, seed: int, faults: Iterable[str], violation: str) -> str:
    """Return the line for a seed that has just shown a violation."""
    chosen = f" {_FAULTS}{','.join(faults)}" if faults else ""
    cause = re.sub(r"^[\d.]+ s: ", "", violation.partition("\n")[0])
    if len(cause) > _CAUSE_CHARS:
        cause = cause[: _CAUSE_CHARS - 3].rstrip() + "..."
    return f"{profile} {seed}{chosen}  # {cause}"


def _check_version(text: str, where: str) -> None:
    stated = _VERSION_LINE.fullmatch(text)
    if stated is None:
        raise SeedsFileError(
            f"{where}: no version; the first line of a file of this version is {_FIRST_LINE!r}"
        )
    if stated[1] != str(VERSION):
        raise SeedsFileError(
            f"{where}: version {stated[1]} is not known; this program reads version {VERSION}"
            f" ({_FIRST_LINE!r})"
        )


def _read_line(
    text: str, where: str, profiles: Collection[str], faults: Collection[str]
) -> KnownSeed:
    named, mark, cause = text.partition("#")
    words = named.split()
    if not mark or not cause.strip():
        raise SeedsFileError(f"{where}: {text!r} has no cause; {_FORM} is expected")
    if len(words) not in (2, 3) or (len(words) == 3 and not words[2].startswith(_FAULTS)):
        raise SeedsFileError(f"{where}: {named.strip()!r} is not of the form {_FORM}")
    if not (words[1].isascii() and words[1].isdigit()):
        raise SeedsFileError(f"{where}: {words[1]!r} is no seed; a whole number from 0 is")
    if words[0] not in profiles:
        raise SeedsFileError(
            f"{where}: no profile {words[0]!r}; there are {nearest_first(words[0], profiles)}"
        )
    chosen = tuple(words[2][len(_FAULTS) :].split(",")) if len(words) == 3 else ()
    for kind in chosen:
        if kind not in faults:
            raise SeedsFileError(
                f"{where}: no fault {kind!r}; there are {nearest_first(kind, faults)}"
            )
    return KnownSeed(words[0], int(words[1]), cause.strip(), chosen)
