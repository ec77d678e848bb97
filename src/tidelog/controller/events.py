"""Events of the controller: readings of the store, answers of brokers, requests.

Each concern of the controller (topics, partitions, elections, ...) defines its own events. Events
queue while a decision is in flight and are decided together afterwards (DESIGN.md, rule 6).
"""

from __future__ import annotations


class Event:
    """A fact or a request. A request has a number, its ticket, by which the answer refers to it."""

    __slots__ = ()
