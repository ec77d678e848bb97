"""Rule R22: who may read and change what brokers keep in ZooKeeper.

That servers hold to it is tested on one that knows users (tests/store/test_zookeeper_security.py).
"""

from __future__ import annotations

import pytest

from tidelog.metadata import layout
from tidelog.metadata.store import Create
from tidelog.runtime.stores import zookeeper_wire as wire

PATHS = [*layout.PERSISTENT_ROOTS, layout.CONTROLLER, layout.broker_path(1), "/config/users/me"]


@pytest.mark.rule("R22")
@pytest.mark.parametrize("path", PATHS)
def test_protected_nodes_are_changed_by_their_makers_alone_and_secrets_read_by_them(
    path: str,
) -> None:
    entries = wire.access_to(path, is_protected=True)
    for entry in entries:
        assert entry.scheme == "auth" or entry.permissions == 1  # to read
    is_secret = path.startswith("/config/users")
    assert any(entry.scheme == "world" for entry in entries) != is_secret
    record = wire.multi([Create(path, b"")], "/chroot", is_protected=True).record
    assert b"auth" in record
    assert (b"anyone" in record) != is_secret


@pytest.mark.rule("R22")
@pytest.mark.parametrize("path", PATHS)
def test_without_protection_nodes_are_open_as_kafkas_are(path: str) -> None:
    assert wire.access_to(path, is_protected=False) == (wire.Access(31, "world", "anyone"),)
