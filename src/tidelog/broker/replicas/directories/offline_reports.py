"""How the controller learns that replicas of this broker are offline (D4, D16).

The broker leaves a notification in the store, and the controller then asks for all its replicas. It
also asks the controller directly, which is quicker (D16); a controller that is about to be deposed
may hear that in vain, so the notification is left in any case. Kafka's controllers know the
notification only. A broker that cannot leave it within `log.dir.failure.timeout.ms` ends: no other
broker would take over its leaderships.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.store_access import UNREACHED
from tidelog.metadata import layout
from tidelog.metadata.store import Create, NodeExists, NoNode, TransactionFailed

if TYPE_CHECKING:
    from tidelog.broker.replicas.command_requests import CommandRequests
    from tidelog.broker.services import Services

_RETRY_MS: Final = 100


class OfflineReports:
    """The reports of one broker; what happens while one is under way is reported once more."""

    def __init__(self, services: Services, requests: CommandRequests) -> None:
        self._services = services
        self._requests = requests
        #: Since when the controller has to learn of something, monotonic; None where it knows.
        self._unreported_since_ms: int | None = None
        #: Rises with each call.
        self._calls = 0
        self.is_closed = False

    def close(self) -> None:
        """Report nothing more: the broker has left the cluster."""
        self.is_closed = True

    def report(self, why: str) -> None:
        """Have the controller ask for all replicas of this broker; `why` is a clause for the log.

        It finds out by the answers which are offline, and which are not any more.
        """
        if self.is_closed:
            return
        services = self._services
        self._calls += 1
        self._requests.ask(why)
        if self._unreported_since_ms is None:
            self._unreported_since_ms = services.clock.monotonic_ms()
            services.tasks.spawn("offline replicas: report", self._report(why))

    async def _report(self, why: str) -> None:
        """Leave the notification; halt the broker where that takes too long."""
        services = self._services
        since_ms = self._unreported_since_ms
        assert since_ms is not None, "there is nothing to report"
        while True:
            calls = self._calls
            if await self._notify() and calls == self._calls:
                self._unreported_since_ms = None
                return
            waited_ms = services.clock.monotonic_ms() - since_ms
            if waited_ms >= services.config.log_dir_failure_timeout_ms:
                services.ports.halt(
                    f"the controller could not be notified that {why} within"
                    f" log.dir.failure.timeout.ms ({waited_ms} ms)"
                )
                return
            await services.tasks.sleep(_RETRY_MS)

    async def _notify(self) -> bool:
        """Create the notification; return False where it may not be there."""
        services = self._services
        if not services.identity.is_registered:
            return False
        event = layout.encode_log_dir_event(services.broker_id)
        try:
            await services.store.transact(
                [Create(layout.LOG_DIR_EVENT_PREFIX, event, sequence=True)]
            )
        except TransactionFailed as failure:
            if isinstance(failure.error, NoNode):
                await self._make_root()
            return False
        except UNREACHED:
            # A second notification of one failure makes the controller ask once more.
            return False
        return True

    async def _make_root(self) -> None:
        """Make the parent of the notifications, which another program has removed."""
        try:
            await self._services.store.transact([Create(layout.LOG_DIR_EVENTS, b"")])
        except TransactionFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise
        except UNREACHED:
            return
