"""A metadata store that went back: its partition states prove nothing (E8).

A broker that had seen a later store marks the store when it registers. What was written before the
mark is from before the copy was taken, or was decided by that. So every replica that is assigned
may have the committed records, and none is proven. The states are taken over as unproven, and
recovery by proof compares the logs of all replicas (E6). A state that is written after the mark
counts as usual.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.controller.agenda import Agenda
from tidelog.controller.draft import Draft
from tidelog.controller.image import Change, Image
from tidelog.core.types import NO_STAMP, StoreWentBack


@dataclass(frozen=True, slots=True)
class StoreFoundOlder:
    """These partitions were taken over from a store that went back; for the log and for events."""

    found: StoreWentBack
    partitions: int


@dataclass(frozen=True, slots=True)
class WentBackKnown(Change):
    """The mark in the store; None where there is none, or where it was accepted."""

    found: StoreWentBack | None

    def apply(self, image: Image) -> None:
        """Keep the mark, and take over the states before it as unproven."""
        image.went_back = self.found
        for topic_partition, state in image.states.items():
            image.states[topic_partition] = image.as_far_as_proven(topic_partition, state)


def found(mark: StoreWentBack | None, draft: Draft, agenda: Agenda) -> None:
    """Take over the mark as read from the store; look at every partition that it concerns."""
    image = draft.image
    if mark == image.went_back:
        return
    before = dict(image.states)
    image.apply(WentBackKnown(mark))
    concerned = [name for name, state in image.states.items() if state != before[name]]
    if mark is not None and concerned:
        draft.notice(StoreFoundOlder(mark, len(concerned)))
        agenda.look_at(concerned)


def text(mark: StoreWentBack) -> str:
    """Return what the mark says, for people."""
    stamp = f"of transaction {mark.found}" if mark.found != NO_STAMP else "missing"
    return (
        f"the metadata store went back, as broker {mark.broker_id} found when it registered: its"
        f" last stamp there is {stamp}, its log directories have seen transaction {mark.seen}"
    )
