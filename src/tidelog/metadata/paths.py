"""Checks of paths and of the sizes of requests, before a request is sent to a store.

Paths follow ZooKeeper's rules. A path is absolute, without empty parts, `.` and `..`, and does not
end with a slash. Control, surrogate and private-use characters are invalid, and so are characters
beyond 16 bits, which Java encodes as surrogates. The limits (`core.limits`) are the same for every
store, so that a request which the embedded store accepts also works on ZooKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from tidelog.core.limits import MAX_NODE_BYTES, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPS
from tidelog.metadata.store import Create, InvalidPath, Op, RequestTooLarge, SetData

_FORBIDDEN = "/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff"
_PATH = re.compile(rf"/|(?:/(?!\.{{1,2}}(?:/|$))[^{_FORBIDDEN}]+)+")

SEQUENCE_DIGITS = 10
#: Bytes of an operation in ZooKeeper's protocol, without its path and data, rounded up.
_OP_OVERHEAD_BYTES = 64
#: Number of paths for which the result of the check is cached; enough for 10,000 partitions.
_CACHED_PATHS = 32_768


@lru_cache(maxsize=_CACHED_PATHS)
def is_path(path: str) -> bool:
    """Whether a string is the path of a node."""
    return _PATH.fullmatch(path) is not None


def validate_path(path: str) -> None:
    """Raise InvalidPath unless a string is the path of a node."""
    if not is_path(path):
        raise InvalidPath(path, "not a path of a node")


def parent_of(path: str) -> str:
    """Return the path of a node's parent; "/" is its own parent."""
    return path[: path.rfind("/")] or "/"


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path[path.rfind("/") + 1 :]


def join(parent: str, name: str) -> str:
    """Return the path of the child `name` of a node."""
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def sequence_path(path: str, counter: int) -> str:
    """Return the path of a sequence node: `path` with ten digits of its parent's `counter`
    appended.
    """
    return f"{path}{counter:0{SEQUENCE_DIGITS}d}"


def validate_ops(ops: Sequence[Op]) -> None:
    """Raise InvalidPath or RequestTooLarge if a transaction breaks the rules for all stores."""
    if len(ops) > MAX_TRANSACTION_OPS:
        raise RequestTooLarge(
            "", f"{len(ops)} operations in a transaction, at most {MAX_TRANSACTION_OPS} are allowed"
        )
    size_bytes = _OP_OVERHEAD_BYTES * len(ops)
    for op in ops:
        path = op.path
        size_bytes += len(path)
        if isinstance(op, (SetData, Create)):
            size_bytes += len(op.data)
            if len(op.data) > MAX_NODE_BYTES:
                raise RequestTooLarge(
                    path, f"{len(op.data)} bytes in a node, at most {MAX_NODE_BYTES} are allowed"
                )
            if isinstance(op, Create) and op.sequence:
                path = sequence_path(path, 0)
        if not is_path(path):
            raise InvalidPath(op.path, "not a path of a node")
    if size_bytes > MAX_TRANSACTION_BYTES:
        raise RequestTooLarge(
            "",
            f"{size_bytes} bytes in a transaction, at most {MAX_TRANSACTION_BYTES} are allowed",
        )
