"""Writing and reading plain values of one partition with our own client."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.types import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.reader import iter_records
from tidelog.runtime.blocking import BlockingClient


def write_values(
    bootstrap: str, tp: TopicPartition, values: Sequence[bytes], timeout_ms: int = 30_000
) -> int:
    """Write values with acks=all; returns the offset of the first."""
    batch = build_batch([NewRecord(None, value) for value in values])
    with BlockingClient(bootstrap, timeout_ms=timeout_ms) as client:
        return client.produce(tp, batch)


def read_values(bootstrap: str, tp: TopicPartition, timeout_ms: int = 30_000) -> list[bytes]:
    """Every value of a partition below its high watermark, in order."""
    found: list[bytes] = []
    with BlockingClient(bootstrap, timeout_ms=timeout_ms) as client:
        end = client.list_offsets({tp: -1})[tp].offset
        offset = client.list_offsets({tp: -2})[tp].offset
        while offset < end:
            for batch in iter_batches(client.fetch(tp, offset).records):
                records = [each for each in iter_records(batch) if each.offset >= offset]
                found += [record.value or b"" for record in records]
                offset = batch.next_offset
    return found
