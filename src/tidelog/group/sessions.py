"""The session of a member: how long its coordinator waits to hear of it.

Heartbeats move the deadline. The timer that watches it is set again only when it fires too early,
so a heartbeat costs the same however many there are.
"""

from __future__ import annotations


class MemberSession:
    """Deadline of a member, or of a client that was only given an id (monotonic ms)."""

    __slots__ = ("armed_ms", "deadline_ms")

    def __init__(self, deadline_ms: int = 0, armed_ms: int | None = None) -> None:
        self.deadline_ms = deadline_ms
        #: When its timer fires; None where no timer is set.
        self.armed_ms = armed_ms

    def copy(self) -> MemberSession:
        """Return an independent copy."""
        return MemberSession(self.deadline_ms, self.armed_ms)

    def key(self) -> tuple[object, ...]:
        """Return the state as a hashable value."""
        return (self.deadline_ms, self.armed_ms)
