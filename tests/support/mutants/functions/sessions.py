"""Mutants of a broker's responses without certain knowledge.

Each removes one reason for which requests or responses wait, or the view behind the responses.
"""

from __future__ import annotations

from typing import Any

from tests.support.mutants.mutant import mutant


@mutant("V47", "tidelog.broker.membership.self_fencing:SelfFencing._close", profile="pauses")
def serves_on_after_a_pause(_: Any) -> Any:
    """A broker that was stopped for longer than its session continues to serve, as if no time had
    passed.
    """
    return lambda fencing, gap_ms: None


@mutant("V47", "tidelog.broker.server.admission:Admission.sends_answers", profile="pauses")
def answers_leave_after_a_pause(_: Any) -> Any:
    """A fenced broker begins no request, but sends the responses that it still makes."""
    return property(lambda admission: True)


@mutant("V82", "tidelog.broker.membership.session:Session._register", profile="pauses")
def view_forgotten(original: Any) -> Any:
    """A broker that re-registers responds from an empty view until the controller fills it."""

    async def register(session: Any) -> None:
        view = session._services.view
        if view.is_known:
            view.brokers, view.topics = {}, {}
        await original(session)

    return register


@mutant("V82", "tidelog.broker.server.admission:Admission.holds", profile="pauses")
def answers_before_the_first_view(_: Any) -> Any:
    """A broker that has just started serves clients before the controller has sent a view."""
    return lambda admission, frame: admission._fence.is_fenced


@mutant(
    "V4",
    "tidelog.broker.membership.session:Session._until_registered",
    profile="short_sessions",
)
def session_lost_behind_registration(original: Any) -> Any:
    """A broker waits until its log directories have the stamp of a registration, and does not
    notice that the session ends meanwhile.
    """

    async def until_registered(session: Any) -> None:
        await original(session)
        session._registering = True
        await session._on_registered.__self__.stamps.written()
        session._registering = False

    return until_registered
