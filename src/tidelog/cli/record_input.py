"""Conversion of bytes into records for `tidelog produce`: delimiters, keys, headers, as in kcat.

Bytes are taken as they are, in any encoding. Input ends with or without a delimiter; an empty line
is a record with an empty value. Delimiters may be written with escapes, for example for a tab or
the byte 0x1e.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator, Sequence

import typer

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.limits import MAX_REQUEST_BYTES
from tidelog.records.builder import NewRecord

_READ_BYTES = 256 * 1024
#: Seconds without input, as from a keyboard, after which the records read so far are sent.
_LINGER_S = 0.005
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", "e": "\x1b", "a": "\a"}

Headers = tuple[tuple[str, bytes | None], ...]


class InputError(TidelogError):
    """The error for input that is not a valid record."""


@dataclass(frozen=True, slots=True)
class RecordShape:
    """How `tidelog produce` converts a piece of its input into a record."""

    key_delimiter: bytes | None = None
    fixed_key: bytes | None = None
    headers: Headers = ()
    #: An empty value is null, a tombstone of a compacted topic; an empty key is null, too.
    empty_is_null: bool = False

    def record(self, piece: bytes) -> NewRecord:
        """Return the record of a piece of input; its timestamp is the present time."""
        key, value = self.fixed_key, piece
        if self.key_delimiter is not None:
            before, found, after = piece.partition(self.key_delimiter)
            if found:
                key, value = before, after
        if self.empty_is_null:
            key = key or None
        return NewRecord(
            key,
            None if self.empty_is_null and not value else value,
            time.time_ns() // 1_000_000,
            self.headers,
        )


def unescaped(text: str, option: str) -> bytes:
    """Return the bytes of an option; raise a usage error for an unknown escape or empty text."""

    def replace(match: re.Match[str]) -> str:
        word = match[1]
        if len(word) == 3:
            number = int(word[1:], 16)
            # Python's error handler surrogateescape encodes this character as the byte `number`.
            return chr(number if number < 128 else 0xDC00 + number)
        if word not in _ESCAPES:
            raise typer.BadParameter(f"\\{word} is not known: \\n \\r \\t \\0 \\e \\\\ \\xHH are")
        return _ESCAPES[word]

    found = _ESCAPE.sub(replace, text).encode("utf-8", "surrogateescape")
    if not found:
        raise typer.BadParameter("may not be empty", param_hint=option)
    return found


def headers_of(words: Sequence[str] | None) -> Headers:
    """Return the headers of `-H name=value`; without `=` the value is null."""
    found = []
    for word in words or ():
        name, equals, value = word.partition("=")
        if not name:
            raise typer.BadParameter(f"{word!r} has no name: name=value or name expected")
        found.append((name, os.fsencode(value) if equals else None))
    return tuple(found)


def pieces(descriptor: int, delimiter: bytes) -> Iterator[bytes | None]:
    """Yield the pieces between delimiters; yield None when the records read so far should be sent.

    Raises InputError for a piece that no request can hold. Raises OSError.
    """
    held = bytearray()
    while True:
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            break
        # A delimiter that ends in the new bytes may begin in the earlier bytes, so the search
        # begins shortly before the new bytes.
        searched = max(0, len(held) - len(delimiter) + 1)
        held += chunk
        if held.find(delimiter, searched) >= 0:
            *whole, rest = bytes(held).split(delimiter)
            yield from whole
            held = bytearray(rest)
        if len(held) > MAX_REQUEST_BYTES:
            raise InputError(
                f"a record of more than {MAX_REQUEST_BYTES} bytes: is the delimiter right?"
            )
        if not select.select([descriptor], [], [], _LINGER_S)[0]:
            yield None
    if held:
        yield bytes(held)
