"""Notifications of ISR changes and failed directories, left for the controller in the store.

A leader below protocol level 2.7, and so a leader of Kafka at such a level, writes an ISR change
into the state node itself and leaves a sequence node below `/isr_change_notification` (A12). A
broker whose log directory failed leaves one below `/log_dir_event_notification` (D4). The
controller reads both at any level of its own, because levels may differ within a cluster. It acts
on the present state, then removes exactly the notifications that it has read, under the check of
the controller epoch (V3): a controller that was deposed meanwhile removes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.partitions.isr_changes import IsrChangesRead
from tidelog.controller.replica_answers import LogDirEventsRead

if TYPE_CHECKING:
    from tidelog.broker.controller.term import Term
    from tidelog.metadata.store import WatchCallback


async def read_isr_changes(term: Term, on_change: WatchCallback) -> None:
    """Offer the states of changed partitions to the controller, and remove their notifications.

    Raises DeposedError where another controller was elected.
    """
    paths, found = await term.patiently(lambda: term.reader.isr_changes(on_change))
    if found:
        term.controller.offer(IsrChangesRead(found))
    if paths:
        await term.writer.remove(paths)


async def read_log_dir_events(term: Term, on_change: WatchCallback) -> None:
    """Offer the brokers with a failed log directory, and remove their notifications.

    Raises DeposedError where another controller was elected.
    """
    events, brokers = await term.patiently(lambda: term.reader.log_dir_events(on_change))
    if brokers:
        term.controller.offer(LogDirEventsRead(brokers))
    if events:
        await term.writer.remove(events)
