"""Creation of a chroot, the ZooKeeper node below which a cluster's metadata lies.

A broker refuses a store with a missing chroot, because a mistyped chroot would begin an empty
cluster beside the real one. A chroot is created only when an operator requests it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from tidelog.metadata.store import Create, NodeExists, TransactionFailed
from tidelog.runtime.stores.zookeeper import DEFAULT_SESSION_TIMEOUT_MS, ZookeeperStore
from tidelog.runtime.stores.zookeeper_servers import Servers


async def create_chroot(
    servers: Servers,
    timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
    log: Callable[[str], None] = lambda message: None,
) -> bool:
    """Create the chroot and its parents; return False if it exists. Raises StoreError."""
    root = dataclasses.replace(servers, chroot="")
    store = ZookeeperStore(root, asyncio.get_running_loop(), timeout_ms, log=log)
    await store.open()
    try:
        made = False
        path = ""
        for name in servers.chroot.split("/")[1:]:
            path = f"{path}/{name}"
            try:
                await store.transact([Create(path, b"")])
                made = True
            except TransactionFailed as failure:
                if not isinstance(failure.error, NodeExists):
                    raise
                made = False
        return made
    finally:
        await store.close()
