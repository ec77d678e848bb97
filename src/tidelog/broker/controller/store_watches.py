"""Changes that watches have announced and the controller has not read yet (V41, S1).

This module sets the watches, notes the announced changes, and reads them in the controller's turn.
The watches cover live brokers, topics and their nodes, configurations, requests of administrators,
and notifications of leaders (A12). The module passes the changes that it reads to the controller as
events, in a fixed order. This module decides and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from tidelog.broker.controller import notifications
from tidelog.broker.controller.cold_start import assigned_in_cold_start
from tidelog.core.tasks import Signal
from tidelog.metadata.paths import name_of
from tidelog.metadata.store import WatchEvent

if TYPE_CHECKING:
    from tidelog.broker.controller.term import Term
    from tidelog.broker.services import Services


class Reading(Enum):
    """The parts of the store that a controller reads again when a watch announces a change."""

    BROKERS = "registrations"
    TOPICS = "names of topics"
    STATES = "states that could not be read"
    EVERY_CONFIG = "configurations of all topics"
    REMOVALS = "requests to remove partitions"
    ADDITIONS = "requests to add partitions"
    ELECTION = "requested preferred leaders"
    REASSIGNMENTS = "requested reassignments"
    ROUTES = "queued, frozen and other requested reassignments"
    CANCEL = "a requested cancel of all reassignments"
    DELETIONS = "requests to delete topics"
    ISR_CHANGES = "ISR changes that leaders made themselves"
    LOG_DIR_EVENTS = "log directories that failed"


class StoreWatches:
    """The watches that a broker sets in the store while it is the controller; each term begins with
    `load`.
    """

    def __init__(self, services: Services, wake: Signal, noticed: Callable[[], None]) -> None:
        """`wake` is set when changes wait to be read.

        `noticed` is called when a watch announces a change of the brokers' registrations.
        """
        self._services = services
        self._wake = wake
        self._noticed = noticed
        #: The parts of the store that must be read.
        self._due: dict[Reading, None] = {}
        #: Topics whose nodes were written, by this broker or by another client.
        self._touched: dict[str, None] = {}
        #: Topics whose configuration has changed.
        self._configs_changed: dict[str, None] = {}
        #: Topics that must be read because the controller's image of them is wrong or missing.
        self._reread: dict[str, None] = {}
        #: In a cold start, the brokers of all replicas, for which the first election waits (E8).
        self._assigned: frozenset[int] = frozenset()
        #: The registered brokers, as last read from the store.
        self._registered: Mapping[int, object] = {}

    def _mark(self, reading: Reading) -> None:
        """Note that this part of the store must be read again, and wake the controller."""
        self._due[reading] = None
        self._wake.set()

    def _take(self, reading: Reading) -> bool:
        """Return whether a read is due; count the read as done, because the caller reads now."""
        is_due = reading in self._due
        self._due.pop(reading, None)
        return is_due

    # changes without a watch

    def configs_changed(self, topics: Iterable[str]) -> None:
        """Note that the configuration of these topics has changed (V13)."""
        self._configs_changed.update(dict.fromkeys(topics))
        self._wake.set()

    def every_config_changed(self) -> None:
        """Note that the configuration of any topic may have changed."""
        self._mark(Reading.EVERY_CONFIG)

    def look_at(self, names: Iterable[str]) -> None:
        """Watch these topics' nodes, and read the nodes that were written since the last read."""
        touched = dict.fromkeys(names)
        if touched:
            self._touched.update(touched)
            self._wake.set()

    def read_again(self, names: Iterable[str]) -> None:
        """Read these topics again, because the controller's image of them is wrong or missing."""
        self._reread.update(dict.fromkeys(names))
        self._mark(Reading.TOPICS)

    def read_states_again(self) -> None:
        """Reread unreadable partition states, which an administrator may have repaired."""
        self._mark(Reading.STATES)

    # reading

    async def load(self, term: Term) -> None:
        """Set the watches, then read the whole state of the cluster from the store (V41)."""
        self._due, self._configs_changed, self._reread, self._touched = {}, {}, {}, {}
        ids, topics, deletions = await term.patiently(
            lambda: term.reader.lists(self._on_brokers, self._on_topics, self._on_deletions),
        )
        loaded = await term.patiently(
            lambda: term.reader.load(ids, topics, deletions, self._on_topic)
        )
        for event in loaded:
            term.controller.offer(event)
        found, brokers = loaded[0].found, loaded[-1].brokers
        self._assigned, self._registered = assigned_in_cold_start(found, brokers), brokers
        term.events.has_read()
        self._due[Reading.ELECTION] = self._due[Reading.REASSIGNMENTS] = None
        self._due[Reading.REMOVALS] = self._due[Reading.ADDITIONS] = None
        self._due[Reading.ISR_CHANGES] = self._due[Reading.CANCEL] = None
        self._due[Reading.ROUTES] = self._due[Reading.LOG_DIR_EVENTS] = None

    def awaited_in_cold_start(self) -> list[int]:
        """Return the brokers that the first election of a cold start still waits for (E8)."""
        return sorted(self._assigned.difference(self._registered))

    async def refresh_brokers(self, term: Term) -> None:
        """Read the registrations again if a watch has announced a change."""
        if self._take(Reading.BROKERS):
            read = await term.patiently(lambda: term.reader.brokers(self._on_brokers))
            self._registered = read.brokers
            term.controller.offer(read)
            term.events.has_read()

    async def refresh(self, term: Term) -> None:
        """Read the changes that watches have announced."""
        reader, controller = term.reader, term.controller
        await self.refresh_brokers(term)
        if self._touched:
            await self._look_at_touched(term)
        if self._take(Reading.TOPICS):
            reread, self._reread = self._reread, {}
            known = {
                name: None
                for name in (*controller.image.topics, *controller.image.unreadable)
                if name not in reread
            }
            controller.offer(
                await term.patiently(lambda: reader.topics(self._on_topics, self._on_topic, known))
            )
        if self._take(Reading.STATES):
            image = controller.image
            unread = [
                partition
                for partition in image.unreadable_states
                if not image.is_deleting(partition.topic)
            ]
            if unread:
                controller.offer(await term.patiently(lambda: reader.states(unread)))
        if self._take(Reading.ISR_CHANGES):
            await notifications.read_isr_changes(term, self._on_isr_changes)
        if self._take(Reading.LOG_DIR_EVENTS):
            await notifications.read_log_dir_events(term, self._on_log_dir_events)
        await self._refresh_requests(term)
        if self._take(Reading.DELETIONS):
            controller.offer(await term.patiently(lambda: reader.deletions(self._on_deletions)))

    async def _look_at_touched(self, term: Term) -> None:
        """Read again the topics whose written nodes differ from the controller's image (V25)."""
        image = term.controller.image
        touched, self._touched = self._touched, {}
        # A topic loaded by a new controller enters the controller's image only with the first
        # decision, but its watch may fire earlier, and only once.
        unknown = [name for name in touched if name in image.unreadable or name not in image.topics]
        known = [image.topics[name] for name in touched if name in image.topics]
        changed = await term.patiently(lambda: term.reader.changed(known, self._on_topic))
        if changed or unknown:
            self.read_again([*changed, *unknown])

    async def _refresh_requests(self, term: Term) -> None:
        """Read the changed configurations and the administrators' requests."""
        reader, controller = term.reader, term.controller
        moves = reader.reassignments
        is_every_due = self._take(Reading.EVERY_CONFIG)
        if self._configs_changed or is_every_due:
            wanted = list(controller.image.topics if is_every_due else self._configs_changed)
            self._configs_changed = {}
            for read in await term.patiently(lambda: reader.election_configs(wanted)):
                controller.offer(read)
        if self._take(Reading.REMOVALS):
            for event in await term.patiently(lambda: reader.removals(self._on_removals)):
                controller.offer(event)
        if self._take(Reading.ADDITIONS):
            seed = self._services.ports.random.randrange(0, 1 << 31)
            for event in await term.patiently(lambda: reader.additions(self._on_additions, seed)):
                controller.offer(event)
        if self._take(Reading.ELECTION):
            asked = await term.patiently(lambda: reader.preferred_election(self._on_election))
            if asked is not None:
                controller.offer(asked)
        if self._take(Reading.CANCEL):
            controller.offer(await term.patiently(lambda: moves.cancel(self._on_cancel)))
        if self._take(Reading.ROUTES):
            controller.offer(await term.patiently(lambda: moves.routes(self._on_routes)))
        if self._take(Reading.REASSIGNMENTS):
            controller.offer(
                await term.patiently(lambda: moves.reassignments(self._on_reassignments))
            )

    # watches

    def _on_brokers(self, event: WatchEvent) -> None:
        self._noticed()
        self._mark(Reading.BROKERS)

    def _on_topics(self, event: WatchEvent) -> None:
        self._mark(Reading.TOPICS)

    def _on_topic(self, event: WatchEvent) -> None:
        self._touched[name_of(event.path)] = None
        self._wake.set()

    def _on_removals(self, event: WatchEvent) -> None:
        self._mark(Reading.REMOVALS)

    def _on_additions(self, event: WatchEvent) -> None:
        self._mark(Reading.ADDITIONS)

    def _on_deletions(self, event: WatchEvent) -> None:
        self._mark(Reading.DELETIONS)

    def _on_isr_changes(self, event: WatchEvent) -> None:
        self._mark(Reading.ISR_CHANGES)

    def _on_log_dir_events(self, event: WatchEvent) -> None:
        self._mark(Reading.LOG_DIR_EVENTS)

    def _on_election(self, event: WatchEvent) -> None:
        self._mark(Reading.ELECTION)

    def _on_cancel(self, event: WatchEvent) -> None:
        self._mark(Reading.CANCEL)

    def _on_routes(self, event: WatchEvent) -> None:
        self._mark(Reading.ROUTES)

    def _on_reassignments(self, event: WatchEvent) -> None:
        self._mark(Reading.REASSIGNMENTS)
