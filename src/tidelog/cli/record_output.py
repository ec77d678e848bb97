"""The formats of `tidelog consume`: kcat's format, or one JSON document a line.

kcat's format writes the bytes of a record unchanged. JSON has text for UTF-8 bytes, and base64 for
other bytes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import asdict

import typer

from tidelog.cli import documents
from tidelog.cli.record_input import unescaped
from tidelog.client.consuming import ConsumedRecord

Write = Callable[[ConsumedRecord], bytes]

_FIELDS = "%s %v value, %k key, %S %K their sizes, %t topic, %p partition, %o offset, %T timestamp,"
_MORE_FIELDS = "%h headers, %R size in 4 bytes, %% percent"


def formatter(text: str, show_null: bool) -> Write:
    """Return a writer of records in the format `text`; raise a usage error for unknown letters."""
    null = b"NULL" if show_null else b""
    parts: list[Write | bytes] = [
        _field(part[1:], null) if part[0] == "%" else unescaped(part, "--format")
        for part in re.findall("%.?|[^%]+", text, re.DOTALL)
    ]

    def write(record: ConsumedRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return write


def _field(letter: str, null: bytes) -> Write:
    fields: dict[str, Write] = {
        "s": lambda it: null if it.record.value is None else bytes(it.record.value),
        "k": lambda it: null if it.record.key is None else bytes(it.record.key),
        "S": lambda it: b"%d" % _size(it.record.value),
        "K": lambda it: b"%d" % _size(it.record.key),
        "t": lambda it: it.tp.topic.encode(),
        "p": lambda it: b"%d" % it.tp.partition,
        "o": lambda it: b"%d" % it.record.offset,
        "T": lambda it: b"%d" % it.record.timestamp_ms,
        "h": _headers,
        "%": lambda it: b"%",
        "R": lambda it: _size(it.record.value).to_bytes(4, "big", signed=True),
    }
    fields["v"] = fields["s"]
    if letter not in fields:
        shown = f"%{letter}" if letter else "a % at the end"
        raise typer.BadParameter(
            f"{shown} means nothing: {_FIELDS} {_MORE_FIELDS}", param_hint="--format"
        )
    return fields[letter]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(it: ConsumedRecord) -> bytes:
    return b",".join(
        key.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else bytes(value))
        for key, value in it.record.headers
    )


def plain_format(delimiter: str, key_delimiter: str | None) -> str:
    """Return the default format: the value and its delimiter, after the key if requested."""
    key = "" if key_delimiter is None else "%k" + key_delimiter.replace("%", "%%")
    return key + "%s" + delimiter.replace("%", "%%")


def json_line(it: ConsumedRecord) -> bytes:
    """Return a record as one JSON document and a newline."""
    record = it.record
    document = documents.RecordDocument(
        it.tp.topic,
        it.tp.partition,
        record.offset,
        record.timestamp_ms,
        _text(record.key),
        _text(record.value),
        [documents.Header(_shown(key), _text(value)) for key, value in record.headers],
    )
    return json.dumps(asdict(document), ensure_ascii=True).encode() + b"\n"


def _shown(key: str) -> str:
    """Return a header's key for JSON; invalid UTF-8 is replaced."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
