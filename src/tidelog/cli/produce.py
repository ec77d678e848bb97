"""`tidelog produce`: records from arguments, standard input or a file, with kcat's options.

Success means that all in-sync replicas acknowledged every record, and that the log has each record
once. After a failure, the message states how many records are stored.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tidelog.cli.completion import TopicArgument
from tidelog.cli.documents import Produced, ProducedPartition, prints
from tidelog.cli.names import check_partition, topics_named
from tidelog.cli.output import OutputFormat, printed, say
from tidelog.cli.record_input import RecordShape, headers_of, pieces, unescaped
from tidelog.cli.target import ClusterOptions
from tidelog.client.sending import RecordSender, SendOptions
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.wording import counted
from tidelog.records import compression
from tidelog.runtime.blocking import BlockingClient

_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}

_PartitionOption = Annotated[
    int | None,
    typer.Option(
        "-p",
        "--partition",
        min=0,
        help="Partition of all records. Default: by key; records without a key go to one partition"
        " together, those of the next batch to the next.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog="Example: tidelog produce flights -K : -H source=cli AA:late DL:early\n\n"
        "Example: tidelog produce flights -l flights.csv -z zstd"
    )(produce)


@prints(Produced)
def produce(
    cluster: ClusterOptions,
    topic: TopicArgument,
    values: Annotated[
        list[str] | None, typer.Argument(help="Records; default standard input.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("-l", "--file", help="Records from a file; - is standard input.")
    ] = None,
    delimiter: Annotated[
        str, typer.Option("-D", "--delimiter", help="Ends a record of a file or standard input.")
    ] = "\\n",
    key_delimiter: Annotated[
        str | None, typer.Option("-K", "--key-delimiter", help="Ends the key of a record.")
    ] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="The key of all records.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", help="name=value, on all records.")
    ] = None,
    null: Annotated[
        bool, typer.Option("-Z", "--null", help="Empty keys and values are null.")
    ] = False,
    partition: _PartitionOption = None,
    codec: Annotated[
        str, typer.Option("-z", "--compression", help="none, gzip, snappy, lz4, zstd.")
    ] = "none",
    acks: Annotated[
        str, typer.Option(help="Replicas that must have a record: all in sync, 1, 0.")
    ] = "all",
    idempotent: Annotated[
        bool | None,
        typer.Option(
            "--idempotent/--no-idempotent", help="Store each record once, in order [with acks all]."
        ),
    ] = None,
) -> None:
    """Write records to a topic; return when all of them are acknowledged.

    Values and a file may be given together; the values are sent first.
    """
    shape = RecordShape(
        None if key_delimiter is None else unescaped(key_delimiter, "--key-delimiter"),
        None if key is None else os.fsencode(key),
        headers_of(header),
        null,
    )
    options = _options(codec, acks, idempotent, cluster.timeout)
    source = _pieces(values or [], file, unescaped(delimiter, "--delimiter"))
    with cluster.client() as client:
        known = topics_named(client, [topic])[topic]
        if partition is not None:
            check_partition(known, partition)
        sender = client.sender(
            topic, list(known.partitions), options, random.randrange(len(known.partitions))
        )
        _send(client, sender, shape, source, partition)
    _report(topic, sender, cluster.output)


def _options(codec: str, acks: str, idempotent: bool | None, timeout_s: float) -> SendOptions:
    if codec not in compression.IDS:
        names = ", ".join(compression.IDS)
        raise typer.BadParameter(f"no compression {codec!r}: {names}", param_hint="--compression")
    if acks not in _ACKS:
        raise typer.BadParameter(f"{acks!r}: all, 1 or 0 expected", param_hint="--acks")
    if idempotent and _ACKS[acks] != -1:
        raise typer.BadParameter("idempotence needs --acks all", param_hint="--idempotent")
    once = _ACKS[acks] == -1 if idempotent is None else idempotent
    patience_ms = int(min(timeout_s, 10.0) * 1000)
    return SendOptions(_ACKS[acks], once, compression.IDS[codec], patience_ms)


def _pieces(values: list[str], file: str | None, delimiter: bytes) -> Iterator[bytes | None]:
    yield from (os.fsencode(value) for value in values)
    if file is not None and file != "-":
        descriptor = os.open(file, os.O_RDONLY)
        try:
            yield from pieces(descriptor, delimiter)
        finally:
            os.close(descriptor)
    elif file == "-" or not values:
        if sys.stdin.isatty():
            say("one record a line; Ctrl-D ends")
        yield from pieces(sys.stdin.fileno(), delimiter)


def _send(
    client: BlockingClient,
    sender: RecordSender,
    shape: RecordShape,
    source: Iterator[bytes | None],
    partition: int | None,
) -> None:
    """Send all records; an error states the number of sent records."""
    taken = 0
    with _stored_so_far(lambda: f"{sender.records_sent} of the {taken} records read"):
        for piece in source:
            if piece is None:
                client.run(sender.flush())
            else:
                taken += 1
                client.run(sender.add(shape.record(piece), partition))
        client.run(sender.flush())


@contextmanager
def _stored_so_far(count: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except (TidelogError, OSError, KeyboardInterrupt) as error:
        if isinstance(error, KafkaError) and error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            say("tidelog: fewer replicas are in sync than min.insync.replicas asks for")
        say(f"tidelog: {count()} are known to be stored")
        raise


def _report(topic: str, sender: RecordSender, output: OutputFormat) -> None:
    partitions = [
        ProducedPartition(
            number,
            sent.records,
            sent.first_offset if sent.first_offset >= 0 else None,
            sent.last_offset if sent.last_offset >= 0 else None,
        )
        for number, sent in sorted(sender.sent.items())
    ]
    if printed(Produced(topic, sender.records_sent, partitions), output):
        return
    where = ", ".join(
        f"partition {number} offset {sent.first_offset}"
        + (f" to {sent.last_offset}" if sent.last_offset > sent.first_offset else "")
        for number, sent in sorted(sender.sent.items())
        if sent.first_offset >= 0
    )
    text = f"{counted(sender.records_sent, 'record')} to {topic}"
    say(text + (f": {where}" if where and len(sender.sent) <= 8 else ""))
