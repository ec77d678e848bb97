"""Reports to the controller that replicas of this broker are offline (D4, D16).

The broker writes a notification into the store, after which the controller sends commands for all
replicas of the broker. The broker also requests the commands directly from the controller, which is
quicker (D16). A direct request may reach a controller that is deposed before it acts, so the broker
always writes the notification. Kafka's controllers react to a notification in the store, but do not
serve a request for commands. A broker that cannot write the notification within
`log.dir.failure.timeout.ms` halts, because otherwise the controller would not elect other leaders
for its offline replicas.
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
    """The reports of one broker; if `report` is called during a report, another report follows."""

    def __init__(self, services: Services, requests: CommandRequests) -> None:
        self._services = services
        self._requests = requests
        #: Monotonic time of the first call of `report` that no finished report covers; None if
        #: there is no such call.
        self._unreported_since_ms: int | None = None
        #: Counts the calls of `report`.
        self._calls = 0
        self.is_closed = False

    def close(self) -> None:
        """Send no more reports, because the broker has left the cluster."""
        self.is_closed = True

    def report(self, why: str) -> None:
        """Make the controller send commands for all replicas here; the log shows the reason.

        From the broker's responses the controller learns which replicas are offline, and which are
        online again.
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
        """Write the notification into the store; halt the broker if that takes too long."""
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
        """Create the notification of offline replicas; return False if it may be missing."""
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
            # The write may have succeeded; a second notification only makes the controller send
            # commands again.
            return False
        return True

    async def _make_root(self) -> None:
        """Create the parent node of the notifications again, because another program removed it."""
        try:
            await self._services.store.transact([Create(layout.LOG_DIR_EVENTS, b"")])
        except TransactionFailed as failure:
            if not isinstance(failure.error, NodeExists):
                raise
        except UNREACHED:
            return
