"""A decision and its effects: all that passes between the phases of the controller.

`Decision` lists what to write, answer, send and report; nothing of it has happened yet. `Effects`
is the same once the writes are done and the image holds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidelog.controller.answers import Answer
from tidelog.controller.commands import Commands
from tidelog.controller.notices import Notices
from tidelog.controller.orders import Order
from tidelog.controller.writes import Write


@dataclass(slots=True)
class Decision:
    """All consequences of the events taken; nothing of it has happened yet."""

    writes: list[Write] = field(default_factory=list)
    #: Answers that wait for the writes.
    answers: list[Answer[Any]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    notices: Notices = field(default_factory=Notices)


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a decision that is durable."""

    #: Commands by broker id, for the broker's registration as the image has it.
    commands: dict[int, Commands]
    #: (ticket, message).
    answers: list[tuple[int, Any]]
    notices: Notices
