"""Free ports on the loopback interface, which brokers can use again after restarts.

Ports lie below the range that the kernel assigns to outgoing connections, so that a restarted
broker finds its port free.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Container

from tidelog.local.errors import LocalClusterError

LOOPBACK = "127.0.0.1"
_FIRST = 20_000
#: The default start of the kernel's range for outgoing connections, if `/proc` does not have it.
_EPHEMERAL_FIRST = 32_768


def free_ports(number: int, *, apart_from: Container[int] = ()) -> list[int]:
    """Return `number` ports without a listener; raise LocalClusterError if there are fewer.

    Ports in `apart_from` are already reserved for another use.
    """
    assert number >= 1, "the search ends when it has found them"
    last = _ephemeral_first()
    span = max(last - _FIRST, 1)
    start = secrets.randbelow(span)
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for step in range(span):
            port = _FIRST + (start + step) % span
            if port in apart_from:
                continue
            listener = socket.socket()
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                listener.close()
                continue
            held.enter_context(listener)
            found.append(port)
            if len(found) == number:
                return found
    raise LocalClusterError(f"{number} free ports are needed on {LOOPBACK}, found {len(found)}")


def free_range(number: int) -> int:
    """Return the first of `number` consecutive ports without a listener.

    Raises LocalClusterError if there is no such range.
    """
    last = _ephemeral_first()
    starts = range(_FIRST, last - number)
    begin = secrets.randbelow(len(starts))
    for step in range(0, len(starts), number):
        first = starts[(begin + step) % len(starts)]
        if all(_is_free(port) for port in range(first, first + number)):
            return first
    raise LocalClusterError(f"{number} consecutive free ports are needed on {LOOPBACK}, found none")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _ephemeral_first() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        first = _EPHEMERAL_FIRST
    return first if first > _FIRST + 1000 else 65_536
