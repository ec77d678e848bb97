"""Registrations of brokers: the changes that a reading of `/brokers/ids` shows (V10, V11, V41).

A broker epoch is the creation transaction id of a registration. A broker whose epoch has changed
has registered again. The controller checks every partition of a broker that arrived or left. A
broker that arrived gets a full command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tidelog.controller import store_went_back
from tidelog.controller.agenda import Agenda
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.incarnations import Brokers
from tidelog.controller.orders import Order, Rank
from tidelog.controller.records import Deletion, Presence, Removal
from tidelog.core.dataclass import dataclass
from tidelog.core.types import BrokerInfo, StoreWentBack


@dataclass(frozen=True, slots=True)
class BrokersRead(Event):
    """Event: the controller has read all registrations (V10), and whether the store lost its latest
    writes (E8).
    """

    brokers: Mapping[int, BrokerInfo]
    went_back: StoreWentBack | None = None


@dataclass(frozen=True, slots=True)
class BrokerGone:
    """Notice: a broker's registration ended."""

    broker: BrokerInfo


@dataclass(frozen=True, slots=True)
class BrokerArrived:
    """Notice: a broker registered, for the first time or in another incarnation."""

    broker: BrokerInfo


@dataclass(frozen=True, slots=True)
class SendBrokers(Order):
    """Order: send every broker the list of live brokers."""

    rank: ClassVar[Rank] = Rank.BROKERS

    def give(self, builder: CommandBuilder) -> None:
        """Add the list of live brokers to the commands of every broker."""
        builder.send_brokers()


@dataclass(frozen=True, slots=True)
class BrokersChanged(Change):
    """Change: the registrations of all brokers, as read from `/brokers/ids`."""

    brokers: Mapping[int, BrokerInfo]

    def apply(self, image: Image) -> None:
        """Replace all registrations; a leaving broker stays leaving while registered (V43)."""
        before, after = image.brokers, dict(self.brokers)
        image.brokers = after
        for broker_id in after:
            image.ended.pop(broker_id, None)
        for broker_id, known in before.items():
            now = after.get(broker_id)
            if now is None:
                image.ended[broker_id] = known.is_leaving
            if now is None or now.broker_epoch != known.broker_epoch:
                _forget_answers_of(broker_id, image)
            elif known.is_leaving:
                after[broker_id] = replace(now, is_leaving=True)


def _forget_answers_of(broker_id: int, image: Image) -> None:
    """Drop a broker's reports and open requests, because its registration has ended (V22, D3)."""
    ending: list[Deletion | Removal] = [*image.deletions.values(), *image.removals.values()]
    for pending in ending:
        pending.waiting.pop(broker_id, None)
    for replicas in image.leaving.values():
        replicas.pop(broker_id, None)
    for recovery in image.recoveries.values():
        recovery.asked.pop(broker_id, None)
        recovery.logs.pop(broker_id, None)
    for topic_partition in [tp for tp, known in image.presences.items() if broker_id in known]:
        answers = image.presences[topic_partition]
        del answers[broker_id]
        if all(found is Presence.HERE for found in answers.values()):
            del image.presences[topic_partition]


@dataclass(frozen=True, slots=True)
class BrokerChanges:
    """Differences between two views of the registrations, with broker ids in ascending order."""

    #: Brokers registered now, under an id that was not registered before or had another epoch.
    arrived: tuple[int, ...]
    #: Brokers that are no longer registered.
    gone: tuple[int, ...]
    #: Brokers whose registration node changed without a restart, for example its endpoints.
    updated: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.arrived or self.gone or self.updated)


def broker_changes(before: Brokers, after: Brokers) -> BrokerChanges:
    """Return the differences between two readings of the registrations.

    A broker whose broker epoch has changed has registered again, and counts as arrived.
    """
    arrived, updated = [], []
    for broker_id in sorted(after):
        known = before.get(broker_id)
        if known is None or known.broker_epoch != after[broker_id].broker_epoch:
            arrived.append(broker_id)
        elif replace(known, is_leaving=False) != after[broker_id]:
            updated.append(broker_id)
    gone = tuple(broker_id for broker_id in sorted(before) if broker_id not in after)
    return BrokerChanges(tuple(arrived), gone, tuple(updated))


class Registrations:
    """The brokers' registrations as one controller term reads them."""

    __slots__ = ("has_read",)

    def __init__(self) -> None:
        #: Whether the controller has read the registrations in this term. Brokers in the first
        #: reading are not reported as arrivals.
        self.has_read = False

    def read(self, event: BrokersRead, draft: Draft, agenda: Agenda) -> BrokerChanges:
        """Apply a reading of the registrations; return the changes."""
        image = draft.image
        store_went_back.found(event.went_back, draft, agenda)
        before = image.brokers
        changes = broker_changes(before, event.brokers)
        if self.has_read:
            ended = [
                broker_id for broker_id in (*changes.arrived, *changes.gone) if broker_id in before
            ]
            for broker_id in ended:
                draft.notice(BrokerGone(before[broker_id]))
            for broker_id in changes.arrived:
                draft.notice(BrokerArrived(event.brokers[broker_id]))
        self.has_read = True
        if not changes:
            return changes
        image.apply(BrokersChanged(event.brokers))
        draft.order(SendBrokers())
        for broker_id in (*changes.arrived, *changes.gone):
            hosted = image.hosted_by(broker_id)
            agenda.look_at(hosted)
            draft.show(hosted)
            agenda.look_at_reassignments(hosted, image)
        draft.send_everything(changes.arrived)
        return changes

    def copy(self) -> Registrations:
        """Return an independent copy."""
        other = Registrations()
        other.has_read = self.has_read
        return other
