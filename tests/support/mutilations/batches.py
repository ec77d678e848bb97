"""Mutilations of the batches in a log file."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.clients.codec_cases import frame
from tests.support.mutilations.sites import Site, plants, resealed
from tests.support.records import framed, record_bytes

from tidelog.records.batch import BatchView, iter_batches
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.compression import LZ4
from tidelog.records.reader import iter_records, read_keys
from tidelog.records.rewriting import rewritten
from tidelog.spark.pipelines.audit.findings import FindingKind as Kind
from tidelog.spark.pipelines.audit.findings import Severity


def _changed(site: Site, log: Path, batch: BatchView, position: int, data: bytes) -> None:
    """Overwrite bytes of a batch and give the batch the right checksum."""
    whole = bytearray(log.read_bytes()[batch.position : batch.end_position])
    whole[position : position + len(data)] = data
    site.patch(log, batch.position, resealed(whole))


@plants(Kind.CHECKSUM, "a flipped bit in the records of a batch")
def flipped_record(site: Site) -> None:
    log = site.draw.choice(site.logs)
    batch = site.inner_batch(log)
    site.flip(log, site.draw.randrange(batch.position + 61, batch.end_position))


@plants(Kind.CHECKSUM, "a flipped bit in the header that the checksum covers, or in the checksum")
def flipped_header(site: Site) -> None:
    log = site.draw.choice(site.logs)
    site.flip(log, site.inner_batch(log).position + site.draw.randrange(17, 61))


@plants(Kind.NO_BATCH, "a wrong magic")
def wrong_magic(site: Site) -> None:
    log = site.draw.choice(site.logs)
    site.patch(log, site.inner_batch(log).position + 16, bytes([site.draw.randrange(3, 256)]))


@plants(Kind.NO_BATCH, "a batch's length too long for the file, or negative")
def wrong_length(site: Site) -> None:
    log = site.draw.choice(site.logs)
    length = site.draw.choice([-1, -(2**31), 2**30, 2**31 - 1])
    site.patch(log, site.inner_batch(log).position + 8, struct.pack(">i", length))


@plants(Kind.NO_BATCH, "a batch overwritten by zeros")
def zeros(site: Site) -> None:
    log = site.draw.choice(site.logs)
    batch = site.inner_batch(log)
    site.patch(log, batch.position, bytes(batch.size_bytes))


@plants(Kind.NO_BATCH, "bytes inserted between two batches")
def inserted_bytes(site: Site) -> None:
    log = site.sealed()
    batch, data = site.inner_batch(log), log.read_bytes()
    extra = site.draw.randbytes(site.draw.randrange(1, 200))
    site.write(log, data[: batch.position] + extra + data[batch.position :])


@plants(Kind.HEADER, "more records than offsets, with the right checksum")
def too_many_records(site: Site) -> None:
    log = site.draw.choice(site.logs)
    _changed(site, log, site.inner_batch(log), 57, struct.pack(">i", site.draw.randrange(6, 99)))


@plants(Kind.HEADER, "an unknown codec or flag, with the right checksum")
def unknown_attributes(site: Site) -> None:
    log = site.draw.choice(site.logs)
    attributes = site.draw.choice([5, 6, 7, 0x80, 0x4000])
    _changed(site, log, site.inner_batch(log), 21, struct.pack(">h", attributes))


@plants(Kind.FRAMES, "records in linked blocks of LZ4")
def linked_blocks(site: Site) -> None:
    payload = b"".join(record_bytes(number) for number in range(9_000))
    batch = framed(payload, 9_000, LZ4, frame(payload, block_linked=True))
    batch[:8] = struct.pack(">q", 300)
    batch[12:16] = struct.pack(">i", 2)
    log = site.logs[-1]
    site.write(log, log.read_bytes() + bytes(batch))


@plants(Kind.OFFSET_ORDER, "a wrong base offset of one batch")
def wrong_base_offset(site: Site) -> None:
    log = site.draw.choice(site.logs)
    batch = site.inner_batch(log)
    base = batch.base_offset + site.draw.choice([-3, -1, 1, 2, 1000, 2**40])
    site.patch(log, batch.position, struct.pack(">q", base))


@plants(Kind.OFFSET_ORDER, "two batches in each other's place")
def exchanged_batches(site: Site) -> None:
    log = site.draw.choice(site.logs)
    data, batches = log.read_bytes(), list(iter_batches(log.read_bytes()))
    place = site.draw.randrange(1, len(batches) - 2)
    first, second = batches[place], batches[place + 1]
    swapped = (
        data[second.position : second.end_position] + data[first.position : first.end_position]
    )
    site.patch(log, first.position, swapped)


@plants(Kind.OFFSET_ORDER, "a batch that is there twice")
def repeated_batch(site: Site) -> None:
    log = site.draw.choice(site.logs)
    batch, data = site.inner_batch(log), log.read_bytes()
    end = batch.end_position
    site.write(log, data[:end] + data[batch.position : end] + data[end:])


@plants(Kind.GAP, "a batch removed from a log file")
def removed_batch(site: Site) -> None:
    log = site.draw.choice(site.logs)
    batch, data = site.inner_batch(log), log.read_bytes()
    site.write(log, data[: batch.position] + data[batch.end_position :])


@plants(Kind.GAP, "a record removed from a batch of a topic that is not compacted")
def removed_record(site: Site) -> None:
    log = site.logs[-1]
    batch = site.inner_batch(log)
    payload, records = read_keys(batch)
    kept = records[: site.draw.randrange(1, len(records))]
    data = log.read_bytes()
    changed = bytes(rewritten(batch, payload, kept))
    site.write(log, data[: batch.position] + changed + data[batch.end_position :])


@plants(Kind.EPOCH_ORDER, "a leader epoch above or below those of the neighbours")
def wrong_epoch(site: Site) -> None:
    log = site.middle()
    batch = site.inner_batch(log)
    epoch = batch.partition_leader_epoch
    wrong = site.draw.choice([each for each in (epoch + 1, epoch + 9, 2**31 - 1) if each != epoch])
    site.patch(log, batch.position + 12, struct.pack(">i", wrong))


@plants(Kind.DIVERGED, "another value of a record, with the right checksum")
def other_value(site: Site) -> None:
    log = site.draw.choice(site.logs)
    batch = site.inner_batch(log)
    value = log.read_bytes()[batch.end_position - 3] ^ 1
    _changed(site, log, batch, batch.size_bytes - 3, bytes([value]))


@plants(Kind.DIVERGED, "another producer or sequence number, with the right checksum")
def other_producer(site: Site) -> None:
    log = site.logs[-1]
    batch = site.inner_batch(log)
    _changed(site, log, batch, 43, struct.pack(">qhi", 99, 0, site.draw.randrange(100)))


@plants(Kind.BATCHED, "two batches made one", needs_clean=False, severity=Severity.NOTICE)
def joined_batches(site: Site) -> None:
    log = site.logs[-1]
    data = log.read_bytes()
    first, second = list(iter_batches(data))[-3:-1]
    records = [*iter_records(first), *iter_records(second)]
    rows = [NewRecord(each.key, each.value, each.timestamp_ms) for each in records]
    joined = build_batch(rows, base_offset=first.base_offset, leader_epoch=2)
    site.put(log, data[: first.position] + bytes(joined) + data[second.end_position :])


@plants(
    Kind.COMPACTED,
    "fewer records in one replica of a compacted topic",
    needs_clean=False,
    severity=Severity.NOTICE,
)
def compacted_further(site: Site) -> None:
    removed_record(site)
    site.named.clear()
    site.checkpoint("cleaner-offset-checkpoint", 100)
    site.named.clear()


@plants(Kind.OLD_FORMAT, "message sets of magic 1", severity=Severity.NOTICE)
def old_message_set(site: Site) -> None:
    log = site.logs[-1]
    entry = struct.pack(">qiib", 300, 88, 0, 1) + bytes(83)
    site.write(log, log.read_bytes() + entry)
