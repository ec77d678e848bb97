"""A metadata store that lost its latest writes, so that its partition states prove nothing (E8).

A broker that had seen later writes of the store creates the node `/brokers/store_went_back` when it
registers. Partition state older than `/brokers/store_went_back` comes from a restored copy of the
store, or was derived from such a copy. Such a state does not prove which of the assigned replicas
have the committed records. The image therefore marks such a state as unproven, and recovery by
proof compares the logs of all replicas (E6). A newer partition state proves, as usual, which
replicas have every committed record.
"""

from __future__ import annotations

from tidelog.controller.agenda import Agenda
from tidelog.controller.draft import Draft
from tidelog.controller.image import Change, Image
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_STAMP, StoreWentBack


@dataclass(frozen=True, slots=True)
class StoreFoundOlder:
    """Notice: partition states are unproven, because the store lost its latest writes."""

    found: StoreWentBack
    partitions: int


@dataclass(frozen=True, slots=True)
class WentBackKnown(Change):
    """Change: the content of `/brokers/store_went_back`; None if there is no such node.

    The operator's command `store accept` removes the node.
    """

    found: StoreWentBack | None

    def apply(self, image: Image) -> None:
        """Record the node in the image, and mark partition states older than the node as unproven.

        Unproven states stay unproven when the node is gone.
        """
        image.went_back = self.found
        for topic_partition, state in image.states.items():
            image.states[topic_partition] = image.as_far_as_proven(topic_partition, state)


def found(mark: StoreWentBack | None, draft: Draft, agenda: Agenda) -> None:
    """Apply `/brokers/store_went_back` as read from the store.

    The next decision checks each partition whose state is older than the node.
    """
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
    """Return the content of `/brokers/store_went_back` as text for the log."""
    stamp = f"of transaction {mark.found}" if mark.found != NO_STAMP else "missing"
    return (
        f"the metadata store went back, as broker {mark.broker_id} found when it registered: its"
        f" last stamp there is {stamp}, its log directories have seen transaction {mark.seen}"
    )
