"""Causes for which a replica left the ISR.

The leader knows why it asked for a shrink (V62). The controller knows why it made one itself (V10,
V43, D3). The numbers are part of tidelog's own fields of AlterPartition and UpdateMetadata.
"""

from __future__ import annotations

from enum import IntEnum


class ShrinkCause(IntEnum):
    """Why a replica left the ISR."""

    #: It left before the present controller was elected, or a leader of Kafka's took it out.
    UNKNOWN = 0
    #: It fetches, and was not caught up for replica.lag.time.max.ms, or has too many bytes to go.
    SLOW = 1
    #: The leader has received no fetch of it for replica.lag.time.max.ms.
    NO_FETCH = 2
    #: The leader refuses its fetches: they are of another leader epoch or broker epoch.
    EPOCH = 3
    #: Its broker has no such replica, as the log directory was lost or replaced (D3), or its log is
    #: damaged (V68). Before OFFLINE was known, also a failed log directory.
    DISK = 4
    #: Its broker shuts down, or did (V43).
    SHUTDOWN = 5
    #: Its broker registered again without proof that it lost nothing (V10, E3).
    BOUNCE = 6
    #: The session of its broker ended without a shutdown: the process or its network died.
    SESSION = 7
    #: The leader's disk has not read for its last fetch in half of replica.lag.time.max.ms: the
    #: leader is slow, not the follower (KIP-501).
    LEADER_READ = 8
    #: Its replica is in a log directory that has failed (KIP-112).
    OFFLINE = 9
    #: A reassignment took the replica away, or put another in its place.
    MOVED = 10

    @property
    def word(self) -> str:
        """The name in events, JSON documents and metrics."""
        return self.name.lower()


def cause_of(number: int) -> ShrinkCause:
    """Return the cause of that number, UNKNOWN for one of a later version."""
    try:
        return ShrinkCause(number)
    except ValueError:
        return ShrinkCause.UNKNOWN
