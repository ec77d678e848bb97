"""`tidelog dump-log`: the content of one file of a log directory, tidelog's or Kafka's.

The command shows segments (`.log`) batch by batch with their checksums, and on demand record by
record. Indexes and producer snapshots appear as rows; checkpoints and other text files appear
unchanged. A damaged file is shown up to the damage; an error then gives its position, and the exit
code is 1. The command needs no cluster.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import typer

from tidelog.cli.documents import prints
from tidelog.cli.output import OutputFormat, OutputOption, print_json, print_line, print_table, say
from tidelog.core.errors import TidelogError
from tidelog.log import checkpoints
from tidelog.log.directory_files import CLEAN_SHUTDOWN, META_PROPERTIES, PARTITION_METADATA
from tidelog.log.index import DamagedIndex, OffsetIndex, TimeIndex
from tidelog.log.names import INDEX, LOG, SNAPSHOT, TEMPORARY, TIME_INDEX, parse_offset_name
from tidelog.log.producer_state import DamagedSnapshot, read_snapshot
from tidelog.records import compression
from tidelog.records.batch import BatchView, CorruptBatch, check, iter_batches
from tidelog.records.reader import iter_records

Rows = Iterator[dict[str, Any]]
#: Names of the text files of a log directory, which the command shows unchanged.
_TEXTS = (
    checkpoints.LEADER_EPOCHS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.CLEANER_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    CLEAN_SHUTDOWN,
)
_TEXT_LIMIT_BYTES = 16 * 1024 * 1024


class NotOfALogError(TidelogError):
    """The error for a path that is not a file of a log directory."""


class DamagedFileError(TidelogError):
    """The error for a damaged file; the message has the position of the damage and the reason."""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        "dump-log", epilog="Example: tidelog dump-log 00000000000000000000.log --records -o json"
    )(dump_log)


@prints(
    "an object with `file`, `entries` (the rows of the table; those of a segment are batches, each"
    " followed by its records with --records) and `damage` (string or null)."
)
def dump_log(
    file: Annotated[str, typer.Argument(help="A file of a log directory.", show_default=False)],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show the records of each batch.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show a segment, an index, a producer snapshot or a checkpoint."""
    damage = ""
    rows: list[dict[str, Any]] = []
    try:
        for row in _rows(file, records):
            rows.append(row)  # noqa: PERF402 (what came before the damage is kept)
    except DamagedFileError as error:
        damage = str(error)
    if output is OutputFormat.JSON:
        print_json({"file": file, "entries": rows, "damage": damage or None})
    else:
        _print(rows)
    if damage:
        say(f"tidelog: {file}: {damage}")
        raise typer.Exit(1)


def _rows(file: str, records: bool) -> Rows:
    if os.path.isdir(file):
        raise NotOfALogError(f"{file} is a directory: name a file in it{_some_of(file)}")
    suffix = os.path.splitext(file)[1]
    known = suffix in (LOG, INDEX, TIME_INDEX, SNAPSHOT) or _is_text_of_a_log(file)
    if not known and os.path.exists(file):
        kinds = " ".join((LOG, INDEX, TIME_INDEX, SNAPSHOT))
        raise NotOfALogError(
            f"{file} is no file of a log directory: those are *{kinds.replace(' ', ' *')}"
            f" {' '.join(_TEXTS)}"
        )
    if suffix == LOG:
        with open(file, "rb") as opened:
            if os.fstat(opened.fileno()).st_size == 0:
                return
            # The memory map of the segment stays open, because the error of a corrupt batch may
            # refer to it.
            yield from _batches(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ), records)
        return
    with open(file, "rb") as opened:
        data = opened.read()
    try:
        if suffix == INDEX:
            for offset, position in _offset_index(file, data).entries():
                yield {"offset": offset, "position": position}
        elif suffix == TIME_INDEX:
            for timestamp, offset in TimeIndex.from_bytes(_base_offset(file), data).entries():
                yield {"timestamp": timestamp, "offset": offset}
        elif suffix == SNAPSHOT:
            yield from (row._asdict() for row in read_snapshot(data))
        else:
            yield from _lines(data)
    except (DamagedIndex, DamagedSnapshot) as error:
        raise DamagedFileError(str(error)) from error


def _is_text_of_a_log(file: str) -> bool:
    return os.path.basename(file).removesuffix(TEMPORARY) in _TEXTS


def _some_of(directory: str) -> str:
    """Return the end of an error message, which names the first segments of a directory."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(LOG))
    return f", such as {' or '.join(names[:2])}" if names else ""


def _batches(mapped: mmap.mmap, records: bool) -> Rows:
    """Yield the batches of a segment, up to the first corrupt batch."""
    data = memoryview(mapped)
    batches = iter_batches(data)
    try:
        for batch in batches:
            check(batch)
            yield _batch_row(batch)
            if records:
                yield from _record_rows(batch)
    except CorruptBatch as error:
        raise DamagedFileError(str(error)) from None
    if batches.end_position != len(data):
        end, left = batches.end_position, len(data) - batches.end_position
        raise DamagedFileError(f"{left} bytes from byte {end} on are no whole batch")


def _batch_row(batch: BatchView) -> dict[str, Any]:
    return {
        "position": batch.position,
        "size": batch.size_bytes,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "compression": compression.NAMES.get(batch.compression, str(batch.compression)),
        "timestamp_type": "LogAppendTime" if batch.timestamp_type else "CreateTime",
        "max_timestamp": batch.max_timestamp,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "crc": f"{batch.crc:08x}",
    }


def _record_rows(batch: BatchView) -> Rows:
    for record in iter_records(batch):
        yield {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": {name: _text(value) for name, value in record.headers},
        }


def _text(data: bytes | None) -> str | None:
    """Return the text of UTF-8 bytes; return the Python literal of other bytes."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return repr(data)


def _base_offset(file: str) -> int:
    parsed = parse_offset_name(os.path.basename(file))
    if parsed is None:
        raise DamagedFileError("the name does not begin with an offset of 20 digits")
    return parsed[0]


def _offset_index(file: str, data: bytes) -> OffsetIndex:
    """Return the index, checked against the size of its segment if the segment is present."""
    segment = os.path.splitext(file)[0] + LOG
    try:
        log_bytes = os.path.getsize(segment)
    except FileNotFoundError:
        log_bytes = 1 << 62
    return OffsetIndex.from_bytes(_base_offset(file), data, log_bytes)


def _lines(data: bytes) -> Rows:
    try:
        text = data[:_TEXT_LIMIT_BYTES].decode("utf-8")
    except UnicodeDecodeError:
        raise DamagedFileError("text is expected, and this is no UTF-8") from None
    for number, line in enumerate(text.splitlines(), 1):
        yield {"line": number, "text": line}


def _print(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a table for each run of rows with equal columns; indent records below their batch."""
    table: list[Mapping[str, Any]] = []
    for row in rows:
        if table and list(row) != list(table[0]):
            _flush(table)
        table.append(row)
    _flush(table)


def _flush(table: list[Mapping[str, Any]]) -> None:
    if table and list(table[0]) == ["line", "text"]:
        for row in table:
            print_line(str(row["text"]))
    elif table:
        columns = [column.replace("_", " ") for column in table[0]]
        print_table(columns, [list(row.values()) for row in table])
    table.clear()
