"""The result of an examination: findings with remedies, and the facts that could not be read.

Findings are instances of `local.health.Finding`, so that health and doctor report a fault in the
same form. The functions are pure. A diagnosis claims nothing about unread facts: each unread fact
is a sentence in `unexamined`, and does not change the exit code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.core.dataclass import dataclass
from tidelog.local.health import (
    DEGRADED,
    HEALTHY,
    LEVELS,
    NOTICE,
    UNAVAILABLE,
    UNREACHABLE,
    Finding,
)

#: Maximum number of names, such as topics or partitions, in the sentence of a finding; the field
#: `partitions` of the finding has all partitions.
_NAMED = 3
_NUMBERS = {NOTICE: HEALTHY, **{name: number for number, name in LEVELS.items()}}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings about a cluster, a log directory or a configuration file.

    `subject` is cluster, directory or file, and `name` its address or path. `level` and `exit_code`
    follow from the worst finding. `unexamined` has a sentence for each fact that could not be read.
    """

    subject: str
    name: str
    level: str
    exit_code: int
    findings: list[Finding]
    unexamined: list[str]


def diagnosis(
    subject: str, name: str, findings: Iterable[Finding], unexamined: Iterable[str] = ()
) -> Diagnosis:
    """Return the diagnosis with these findings, the worst findings first."""
    found = sorted(findings, key=lambda each: -_NUMBERS[each.level])
    worst = _NUMBERS[found[0].level] if found else HEALTHY
    return Diagnosis(subject, name, LEVELS[worst], worst, found, list(dict.fromkeys(unexamined)))


def notice(
    kind: str,
    message: str,
    remedy: str,
    *,
    brokers: Iterable[int] = (),
    partitions: Iterable[object] = (),
) -> Finding:
    """Return a finding that does not affect the exit code."""
    return _finding(NOTICE, kind, message, remedy, brokers, partitions)


def degraded(
    kind: str,
    message: str,
    remedy: str,
    *,
    brokers: Iterable[int] = (),
    partitions: Iterable[object] = (),
) -> Finding:
    """Return a finding about a subject that works, but not as it should."""
    return _finding(LEVELS[DEGRADED], kind, message, remedy, brokers, partitions)


def unavailable(
    kind: str,
    message: str,
    remedy: str,
    *,
    brokers: Iterable[int] = (),
    partitions: Iterable[object] = (),
) -> Finding:
    """Return a finding about a subject of which a part does not work."""
    return _finding(LEVELS[UNAVAILABLE], kind, message, remedy, brokers, partitions)


def unread(kind: str, message: str, remedy: str) -> Finding:
    """Return the finding that the subject could not be read, so that it was not examined."""
    return _finding(LEVELS[UNREACHABLE], kind, message, remedy, (), ())


def _finding(
    level: str,
    kind: str,
    message: str,
    remedy: str,
    brokers: Iterable[int],
    partitions: Iterable[object],
) -> Finding:
    ids = sorted(dict.fromkeys(brokers))
    return Finding(level, kind, message, ids, list(map(str, partitions)), remedy)


def shown(name: str) -> str:
    """Return a client-chosen name as one line of text, without control characters."""
    return name if name.isprintable() else repr(name)[1:-1]


def some(names: Sequence[object]) -> str:
    """Return the first names as text, followed by the number of names that the text omits."""
    left = len(names) - _NAMED
    return ", ".join(map(str, names[:_NAMED])) + (f" and {left} more" if left > 0 else "")
