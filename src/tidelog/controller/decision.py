"""The results of the controller's two phases: a decision, and its effects.

`Decision` lists what to write, answer, send and report, before any of these steps has happened.
`Effects` lists what remains to do once the writes are done and the image holds them.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from tidelog.controller.answers import Answer
from tidelog.controller.commands import Commands
from tidelog.controller.notices import Notices
from tidelog.controller.orders import Order
from tidelog.controller.writes import Write
from tidelog.core.dataclass import dataclass


@dataclass(slots=True)
class Decision:
    """What the controller decides about a batch of events: writes, commands and answers that the
    caller has yet to carry out.
    """

    writes: list[Write] = field(default_factory=list)
    #: Answers to requests, to be sent once the writes are done.
    answers: list[Answer[Any]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    notices: Notices = field(default_factory=Notices)


@dataclass(frozen=True, slots=True)
class Effects:
    """Commands, answers and notices to send after a decision's writes are durable."""

    #: Commands by broker id; each is for the incarnation of the broker that the image has.
    commands: dict[int, Commands]
    #: The answers to requests: pairs of the number (ticket) of a request and its response.
    answers: list[tuple[int, Any]]
    notices: Notices
