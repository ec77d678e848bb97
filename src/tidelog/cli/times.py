"""Times and durations that commands read: ISO 8601, as Kafka's tools read them, and shorter forms.

Durations follow java.time.Duration.parse, and times follow Kafka's Utils.getDateTime; a test
compares the results with Java's. The commands also accept `1h30m`, a date alone, minutes without
seconds, and milliseconds since 1970. Two forms follow ISO 8601 and not Kafka: `.5` is half a second
(5 ms in Kafka), and the minutes of the zone `+0530` count (Kafka ignores these minutes). Text after
a time is an error; Kafka ignores such text.
"""

from __future__ import annotations

import calendar
import re
from datetime import date
from typing import Final

import typer

_SIGNED: Final = "[-+]?[0-9]+"
_ISO_DURATION: Final = re.compile(
    rf"(?P<sign>[-+]?)P(?:(?P<days>{_SIGNED})D)?"
    rf"(?P<time>T(?:(?P<hours>{_SIGNED})H)?(?:(?P<minutes>{_SIGNED})M)?"
    rf"(?:(?P<seconds>{_SIGNED})(?:[.,](?P<fraction>[0-9]{{0,9}}))?S)?)?",
    re.IGNORECASE,
)
_SHORT_DURATION: Final = re.compile(
    "(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?", re.IGNORECASE
)
_TIME: Final = re.compile(
    "([0-9]{4})(-?)([0-9]{1,2})\\2([0-9]{1,2})"
    "(?:[T ]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:[.,]([0-9]{1,9}))?)?"
    "(Z|[-+][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_MOST_SECONDS: Final = 2**63 - 1
_MOST_MS: Final = 2**63 - 1
#: The least offset of a time zone from UTC in minutes, as in Java's calendar; _GREATEST_ZONE is the
#: greatest.
_LEAST_ZONE: Final = -13 * 60
_GREATEST_ZONE: Final = 14 * 60
_SECONDS: Final = (86_400, 3_600, 60, 1)


def duration_ms(text: str, *, signed: bool = False) -> int:
    """Return the milliseconds of a duration such as PT1H30M (ISO 8601) or 1h30m.

    A duration below 0 is a usage error unless `signed`.
    """
    nanoseconds = _iso_nanoseconds(text)
    if nanoseconds is None:
        short = _SHORT_DURATION.fullmatch(text)
        if short is None or not any(short.groups()):
            raise typer.BadParameter(f"{text!r} is no duration: PT1H30M, P2D, or 1h30m expected")
        parts = zip(short.groups(), _SECONDS, strict=True)
        nanoseconds = sum(int(part or 0) * unit for part, unit in parts) * 1_000_000_000
    if nanoseconds < 0 and not signed:
        raise typer.BadParameter(f"{text!r} is a duration below 0; one above expected")
    return -(-nanoseconds // 1_000_000)


def _iso_nanoseconds(text: str) -> int | None:
    match = _ISO_DURATION.fullmatch(text)
    if match is None or len(match["time"] or "T0") == 1:
        return None
    parts = match.group("days", "hours", "minutes", "seconds")
    if not any(parts):
        return None
    seconds = 0
    for part, unit in zip(parts, _SECONDS, strict=True):
        if abs(int(part or 0)) * unit > _MOST_SECONDS:
            return None  # Java's Duration holds 64 bits of seconds
        seconds += int(part or 0) * unit
    nanoseconds = int((match["fraction"] or "").ljust(9, "0"))
    if (match["seconds"] or "").startswith("-"):
        nanoseconds = -nanoseconds
    total = seconds * 1_000_000_000 + nanoseconds
    return -total if match["sign"] == "-" else total


def timestamp_ms(text: str) -> int:
    """Return milliseconds since 1970 of a number or an ISO 8601 time (UTC if it has no zone)."""
    if text.isdecimal():
        return int(text)
    match = _TIME.fullmatch(text)
    found = None if match is None else _moment_ms(*match.groups())
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is no time: 2026-01-31T12:00, or milliseconds since 1970 expected"
        )
    return found


def record_time(moment_ms: int) -> int:
    """Return a time as a timestamp of ListOffsets, limited to the times from 1970 to the last
    64-bit number of milliseconds.

    ListOffsets gives numbers below 0 another meaning: -1 is the end of the log.
    """
    return min(max(moment_ms, 0), _MOST_MS)


def _moment_ms(
    year: str,
    _: str,
    month: str,
    day: str,
    hour: str | None,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    zone: str | None,
) -> int | None:
    """Return a time in milliseconds since 1970; None if its day or hour does not exist."""
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return None
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        return None
    seconds = calendar.timegm((int(year), int(month), int(day), *clock))
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        offset = (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)
        if minutes > 59 or not _LEAST_ZONE <= offset <= _GREATEST_ZONE:
            return None
        seconds -= offset * 60
    return seconds * 1_000 + int((fraction or "").ljust(3, "0")[:3])
