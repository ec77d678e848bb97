"""Ends a ZooKeeper session from outside, while its owner lives and its connection stands.

A server derives a session's password from its id, so whoever knows the id of a session, which is
the owner of its ephemeral nodes, can attach to it and close it: `closeSession` is what expiry does,
without the wait.
"""

from __future__ import annotations

import struct

from kazoo.client import KazooClient

#: `ZooKeeperServer.superSecret`; and the constants of java.util.Random.
_SECRET = 0xB3415C00
_MULTIPLIER, _ADDEND, _MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1
_PASSWORD_BYTES = 16
_PATIENCE_S = 10.0


def password_of(session_id: int) -> bytes:
    """Return the password that a server gave a session: bytes of Java's generator, seeded by id."""
    state = (((session_id & ((1 << 64) - 1)) ^ _SECRET) ^ _MULTIPLIER) & _MASK
    found = b""
    while len(found) < _PASSWORD_BYTES:
        state = (state * _MULTIPLIER + _ADDEND) & _MASK
        found += struct.pack("<I", state >> 16)
    return found


def close_session_of(address: str, node: str) -> str:
    """Close the session that owns an ephemeral node; returns its id for people.

    Raises kazoo's errors where the node, the session or the server is gone.
    """
    observer = KazooClient(hosts=address, timeout=_PATIENCE_S)
    observer.start(timeout=_PATIENCE_S)
    try:
        stat = observer.exists(node)
        if stat is None or stat.ephemeralOwner == 0:
            return "none: the broker is not registered"
        owner = stat.ephemeralOwner
    finally:
        observer.stop()
        observer.close()
    intruder = KazooClient(
        hosts=address, timeout=_PATIENCE_S, client_id=(owner, password_of(owner))
    )
    intruder.start(timeout=_PATIENCE_S)
    intruder.stop()  # closes the session that it attached to
    intruder.close()
    return f"{owner:#x}"
