"""Notifications that brokers leave for the controller: ISR changes and failed directories.

If `inter.broker.protocol.version` is below 2.7, a leader (of tidelog or Kafka) writes an ISR change
into the state node itself. The leader then leaves a sequence node below `/isr_change_notification`
(A12). A broker with a failed log directory leaves a sequence node below
`/log_dir_event_notification` (D4). The controller reads both kinds of notifications whatever its
own `inter.broker.protocol.version`, because another broker may have another version. The controller
acts on the current state, then removes exactly the notifications that it has read. The removal of
notifications checks the controller epoch (V3), so a deposed controller removes no notification.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.controller.partitions.isr_changes import IsrChangesRead
from tidelog.controller.replica_answers import LogDirEventsRead

if TYPE_CHECKING:
    from tidelog.broker.controller.term import Term
    from tidelog.controller.events import Event
    from tidelog.metadata.store import WatchCallback

T = TypeVar("T")


async def read_isr_changes(term: Term, on_change: WatchCallback) -> None:
    """Offer the changed partitions' states to the controller, and remove the notifications.

    Raises DeposedError if another controller was elected.
    """
    await _pass_on(term, lambda: term.reader.isr_changes(on_change), IsrChangesRead)


async def read_log_dir_events(term: Term, on_change: WatchCallback) -> None:
    """Report brokers with failed log directories to the controller; remove notifications.

    Raises DeposedError if another controller was elected.
    """
    await _pass_on(term, lambda: term.reader.log_dir_events(on_change), LogDirEventsRead)


async def _pass_on(
    term: Term,
    read: Callable[[], Awaitable[tuple[list[str], T]]],
    event: Callable[[T], Event],
) -> None:
    """Read notifications, offer their content to the controller, and remove them."""
    paths, found = await term.patiently(read)
    if found:
        term.controller.offer(event(found))
    if paths:
        await term.writer.remove(paths)
