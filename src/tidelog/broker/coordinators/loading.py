"""The load of a partition of an internal topic into its shard, log start to log end (G1).

The load goes to the log end, not to the high watermark. A new leader's high watermark may lag
behind acknowledged records, and nothing is appended before the load has ended. Uncommitted records
of the load may still be lost, and with them a number (the generation of a group), which the
coordinator would then give out twice. The load therefore ends only when the high watermark has
passed the records that were read. The loader reads the log in slices and lets the loop go between
records, so that other partitions are served meanwhile. A load whose leadership ends stops where it
is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.core.completion import Completion
from tidelog.core.coordinator_shard import CoordinatorPhase, CoordinatorShard
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from tidelog.records.batch import BatchView, CorruptBatch, iter_batches
from tidelog.records.reader import read_columns

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.broker.services import Services

#: Returns the record behind a key, a value and headers, None for an unknown kind; raises
#: ProtocolError for bytes that are no such record.
Decode = Callable[[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]], Any]

#: Records between two turns of the loop: a few milliseconds.
RECORDS_PER_TURN = 200
_RETRY_MS = 1_000


def load_end(partition: Partition) -> int:
    """Return the end of a load: everything before may have been acknowledged."""
    return partition.log.log_end_offset


async def load(
    services: Services,
    partition: Partition,
    shard: CoordinatorShard,
    decode: Decode,
    buffer_bytes: int,
) -> bool:
    """Replay the log into `shard`; return whether that ended before the leadership was over.

    A part that cannot be read now is tried again: without it, state would go back.
    """
    replay = _Replay(services, partition, shard, decode)
    end = load_end(partition)
    position = partition.log.log_start_offset
    while position < end and shard.phase is CoordinatorPhase.LOADING:
        log = partition.log  # another one after a move between log directories (D11)
        position = max(position, log.log_start_offset)
        try:
            part = await log.read(position, buffer_bytes, end, min_one_batch=True)
            if part.next_offset < 0:
                break
            for batch in iter_batches(part.data):
                if shard.phase is CoordinatorPhase.LOADING and not batch.is_control:
                    await replay.batch(batch)
                position = batch.next_offset
        except (KafkaError, StorageError, CorruptBatch) as error:
            _report(
                services,
                f"loading {partition.topic_partition} waits: offset {position} cannot be read:"
                f" {error}",
            )
            await services.tasks.sleep(_RETRY_MS)
    await committed(services, partition, shard, end)
    return shard.phase is CoordinatorPhase.LOADING


async def committed(
    services: Services, partition: Partition, shard: CoordinatorShard, offset: int
) -> None:
    """Wait until all in-sync replicas have everything below `offset`, or the load is over.

    An ISR below the minimum is waited out. The high watermark may pass `offset` between the refusal
    of a wait and the next one, and a wait for what has happened would never end: nothing is
    appended before the load has ended.
    """
    while shard.phase is CoordinatorPhase.LOADING and partition.high_watermark < offset:
        services.tracer.mark("coordinator_loaded_above_high_watermark")
        wait = _Wait()
        partition.watchers.wait_for_acks(offset, wait)
        await wait.outcome


class _Wait:
    """The wait for the high watermark; an AcksWait."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        #: Done when there is something to look at.
        self.outcome: Completion[None] = Completion()

    def acknowledged(self) -> None:
        """Look again: the high watermark has passed."""
        self.outcome.resolve(None)

    def refused(self, error: ErrorCode, message: str) -> None:
        """Look again: the ISR fell below the minimum, or the leadership is over."""
        self.outcome.resolve(None)


class _Replay:
    """The feed of records to a coordinator; it lets the loop go every RECORDS_PER_TURN records."""

    def __init__(
        self,
        services: Services,
        partition: Partition,
        shard: CoordinatorShard,
        decode: Decode,
    ) -> None:
        self._services = services
        self._partition = partition
        self._shard = shard
        self._decode = decode
        #: Counted over batches: most commits make a batch of a single record.
        self._turn_in = RECORDS_PER_TURN

    async def batch(self, batch: BatchView) -> None:
        """Replay the records of a batch, or the part of them before the load is over."""
        shard = self._shard
        columns = read_columns(
            batch,
            max_decompressed_bytes=self._services.config.max_decompressed_message_bytes,
        )
        for offset, key, value, headers in zip(
            columns.offsets, columns.keys, columns.values, columns.headers, strict=True
        ):
            try:
                record = self._decode(key, value, headers)
            except ProtocolError as error:
                # Only coordinators may write here: this is a defect, which costs this record alone.
                where = f"{self._partition.topic_partition} offset {offset}"
                _report(self._services, f"{where} is no record of its coordinator: {error}")
                continue
            if record is not None:
                shard.replay(record)
            self._turn_in -= 1
            if not self._turn_in:
                self._turn_in = RECORDS_PER_TURN
                await self._services.tasks.sleep(0)
                if shard.phase is not CoordinatorPhase.LOADING:
                    return


def _report(services: Services, message: str) -> None:
    services.tracer.log("server", logging.ERROR, message)
