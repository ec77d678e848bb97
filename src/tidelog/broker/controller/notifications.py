"""Notifications of ISR changes and failed directories, left for the controller in the store.

A leader below protocol level 2.7, and so a leader of Kafka at such a level, writes an ISR change
into the state node itself and leaves a sequence node below `/isr_change_notification` (A12). A
broker whose log directory failed leaves one below `/log_dir_event_notification` (D4). The
controller reads both at any level of its own, because levels may differ within a cluster. It acts
on the present state, then removes exactly the notifications that it has read, under the check of
the controller epoch (V3): a controller that was deposed meanwhile removes none.
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
    """Offer the states of changed partitions to the controller, and remove their notifications.

    Raises DeposedError where another controller was elected.
    """
    await _pass_on(term, lambda: term.reader.isr_changes(on_change), IsrChangesRead)


async def read_log_dir_events(term: Term, on_change: WatchCallback) -> None:
    """Offer the brokers with a failed log directory, and remove their notifications.

    Raises DeposedError where another controller was elected.
    """
    await _pass_on(term, lambda: term.reader.log_dir_events(on_change), LogDirEventsRead)


async def _pass_on(
    term: Term,
    read: Callable[[], Awaitable[tuple[list[str], T]]],
    event: Callable[[T], Event],
) -> None:
    """Read notifications' paths and what they say; offer it, and remove them."""
    paths, found = await term.patiently(read)
    if found:
        term.controller.offer(event(found))
    if paths:
        await term.writer.remove(paths)
