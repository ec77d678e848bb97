"""The load of an internal topic's partition into its shard, from log start to log end (G1).

A load reads up to the log end, not only up to the high watermark. A new leader's high watermark may
lag behind acknowledged records, and the coordinator appends nothing before the load has ended.
Records that a load reads above the high watermark may still be lost. If the load ended before the
high watermark passed the loaded records, the coordinator could use a number from a lost record a
second time, for example a group's generation. A load therefore ends only when the high watermark
has passed the records that the load read. The loader reads the log in slices and yields to the
event loop between records, so that the broker serves other partitions during a load. A load stops
at once when its leadership ends.
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

#: A function that decodes a record from key, value and headers, and returns None for an unknown
#: kind of record. The function raises ProtocolError for bytes that cannot be decoded as a record.
Decode = Callable[[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]], Any]

#: Number of records that a load replays in one turn of the event loop, which then takes a few
#: milliseconds.
RECORDS_PER_TURN = 200
_RETRY_MS = 1_000


def load_end(partition: Partition) -> int:
    """Return the end of a load: every record before this offset may have been acknowledged."""
    return partition.log.log_end_offset


async def load(
    services: Services,
    partition: Partition,
    shard: CoordinatorShard,
    decode: Decode,
    buffer_bytes: int,
) -> bool:
    """Replay the log into `shard`; return whether the replay ended before the leadership did.

    The load retries a part of the log that cannot be read now, because skipping it would lose
    state.
    """
    replay = _Replay(services, partition, shard, decode)
    end = load_end(partition)
    position = partition.log.log_start_offset
    while position < end and shard.phase is CoordinatorPhase.LOADING:
        log = partition.log  # the log is another object after a move between log directories (D11)
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
    """Wait until all in-sync replicas have every record below `offset`, or the load ends.

    The wait continues while the ISR is below the minimum. The high watermark may pass `offset`
    between a refused wait and the next wait. The next wait would then never end, because nothing is
    appended during a load, so the function checks the high watermark before each wait.
    """
    while shard.phase is CoordinatorPhase.LOADING and partition.high_watermark < offset:
        services.tracer.mark("coordinator_loaded_above_high_watermark")
        wait = _Wait()
        partition.watchers.wait_for_acks(offset, wait)
        await wait.outcome


class _Wait:
    """The wait of a load until the high watermark reaches the log end (`AcksWait`)."""

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        #: Resolved when the load should check the high watermark again.
        self.outcome: Completion[None] = Completion()

    def acknowledged(self) -> None:
        """Wake the load: the high watermark has passed the awaited offset."""
        self.outcome.resolve(None)

    def refused(self, error: ErrorCode, message: str) -> None:
        """Wake the load: the ISR fell below the minimum, or the leadership is over."""
        self.outcome.resolve(None)


class _Replay:
    """The replay of a log into a coordinator's shard; it yields to the event loop in between."""

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
        #: Number of records that may still be replayed in this turn. It counts the records of
        #: several batches together, because most commits make a batch of a single record.
        self._turn_in = RECORDS_PER_TURN

    async def batch(self, batch: BatchView) -> None:
        """Replay the records of a batch; stop early if the load is over."""
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
                # Only coordinators may write this topic, so an unreadable record is a defect; the
                # load skips this record alone.
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
