"""The form in which a page shows a record: text, JSON or hex.

A record may contain anything: HTML, control characters, bytes that are not UTF-8. A value is shown
as text only if every character is printable or white space, else as hex. Only the first bytes of a
long value are shown, together with the whole length.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from tidelog.console.record_schemas import SchemaReader
from tidelog.console.views.tables import Document
from tidelog.records.reader import Record

#: Maximum number of bytes of a key, value or header value that a page shows.
SHOWN_BYTES: Final = 4_096
#: Maximum number of characters of indented JSON: 4 KiB of deeply nested lists would become
#: megabytes.
_INDENTED: Final = 8 * SHOWN_BYTES
_SPACES: Final = "\n\r\t"


def shown_bytes(data: bytes | memoryview | None, schemas: SchemaReader | None = None) -> Document:
    """Return bytes for a page: `form` is null, empty, json, text, hex, or the schema's format.

    A value that `schemas` decodes has a `schema_id`. A value that it does not decode, although the
    value begins as Confluent's wire format does, has a `note` with the reason.
    """
    if data is None:
        return {"form": "null", "text": "", "bytes": 0, "is_cut": False}
    whole = bytes(data)
    if not whole:
        return {"form": "empty", "text": "", "bytes": 0, "is_cut": False}
    form, text = _form(whole)
    shown = {"form": form, "text": text, "bytes": len(whole), "is_cut": len(whole) > SHOWN_BYTES}
    found = None if schemas is None else schemas.decoded(whole)
    if found is None:
        return shown
    if found.reason:
        return {**shown, "note": found.reason}
    return {
        "form": found.form,
        "text": found.text[:_INDENTED],
        "bytes": len(whole),
        "is_cut": len(found.text) > _INDENTED,
        "schema_id": found.schema_id,
    }


def _form(whole: bytes) -> tuple[str, str]:
    cut = whole[:SHOWN_BYTES]
    try:
        # The shown bytes may end within a character, so the whole value decides whether it is
        # UTF-8.
        text = whole.decode()
    except UnicodeDecodeError:
        return "hex", cut.hex(" ")
    if not all(char.isprintable() or char in _SPACES for char in text):
        return "hex", cut.hex(" ")
    shown = cut.decode(errors="ignore")
    if text[0] in "{[" and len(whole) <= SHOWN_BYTES:
        indented = _indented(text)
        if indented is not None:
            return "json", indented
    return "text", shown


def _indented(text: str) -> str | None:
    """Return JSON with indentation; None if the text is no JSON, or becomes too long."""
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False)
    parts, characters = [], 0
    try:
        for part in encoder.iterencode(json.loads(text)):
            parts.append(part)
            characters += len(part)
            if characters > _INDENTED:
                return None
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def shown_record(record: Record, schemas: SchemaReader | None = None) -> Document:
    """Return the JSON document of a record for a page; `schemas` decode its key and value."""
    return {
        "offset": record.offset,
        "time_ms": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "key": shown_bytes(record.key, schemas),
        "value": shown_bytes(record.value, schemas),
        "headers": [
            {"key": _header_key(key), "value": shown_bytes(value)} for key, value in record.headers
        ],
    }


def _header_key(key: str) -> str:
    """Return a header's key; bytes that are not UTF-8 become escapes."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def matches(record: Record, key: bytes | None, words: Iterable[bytes]) -> bool:
    """Return whether a record has this key, if one is given, and contains all words."""
    if key is not None and record.key != key:
        return False
    content = b"\n".join(bytes(part) for part in (record.key, record.value) if part is not None)
    return all(word in content for word in words)
