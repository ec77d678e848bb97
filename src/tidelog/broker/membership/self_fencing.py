"""Self-fencing: after a stop, a broker confirms its session before it serves again (V47).

A process that is stopped (SIGSTOP, a suspended machine) may lose its session without noticing.
Another broker then leads in its place, while its own memory still says that it leads. First in
every turn, the loop compares its monotonic clock with that of its last turn. After a gap the broker
is fenced until the store has applied or refused a transaction of its session. It begins no request,
sends no response, and lets no timeout of a waiting request fire. The clock counts on while the
machine is suspended. It may not where a host stops a virtual machine: such a broker serves until
the store says that its session is over.

The limit is two thirds of the session timeout. Renewals are up to a third of the timeout apart, so
the last one may be that much older than the gap. Only a gap fences: a store that cannot be reached
fences no broker that turned all the time (S3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.broker.store_access import RETRY_MS, UNREACHED
from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Check, TransactionFailed

if TYPE_CHECKING:
    from tidelog.broker.server.admission import Admission
    from tidelog.broker.services import Services


class SelfFencing:
    """The fencing of this broker after a gap between two turns of its loop."""

    def __init__(self, services: Services, admission: Admission) -> None:
        self._services = services
        self._clock = services.clock
        self._fence = services.fence
        self._admission = admission
        self._limit_ms = 0
        self._last_turn_ms = 0
        #: Gaps so far: a response to a question asked before the last gap proves nothing.
        self._gaps = 0
        self._asking = False

    def start(self) -> None:
        """Compare turns from now on; the session has begun, and its timeout is agreed on."""
        self._take_limit()
        self._note_turn(self._services.clock.monotonic_ms())
        self._services.ports.on_turn(self.turned)
        self._fence.watch(self.turned)

    def turned(self) -> None:
        """Compare clocks at the begin of a loop's turn, or of a read event in it."""
        now_ms = self._clock.monotonic_ms()
        fence = self._fence
        if now_ms >= fence.late_from_ms:
            self._close(now_ms - self._last_turn_ms)
        self._last_turn_ms = now_ms  # as `_note_turn`: every turn of the loop runs this
        fence.late_from_ms = now_ms + self._limit_ms

    def _take_limit(self) -> None:
        """Set the limit; the store may grant a shorter session than the broker asked for."""
        self._limit_ms = self._services.store.session_timeout_ms * 2 // 3

    def _note_turn(self, now_ms: int) -> None:
        self._last_turn_ms = now_ms
        self._fence.late_from_ms = now_ms + self._limit_ms

    def _close(self, gap_ms: int) -> None:
        services = self._services
        self._gaps += 1
        services.tracer.log(
            "server",
            logging.WARNING,
            f"the loop did not turn for {gap_ms} ms (limit {self._limit_ms}): requests wait until"
            " the metadata store confirms the session",
        )
        services.tracer.event("fenced_itself", gap_ms=gap_ms)
        self._fence.is_fenced = True
        self._fence.is_in_doubt = services.identity.is_registered
        services.serving_timers.hold()
        self._admission.changed()
        self._ask_later()

    def session_over(self) -> None:
        """Note that the session has ended: from here on this broker leads nothing.

        The view of a broker that was stopped meanwhile is as old as the gap: clients wait for the
        controller's next one. Any other broker goes on with the view that it has.
        """
        if self._fence.is_fenced:
            self._services.view.is_known = False
        self._fence.is_in_doubt = False

    def registered(self) -> None:
        """Take over the new registration; the store must confirm it after the last gap too."""
        self._take_limit()
        self._ask_later()

    def _ask_later(self) -> None:
        if (
            self._fence.is_fenced
            and not self._asking
            and self._services.broker_epoch != NO_BROKER_EPOCH
        ):
            self._asking = True
            self._services.tasks.spawn("confirm the session", self._ask())

    async def _ask(self) -> None:
        """Ask until the store has answered a question that is younger than the last gap."""
        try:
            while self._fence.is_fenced and not await self._is_confirmed():
                if not self._services.identity.is_registered:
                    return  # `registered` asks again
        finally:
            self._asking = False

    async def _is_confirmed(self) -> bool:
        services = self._services
        gaps = self._gaps
        path = layout.broker_path(services.broker_id)
        try:
            await services.store.transact([Check(path, ANY_VERSION)])
        except TransactionFailed:
            pass  # the check failed, so the session is alive
        except UNREACHED:
            await services.tasks.sleep(RETRY_MS)
            return False
        if gaps != self._gaps or not services.identity.is_registered:
            return False
        self._lift()
        return True

    def _lift(self) -> None:
        services = self._services
        self._fence.is_fenced = self._fence.is_in_doubt = False
        services.tracer.event("fence_lifted")
        services.tracer.mark("session_confirmed_after_a_gap")
        self._admission.changed()
        services.serving_timers.release()
