"""The metadata store's contract: a tree of versioned nodes, as ZooKeeper has it (rules S1-S5).

Nodes carry data and a version; ephemeral nodes live as long as the session that made them; sequence
nodes get a number from their parent; watches fire once; transactions apply as a whole or not at
all. The embedded store (`runtime/stores`), ZooKeeper and the simulated store (`sim/sim_store`) all
keep this contract, and one test suite (`tests/store`) holds them to it. This module knows neither
what the nodes mean (`metadata/layout`) nor how they are kept.

Values that are built by the ten thousand are named tuples or plain slotted dataclasses: frozen ones
cost five times as much (DESIGN.md, rule 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from tidelog.core.errors import TidelogError

#: The expected version that every version meets. Only where a rule calls for it: an epoch that came
#: from the wire must never become this one (rule V6).
ANY_VERSION = -1
#: `Stat.ephemeral_owner` of a persistent node.
NO_OWNER = 0


class Stat(NamedTuple):
    """What the store knows of a node besides its data.

    `version` counts SetData from 0, `czxid` and `mzxid` are the ids of the transactions that made
    it and changed its data last, `ephemeral_owner` the session it lives with, or NO_OWNER.
    """

    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int


class Node(NamedTuple):
    """A node as read."""

    data: bytes
    stat: Stat


@dataclass(slots=True)
class Create:
    """Make a node; NodeExists, or NoNode without its parent. A sequence node's name gets ten digits
    from its parent's count of children ever made."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequence: bool = False


@dataclass(slots=True)
class SetData:
    """Replace a node's data; NoNode, or BadVersion unless the version is as expected."""

    path: str
    data: bytes
    version: int


@dataclass(slots=True)
class Delete:
    """Remove a node; NoNode, BadVersion, or NotEmpty while it has children."""

    path: str
    version: int


@dataclass(slots=True)
class Check:
    """Change nothing; NoNode or BadVersion fails the transaction it is part of."""

    path: str
    version: int


Op = Create | SetData | Delete | Check


class OpResult(NamedTuple):
    """What an operation did: the path it made or touched, and the node's stat after it (None after
    Delete and Check)."""

    path: str
    stat: Stat | None


class EventKind(Enum):
    """What a watch saw."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change of a watched node; what it is now must be read."""

    kind: EventKind
    path: str


class SessionEvent(Enum):
    """What became of the session.

    SUSPENDED: the store cannot be reached; the session may still live, ephemerals too (rule S3).
    EXPIRED: the session is over, its ephemerals are gone, its watches are dropped without firing.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class StoreError(TidelogError):
    """Base of what a store refuses or cannot do; `path` is the node concerned, or empty."""

    def __init__(self, path: str = "", message: str = "") -> None:
        super().__init__(f"{message}: {path}" if message and path else message or path)
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of the one to make, is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExists(StoreError):
    """The node to make is there already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "node exists")


class BadVersion(StoreError):
    """The node's version is not the expected one."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "version is not as expected")


class NotEmpty(StoreError):
    """The node to remove has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "node has children")


class NoChildrenForEphemerals(StoreError):
    """The parent is an ephemeral node; those have no children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node has no children")


class InvalidPath(StoreError):
    """Not a path: nothing was sent."""


class RequestTooLarge(StoreError):
    """A node or transaction over the limits (`core.limits`): nothing was sent."""


class TransactionFailed(StoreError):
    """Operation `index` failed with `error`: nothing of the transaction was applied."""

    def __init__(self, index: int, error: StoreError) -> None:
        super().__init__(error.path, f"operation {index} failed, nothing applied: {error}")
        self.index = index
        self.error = error


class SessionExpired(StoreError):
    """The session is over: nothing was applied (rule S1); `open()` starts a new one."""

    def __init__(self) -> None:
        super().__init__("", "the session has expired")


class StoreUnavailable(StoreError):
    """The store cannot be reached: certainly not applied. Not an expired session (rule S3)."""

    def __init__(self, message: str) -> None:
        super().__init__("", message)


class OutcomeUnknown(StoreError):
    """The answer was lost: applied or not. Read back and compare before deciding (rule S2)."""

    def __init__(self, message: str) -> None:
        super().__init__("", message)


WatchCallback = Callable[[WatchEvent], None]
SessionCallback = Callable[[SessionEvent], None]


class MetadataStore(Protocol):
    """One session's view of the store. All calls and callbacks are on the node's loop.

    Requests take effect in the order they were made. Any of them raises SessionExpired after an
    expiry, StoreUnavailable where there is no session yet or the store cannot be reached for a
    session timeout, and InvalidPath.

    Watches are one-shot and per kind: one left by `get` fires on creation, change of data and
    deletion, one left by `children` on a child made or removed and on deletion. The same callback
    left twice on the same path fires once. A watcher hears of a change before any answer that could
    show it or anything later (rule S1); its own transactions count.
    """

    @property
    def session_id(self) -> int | None:
        """The live session's id (as in `Stat.ephemeral_owner`), None without one."""

    @property
    def session_timeout_ms(self) -> int:
        """How long the session outlives its last sign of life."""

    async def open(self) -> None:
        """Connect and start a session, after EXPIRED a new one."""

    async def close(self) -> None:
        """End the session at once, its ephemeral nodes go with it. Safe to repeat."""

    def on_session(self, callback: SessionCallback) -> None:
        """Call back at every change of the session's state; kept over sessions."""

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Read a node, None if there is none. A watch left on a missing node fires on creation."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes in the order of `paths`; each as `get`, no snapshot promised."""

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str] | None:
        """Names of the children, sorted; None, and no watch left, if there is no such node."""

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply all operations or none, under one new transaction id, higher than all before.

        Raises TransactionFailed, RequestTooLarge, OutcomeUnknown. Whether transactions that change
        nothing take an id is the store's affair, and so is what else takes one.
        """

    def beat(self) -> None:
        """Proof that the loop turns, called at every tick: the session is kept alive only while the
        last beat is younger than a third of the session timeout (DESIGN.md, rule 4)."""
