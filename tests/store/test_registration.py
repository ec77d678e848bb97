"""A registration that is lost while its session lives, on every store (V4, E7, S5)."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.ports import FakeTracer
from tests.support.store.clusters import Cluster, told

from tidelog.broker.membership.session import Session
from tidelog.broker.membership.store_history import StoreHistory
from tidelog.broker.services import Identity
from tidelog.core.tasks import Tasks
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Create, Delete, SetData
from tidelog.runtime.clock import SystemClock
from tidelog.sim.sim_store import SimStoreClient

PATH = layout.broker_path(1)


class Parts:
    """As much of a broker's services as a session touches."""

    def __init__(self, cluster: Any, store: Any) -> None:
        if isinstance(store, SimStoreClient):
            loop, self.clock = cluster.ports.loop, cluster.ports.clock
        else:
            loop = asyncio.get_running_loop()
            self.clock = SystemClock(loop)
        self.failures: list[BaseException] = []
        self.broker_id = 1
        self.store = store
        self.identity = Identity(1)
        self.tracer = FakeTracer()
        self.tasks = Tasks(loop, self.clock, lambda name, error: self.failures.append(error))
        self.config = SimpleNamespace(broker_rack="")

    @property
    def broker_epoch(self) -> int:
        return self.identity.broker_epoch


class Registered:
    """A session as it is, and what it calls, in order."""

    def __init__(self, cluster: Any, store: Any) -> None:
        self.store = store
        self.ended: list[str] = []
        self.renewed: list[int] = []
        parts: Any = Parts(cluster, store)
        self.identity, self.tracer = parts.identity, parts.tracer
        self.failures: list[BaseException] = parts.failures
        fencing: Any = SimpleNamespace(registered=lambda: None)
        self.session = Session(
            parts,
            fencing,
            StoreHistory(parts, dict),
            lambda: (),
            self.session_expired,
            self.registered,
            self.session_renewed,
        )

    def session_expired(self, reason: str) -> None:
        self.ended.append(reason)

    def has_registered(self, times: int) -> bool:
        return len(self.renewed) >= times

    def registered(self, stamp: int) -> None:
        assert stamp == self.identity.broker_epoch

    def session_renewed(self) -> None:
        self.renewed.append(self.identity.broker_epoch)


async def registered(cluster: Any) -> Registered:
    store = await cluster.open()
    await store.transact([Create("/brokers", b"")])
    await store.transact([Create("/brokers/ids", b""), Create("/brokers/stamps", b"")])
    made = Registered(cluster, store)
    await made.session.register()
    return made


@pytest.mark.rule("V4", "E7")
@told
async def test_a_broker_whose_registration_was_deleted_registers_again(cluster: Cluster) -> None:
    broker = await registered(cluster)
    administrator = await cluster.open()
    first = broker.identity.broker_epoch
    for count in (1, 2):
        session, before = broker.store.session_id, broker.identity.broker_epoch
        await administrator.transact([Delete(PATH, ANY_VERSION)])
        await cluster.until(partial(broker.has_registered, count))
        node = await administrator.get(PATH)
        assert node is not None
        assert node.stat.ephemeral_owner == session == broker.store.session_id
        assert broker.identity.broker_epoch == node.stat.czxid > before
        # Its process has lost nothing, and says so.
        assert json.loads(node.data)["previous_broker_epoch"] == before
    assert broker.ended == [f"{PATH} was deleted while the session lives"] * 2
    assert broker.renewed[-1] > first
    assert broker.failures == []
    assert sum("is lost; registering again" in line for line in broker.tracer.lines) == 2


@pytest.mark.rule("V4")
@told
async def test_an_edit_of_the_registration_changes_nothing(cluster: Cluster) -> None:
    broker = await registered(cluster)
    administrator = await cluster.open()
    first = broker.identity.broker_epoch
    node = await administrator.get(PATH)
    assert node is not None
    for _ in range(3):
        await administrator.transact([SetData(PATH, node.data, ANY_VERSION)])
    await administrator.transact([Delete(PATH, ANY_VERSION)])  # the watch is still there
    await cluster.until(lambda: bool(broker.renewed))
    assert len(broker.ended) == 1
    assert broker.identity.broker_epoch > first


@pytest.mark.rule("S5")
@told
async def test_a_registration_that_another_session_took_is_waited_for(cluster: Cluster) -> None:
    broker = await registered(cluster)
    other = await cluster.open()
    first = broker.identity.broker_epoch
    await other.transact([Delete(PATH, ANY_VERSION), Create(PATH, b"", ephemeral=True)])
    await cluster.until(lambda: bool(broker.ended))
    await other.transact([Delete(PATH, ANY_VERSION)])
    await cluster.until(lambda: bool(broker.renewed))
    node = await other.get(PATH)
    assert node is not None
    assert node.stat.czxid == broker.identity.broker_epoch > first
    assert broker.ended == [f"another session owns {PATH}"]
    assert broker.failures == []
