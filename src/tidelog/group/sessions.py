"""The session of a member: how long its coordinator waits for the next heartbeat.

A heartbeat moves the deadline of the session, but does not set a timer. When the session's timer
fires before the deadline, the coordinator sets the timer again.
"""

from __future__ import annotations


class MemberSession:
    """Session deadline of a member, or of a client with only a member id (monotonic ms)."""

    __slots__ = ("armed_ms", "deadline_ms")

    def __init__(self, deadline_ms: int = 0, armed_ms: int | None = None) -> None:
        self.deadline_ms = deadline_ms
        #: When the session's timer fires; None if no timer is set.
        self.armed_ms = armed_ms

    def copy(self) -> MemberSession:
        """Return an independent copy."""
        return MemberSession(self.deadline_ms, self.armed_ms)

    def key(self) -> tuple[object, ...]:
        """Return the state as a hashable value."""
        return (self.deadline_ms, self.armed_ms)
