"""The watch over this broker's own registration node (V4).

The store deletes the node (an ephemeral node) when the broker's session ends. If an administrator
deletes the node earlier, the session stays valid, so no session event reports the loss. The
controller then considers the broker dead, while the broker still believes that it is registered.
This watch notices a registration that is gone or that another session owns. The watch recognizes
this broker's registration by the session that owns the node, never by the broker id (V42).
`Session` registers the broker again after the loss of its registration. The watch ignores a change
of the node's content.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.services import Services
from tidelog.broker.store_access import RETRY_MS, UNANSWERED
from tidelog.metadata import layout
from tidelog.metadata.store import SessionExpired, WatchEvent


class RegistrationWatch:
    """The watch of this broker on its own registration node; each registration sets it again."""

    def __init__(self, services: Services, lost: Callable[[str], None]) -> None:
        """The watch calls `lost` with the reason, at most once for each registration."""
        self._services = services
        self._lost = lost
        self._is_reading = False
        #: Whether the registration node has changed since the current read of it began.
        self._changed_again = False

    def begin(self) -> None:
        """Begin to watch the broker's current registration."""
        self._look()

    def _changed(self, event: WatchEvent) -> None:
        self._look()

    def _look(self) -> None:
        if self._is_reading:
            self._changed_again = True
            return
        self._is_reading = True
        self._services.tasks.spawn("watch the registration", self._read())

    async def _read(self) -> None:
        """Read the registration node and set the watch; after an expired session, set no watch."""
        services = self._services
        path = layout.broker_path(services.broker_id)
        try:
            while services.identity.is_registered:
                self._changed_again = False
                session_id, broker_epoch = services.store.session_id, services.broker_epoch
                try:
                    node = await services.store.get(path, self._changed)
                except UNANSWERED:
                    await services.tasks.sleep(RETRY_MS)
                    continue
                except SessionExpired:
                    return
                if self._changed_again or services.broker_epoch != broker_epoch:
                    continue  # node or registration changed during the read: read again
                if session_id is None or session_id != services.store.session_id:
                    return
                if node is None:
                    self._lost(f"{path} was deleted while the session lives")
                elif node.stat.ephemeral_owner != session_id:
                    self._lost(f"another session owns {path}")
                return
        finally:
            self._is_reading = False
