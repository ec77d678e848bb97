"""Declarations of the keys of reassignments: the limits of the queue, and pauses (R8).

Kafka has none of these keys. A broker reads these keys when it becomes the controller; changed
limits of the queue take effect at once. Set the keys for all brokers, because any broker may be the
controller.
"""

from __future__ import annotations

from typing import Any

from tidelog.core.config_keys import boolean, integer


def max_concurrent() -> Any:
    """Return the declaration of reassignment.max.concurrent.partitions."""
    return integer(
        50,
        "Moves that may be under way when the controller takes another one from the queue of "
        "reassignments (rule R8). Those that were asked for at once count, and are not held back.",
        at_least=1,
        ours=True,
    )


def max_concurrent_per_broker() -> Any:
    """Return the declaration of reassignment.max.concurrent.partitions.per.broker."""
    return integer(
        5,
        "The same for each broker that gives or takes a replica (rule R8).",
        at_least=1,
        ours=True,
    )


def auto_pause() -> Any:
    """Return the declaration of reassignment.auto.pause.enable."""
    return boolean(
        True,
        "While fewer replicas of a partition are in sync than min.insync.replicas, those that a "
        "move adds do not copy. Moves that began so, and moves of partitions with an offline "
        "replica, go on.",
        ours=True,
    )
