"""The metrics of a broker's session with the metadata store.

The metrics have the names of Kafka's metrics for the ZooKeeper session. Every broker counts these
metrics, even if its metadata store is not ZooKeeper.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.metrics import counter
from tidelog.metadata.store import SessionEvent

#: The meters of Kafka's kafka.server:type=SessionExpireListener, by event.
SESSION_EVENTS: Final = {
    event: counter(
        f"kafka_server_sessionexpirelistener_zookeeper{name}_total",
        f"times that the session with the metadata store {meaning}",
    )
    for event, name, meaning in (
        (SessionEvent.CONNECTED, "syncconnects", "was connected"),
        (SessionEvent.SUSPENDED, "disconnects", "lost its connection"),
        (SessionEvent.EXPIRED, "expires", "expired"),
    )
}
