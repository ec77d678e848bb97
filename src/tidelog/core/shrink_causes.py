"""Causes for which a replica left the ISR.

The leader knows the cause of a shrink that it requested (V62). The controller knows the cause of a
shrink that it made itself (V10, V43, D3). Fields that only tidelog has in AlterPartition and
UpdateMetadata carry the numbers of the causes.
"""

from __future__ import annotations

from enum import IntEnum


class ShrinkCause(IntEnum):
    """The cause for which a replica left the ISR."""

    #: The replica left the ISR before the current controller was elected, or a leader that runs
    #: Kafka removed the replica.
    UNKNOWN = 0
    #: The replica fetches, but was not caught up for replica.lag.time.max.ms, or lags too many
    #: bytes behind.
    SLOW = 1
    #: The leader has received no fetch of the replica for replica.lag.time.max.ms.
    NO_FETCH = 2
    #: The leader refuses the replica's fetches, which carry another leader epoch or broker epoch.
    EPOCH = 3
    #: The replica's broker has lost the replica's log directory, or found the directory replaced
    #: (D3), or the replica's log is damaged (V68). Earlier versions of tidelog also use DISK for a
    #: failed log directory.
    DISK = 4
    #: The replica's broker is shutting down or has shut down (V43).
    SHUTDOWN = 5
    #: The replica's broker re-registered without proof that it had lost no record (V10, E3).
    BOUNCE = 6
    #: The session of the replica's broker ended without a shutdown, because the process or its
    #: network failed.
    SESSION = 7
    #: The leader's disk did not finish the read for the replica's last fetch within half of
    #: replica.lag.time.max.ms. LEADER_READ shows that the leader is slow, not the follower
    #: (KIP-501).
    LEADER_READ = 8
    #: The replica is in a log directory that has failed (KIP-112).
    OFFLINE = 9
    #: A reassignment removed or replaced the replica.
    MOVED = 10

    @property
    def word(self) -> str:
        """The cause's name in events, JSON documents and metrics."""
        return self.name.lower()

    @property
    def sentence(self) -> str:
        """The cause in words for an operator."""
        return _SENTENCES[self]


_SENTENCES = {
    ShrinkCause.UNKNOWN: "cause not recorded",
    ShrinkCause.SLOW: "slow: it fetches, but does not catch up",
    ShrinkCause.NO_FETCH: "no fetch reached the leader",
    ShrinkCause.EPOCH: "its fetches were of another epoch",
    ShrinkCause.DISK: "its replica is missing on the broker, or its log is damaged",
    ShrinkCause.SHUTDOWN: "its broker was shut down",
    ShrinkCause.BOUNCE: "its broker restarted without a clean shutdown",
    ShrinkCause.SESSION: "its broker's session ended",
    ShrinkCause.LEADER_READ: "the leader's disk has not read for its fetch: the leader is slow",
    ShrinkCause.OFFLINE: "its log directory has failed",
    ShrinkCause.MOVED: "a reassignment takes it away",
}


def cause_of(number: int) -> ShrinkCause:
    """Return the cause of a number; UNKNOWN for an unknown number of a later version."""
    try:
        return ShrinkCause(number)
    except ValueError:
        return ShrinkCause.UNKNOWN
