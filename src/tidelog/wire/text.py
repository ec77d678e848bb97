"""Decoding of bytes that may be invalid UTF-8, as in Kafka.

Kafka replaces malformed bytes by U+FFFD when it reads a string. The rules for names reject U+FFFD;
in other strings U+FFFD stays. As in Java, an encoded surrogate becomes one U+FFFD, where Python
would make three. Source: Readable.readString, java.lang.String of OpenJDK.
"""

from __future__ import annotations

import codecs
from typing import Final

from tidelog.core.errors import ProtocolError
from tidelog.wire.primitives import Buffer

#: Length in bytes of the protocol's longest string.
_MAX_STRING_BYTES: Final = 0x7FFF
_REPLACEMENT: Final = "\ufffd"
_HANDLER: Final = "tidelog-as-java"
#: The first byte of each encoded surrogate.
_SURROGATE: Final = 0xED
#: The range of the second byte of encoded surrogates.
_SURROGATES: Final = range(0xA0, 0xC0)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Return the replacement of a malformed sequence, and the position after the sequence."""
    assert isinstance(error, UnicodeDecodeError), "only decoding uses this"
    data, start, end = error.object, error.start, error.end
    if data[start] == _SURROGATE and len(data) > start + 1 and data[start + 1] in _SURROGATES:
        is_whole = len(data) > start + 2 and data[start + 2] & 0xC0 == 0x80
        end = start + (3 if is_whole else 2)
    return _REPLACEMENT, end


codecs.register_error(_HANDLER, _replaced)


def replaced_text(data: Buffer) -> str:
    """Return the text of `data`, with U+FFFD for malformed bytes.

    Raises ProtocolError if the replacements make the text too long for a string, because no
    response could contain it.
    """
    text = str(data, "utf-8", _HANDLER)
    size_bytes = len(text.encode())
    if size_bytes > _MAX_STRING_BYTES:
        raise ProtocolError(
            f"a string of {len(data)} bytes that is no UTF-8 has {size_bytes} bytes when its"
            f" malformed ones are replaced; at most {_MAX_STRING_BYTES} are possible"
        )
    return text
