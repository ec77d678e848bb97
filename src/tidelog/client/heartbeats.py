"""Heartbeats between polls, which keep a member alive while its application processes records.

The driver runs `beat` repeatedly beside the polls of a GroupConsumer, in its own thread or as a
task of the simulator. The member stays alive as long as its application polls within
`max_poll_interval_ms`. The member of an application that polls too late leaves the group, so that
other members get its partitions (KIP-62). Only the next poll acts on the coordinator's responses,
so that no partition is revoked while its records are processed.

`beat` may run in another thread than the polls, so `Heartbeats` has a router of its own.
`Heartbeats` reads the membership in one step, and stores a response in one step, so the threads
need no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tidelog.client.coordinators import Coordinators
from tidelog.client.membership import LOST, GroupMember, Membership, leave_group, send_heartbeat
from tidelog.client.routing import ClusterRouter
from tidelog.client.steps import Operation
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError

#: Pause in ms until `beat` is called again if no heartbeat is due, or after a failed heartbeat.
_LEAST_MS: Final = 100
#: Minimum timeout of a heartbeat's try in ms, even if the next heartbeat is due earlier.
_LEAST_PATIENCE_MS: Final = 1_000
#: Errors of a heartbeat that the next poll must handle. After an error outside this set, the next
#: heartbeat may succeed.
_TOLD: Final = LOST | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID}


class Heard(NamedTuple):
    """The error with which a coordinator rejected a heartbeat of a membership.

    The error is UNKNOWN_MEMBER_ID if the member left because its application did not poll.
    """

    membership: Membership
    error: ErrorCode


class Heartbeats:
    """The heartbeats of one member; only `beat` uses `router`."""

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
        #: The last membership that ended by a late poll, or by a coordinator's error; it gets no
        #: more heartbeats.
        self._over: Membership | None = None
        self._heard: deque[Heard] = deque(maxlen=1)

    # -- called by the consumer's polls ---------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a poll must send a heartbeat."""
        return self._now_ms() >= self._due_ms

    def sent(self) -> None:
        """Record the response to a heartbeat, or to a request that counts as a heartbeat."""
        self._due_ms = self._now_ms() + self._member.options.heartbeat_interval_ms

    def poll_begins(self) -> Heard | None:
        """Return the error that `beat` received since the last poll."""
        self._is_polling = True
        return self._heard.pop() if self._heard else None

    def poll_ended(self) -> None:
        """Start to measure the time in which the application processes records."""
        self._polled_ms = self._now_ms()
        self._is_polling = False

    # -- called by the thread or task that sends heartbeats -------------------------------------

    def beat(self) -> Operation[int]:
        """Send a due heartbeat; return the milliseconds until the next call."""
        options, membership = self._member.options, self._member.membership
        if membership is None or membership == self._over:
            return max(_LEAST_MS, options.heartbeat_interval_ms)
        now_ms = self._now_ms()
        left_ms = self._polled_ms + options.max_poll_interval_ms - now_ms
        if left_ms <= 0 and not self._is_polling:
            self._over = membership
            self._heard.append(Heard(membership, ErrorCode.UNKNOWN_MEMBER_ID))
            if options.instance_id is None:  # a static member does not leave (KIP-345)
                yield from self._leave(membership)
            return _LEAST_MS
        if now_ms >= self._due_ms:
            yield from self._send(membership)
        return max(_LEAST_MS, min(self._due_ms - self._now_ms(), max(left_ms, 0)))

    def _send(self, membership: Membership) -> Operation[None]:
        options = self._member.options
        attempt = partial(send_heartbeat, self._coordinators, options, membership)
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
            return  # no response: the next try comes before the session expires
        self.sent()

    def _leave(self, membership: Membership) -> Operation[None]:
        group = self._member.options.group
        attempt = partial(leave_group, self._coordinators, group, membership)
        try:
            yield from self._router.repeat(f"leaving group {group!r}", attempt, self._patience_ms)
        except TidelogError:
            return  # the coordinator will remove the member, which sends no more heartbeats
