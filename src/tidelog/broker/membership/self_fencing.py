"""A broker that was stopped asks the store whether its session lives before it serves again (V47).

A process that is stopped (SIGSTOP, a suspended machine) may lose its session without noticing:
another broker leads in its place, while its own memory still says that it leads. The loop compares
its monotonic clock with that of its last turn, first in every turn. After a gap the broker is
fenced: it begins no request, sends no answer, and lets no timeout of a waiting request fire, until
the store has applied a transaction of its session or refused it. The clock counts on while the
machine is suspended. Where a host stops a virtual machine it may not: such a broker serves until
the store says that its session is over.

The limit is two thirds of the session timeout. Renewals are up to a third of the timeout apart, so
the last one may be that much older than the gap. Only a gap fences: a store that cannot be reached
fences no broker that turned all the time (S3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.metadata import layout
from tidelog.metadata.store import (
    ANY_VERSION,
    Check,
    OutcomeUnknown,
    SessionExpired,
    StoreUnavailable,
    TransactionFailed,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

_RETRY_MS = 50


class SelfFencing:
    """Fences this broker after a gap between two turns of its loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._limit_ms = 0
        self._last_turn_ms = 0
        #: The monotonic time from which on a turn comes too late; 0 until `start`.
        self.late_from_ms = 0
        self.is_fenced = False
        #: Whether this broker, while it is fenced, cannot know if its session is over.
        self.is_in_doubt = False
        #: Gaps so far: an answer to a question that was asked before the last one proves nothing.
        self._gaps = 0
        self._asking = False

    def start(self) -> None:
        """Compare turns from now on; the session has begun, and its timeout is agreed on."""
        self._take_limit()
        self._note_turn(self._broker.clock.monotonic_ms())
        self._broker.ports.on_turn(self.turned)

    def turned(self) -> None:
        """A turn of the loop begins, or a read event in it."""
        now_ms = self._broker.clock.monotonic_ms()
        if now_ms >= self.late_from_ms:
            self._fence(now_ms - self._last_turn_ms)
        self._note_turn(now_ms)

    def _take_limit(self) -> None:
        """The store may grant a shorter session than the broker asked for."""
        self._limit_ms = self._broker.store.session_timeout_ms * 2 // 3

    def _note_turn(self, now_ms: int) -> None:
        self._last_turn_ms = now_ms
        self.late_from_ms = now_ms + self._limit_ms

    def _fence(self, gap_ms: int) -> None:
        broker = self._broker
        self._gaps += 1
        broker.tracer.log(
            "server",
            logging.WARNING,
            f"the loop did not turn for {gap_ms} ms (limit {self._limit_ms}): requests wait until"
            " the metadata store confirms the session",
        )
        broker.tracer.event("fenced_itself", gap_ms=gap_ms)
        self.is_fenced = True
        self.is_in_doubt = broker.broker_epoch != NO_BROKER_EPOCH
        broker.serving_timers.hold()
        broker.admission.changed()
        self._ask_later()

    def session_over(self) -> None:
        """The session has ended: from here on answers say that this broker leads nothing.

        The view of a broker that was stopped meanwhile is as old as the gap: clients wait for the
        controller's next one.
        """
        if self.is_fenced:
            self._broker.view.is_known = False
        self.is_in_doubt = False
        for connection in self._broker.connections():
            connection.session_over()

    def registered(self) -> None:
        """The broker is registered; the store confirms that after the last gap too."""
        self._take_limit()
        self._ask_later()

    def _ask_later(self) -> None:
        if self.is_fenced and not self._asking and self._broker.broker_epoch != NO_BROKER_EPOCH:
            self._asking = True
            self._broker.tasks.spawn("confirm the session", self._ask())

    async def _ask(self) -> None:
        """Ask until the store has answered a question that is younger than the last gap."""
        try:
            while self.is_fenced and not await self._is_confirmed():
                if self._broker.broker_epoch == NO_BROKER_EPOCH:
                    return  # `registered` asks again
        finally:
            self._asking = False

    async def _is_confirmed(self) -> bool:
        broker = self._broker
        gaps = self._gaps
        path = layout.broker_path(broker.broker_id)
        try:
            await broker.store.transact([Check(path, ANY_VERSION)])
        except TransactionFailed:
            pass  # refused by what the node is, not by the end of the session
        except SessionExpired:
            await broker.tasks.sleep(_RETRY_MS)
            return False
        except (StoreUnavailable, OutcomeUnknown):
            await broker.tasks.sleep(_RETRY_MS)
            return False
        if gaps != self._gaps or broker.broker_epoch == NO_BROKER_EPOCH:
            return False
        self._lift()
        return True

    def _lift(self) -> None:
        broker = self._broker
        self.is_fenced = self.is_in_doubt = False
        broker.tracer.event("fence_lifted")
        broker.tracer.mark("session_confirmed_after_a_gap")
        broker.admission.changed()
        broker.serving_timers.release()
