"""A bug that chance does not find: the fuzzer must go from one condition to the next."""

from __future__ import annotations

KEY = b"tide\x80\0"


def check(data: bytes) -> int:
    """Fails on inputs that begin with KEY."""
    if data[:1] != b"t":
        return 0
    if data[1:2] != b"i":
        return 1
    if data[2:4] != b"de":
        return 2
    if int.from_bytes(data[4:6], "big") != 0x8000:
        return 3
    raise ZeroDivisionError("the planted bug")


def endless() -> None:
    """Never ends."""
    number = 0
    while number >= 0:
        number += 1
