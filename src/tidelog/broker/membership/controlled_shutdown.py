"""The controlled shutdown: before a broker stops, other brokers take its leaderships (V43).

The broker sends the controller up to `controlled.shutdown.max.retries` ControlledShutdown requests.
Between attempts the broker waits for `controlled.shutdown.retry.backoff.ms`, or until it learns of
another controller. After the last attempt the broker stops anyway, and the log names the partitions
that it still leads. The controller chooses the next leaders; the broker executes the controller's
commands until it stops. Once the shutdown has begun, this broker no longer fetches a partition
after the controller has removed the broker from its ISR.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.tasks import Signal
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tidelog.wire.registry import CONTROLLED_SHUTDOWN

if TYPE_CHECKING:
    from tidelog.broker.replicas.replica_set import ReplicaSet
    from tidelog.broker.services import Services

_VERSION = 3
_PURPOSE = "controlled-shutdown"
#: Maximum number of partitions that one log line names.
_NAMED = 20


class ControlledShutdown:
    """The part of a stopping broker that has its leaderships moved to other brokers."""

    def __init__(self, services: Services, replicas: ReplicaSet) -> None:
        self._services = services
        self._replicas = replicas
        self._wake = Signal(services.ports.loop)
        #: The controller to which the last request went: (epoch, broker id).
        self._asked = (-1, -1)
        self._given_up = False
        self._answered: asyncio.Future[str] | None = None

    async def run(self) -> None:
        """Request the controlled shutdown until other brokers lead all partitions, or no attempt is
        left.
        """
        services = self._services
        config = services.config
        if (
            services.identity.is_leaving
            or not config.controlled_shutdown_enable
            or not self._is_of_use()
        ):
            return
        services.identity.is_leaving = True
        began_ms = services.clock.monotonic_ms()
        for attempt in range(1, config.controlled_shutdown_max_retries + 1):
            if self._given_up:
                break
            why = await self._ask()
            took_ms = services.clock.monotonic_ms() - began_ms
            if not why:
                services.tracer.event("handed_over", attempts=attempt)
                self._log(logging.INFO, f"leaderships transferred in {took_ms} ms")
                return
            self._log(logging.WARNING, f"attempt {attempt} to transfer leaderships failed: {why}")
            if attempt < config.controlled_shutdown_max_retries:
                await self._pause(config.controlled_shutdown_retry_backoff_ms)
        services.tracer.mark("stopped_without_handing_over")
        self._log(logging.WARNING, f"stopping although this broker {self._led()}")

    def give_up(self) -> None:
        """Stop waiting for other brokers to lead: the process got a second signal to stop."""
        self._given_up = True
        self._stop_waiting("a second signal ended the wait")

    def view_changed(self) -> None:
        """End the wait for a response if the broker's metadata now names another controller."""
        if self._asked != self._controller():
            self._stop_waiting("the controller has changed")

    def _stop_waiting(self, why: str) -> None:
        self._wake.set()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(why)

    def _is_of_use(self) -> bool:
        """Return whether a controlled shutdown can achieve anything.

        It can if this broker has a replica and another broker is alive to take over leaderships.
        """
        services = self._services
        others = [
            broker_id for broker_id in services.view.brokers if broker_id != services.broker_id
        ]
        return len(self._replicas) > 0 and bool(others)

    def _controller(self) -> tuple[int, int]:
        return self._services.view.controller_epoch, self._services.view.controller_id

    async def _ask(self) -> str:
        """Send one request; return why leaderships remain on this broker, empty if none remains."""
        services = self._services
        if not services.identity.is_registered:
            return "this broker is not registered"
        self._asked = self._controller()
        _, controller_id = self._asked
        answered: asyncio.Future[str] = services.ports.loop.create_future()
        self._answered = answered

        def on_answer(answer: Any, error: Exception | None) -> None:
            if not answered.done():
                answered.set_result(_verdict(answer, error))

        try:
            services.peers.connection(controller_id, _PURPOSE).send(
                CONTROLLED_SHUTDOWN,
                _VERSION,
                ControlledShutdownRequest(services.broker_id, services.broker_epoch),
                services.config.controller_socket_timeout_ms,
                on_answer,
            )
        except ConnectionLost as error:
            on_answer(None, error)
        why = await answered
        return f"controller {controller_id}: {why}" if why else ""

    async def _pause(self, backoff_ms: int) -> None:
        """Wait before the next attempt; stop waiting early if the controller changes."""
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True
            self._wake.set()

        timeout = self._services.timers.after(backoff_ms, end)
        while not (is_over or self._given_up or self._asked != self._controller()):
            await self._wake.wait()
        timeout.cancel()

    def _led(self) -> str:
        led = [
            partition.topic_partition for partition in self._replicas.all() if partition.is_leader
        ]
        return f"leads {_named(list(map(str, led)))}" if led else "is still in ISRs"

    def _log(self, level: int, message: str) -> None:
        self._services.tracer.log("server", level, f"controlled shutdown: {message}")


def _verdict(answer: Any, error: Exception | None) -> str:
    """Return why leaderships remain on this broker after a response, empty if none remains."""
    if error is not None:
        return str(error)
    response: ControlledShutdownResponse = answer
    if response.error_code:
        try:
            return f"error {ErrorCode(response.error_code).name}"
        except ValueError:
            return f"error {response.error_code}"
    left = [
        f"{partition.topic_name}-{partition.partition_index}"
        for partition in response.remaining_partitions
    ]
    return f"no other in-sync replica of {_named(left)}" if left else ""


def _named(partitions: list[str]) -> str:
    """Return a count and the first names, for example `3 partitions: a-0, a-1, b-0`."""
    shown = ", ".join(partitions[:_NAMED]) + (" ..." if len(partitions) > _NAMED else "")
    return f"{len(partitions)} partitions: {shown}"
