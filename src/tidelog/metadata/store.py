"""The metadata store's contract: a tree of versioned nodes, as ZooKeeper has it (rules S1-S5).

Nodes have data and a version. An ephemeral node exists as long as the session that created it, and
a sequence node's name ends in a number from its parent's counter. Watches fire once. Transactions
apply as a whole or not at all. The embedded store (`runtime/stores`), ZooKeeper and the simulated
store (`sim/sim_store`) keep this contract, and one test suite (`tests/store`) checks them. The
meaning of nodes is defined in `metadata/layout`.

Values that brokers build in tens of thousands are named tuples or plain slotted dataclasses,
because frozen dataclasses cost five times as much (DESIGN.md, rule 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError

#: The expected version that matches every version. Code that passes an epoch from a request as
#: expected version must first reject -1, because a stale request would otherwise succeed (V6).
ANY_VERSION = -1
#: `Stat.ephemeral_owner` of a persistent node.
NO_OWNER = 0


class Stat(NamedTuple):
    """A node's metadata in the store.

    `version` is the number of SetData operations on the node. `czxid` is the id of the transaction
    that created the node, and `mzxid` the id of the last transaction that changed its data.
    `ephemeral_owner` is the id of the session that owns an ephemeral node; the store deletes the
    node when this session ends. `ephemeral_owner` is NO_OWNER for a persistent node.
    """

    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int


class Node(NamedTuple):
    """A node's data and stat, read at the same moment."""

    data: bytes
    stat: Stat


@dataclass(slots=True)
class Create:
    """Operation that creates a node.

    The operation fails with NodeExists, or with NoNode if the parent does not exist. For a sequence
    node, the store appends ten digits to the name: the number of children that the parent has ever
    had.
    """

    path: str
    data: bytes
    ephemeral: bool = False
    sequence: bool = False


@dataclass(slots=True)
class SetData:
    """Operation that replaces a node's data; the operation fails with NoNode or BadVersion."""

    path: str
    data: bytes
    version: int


@dataclass(slots=True)
class Delete:
    """Operation that deletes a node; the operation fails with NoNode, BadVersion or NotEmpty."""

    path: str
    version: int


@dataclass(slots=True)
class Check:
    """Operation that checks a node's version; the operation fails with NoNode if the node does not
    exist, and with BadVersion if the node has another version.
    """

    path: str
    version: int


Op = Create | SetData | Delete | Check


class OpResult(NamedTuple):
    """The result of an operation.

    `path` is the node that the operation created, changed, deleted or checked. `stat` is the node's
    stat after the operation, None for Delete and Check.
    """

    path: str
    stat: Stat | None


class EventKind(Enum):
    """Kinds of changes that a watch reports."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change of a watched node; the event does not contain the node's new data."""

    kind: EventKind
    path: str


class SessionEvent(Enum):
    """Changes of a session's state.

    SUSPENDED means that the store cannot be reached; the session and its ephemeral nodes may still
    exist (S3). EXPIRED means that the session has ended; its ephemeral nodes are deleted, and its
    watches are dropped without firing.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class StoreError(TidelogError):
    """Base class of a store's errors; `path` is the node of the failed request, or empty."""

    def __init__(self, path: str = "", message: str = "") -> None:
        super().__init__(f"{message}: {path}" if message and path else message or path)
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of the node to create, does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExists(StoreError):
    """The node to create exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "node exists")


class BadVersion(StoreError):
    """The node's version is not the expected version."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "version is not as expected")


class NotEmpty(StoreError):
    """The node to delete has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "node has children")


class NoChildrenForEphemerals(StoreError):
    """The parent is an ephemeral node, which cannot have children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node has no children")


class InvalidPath(StoreError):
    """The text is no valid path of a node; no request was sent."""


class RequestTooLarge(StoreError):
    """A node or transaction exceeds the limits (`core.limits`); no request was sent."""


class TransactionFailed(StoreError):
    """Operation `index` failed with `error`; no operation of the transaction was applied."""

    def __init__(self, index: int, error: StoreError) -> None:
        super().__init__(error.path, f"operation {index} failed, nothing applied: {error}")
        self.index = index
        self.error = error


class SessionExpired(StoreError):
    """The session has ended and no operation was applied (S1); `open()` starts a new session."""

    def __init__(self) -> None:
        super().__init__("", "the session has expired")


class StoreUnavailable(StoreError):
    """The store is unreachable and applied no operation; the session may still exist (S3)."""

    def __init__(self, message: str) -> None:
        super().__init__("", message)


class OutcomeUnknown(StoreError):
    """The response was lost, so the transaction may or may not have been applied.

    Before the caller repeats the transaction, it must read the nodes to find out (S2).
    """

    def __init__(self, message: str) -> None:
        super().__init__("", message)


WatchCallback = Callable[[WatchEvent], None]
SessionCallback = Callable[[SessionEvent], None]


class MetadataStore(Protocol):
    """One session's view of the store; calls and callbacks run in the process's event loop.

    Requests take effect in the order of the calls. After an expiry, every request raises
    SessionExpired. A request with an invalid path raises InvalidPath. A request raises
    StoreUnavailable before the first session has started, and once the store has been unreachable
    for a session timeout.

    Each watch fires once; data watches and child watches are independent of each other. A watch of
    `get` fires when the node is created, changed or deleted. A watch of `children` fires when a
    child is created or deleted, and when the node is deleted. If the same callback watches a path
    twice, it is called once. A watch fires before the session gets any response that reflects the
    change or a later change (S1); this includes changes by the session's own transactions.
    """

    @property
    def session_id(self) -> int | None:
        """Id of the current session (as in `Stat.ephemeral_owner`), None without a session."""

    @property
    def session_timeout_ms(self) -> int:
        """Time in ms after which the store ends a session from which it has heard nothing."""

    async def open(self) -> None:
        """Connect and start a session; after EXPIRED, start a new session."""

    async def close(self) -> None:
        """End the session and delete its ephemeral nodes at once; further calls have no effect."""

    def on_session(self, callback: SessionCallback) -> None:
        """Call `callback` at every change of the session's state, also in later sessions."""

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Return a node, or None if it does not exist; the watch of a missing node fires at its
        creation.
        """

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return several nodes in the order of `paths`; they may be read at different moments."""

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str] | None:
        """Return the sorted names of a node's children; if the node is missing, return None and set
        no watch.
        """

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply all operations or none, under a new transaction id above all earlier ids.

        Raises TransactionFailed, RequestTooLarge, OutcomeUnknown. Ids may be skipped: a store may
        also use them for new sessions and for transactions without changes.
        """

    def beat(self) -> None:
        """Record that the broker's event loop is running, not stuck.

        The store keeps the session only while the last call of `beat` is younger than a third of
        the session timeout (DESIGN.md, rule 4).
        """
