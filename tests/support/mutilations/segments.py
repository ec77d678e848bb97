"""Mutilations of whole log files, and of the files beside them."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.mutilations.sites import Site, plants

from tidelog.core.checksums import crc32c
from tidelog.records.batch import iter_batches
from tidelog.spark.pipelines.audit.findings import FindingKind as Kind
from tidelog.spark.pipelines.audit.findings import Severity

_KINDS = ("log", "index", "timeindex")


def _drop_segment(log: Path, kinds: tuple[str, ...] = _KINDS) -> None:
    for kind in kinds:
        log.with_suffix(f".{kind}").unlink(missing_ok=True)


def _index(site: Site, kind: str) -> Path:
    """Draw the index of a flushed segment, with entries."""
    return site.sealed().with_suffix(f".{kind}")


@plants(Kind.GAP, "a segment between two others removed")
def removed_segment(site: Site) -> None:
    _drop_segment(site.middle())


@plants(Kind.GAP, "a log file emptied, the first one too")
def emptied_segment(site: Site) -> None:
    site.put(site.sealed(), b"")


@plants(Kind.GAP, "the last batch of a segment cut off")
def shortened_segment(site: Site) -> None:
    log = site.sealed()
    site.put(log, log.read_bytes()[: list(iter_batches(log.read_bytes()))[-1].position])


@plants(Kind.CUT_TAIL, "a segment that ends inside a batch, before another segment")
def cut_segment(site: Site) -> None:
    log = site.sealed()
    site.write(log, log.read_bytes()[: -site.draw.randrange(1, 200)])


@plants(
    Kind.CUT_TAIL, "the end of the last file cut off inside a batch", after_crash=Severity.NOTICE
)
def cut_end(site: Site) -> None:
    log = site.logs[-1]
    site.write(log, log.read_bytes()[: -site.draw.randrange(1, 200)])


@plants(Kind.CUT_TAIL, "bytes behind the last batch", after_crash=Severity.NOTICE)
def torn_write(site: Site) -> None:
    log = site.logs[-1]
    batch = list(iter_batches(log.read_bytes()))[-1]
    site.write(log, log.read_bytes() + batch.buffer[batch.position : batch.position + 90])


@plants(Kind.SWAPPED, "two log files in each other's place")
def exchanged_files(site: Site) -> None:
    first, second = site.draw.sample(site.logs[:-1], 2)
    contents = first.read_bytes(), second.read_bytes()
    site.write(first, contents[1])
    site.write(second, contents[0])


@plants(Kind.SWAPPED, "a log file under a name with a larger offset")
def renamed_file(site: Site) -> None:
    log = site.middle()
    for kind in _KINDS:
        path = log.with_suffix(f".{kind}")
        if path.exists():
            path.rename(path.with_name(f"{int(log.stem) + 7:020d}.{kind}"))


@plants(Kind.OFFSET_RANGE, "an offset 2^31 above the base offset of its file")
def far_offset(site: Site) -> None:
    site.checkpoint("cleaner-offset-checkpoint", 100)
    site.named.clear()
    log = site.logs[-1]
    batch = list(iter_batches(log.read_bytes()))[-1]
    site.patch(log, batch.position, struct.pack(">q", int(log.stem) + 2**31))


@plants(Kind.LOG_START, "the first segment removed")
def removed_first_segment(site: Site) -> None:
    _drop_segment(site.logs[0])


@plants(Kind.LOG_START, "the first segments removed, with what belongs to them")
def removed_first_segments(site: Site) -> None:
    for log in site.logs[: site.draw.randrange(1, 3)]:
        _drop_segment(log, (*_KINDS, "snapshot"))


@plants(Kind.SHORT, "the last batches of a log removed", needs_clean=False)
def removed_end(site: Site) -> None:
    log = site.logs[-1]
    batch = site.draw.choice(list(iter_batches(log.read_bytes()))[2:])
    site.write(log, log.read_bytes()[: batch.position])


@plants(Kind.LOG_END, "the last segment removed", needs_clean=True)
def removed_last_segment(site: Site) -> None:
    _drop_segment(site.logs[-1])


@plants(Kind.UNREADABLE, "a log file that cannot be opened")
def unreadable_log(site: Site) -> None:
    log = site.draw.choice(site.logs)
    log.unlink()
    log.symlink_to(log.name)


@plants(Kind.ORPHAN, "an index without its log file", severity=Severity.NOTICE)
def index_alone(site: Site) -> None:
    site.write(site.replica / f"{9999:020d}.index", b"12345678")


def _harmful(site: Site, path: Path, entry_bytes: int, low_byte: int) -> int:
    """Draw a byte of an index, except the lowest byte of an offset, whose change may be valid."""
    places = [at for at in range(path.stat().st_size) if at % entry_bytes != low_byte]
    return site.draw.choice(places)


@plants(Kind.INDEX, "a flipped bit in an offset index")
def flipped_index(site: Site) -> None:
    path = _index(site, "index")
    site.flip(path, _harmful(site, path, 8, 3))


@plants(Kind.INDEX, "an offset index that ends inside an entry")
def cut_index(site: Site) -> None:
    path = _index(site, "index")
    site.write(path, path.read_bytes()[: -site.draw.randrange(1, 8)])


@plants(Kind.INDEX, "an offset index removed")
def removed_index(site: Site) -> None:
    path = _index(site, "index")
    path.unlink()
    site.named.append(path)


@plants(Kind.INDEX, "an entry beyond the end of the log file")
def index_beyond_log(site: Site) -> None:
    path = _index(site, "index")
    site.write(path, path.read_bytes() + struct.pack(">ii", 5_000, 900_000))


@plants(Kind.INDEX, "the offset index of another segment")
def other_index(site: Site) -> None:
    log, entries = site.sealed(), [each.with_suffix(".index") for each in site.logs[:-1]]
    own = log.with_suffix(".index")
    others = [each.read_bytes() for each in entries if each.read_bytes() != own.read_bytes()]
    site.write(own, site.draw.choice(others))


@plants(Kind.TIME_INDEX, "a flipped bit in a time index")
def flipped_time_index(site: Site) -> None:
    path = _index(site, "timeindex")
    site.flip(path, _harmful(site, path, 12, 11))


@plants(Kind.TIME_INDEX, "a time index that ends inside an entry, or before its last entries")
def cut_time_index(site: Site) -> None:
    path = _index(site, "timeindex")
    site.write(path, path.read_bytes()[: -site.draw.randrange(1, path.stat().st_size)])


@plants(Kind.TIME_INDEX, "a time index emptied")
def emptied_time_index(site: Site) -> None:
    site.write(_index(site, "timeindex"), b"")


@plants(Kind.TIME_INDEX, "a time index removed")
def removed_time_index(site: Site) -> None:
    path = _index(site, "timeindex")
    path.unlink()
    site.named.append(path)


def _aborted(version: int, producer_id: int, first: int, last: int) -> bytes:
    return struct.pack(">hqqqq", version, producer_id, first, last, last + 1)


@plants(Kind.TRANSACTION_INDEX, "a transaction index that ends inside an entry")
def cut_transaction_index(site: Site) -> None:
    log = site.sealed()
    entry = _aborted(0, 7, int(log.stem), int(log.stem) + 3)
    site.write(log.with_suffix(".txnindex"), entry[: site.draw.randrange(1, len(entry))])


@plants(Kind.TRANSACTION_INDEX, "aborted transactions in the wrong order, or of another segment")
def disordered_transaction_index(site: Site) -> None:
    log = site.middle()
    base = int(log.stem)
    entries = _aborted(0, 7, base, base + 9) + _aborted(0, 8, base, base + 3)
    wrong = [entries, _aborted(0, 7, 0, base - 10), _aborted(3, 7, base, base + 1)]
    site.write(log.with_suffix(".txnindex"), site.draw.choice(wrong))


def _snapshot(site: Site) -> Path:
    """Draw a producer snapshot below the recovery point."""
    return site.draw.choice(sorted(site.replica.glob("*.snapshot"))[:3])


def _with_checksum(body: bytes) -> bytes:
    return struct.pack(">hI", 1, crc32c(body)) + body


@plants(Kind.SNAPSHOT, "a flipped bit in a producer snapshot")
def flipped_snapshot(site: Site) -> None:
    path = _snapshot(site)
    site.flip(path, site.draw.randrange(path.stat().st_size))


@plants(Kind.SNAPSHOT, "a producer snapshot emptied or cut")
def cut_snapshot(site: Site) -> None:
    path = _snapshot(site)
    site.write(path, path.read_bytes()[: site.draw.randrange(path.stat().st_size)])


@plants(Kind.SNAPSHOT, "another sequence number, producer or offset, with the right checksum")
def other_snapshot_entry(site: Site) -> None:
    path = _snapshot(site)
    body = bytearray(path.read_bytes()[6:])
    last_entry = len(body) - 46
    at, data = site.draw.choice(
        [(10, b"\x00\x00\x77\x77"), (0, struct.pack(">q", 99)), (14, struct.pack(">q", 2**40))]
    )
    body[last_entry + at : last_entry + at + len(data)] = data
    site.write(path, _with_checksum(bytes(body)))


@plants(Kind.SNAPSHOT, "a producer snapshot beyond the log end", after_crash=Severity.NOTICE)
def snapshot_beyond_end(site: Site) -> None:
    path = site.replica / f"{site.draw.randrange(301, 10**6):020d}.snapshot"
    site.write(path, _with_checksum(struct.pack(">i", 0)))
