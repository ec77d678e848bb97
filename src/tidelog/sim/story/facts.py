"""What a story is made of: one fact a line, about a partition, a group, or all.

Facts of records are many and alike; they carry who and which offsets, so that whoever tells them
can sum them up.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Facts of these kinds come by the hundred; stretches of them are told as sums.
APPENDED = "appended"
COPIED = "copied"
COMMITTED = "committed"
ACKNOWLEDGED = "acknowledged"
OFFSETS = "offsets"
#: Those that are told one by one.
STATE = "state"
ISR = "isr"
ROLE = "role"
CUT = "cut"
PROCESS = "process"
FAULT = "fault"
CONTROLLER = "controller"
GROUP = "group"


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened."""

    time_ns: int
    kind: str
    #: "topic-partition", or the name of a group; empty for what concerns everybody.
    about: str
    text: str
    #: Who did it, where facts of a kind are summed up.
    who: str = ""
    #: First and last offset of the records that it is about.
    offsets: tuple[int, int] | None = None
