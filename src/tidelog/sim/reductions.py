"""A seed's run with less in it: which faults are played, for how long, upon which workload.

A reduction is named by a short text (`play=2-4,9;partitions=1;groups=no`), so that a seed and that
text are a run, as a seed alone is. The faults of a reduced run are those of the whole one, each at
its time and with what it drew: the whole run is made first, and what it played is written down.
What is left out changes the traffic, and so the delays of all messages behind it: `links=N` draws
other delays, which gives a reduction several chances to show what the whole run showed.

Brokers are not reduced: three replicas and min.insync.replicas 2 are what the rules are about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from tidelog.core.errors import TidelogError
from tidelog.sim.suggestions import nearest_first


class ReductionError(TidelogError):
    """A text that names no reduction: where it is wrong, and what would be right."""


class Played(NamedTuple):
    """A fault that was played, and the state of the stream from which it drew."""

    time_ns: int
    kind: str
    #: Faults that were drawn before it.
    drawn_before: int
    draw_state: Any


@dataclass(frozen=True, slots=True)
class Only:
    """What is left; by default everything."""

    #: Kinds of faults; None: all.
    faults: tuple[str, ...] | None = None
    #: So many faults, from the first one on.
    limit: int | None = None
    #: Which faults, numbered from 1 in the order of the whole run.
    play: tuple[int, ...] | None = None
    #: How long faults may happen and clients work, in ms from when they begin.
    until_ms: int | None = None
    #: Partitions of the steady topic.
    partitions: int | None = None
    #: The topic that is deleted and made anew, and the one that is altered.
    topics: bool = True
    #: Members of groups and committers.
    groups: bool = True
    #: The second writer of each partition, and consumers of old versions.
    clients: bool = True
    #: Which delays are drawn for messages: 0 those of the whole run.
    links: int = 0

    @property
    def needs_whole(self) -> bool:
        """Whether the faults of the whole run have to be known: an earlier end alone changes
        nothing before it."""
        return replace(self, until_ms=None) != Only()

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == Only()

    def keeps_kind(self, kind: str) -> bool:
        """Whether faults of a kind, or a scenario, are played."""
        return self.faults is None or kind in self.faults

    def keeps(self, number: int, kind: str) -> bool:
        """Whether a fault is played."""
        return (
            self.keeps_kind(kind)
            and (self.limit is None or number <= self.limit)
            and (self.play is None or number in self.play)
        )

    def numbers(self, played: Iterable[Played]) -> list[int]:
        """The numbers of the faults that are left."""
        return [n for n, fault in enumerate(played, 1) if self.keeps(n, fault.kind)]

    def of(self, played: Iterable[Played]) -> list[Played]:
        """The faults that are left."""
        return [fault for n, fault in enumerate(played, 1) if self.keeps(n, fault.kind)]

    def __str__(self) -> str:
        words = []
        for name, key in _KEYS.items():
            value = getattr(self, name)
            if value != _DEFAULTS[name]:
                words.append(f"{key}={_told(name, value)}")
        return ";".join(words)


_DEFAULTS: Final = {field.name: field.default for field in fields(Only)}
#: Names in the text, by field.
_KEYS: Final = {name: name.removesuffix("_ms") for name in _DEFAULTS}
_EXAMPLE: Final = "faults=crash_leader,slow_link;limit=12;partitions=1;groups=no"


def parse(text: str, kinds: Collection[str]) -> Only:
    """The reduction that a text names; ReductionError for one that names none."""
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


def _told(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "play":
        return _ranges(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _ranges(numbers: Iterable[int]) -> str:
    """1,2,3,7 as 1-3,7; `none` where there is none."""
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


#: More than any run has of anything; keeps a mistyped range from filling memory.
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
