"""The broker's session with the store: registration, renewal, expiry (V4, V40, E3, S3, S5).

A broker is alive while its session is valid. The event loop itself renews the session (`beat`), so
a broker whose loop hangs loses its session (DESIGN.md, rule 4). An unreachable store does not mean
an expired session, so the broker continues to serve (S3). When the session expires, the broker
stops leading at once, re-registers under a new broker epoch, and gets its roles from the
controller. The broker also stops leading and re-registers if an administrator deletes its
registration while the session is valid. The broker keeps its view of the cluster until the
controller replaces it, because clients drop brokers that a Metadata response does not list.

The session may also expire while the broker starts or registers. If the session expires before the
starting broker has registered, the broker only opens a new session, because listeners and log
directories are not ready yet. After the registration, the broker repeats the reads that it made in
the expired session. A registration does not wait for operations on log directories, so a log
directory that hangs does not prevent it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.membership.metrics import SESSION_EVENTS
from tidelog.broker.membership.registration_watch import RegistrationWatch
from tidelog.broker.membership.store_history import OlderStoreError
from tidelog.broker.store_access import RETRY_MS, UNANSWERED, UNREACHED, patiently
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import NO_BROKER_EPOCH, BrokerInfo, Endpoint, topic_id_to_text
from tidelog.metadata import layout
from tidelog.metadata.store import (
    BadVersion,
    Create,
    Node,
    NodeExists,
    OutcomeUnknown,
    SessionEvent,
    SessionExpired,
    SetData,
    StoreError,
    StoreUnavailable,
    TransactionFailed,
)

if TYPE_CHECKING:
    from tidelog.broker.membership.self_fencing import SelfFencing
    from tidelog.broker.membership.store_history import StoreHistory
    from tidelog.broker.services import Services

#: Renewals per session timeout. Two renewals must be less than a third of the timeout apart (rule
#: 4).
_BEATS_PER_TIMEOUT = 12


class BrokerIdInUseError(TidelogError):
    """Another live broker is registered under this broker's id."""


class Session:
    """The session and the registration of this broker; this object keeps both alive."""

    def __init__(
        self,
        services: Services,
        fencing: SelfFencing,
        history: StoreHistory,
        advertised_endpoints: Callable[[], tuple[Endpoint, ...]],
        on_expired: Callable[[str], None],
        on_registered: Callable[[int], None],
        on_renewed: Callable[[], None],
    ) -> None:
        """`on_expired` gets the reason and stops all action under the lost registration.

        `on_registered` starts to store the transaction id of the registration, the stamp, in the
        log directories (E8). `on_renewed` makes the broker read the changes that it missed before
        it registered again.
        """
        self._services = services
        self._history = history
        self._fencing = fencing
        self._on_expired = on_expired
        self._on_registered = on_registered
        self._on_renewed = on_renewed
        self._advertised_endpoints = advertised_endpoints
        self._store = services.store
        self._closing = False
        #: Whether the listeners and log directories are ready, so that the broker can be
        #: registered.
        self._may_register = False
        self._registering = False
        #: The task that opens a new session after a session expired before the registration.
        self._opening: asyncio.Task[None] | None = None
        self._watch = RegistrationWatch(services, self._registration_lost)
        #: Number of sessions that have expired.
        self._expiries = 0

    async def open(self, check_cluster: Callable[[str], None] = lambda _: None) -> str:
        """Open a session; return the cluster id, which the first broker of a cluster creates.

        `check_cluster` gets the store's cluster id, empty if there is none, before the broker
        creates any node; its exceptions are passed on.
        """
        self._store.on_session(self._session_event)
        await self._store.open()
        self._beat()
        self._fencing.start()
        node = await self._read(layout.CLUSTER_ID, UNREACHED)
        present = b"" if node is None else node.data
        check_cluster(layout.decode_cluster_id(layout.CLUSTER_ID, present) if present else "")
        await self._ensure_roots()
        return await self._cluster_id()

    async def register(self) -> None:
        """Create `/brokers/ids/N`; raise BrokerIdInUseError if another live broker has the id.

        From now on the broker registers again whenever it loses its registration.
        """
        self._may_register = True
        await self._until_registered()
        if self._expiries and not self._closing:
            # The watches that the start had set were lost with the expired session.
            self._on_renewed()

    async def stamp(self) -> None:
        """Write the broker's stamp node before a clean stop (E8), if the store is reachable."""
        try:
            await self._history.stamp()
        except (*UNREACHED, TransactionFailed) as error:
            self._services.tracer.log(
                "server", logging.WARNING, f"the stop leaves no stamp in the store: {error}"
            )

    async def close(self) -> None:
        """Close the session, which removes the registration at once."""
        self._closing = True
        self._services.identity.broker_epoch = NO_BROKER_EPOCH
        await self._store.close()

    # renewal and expiry

    def _beat(self) -> None:
        if self._closing:
            return
        self._store.beat()
        interval_ms = self._store.session_timeout_ms / _BEATS_PER_TIMEOUT
        self._services.clock.call_later(interval_ms, self._beat)

    def _session_event(self, event: SessionEvent) -> None:
        services = self._services
        services.tracer.event("store_session", session=event.name)
        services.metrics.add(SESSION_EVENTS[event])
        if event is not SessionEvent.EXPIRED or self._closing:
            return
        self._expiries += 1
        services.tracer.log("server", logging.WARNING, "the session with the store has expired")
        services.identity.session_expired()
        self._on_expired("the session has expired")
        if not self._may_register:
            services.tracer.mark("session_lost_during_start")
            if self._opening is None or self._opening.done():
                self._opening = services.tasks.spawn("open the session again", self._open_again())
        elif not self._registering:
            services.tasks.spawn("register again", self._register_again())

    def _registration_lost(self, reason: str) -> None:
        """Register again: the session is valid, but its registration node is gone or replaced.

        The controller considers the incarnation of the lost registration dead, so the broker must
        no longer act under its broker epoch.
        """
        services = self._services
        if self._closing or self._registering or not services.identity.is_registered:
            return
        services.tracer.event("registration_lost", reason=reason, epoch=services.broker_epoch)
        services.tracer.mark("registration_lost_while_session_lives")
        services.tracer.log(
            "server",
            logging.ERROR,
            f"{reason}: the registration of broker {services.broker_id} epoch"
            f" {services.broker_epoch} is lost; registering again",
        )
        services.identity.session_expired()
        self._on_expired(reason)
        services.tasks.spawn("register again", self._register_again())

    async def _open_again(self) -> None:
        """Replace a session that expired before the starting broker had registered."""
        while self._store.session_id is None and not self._closing:
            try:
                await self._store.open()
            except UNREACHED as error:
                self._services.tracer.log(
                    "server", logging.WARNING, f"cannot open a session: {error}"
                )
                await self._services.tasks.sleep(RETRY_MS)

    async def _register_again(self) -> None:
        await self._until_registered()
        if not self._closing:
            self._on_renewed()

    async def _until_registered(self) -> None:
        """Register the broker; open a new session if the current session expires first.

        After the registration this function awaits nothing, so it overlooks no expiry. If the
        session expires later, `_register_again` registers the broker again.
        """
        services = self._services
        self._registering = True
        try:
            if self._opening is not None:
                await self._opening
            while not self._closing:
                try:
                    await self._store.open()
                    await self._register()
                except UNREACHED as error:
                    services.tracer.log("server", logging.WARNING, f"cannot register: {error}")
                    await services.tasks.sleep(RETRY_MS)
                else:
                    break
        finally:
            self._registering = False
        if not self._closing:
            self._watch.begin()
            self._on_registered(self._history.seen)

    # registration

    async def _register(self) -> None:
        services = self._services
        deadline_ms = services.clock.monotonic_ms() + 2 * self._store.session_timeout_ms
        path = layout.broker_path(services.broker_id)
        expiries = self._expiries
        while True:
            try:
                history = await self._history.registration_ops()
                results = await self._store.transact(
                    [
                        Create(path, b"", ephemeral=True),
                        SetData(path, self._registration(), 0),
                        *history,
                    ]
                )
            except OlderStoreError:
                # Try again until the deadline: the broker that leads a partition in the older store
                # may be dead, and is then registered only until its session expires.
                if services.clock.monotonic_ms() >= deadline_ms:
                    raise
                await services.tasks.sleep(RETRY_MS)
            except TransactionFailed as failure:
                if not isinstance(failure.error, NodeExists | BadVersion):
                    raise
                if await self._is_own(path, expiries):
                    return
                if services.clock.monotonic_ms() >= deadline_ms:
                    raise BrokerIdInUseError(
                        f"broker id {services.broker_id} is registered by another live broker;"
                        " every broker of a cluster needs an id of its own"
                    ) from failure
                # The session of a dead broker still owns the node with this id; the store deletes
                # the node when that session times out (S5).
                services.tracer.mark("broker_id_still_taken")
                await services.tasks.sleep(RETRY_MS)
            except OutcomeUnknown:
                if await self._is_own(path, expiries):
                    services.tracer.mark("registered_unknowingly")
                    return
            except StoreUnavailable:
                await services.tasks.sleep(RETRY_MS)
            else:
                stat = results[1].stat
                assert stat is not None
                self._registered(stat.czxid, expiries)
                return

    def _registration(self) -> bytes:
        services = self._services
        clean_epochs = services.identity.clean_epochs
        info = BrokerInfo(
            broker_id=services.broker_id,
            broker_epoch=NO_BROKER_EPOCH,
            endpoints=self._advertised_endpoints(),
            rack=services.config.broker_rack or None,
            previous_broker_epoch=clean_epochs.last,
            earlier_broker_epochs=clean_epochs.earlier,
            reports_log_ends=True,
        )
        return layout.encode_broker(info, services.clock.wall_ms())

    async def _is_own(self, path: str, expiries: int) -> bool:
        """Return whether the current session owns the node at `path`; if so, use the registration.

        The broker id in the node is no proof, because another process with the same id may have
        created the node (V42). `expiries` is the value of `_expiries` when the registration began.
        """
        node = await self._read(path)
        if node is None or node.stat.ephemeral_owner != self._store.session_id:
            return False
        self._registered(node.stat.czxid, expiries)
        return True

    def _registered(self, broker_epoch: int, expiries: int) -> None:
        """Use `broker_epoch`, which the store reported, as the broker's current registration.

        Raises SessionExpired if the session in which the broker registered has expired: the
        registration is lost with the session, and no later event would report the loss.
        """
        if self._expiries != expiries:
            self._services.tracer.mark("session_lost_while_registering")
            self._services.identity.lost_while_registering(broker_epoch)
            raise SessionExpired()
        services = self._services
        services.identity.registered(broker_epoch)
        self._history.registered(broker_epoch)
        self._fencing.registered()
        services.tracer.event("broker_registered", broker=services.broker_id, epoch=broker_epoch)
        services.tracer.log(
            "server",
            logging.INFO,
            f"registered as broker {services.broker_id} epoch {broker_epoch}",
        )

    async def _ensure_roots(self) -> None:
        for path in layout.PERSISTENT_ROOTS:
            await self._create_if_missing(path, b"")

    async def _create_if_missing(self, path: str, data: bytes) -> None:
        async def create() -> None:
            while await self._store.get(path) is None:
                try:
                    await self._store.transact([Create(path, data)])
                except TransactionFailed as failure:
                    if not isinstance(failure.error, NodeExists):
                        raise

        await patiently(self._services.tasks, create, errors=UNREACHED)

    async def _read(
        self, path: str, errors: tuple[type[StoreError], ...] = UNANSWERED
    ) -> Node | None:
        return await patiently(self._services.tasks, partial(self._store.get, path), errors=errors)

    async def _cluster_id(self) -> str:
        fresh = topic_id_to_text(self._services.ports.random.randbytes(16))
        await self._create_if_missing(layout.CLUSTER_ID, layout.encode_cluster_id(fresh))
        node = await self._read(layout.CLUSTER_ID, UNREACHED)
        if node is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the cluster id vanished")
        return layout.decode_cluster_id(layout.CLUSTER_ID, node.data)
