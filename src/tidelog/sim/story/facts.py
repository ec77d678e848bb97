"""The facts of a story, each on its own line: about a partition, a group or the whole cluster.

A run has very many similar facts about records. These facts have an actor and offsets, so that
`report` can summarize them.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass

#: Kinds of facts about records. A run has hundreds of such facts, so a story summarizes long series
#: of them.
APPENDED = "appended"
COPIED = "copied"
COMMITTED = "committed"
ACKNOWLEDGED = "acknowledged"
OFFSETS = "offsets"
#: Kinds of facts that a story never summarizes: each fact has its own line.
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
    """One event of a run."""

    time_ns: int
    kind: str
    #: "topic-partition", the name of a topic or of a group; empty for the whole cluster.
    about: str
    text: str
    #: Actor of the event, for kinds of facts that are summarized.
    who: str = ""
    #: (first, last) offset of the records; for an offset commit, both are the committed offset.
    offsets: tuple[int, int] | None = None
