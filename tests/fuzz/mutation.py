"""Changes to inputs: of bits, numbers and ranges, and of fields that tell a length.

Everything is drawn from the source that is given, so that equal seeds make equal inputs. `resized`
is what gets mutants past the first length: it looks for a number that tells how many bytes follow
it, changes those bytes and the number with them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

from tidelog.wire.primitives import encode_uvarint, encode_varint

#: Where limits, signs and widths change.
NUMBERS = (
    -(2**63), -(2**31), -(2**31) + 1, -(2**15), -129, -128, -2, -1, 0, 1, 2, 3, 7, 16, 48, 49, 50,
    61, 63, 64, 100, 127, 128, 129, 255, 256, 1000, 1001, 2**14, 2**15 - 1, 2**15, 2**16,
    2**20, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1,
)  # fmt: skip
_WIDTHS = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
MAX_INPUT_BYTES = 4096


def fixed(number: int, width: int) -> bytes:
    """A number in so many bytes, cut off where it has more."""
    return (number % (1 << 8 * width)).to_bytes(width, "big")


def number_bytes(draw: Random) -> bytes:
    """An interesting number in one of the protocol's forms."""
    number = draw.choice(NUMBERS)
    match draw.randrange(6):
        case 0:
            return encode_uvarint(abs(number))
        case 1:
            return encode_varint(number)
        case form:
            return fixed(number, 1 << (form - 2))


def _flip(data: bytearray, draw: Random) -> None:
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _set(data: bytearray, draw: Random) -> None:
    if data:
        special = draw.random() < 0.5
        byte = draw.choice((0, 1, 2, 0x7F, 0x80, 0xFF)) if special else draw.randrange(256)
        data[draw.randrange(len(data))] = byte


def _put_number(data: bytearray, draw: Random) -> None:
    at = draw.randint(0, len(data))
    number = number_bytes(draw)
    data[at : at + (len(number) if draw.random() < 0.7 else 0)] = number


def _add(data: bytearray, draw: Random) -> None:
    """A number a little more or less."""
    width = draw.choice((1, 2, 4, 8))
    if len(data) >= width:
        at = draw.randrange(len(data) - width + 1)
        number = int.from_bytes(data[at : at + width], "big") + draw.choice((-2, -1, 1, 2, 8, -8))
        data[at : at + width] = fixed(number, width)


def _insert(data: bytearray, draw: Random) -> None:
    at = draw.randint(0, len(data))
    size = draw.choice((1, 1, 2, 4, 8, 20))
    data[at:at] = draw.choice((bytes(size), b"\xff" * size, draw.randbytes(size)))


def _delete(data: bytearray, draw: Random) -> None:
    at = draw.randint(0, len(data))
    del data[at : at + draw.choice((1, 1, 2, 4, 8, 40))]


def _cut(data: bytearray, draw: Random) -> None:
    del data[draw.randint(0, len(data)) :]


def _copy(data: bytearray, draw: Random) -> None:
    """A range again, somewhere."""
    start, at = draw.randint(0, len(data)), draw.randint(0, len(data))
    data[at:at] = data[start : start + draw.choice((1, 4, 16, 61, 100))]


def resized(data: bytearray, draw: Random) -> None:
    """Changes how long a field is, and the number before it that tells."""
    for _ in range(20):
        if not data:
            return
        at = draw.randrange(len(data))
        form = draw.randrange(5)
        if form < 2:
            width = (2, 4)[form]
            size = (
                struct.unpack_from(_WIDTHS[width], data, at)[0] if at + width <= len(data) else -1
            )
        else:
            width = 1
            size = data[at]
            if size > 0x7F:
                continue
            size = (size, size - 1, size >> 1)[form - 2]
        start = at + width
        if not 0 <= size <= len(data) - start:
            continue
        content = data[start : start + size]
        _CHANGES[draw.randrange(len(_CHANGES))](content, draw)
        now = len(content)
        if form < 2:
            head = fixed(now, width)
        else:
            head = encode_uvarint((now, now + 1, now << 1)[form - 2])
        data[at : start + size] = head + content
        return


_CHANGES: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip, _set, _put_number, _add, _insert, _delete, _cut, _copy,
)  # fmt: skip


def _put_token(data: bytearray, token: bytes, draw: Random) -> None:
    at = draw.randint(0, len(data))
    data[at : at + (len(token) if draw.random() < 0.7 else 0)] = token


def mutated(
    data: bytes, others: Sequence[bytes], draw: Random, tokens: Sequence[bytes] = ()
) -> bytes:
    """The input changed in one to eight places; `others` are spliced in now and then, and `tokens`
    put somewhere."""
    changed = bytearray(data)
    for _ in range(1 << draw.randrange(4)):
        chance = draw.random()
        if chance < 0.1 and others:
            other = draw.choice(others)
            start, at = draw.randint(0, len(other)), draw.randint(0, len(changed))
            end = start + draw.randint(0, 200)
            changed[at : at + draw.choice((0, end - start, len(changed)))] = other[start:end]
        elif chance < 0.2 and tokens:
            _put_token(changed, draw.choice(tokens), draw)
        elif chance < 0.4:
            resized(changed, draw)
        else:
            _CHANGES[draw.randrange(len(_CHANGES))](changed, draw)
    return bytes(changed[:MAX_INPUT_BYTES])
