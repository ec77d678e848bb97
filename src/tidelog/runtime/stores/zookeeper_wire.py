"""Encoding of ZooKeeper requests and responses that kazoo lacks or decodes too slowly.

In the encoding Jute, integers are big endian. Strings and buffers begin with their length as an
int, -1 for null. A frame is an int length, then a request header (xid, type) or a reply header
(xid, zxid, error), then the record. Records have the forms of ZooKeeper 3.6 to 3.9
(`zookeeper.jute`, `MultiOperationRecord`, `MultiResponse`). This module uses neither sockets nor
sessions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tidelog.metadata.store import (
    NO_OWNER,
    BadVersion,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SetData,
    Stat,
    StoreError,
    TransactionFailed,
)

#: Largest frame that the default of `jute.maxbuffer` allows; a server closes the connection of a
#: client that sends a larger frame.
MAX_FRAME_BYTES = 0xFFFFF - 1

# Negative xids of frames that are no response to a request of this client.
XID_WATCH_EVENT = -1
XID_PING = -2

_CREATE, _DELETE, _EXISTS, _GET_DATA, _SET_DATA, _GET_CHILDREN = 1, 2, 3, 4, 5, 8
_SYNC, _PING, _CHECK, _MULTI, _CREATE2, _MULTI_READ = 9, 11, 13, 14, 15, 22
_SET_WATCHES, _CLOSE = 101, -11
_ERROR = -1
#: Length of a null buffer.
_NO_DATA = -1

OK = 0
NO_NODE = -101
SESSION_EXPIRED = -112
SESSION_MOVED = -118
THROTTLED = -127
_RUNTIME_INCONSISTENCY = -2
_BAD_ARGUMENTS = -8
_ERRORS: dict[int, type[NoNode | NodeExists | BadVersion | NotEmpty | NoChildrenForEphemerals]] = {
    NO_NODE: NoNode,
    -103: BadVersion,
    -108: NoChildrenForEphemerals,
    -110: NodeExists,
    -111: NotEmpty,
}
_REFUSALS = {
    -1: "the server has failed (SYSTEMERROR)",
    -6: "the server does not know the request: ZooKeeper 3.6 or later is needed (UNIMPLEMENTED)",
    _BAD_ARGUMENTS: "the server does not take its arguments (BADARGUMENTS)",
    -102: "not authorized: the node's access control list does not allow it (NOAUTH)",
    -114: "the access control list is not valid: is this client authenticated? (INVALIDACL)",
    -115: "authentication failed (AUTHFAILED)",
    -119: "the server is read-only, without a quorum (NOTREADONLY)",
    -125: "a quota is exceeded (QUOTAEXCEEDED)",
    THROTTLED: "the server is throttled (THROTTLEDOP)",
}

_INT = struct.Struct(">i")
_REPLY = struct.Struct(">iqi")
_STAT = struct.Struct(">qqqqiiiqiiq")
_MULTI_HEADER = struct.Struct(">i?i")
_EVENT = struct.Struct(">ii")

_EPHEMERAL, _SEQUENCE = 1, 2
_EVENTS = {
    1: EventKind.CREATED,
    2: EventKind.DELETED,
    3: EventKind.CHANGED,
    4: EventKind.CHILDREN,
}
_END_OF_OPERATIONS = _MULTI_HEADER.pack(-1, True, -1)


class ReplyHeader(NamedTuple):
    """The header of a response; `zxid` is 0 or below if the server sends none."""

    xid: int
    zxid: int
    error: int


class Access(NamedTuple):
    """One entry of a node's access control list."""

    permissions: int
    scheme: str
    identity: str


_ALL, _READ = 31, 1
#: Kafka's default access control list: every client has all rights.
OPEN = (Access(_ALL, "world", "anyone"),)
#: Kafka's access control list with `zookeeper.set.acl`: the creator has all rights, others may read
#: (R22).
PROTECTED = (Access(_ALL, "auth", ""), Access(_READ, "world", "anyone"))
#: The access control list of nodes with secrets, with `zookeeper.set.acl`: only the creator has
#: rights.
SECRET = (Access(_ALL, "auth", ""),)
_SECRET_ROOT = "/config/users"


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT.pack(len(data)) + data


def _path_and_flag(path: str, flag: bool) -> bytes:
    return _string(path) + (b"\x01" if flag else b"\x00")


# requests: type and record, to be framed with an xid


class Message(NamedTuple):
    """A request to a ZooKeeper server, without its xid (request number)."""

    kind: int
    record: bytes

    def frame(self, xid: int) -> bytes:
        """Return the request's frame."""
        return struct.pack(">iii", len(self.record) + 8, xid, self.kind) + self.record

    @property
    def frame_bytes(self) -> int:
        """The size of the request's frame, which the server compares with its `jute.maxbuffer`."""
        return len(self.record) + 8


PING = Message(_PING, b"")
CLOSE = Message(_CLOSE, b"")


def exists(path: str) -> Message:
    """Return a request that asks whether a node exists, and sets a watch."""
    return Message(_EXISTS, _path_and_flag(path, True))


def get_data(path: str) -> Message:
    """Return a request for data and stat, without a watch."""
    return Message(_GET_DATA, _path_and_flag(path, False))


def get_children(path: str, watch: bool) -> Message:
    """Return a request for the names of children."""
    return Message(_GET_CHILDREN, _path_and_flag(path, watch))


def sync(path: str) -> Message:
    """Return a request that makes the server catch up with its leader before later requests."""
    return Message(_SYNC, _string(path))


def multi_read(paths: Iterable[str]) -> Message:
    """Return a request for data and stat of many nodes (3.6 and later)."""
    header = _MULTI_HEADER.pack(_GET_DATA, False, -1)
    parts = [header + _path_and_flag(path, False) for path in paths]
    return Message(_MULTI_READ, b"".join([*parts, _END_OF_OPERATIONS]))


def set_watches(
    seen_zxid: int, data: Sequence[str], missing: Sequence[str], children: Sequence[str]
) -> Message:
    """Return a request that sets the watches of an earlier connection again.

    A watch fires at once if a change after `seen_zxid` triggers it. `missing` are data watches on
    nodes that did not exist.
    """
    parts = [struct.pack(">q", seen_zxid)]
    for paths in (data, missing, children):
        parts.append(_INT.pack(len(paths)))
        parts.extend([_string(path) for path in paths])
    return Message(_SET_WATCHES, b"".join(parts))


def access_to(path: str, is_protected: bool) -> tuple[Access, ...]:
    """Return the access control list of a new node (R22)."""
    if not is_protected:
        return OPEN
    is_secret = path == _SECRET_ROOT or path.startswith(f"{_SECRET_ROOT}/")
    return SECRET if is_secret else PROTECTED


@lru_cache(maxsize=8)
def _acl(access: tuple[Access, ...]) -> bytes:
    entries = [
        _INT.pack(entry.permissions) + _string(entry.scheme) + _string(entry.identity)
        for entry in access
    ]
    return _INT.pack(len(access)) + b"".join(entries)


def multi(ops: Sequence[Op], chroot: str, is_protected: bool) -> Message:
    """Return a transaction request, with create2 for Create, to get stats in the response."""
    parts: list[bytes] = []
    for op in ops:
        path = _string(chroot_path(chroot, op.path))
        if isinstance(op, SetData):
            parts.append(_MULTI_HEADER.pack(_SET_DATA, False, -1))
            parts.append(path + _INT.pack(len(op.data)) + op.data + _INT.pack(op.version))
        elif isinstance(op, Create):
            acl = _acl(access_to(op.path, is_protected))
            flags = (_EPHEMERAL if op.ephemeral else 0) | (_SEQUENCE if op.sequence else 0)
            parts.append(_MULTI_HEADER.pack(_CREATE2, False, -1))
            # Empty data is sent as null, as in Kafka. A Kafka broker below protocol level 3.0 does
            # not start if /latest_producer_id_block has empty data that is not null.
            length = len(op.data) or _NO_DATA
            parts.append(path + _INT.pack(length) + op.data + acl + _INT.pack(flags))
        else:
            kind = _DELETE if isinstance(op, Delete) else _CHECK
            parts.append(_MULTI_HEADER.pack(kind, False, -1) + path + _INT.pack(op.version))
    parts.append(_END_OF_OPERATIONS)
    return Message(_MULTI, b"".join(parts))


def chroot_path(chroot: str, path: str) -> str:
    """Return the server's path of a store's node; `chroot` is "" or begins with a slash."""
    if not chroot:
        return path
    return chroot if path == "/" else chroot + path


def unchroot_path(chroot: str, path: str) -> str:
    """Return the path of a node in the store, without the chroot in the server's path."""
    return path[len(chroot) :] or "/"


# Decoders of responses take the frame and the offset of the record in the frame.


def read_header(frame: bytes) -> tuple[ReplyHeader, int]:
    """Return the header of a response and the offset of its record."""
    return ReplyHeader(*_REPLY.unpack_from(frame, 0)), _REPLY.size


def read_event(frame: bytes, offset: int) -> tuple[EventKind | None, str]:
    """Return kind and path of a watch event; the kind is None for events of the connection."""
    kind, _ = _EVENT.unpack_from(frame, offset)
    path, _ = _read_string(frame, offset + _EVENT.size)
    return _EVENTS.get(kind), path


def read_node(frame: bytes, offset: int) -> tuple[Node, int]:
    """Return the node in a response to get_data, and the position in `frame` after the node."""
    length = _INT.unpack_from(frame, offset)[0]
    offset += _INT.size
    data = b""
    if length > 0:  # -1 is null, which Kafka's tools write to some nodes; it counts as empty
        data = frame[offset : offset + length]
        offset += length
    return Node(data, _read_stat(frame, offset)), offset + _STAT.size


def read_names(frame: bytes, offset: int) -> list[str]:
    """Return the names in a response to get_children."""
    count = _INT.unpack_from(frame, offset)[0]
    offset += _INT.size
    names: list[str] = []
    for _ in range(count):
        name, offset = _read_string(frame, offset)
        names.append(name)
    return names


def read_nodes(frame: bytes, offset: int, paths: Sequence[str]) -> list[Node | None]:
    """Return the nodes in a response to multi_read; raise StoreError if a node is not readable."""
    nodes: list[Node | None] = []
    for path in paths:
        kind, _, _ = _MULTI_HEADER.unpack_from(frame, offset)
        offset += _MULTI_HEADER.size
        if kind == _GET_DATA:
            node, offset = read_node(frame, offset)
            nodes.append(node)
            continue
        error = _INT.unpack_from(frame, offset)[0]
        offset += _INT.size
        if error != NO_NODE:
            raise error_of(error, path)
        nodes.append(None)
    return nodes


def read_results(
    frame: bytes, offset: int, ops: Sequence[Op], chroot: str, session_id: int
) -> list[OpResult]:
    """Return the results in a response to multi; raise TransactionFailed."""
    results: list[OpResult] = []
    zxid = read_header(frame)[0].zxid
    for index, op in enumerate(ops):
        kind, _, _ = _MULTI_HEADER.unpack_from(frame, offset)
        offset += _MULTI_HEADER.size
        if kind == _CREATE2:
            path, offset = _read_string(frame, offset)
            results.append(OpResult(unchroot_path(chroot, path), _read_stat(frame, offset)))
            offset += _STAT.size
        elif kind == _CREATE and isinstance(op, Create):
            # Servers before ZOOKEEPER-4026 leave out the stat of a created node, but the stat of a
            # new node is known.
            path, offset = _read_string(frame, offset)
            stat = Stat(0, zxid, zxid, session_id if op.ephemeral else NO_OWNER)
            results.append(OpResult(unchroot_path(chroot, path), stat))
        elif kind == _SET_DATA:
            results.append(OpResult(op.path, _read_stat(frame, offset)))
            offset += _STAT.size
        elif kind == _ERROR:
            error = _INT.unpack_from(frame, offset)[0]
            offset += _INT.size
            # Operations before the failed operation have the code OK; operations after it have
            # _RUNTIME_INCONSISTENCY, because the server did not process them.
            if error not in (OK, _RUNTIME_INCONSISTENCY):
                raise TransactionFailed(index, _error_of_op(error, op))
        else:
            results.append(OpResult(op.path, None))
    return results


def error_of(error: int, path: str) -> StoreError:
    """Return the error for a server's error code and a node."""
    known = _ERRORS.get(error)
    if known is not None:
        return known(path)
    return StoreError(path, f"ZooKeeper: {_REFUSALS.get(error, f'error {error}')}")


def _error_of_op(error: int, op: Op) -> StoreError:
    if error == _BAD_ARGUMENTS and isinstance(op, Delete):
        return NotEmpty(op.path)  # the node is the server's own root, which is never empty
    return error_of(error, op.path)


def _read_string(frame: bytes, offset: int) -> tuple[str, int]:
    length = _INT.unpack_from(frame, offset)[0]
    offset += _INT.size
    end = offset + max(length, 0)
    return frame[offset:end].decode(), end


def _read_stat(frame: bytes, offset: int) -> Stat:
    czxid, mzxid, _, _, version, _, _, owner, _, _, _ = _STAT.unpack_from(frame, offset)
    return Stat(version, czxid, mzxid, owner)
