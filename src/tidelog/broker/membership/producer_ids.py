"""Producer ids of this broker, taken in order from blocks that the controller grants (G3, KIP-730).

The broker requests a block when its current block is used up, or nearly used up. No producer gets
an id that another producer got: if the response with a block is lost, no broker uses that block.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from tidelog.broker.services import Services
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tidelog.wire.registry import ALLOCATE_PRODUCER_IDS

_VERSION = 0
_TIMEOUT_MS = 2_000
_RETRY_MS = 50
#: Milliseconds that a client's request waits for an id before the broker responds with a retriable
#: error.
_PATIENCE_MS = 5_000
#: The broker requests the next block when less than this fraction of the current block is left
#: (Kafka: 10 %).
_PREFETCH_DIVISOR = 10


class ProducerIds:
    """The source of producer ids on this broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None
        self._asking = False
        self._waiting: list[asyncio.Future[None]] = []

    def take(self) -> int | None:
        """Return a producer id at once; None if the broker must first request a block of ids."""
        if self._next == self._end:
            if self._following is None:
                return None
            self._next, self._end = self._following
            self._following = None
            self._prefetch_at = self._end - (self._end - self._next) // _PREFETCH_DIVISOR
        taken = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._following is None:
            self._ask()
        return taken

    async def wait(self) -> int | None:
        """Return an id, or None if the controller granted no block in time."""
        services = self._services
        deadline_ms = services.clock.monotonic_ms() + _PATIENCE_MS
        while True:
            taken = self.take()
            if taken is not None:
                return taken
            left_ms = deadline_ms - services.clock.monotonic_ms()
            if left_ms <= 0:
                return None
            self._ask()
            future: asyncio.Future[None] = services.ports.loop.create_future()
            self._waiting.append(future)
            timer = services.clock.call_later(left_ms, partial(_resolve, future))
            try:
                await future
            finally:
                timer.cancel()

    def _ask(self) -> None:
        if not self._asking:
            self._asking = True
            self._services.tasks.spawn("producer ids", self._fetch())

    async def _fetch(self) -> None:
        """Request a block of producer ids until the controller grants one; then wake the waiting
        client requests.
        """
        try:
            while self._following is None:
                block = await self._block()
                if block is None:
                    await self._services.tasks.sleep(_RETRY_MS)
                else:
                    self._following = block
        finally:
            self._asking = False
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                _resolve(future)

    async def _block(self) -> tuple[int, int] | None:
        services = self._services
        request = AllocateProducerIdsRequest(services.broker_id, services.broker_epoch)
        try:
            connection = services.peers.connection(services.view.controller_id, "producer-ids")
            answer: AllocateProducerIdsResponse = await connection.call(
                ALLOCATE_PRODUCER_IDS, _VERSION, request, _TIMEOUT_MS
            )
        except TidelogError as error:
            self._report(str(error))
            return None
        if answer.error_code != ErrorCode.NONE:
            self._report(ErrorCode(answer.error_code).name)
            return None
        first, count = answer.producer_id_start, answer.producer_id_len
        if first < 0 or count <= 0:
            self._report(f"a block of {count} ids from {first}")
            return None
        return first, first + count

    def _report(self, reason: str) -> None:
        self._services.tracer.log(
            "controller", logging.INFO, f"no block of producer ids yet: {reason}"
        )


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
