"""Reductions of a seed's run: fewer faults, a shorter duration or less workload.

A short text describes a reduction (`play=2-4,9;partitions=1;groups=no`), so that a seed and a text
determine a run. A reduced run has some faults of the unreduced run, at the same times and with the
same random details. To learn these faults, the unreduced run is made first. Omitted work changes
the traffic, and so the delays of all later messages; the violation may then not happen. With
`links=N`, the delays are drawn from another random stream, so a reduction has several chances to
show the violation.

A reduction keeps all brokers, because the rules assume three replicas and min.insync.replicas 2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.sim.suggestions import nearest_first


class ReductionError(TidelogError):
    """The error for a text that describes no reduction: the wrong word, and the expected words."""


class Played(NamedTuple):
    """A fault that was injected, and the state of its random stream at that time."""

    time_ns: int
    kind: str
    #: Number of faults that were drawn before this fault.
    drawn_before: int
    draw_state: Any


@dataclass(frozen=True, slots=True)
class Only:
    """A reduction: the parts of a run that it keeps, by default everything."""

    #: Kinds of faults to inject; None means all kinds.
    faults: tuple[str, ...] | None = None
    #: Number of faults to inject, from the first fault on.
    limit: int | None = None
    #: Faults to inject, numbered from 1 in the order of the unreduced run.
    play: tuple[int, ...] | None = None
    #: How long faults happen, in ms; None means as long as in the unreduced run.
    until_ms: int | None = None
    #: Number of partitions of the topic `steady`; None means all.
    partitions: int | None = None
    #: Whether the reduction keeps the topic that is deleted and recreated, and the altered topics.
    topics: bool = True
    #: Whether the reduction keeps members of groups and committers.
    groups: bool = True
    #: Whether the reduction keeps the second producer of each partition, consumers of old versions,
    #: and the shared producer.
    clients: bool = True
    #: Number of the random stream that gives the delays of messages; 0 is the stream of the
    #: unreduced run.
    links: int = 0

    @property
    def needs_whole(self) -> bool:
        """Whether the unreduced run must be made first, to record its faults.

        False if the reduction only shortens the time with faults.
        """
        return replace(self, until_ms=None) != Only()

    def keeps_kind(self, kind: str) -> bool:
        """Return whether the reduced run keeps the faults, or the scenario, named `kind`."""
        return self.faults is None or kind in self.faults

    def keeps(self, number: int, kind: str) -> bool:
        """Return whether the reduced run injects a fault."""
        return (
            self.keeps_kind(kind)
            and (self.limit is None or number <= self.limit)
            and (self.play is None or number in self.play)
        )

    def numbers(self, played: Iterable[Played]) -> list[int]:
        """Return the numbers of the faults that the reduction keeps."""
        return [n for n, fault in enumerate(played, 1) if self.keeps(n, fault.kind)]

    def of(self, played: Iterable[Played]) -> list[Played]:
        """Return the faults that the reduction keeps."""
        return [fault for n, fault in enumerate(played, 1) if self.keeps(n, fault.kind)]

    def __str__(self) -> str:
        words = []
        for name, key in _KEYS.items():
            value = getattr(self, name)
            if value != _DEFAULTS[name]:
                words.append(f"{key}={_text_of(name, value)}")
        return ";".join(words)


_DEFAULTS: Final = {field.name: field.default for field in fields(Only)}
#: By field of `Only`: the name of the field in the text of a reduction.
_KEYS: Final = {name: name.removesuffix("_ms") for name in _DEFAULTS}
_EXAMPLE: Final = "faults=crash_leader,slow_link;limit=12;partitions=1;groups=no"


def parse(text: str, kinds: Collection[str]) -> Only:
    """Return the reduction that a text describes; raise ReductionError for an invalid text."""
    values: dict[str, Any] = {}
    names = {key: name for name, key in _KEYS.items()}
    for word in text.split(";") if text else ():
        key, equals, value = word.strip().partition("=")
        name = names.get(key)
        if name is None or not equals:
            raise ReductionError(
                f"{word.strip()!r} is no reduction; there are {nearest_first(key, names)}, as in"
                f" {_EXAMPLE!r}"
            )
        if name in values:
            raise ReductionError(f"{key} is given twice in {text!r}")
        values[name] = _READERS[name](key, value, kinds)
    return Only(**values)


def _text_of(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "play":
        return _ranges(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text, with ranges: 1-3,7 for 1, 2, 3 and 7; `none` for no numbers."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "none"


def _read_kinds(key: str, value: str, kinds: Collection[str]) -> tuple[str, ...]:
    chosen = tuple(value.split(","))
    for kind in chosen:
        if kind not in kinds:
            raise ReductionError(
                f"{key}: no fault {kind!r}; there are {nearest_first(kind, kinds)}"
            )
    return chosen


def _read_numbers(key: str, value: str, _: Collection[str]) -> tuple[int, ...]:
    if value == "none":
        return ()
    numbers: dict[int, None] = {}
    for part in value.split(","):
        first, dash, last = part.partition("-")
        low = _whole(key, first, 1)
        high = _whole(key, last, low) if dash else low
        numbers.update(dict.fromkeys(range(low, high + 1)))
    return tuple(sorted(numbers))


def _read_switch(key: str, value: str, _: Collection[str]) -> bool:
    if value not in ("yes", "no"):
        raise ReductionError(f"{key}={value}: yes or no is expected")
    return value == "yes"


def _whole(key: str, value: str, least: int) -> int:
    if not (value.isascii() and value.isdigit()) or not least <= int(value) <= _MOST:
        raise ReductionError(f"{key}: {value!r} is not a whole number from {least} to {_MOST}")
    return int(value)


#: Upper limit of each number in a reduction: above all counts of a run, but so low that a mistyped
#: range cannot fill memory.
_MOST: Final = 1_000_000


def _number(least: int) -> Callable[[str, str, Collection[str]], int]:
    return lambda key, value, _: _whole(key, value, least)


_READERS: Final[dict[str, Callable[[str, str, Collection[str]], Any]]] = {
    "faults": _read_kinds,
    "limit": _number(0),
    "play": _read_numbers,
    "until_ms": _number(1),
    "partitions": _number(1),
    "topics": _read_switch,
    "groups": _read_switch,
    "clients": _read_switch,
    "links": _number(0),
}
