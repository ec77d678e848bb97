"""The watch over this broker's own registration node (V4).

An ephemeral node goes with its session, and also when an administrator deletes it. Then the session
lives on, so no event reports the loss: the controller takes the broker for dead, while the broker
believes to be registered. This watch finds a registration that is gone, or that another session
owns. It judges by the owner of the node, never by the broker id (V42). `Session` decides what
follows. A changed content of the own node is left alone.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.broker.services import Services
from tidelog.broker.store_access import RETRY_MS, UNANSWERED
from tidelog.metadata import layout
from tidelog.metadata.store import SessionExpired, WatchEvent


class RegistrationWatch:
    """The watch of one broker, set again with each registration."""

    def __init__(self, services: Services, lost: Callable[[str], None]) -> None:
        """`lost` is called with the reason, at most once for each registration."""
        self._services = services
        self._lost = lost
        self._is_reading = False
        #: The node has changed since the reading under way began.
        self._changed_again = False

    def begin(self) -> None:
        """Watch the registration that the broker has now."""
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
        """Read the node and leave the watch; a session that is over makes another registration."""
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
                    continue  # the answer may belong to an earlier registration
                if session_id is None or session_id != services.store.session_id:
                    return
                if node is None:
                    self._lost(f"{path} was deleted while the session lives")
                elif node.stat.ephemeral_owner != session_id:
                    self._lost(f"another session owns {path}")
                return
        finally:
            self._is_reading = False
