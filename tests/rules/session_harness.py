"""Brokers with their sessions on the simulated store, on one simulated host."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tests.support.store.clusters import SimCluster

from tidelog.broker.broker import Broker
from tidelog.core.config import BrokerConfig
from tidelog.metadata import layout
from tidelog.metadata.store import Node
from tidelog.sim.sim_store import SimStoreClient

TIMEOUT_MS = 1000


class SessionHarness:
    """Brokers of one simulated host that share one store; `tell` runs a story to its end."""

    def __init__(self) -> None:
        self.cluster = SimCluster()

    def broker(self, broker_id: int = 1, **properties: str) -> Broker:
        """A broker that has not started, with a session timeout of a second."""
        store = self.cluster.store(timeout_ms=TIMEOUT_MS)
        config = BrokerConfig.from_properties(
            {
                "broker.id": str(broker_id),
                "listeners": "PLAINTEXT://host:9092",
                **{key.replace("_", "."): value for key, value in properties.items()},
            }
        )
        return Broker(config, self.cluster.ports, store)

    async def registered(self, broker_id: int = 1) -> Broker:
        """A broker with a registration."""
        broker = self.broker(broker_id)
        await broker.session.open()
        await broker.session.register()
        return broker

    def tell(self, story: Coroutine[Any, Any, None]) -> None:
        """Run a story."""
        self.cluster.run(story)

    def expire(self, broker: Broker) -> None:
        """The store ends the broker's session."""
        session_id = broker.services.store.session_id
        assert session_id is not None
        self.cluster.server.expire(session_id)

    def node(self, broker_id: int = 1) -> Node | None:
        """The registration as the store has it."""
        return self.cluster.server.tree.get(layout.broker_path(broker_id))


def simulated(broker: Broker) -> SimStoreClient:
    """Return the broker's store as the simulated client that it is."""
    assert isinstance(broker.services.store, SimStoreClient)
    return broker.services.store
