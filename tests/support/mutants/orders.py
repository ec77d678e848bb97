"""Mutants of the order of commands (V17, V22, V41, V45).

Each removes one step of an order. The docstring of a mutant describes the defect, and appears in
docs/internals/mutants.md.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import Catalogue

from tidelog.controller.commands import Part

CATALOGUE: Final = Catalogue()
_breaks = CATALOGUE.breaks


@_breaks(
    "V41",
    "tidelog.controller.controller:Controller.decide",
    "tidelog.controller.elections.leaders:look_at",
    profile="quick_restarts",
)
def full_before_bounces(decide: Any, look_at: Any) -> Any:
    """A new controller sends full commands before it has decided on restarted and dead brokers and
    on their leaders.
    """
    held: dict[Any, None] = {}

    def decide_later(self: Any) -> Any:
        is_first = not self._registrations.has_read
        held.clear()
        if is_first:
            held[None] = None
        try:
            decision = decide(self)
            late = [one for one in held if one is not None]
        finally:
            held.clear()
        self._agenda.look_at(late)
        return decision

    def look_later(topic_partition: Any, draft: Any) -> None:
        if held:
            held[topic_partition] = None
        else:
            look_at(topic_partition, draft)

    return decide_later, look_later


@_breaks("V17", "tidelog.controller.commands:Commands.requests", profile="quick_restarts")
def roles_before_brokers(original: Any) -> Any:
    """Brokers get their roles before the list of live brokers."""

    def requests(self: Any, sender: Any, broker_epoch: int) -> Any:
        told = original(self, sender, broker_epoch)
        return [one for one in told if one.part is not Part.BROKERS]

    return requests


@_breaks("V22", "tidelog.controller.records:Deletion.done", profile="late_commands")
def topic_removed_before_stops(_: Any) -> Any:
    """The controller removes a deleted topic's nodes when it sends the commands, without waiting
    for responses.
    """
    return property(lambda self: self.commanded)


@_breaks("V45", "tidelog.replication.commands:strays", profile="topic_churn")
def strays_stay(_: Any) -> Any:
    """A broker that was down when a replica was removed keeps it."""
    return lambda hosted, listed, kept: []
