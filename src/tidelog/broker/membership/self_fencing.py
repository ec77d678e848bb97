"""Self-fencing: after a pause, a broker confirms its session before it serves again (V47).

While a process is paused (SIGSTOP, a suspended machine), its session may expire, and the process
does not notice that. The controller then elects other leaders, while the resumed process still
believes that it leads its partitions. At the start of every turn of the event loop, the broker
compares the monotonic time with the time of the last turn. After too long a gap between two turns,
the broker is fenced until the store has applied or rejected a transaction of its session. A fenced
broker begins no request, sends no response, and lets no timeout of a waiting request fire. The
event loop's clock advances while the machine is suspended, but may stand still while a host pauses
a virtual machine. If the clock stands still, the broker serves until the store reports expiry.

The longest allowed gap is two thirds of the session timeout. The last renewal of the session may
lie a third of the session timeout before the gap, because renewals are up to that time apart. Only
a gap between two turns of the event loop fences a broker. An unreachable store alone does not fence
a broker: while its event loop turns, the broker continues to serve (S3).
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
    """The fencing of this broker after a gap between two turns of its event loop."""

    def __init__(self, services: Services, admission: Admission) -> None:
        self._services = services
        self._clock = services.clock
        self._fence = services.fence
        self._admission = admission
        self._limit_ms = 0
        self._last_turn_ms = 0
        #: Number of gaps in the event loop so far. The store's response proves a valid session only
        #: if the request was sent after the last gap.
        self._gaps = 0
        self._asking = False

    def start(self) -> None:
        """Watch for gaps between turns from now on; the session timeout must be known."""
        self._take_limit()
        self._note_turn(self._services.clock.monotonic_ms())
        self._services.ports.on_turn(self.turned)
        self._fence.watch(self.turned)

    def turned(self) -> None:
        """Compare the time with that of the last turn; called as a turn or a read event begins."""
        now_ms = self._clock.monotonic_ms()
        fence = self._fence
        if now_ms >= fence.late_from_ms:
            self._close(now_ms - self._last_turn_ms)
        self._last_turn_ms = now_ms  # `_note_turn`, inlined to save a call in every turn
        fence.late_from_ms = now_ms + self._limit_ms

    def _take_limit(self) -> None:
        """Set the longest allowed gap between turns from the session timeout that was granted."""
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
        """Note that the session has expired, so this broker leads nothing.

        After a pause of the process, the broker's view is outdated, so clients wait for the
        controller's next UpdateMetadata. Without a pause, the broker continues to respond from its
        current view.
        """
        if self._fence.is_fenced:
            self._services.view.is_known = False
        self._fence.is_in_doubt = False

    def registered(self) -> None:
        """Note a new registration; if the broker is fenced, ask the store to confirm it."""
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
        """Lift the fence once the store answers a request that proves the session valid.

        The broker must have sent this request after the last gap between two turns of its event
        loop.
        """
        try:
            while self._fence.is_fenced and not await self._is_confirmed():
                if not self._services.identity.is_registered:
                    return  # the next call of `registered` asks the store again
        finally:
            self._asking = False

    async def _is_confirmed(self) -> bool:
        services = self._services
        gaps = self._gaps
        path = layout.broker_path(services.broker_id)
        try:
            await services.store.transact([Check(path, ANY_VERSION)])
        except TransactionFailed:
            pass  # a rejected transaction also proves that the session is alive
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
