"""Heartbeats between polls: a member lives while its application works on what it was given.

`beat` is an operation that whoever drives it runs again and again, beside the polls of a
GroupConsumer: a thread of its own, or a task of the simulator. It shows that the member lives for
as long as its application polls within `max_poll_interval_ms`; after that it leaves the group, so
that others go on where a stuck application does not (KIP-62). What it hears it does not act upon:
the next poll does, so that partitions are never given up while records of theirs are worked on.

It may run in another thread than the polls. So it has a router of its own, reads the membership as
one value, and hands over what it heard as one value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.client.coordinators import Coordinators
from tidelog.client.membership import LOST, GroupMember, Membership, leave_group, send_heartbeat
from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter
from tidelog.client.steps import Operation
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError

#: Nothing is due, or a try has failed: so long until the next look.
_LEAST_MS: Final = 100
#: One try takes no longer than until the next heartbeat, but for an interval that is very short.
_LEAST_PATIENCE_MS: Final = 1_000
#: What a poll must hear of; any other error, the next heartbeat may not meet again.
_TOLD: Final = LOST | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID}


class Heard(NamedTuple):
    """What became of a membership: an error of the coordinator, or UNKNOWN_MEMBER_ID where the
    member has left because its application did not poll."""

    membership: Membership
    error: ErrorCode


class Heartbeats:
    """Of one member; `router` is for the calls of `beat` alone."""

    def __init__(
        self, member: GroupMember, router: ClusterRouter, now_ms: Callable[[], int]
    ) -> None:
        self._member = member
        self._router = router
        self._coordinators = Coordinators(router)
        self._now_ms = now_ms
        self._patience_ms = max(_LEAST_PATIENCE_MS, member.options.heartbeat_interval_ms)
        self._due_ms = 0
        self._polled_ms = now_ms()
        self._is_polling = False
        #: The membership that is over, as far as it is known here.
        self._over: Membership | None = None
        self._heard: deque[Heard] = deque(maxlen=1)

    # -- called by the polls --------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a poll is to send one."""
        return self._now_ms() >= self._due_ms

    def sent(self) -> None:
        """A heartbeat, or whatever else counts as one, was answered."""
        self._due_ms = self._now_ms() + self._member.options.heartbeat_interval_ms

    def poll_begins(self) -> Heard | None:
        """What was heard since the last poll."""
        self._is_polling = True
        return self._heard.pop() if self._heard else None

    def poll_ended(self) -> None:
        """The application has the floor: its time runs."""
        self._polled_ms = self._now_ms()
        self._is_polling = False

    # -- called beside them ---------------------------------------------------------------------

    def beat(self) -> Operation[int]:
        """Do what is due; returns how many milliseconds later to look again."""
        options, membership = self._member.options, self._member.membership
        if membership is None or membership == self._over:
            return max(_LEAST_MS, options.heartbeat_interval_ms)
        now_ms = self._now_ms()
        left_ms = self._polled_ms + options.max_poll_interval_ms - now_ms
        if left_ms <= 0 and not self._is_polling:
            self._over = membership
            self._heard.append(Heard(membership, ErrorCode.UNKNOWN_MEMBER_ID))
            if options.instance_id is None:  # a static member is expected back (KIP-345)
                yield from self._leave(membership)
            return _LEAST_MS
        if now_ms >= self._due_ms:
            yield from self._send(membership)
        return max(_LEAST_MS, min(self._due_ms - self._now_ms(), max(left_ms, 0)))

    def _send(self, membership: Membership) -> Operation[None]:
        options = self._member.options

        def attempt(patience: Patience) -> Operation[None]:
            yield from send_heartbeat(self._coordinators, options, membership, patience)

        what = f"a heartbeat to group {options.group!r}"
        try:
            yield from self._router.repeat(what, attempt, self._patience_ms)
        except KafkaError as error:
            if error.code not in _TOLD:
                return
            self._heard.append(Heard(membership, error.code))
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._over = membership
                return
        except TidelogError:
            return  # nobody answered: the next try comes before the session is over
        self.sent()

    def _leave(self, membership: Membership) -> Operation[None]:
        options = self._member.options

        def attempt(patience: Patience) -> Operation[None]:
            yield from leave_group(self._coordinators, options.group, membership, patience)

        what = f"leaving group {options.group!r}"
        try:
            yield from self._router.repeat(what, attempt, self._patience_ms)
        except TidelogError:
            return  # the coordinator will miss the heartbeats
