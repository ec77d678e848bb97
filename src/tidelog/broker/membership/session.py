"""The broker's session with the metadata store: registration, renewal, expiry.

Rules V4, V40, E3, S3, S5.

A broker is alive as long as its session is: the loop itself proves life (`beat`), so that a broker
that does not turn is not alive (DESIGN.md, rule 4). A store that cannot be reached is not an
expired session: the broker serves on (S3). On expiry the broker stops leading at once, registers
again under a new broker epoch, and takes its state from the controller. Its view of the cluster
stays until the controller replaces it: clients drop the brokers that an empty one does not list.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import NO_BROKER_EPOCH, BrokerInfo, topic_id_to_text
from tidelog.metadata import layout
from tidelog.metadata.store import (
    BadVersion,
    Create,
    NodeExists,
    OutcomeUnknown,
    SessionEvent,
    SessionExpired,
    SetData,
    StoreUnavailable,
    TransactionFailed,
)

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

_RETRY_MS = 50
#: Renewals per session timeout; a third without one is too many (rule 4).
_BEATS_PER_TIMEOUT = 12


class BrokerIdInUseError(TidelogError):
    """Another live broker is registered under this broker's id."""


class Session:
    """Registers this broker and keeps it registered."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self._closing = False
        self._registering = False
        #: How many sessions have ended by themselves.
        self._expiries = 0

    async def open(self) -> str:
        """Start a session; returns the cluster id, which the first broker of a cluster makes."""
        self._store.on_session(self._session_event)
        await self._store.open()
        self._beat()
        self._broker.fencing.start()
        await self._ensure_roots()
        return await self._cluster_id()

    async def register(self) -> None:
        """Make `/brokers/ids/N`; BrokerIdInUseError where somebody else lives under the id."""
        self._registering = True
        try:
            await self._register()
        finally:
            self._registering = False

    def is_lost(self) -> bool:
        """Whether this broker has no registration that it could act under."""
        return self._broker.broker_epoch == NO_BROKER_EPOCH

    async def close(self) -> None:
        """End the session: the registration goes at once."""
        self._closing = True
        self._broker.broker_epoch = NO_BROKER_EPOCH
        await self._store.close()

    # renewal and expiry

    def _beat(self) -> None:
        if self._closing:
            return
        self._store.beat()
        interval_ms = self._store.session_timeout_ms / _BEATS_PER_TIMEOUT
        self._broker.clock.call_later(interval_ms, self._beat)

    def _session_event(self, event: SessionEvent) -> None:
        broker = self._broker
        broker.tracer.event("store_session", session=event.name)
        if event is not SessionEvent.EXPIRED or self._closing:
            return
        self._expiries += 1
        broker.tracer.log("server", logging.WARNING, "the session with the store has expired")
        broker.broker_epoch = NO_BROKER_EPOCH
        broker.controller.resign("the session has expired")
        broker.fencing.session_over()
        broker.replicas.stop_leading("the session has expired")
        if not self._registering:
            broker.tasks.spawn("register again", self._register_again())

    async def _register_again(self) -> None:
        broker = self._broker
        self._registering = True
        try:
            while not self._closing:
                try:
                    await self._store.open()
                    await self._register()
                    broker.controller.session_renewed()
                    broker.live_configs.session_renewed()
                except (SessionExpired, StoreUnavailable, OutcomeUnknown) as error:
                    broker.tracer.log("server", logging.WARNING, f"cannot register again: {error}")
                    await broker.tasks.sleep(_RETRY_MS)
                else:
                    return
        finally:
            self._registering = False

    # registration

    async def _register(self) -> None:
        broker = self._broker
        deadline_ms = broker.clock.monotonic_ms() + 2 * self._store.session_timeout_ms
        path = layout.broker_path(broker.broker_id)
        expiries = self._expiries
        while True:
            info = BrokerInfo(
                broker_id=broker.broker_id,
                broker_epoch=NO_BROKER_EPOCH,
                endpoints=broker.advertised_endpoints(),
                rack=broker.config.broker_rack or None,
                previous_broker_epoch=broker.clean_shutdown_epoch,
            )
            data = layout.encode_broker(info, broker.clock.wall_ms())
            try:
                results = await self._store.transact(
                    [Create(path, b"", ephemeral=True), SetData(path, data, 0)]
                )
            except TransactionFailed as failure:
                if not isinstance(failure.error, NodeExists | BadVersion):
                    raise
                if await self._is_own(path, expiries):
                    return
                if broker.clock.monotonic_ms() >= deadline_ms:
                    raise BrokerIdInUseError(
                        f"broker id {broker.broker_id} is registered by another live broker;"
                        " every broker of a cluster needs an id of its own"
                    ) from failure
                # A dying session still holds it: it goes at its timeout (S5).
                broker.tracer.mark("broker_id_still_taken")
                await broker.tasks.sleep(_RETRY_MS)
            except OutcomeUnknown:
                if await self._is_own(path, expiries):
                    broker.tracer.mark("registered_unknowingly")
                    return
            except StoreUnavailable:
                await broker.tasks.sleep(_RETRY_MS)
            else:
                stat = results[1].stat
                assert stat is not None
                self._registered(stat.czxid, expiries)
                return

    async def _is_own(self, path: str, expiries: int) -> bool:
        """Whether the node is of this very session (V42: never judged by broker id)."""
        while True:
            try:
                node = await self._store.get(path)
            except (StoreUnavailable, OutcomeUnknown):
                await self._broker.tasks.sleep(_RETRY_MS)
                continue
            break
        if node is None or node.stat.ephemeral_owner != self._store.session_id:
            return False
        self._registered(node.stat.czxid, expiries)
        return True

    def _registered(self, broker_epoch: int, expiries: int) -> None:
        """Take over what the store answered, unless the session that it was asked in is over: the
        registration has gone with it, and nobody would tell of that again."""
        if self._expiries != expiries:
            self._broker.tracer.mark("session_lost_while_registering")
            raise SessionExpired()
        broker = self._broker
        broker.registered(broker_epoch)
        broker.tracer.event("broker_registered", broker=broker.broker_id, epoch=broker_epoch)
        broker.tracer.log(
            "server", logging.INFO, f"registered as broker {broker.broker_id} epoch {broker_epoch}"
        )

    async def _ensure_roots(self) -> None:
        for path in layout.PERSISTENT_ROOTS:
            await self._create_if_missing(path, b"")

    async def _create_if_missing(self, path: str, data: bytes) -> None:
        while await self._get(path) is None:
            try:
                await self._store.transact([Create(path, data)])
            except TransactionFailed as failure:
                if not isinstance(failure.error, NodeExists):
                    raise
            except (StoreUnavailable, OutcomeUnknown):
                await self._broker.tasks.sleep(_RETRY_MS)

    async def _get(self, path: str) -> bytes | None:
        while True:
            try:
                node = await self._store.get(path)
            except (StoreUnavailable, OutcomeUnknown):
                await self._broker.tasks.sleep(_RETRY_MS)
                continue
            return None if node is None else node.data

    async def _cluster_id(self) -> str:
        fresh = topic_id_to_text(self._broker.ports.random.randbytes(16))
        await self._create_if_missing(layout.CLUSTER_ID, layout.encode_cluster_id(fresh))
        data = await self._get(layout.CLUSTER_ID)
        if data is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the cluster id vanished")
        return layout.decode_cluster_id(layout.CLUSTER_ID, data)
