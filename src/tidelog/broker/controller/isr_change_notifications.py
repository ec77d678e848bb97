"""Notifications of the ISR changes that leaders wrote into state nodes themselves (A12).

A leader below protocol level 2.7, and so a leader of Kafka at such a level, leaves a sequence node
below `/isr_change_notification`. The controller reads them at any level of its own, because levels
may differ within a cluster. It passes on the present states of the named partitions, then removes
exactly the notifications that it has read, under the check of the controller epoch (V3): a
controller that was deposed meanwhile removes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.partitions.isr_changes import IsrChangesRead

if TYPE_CHECKING:
    from tidelog.broker.controller.term import Term
    from tidelog.metadata.store import WatchCallback


async def read(term: Term, on_change: WatchCallback) -> None:
    """Offer the states of changed partitions to the controller, and remove their notifications.

    Raises DeposedError where another controller was elected.
    """
    paths, found = await term.patiently(lambda: term.reader.isr_changes(on_change))
    if found:
        term.controller.offer(IsrChangesRead(found))
    if paths:
        await term.writer.remove(paths)
