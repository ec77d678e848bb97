"""The trace of a run: canonical lines and one hash over them.

Two runs are the same run if their hashes are equal. Each executed event, call of a port
(`core.ports`) and traced state change enters the hash as a line "time node kind detail". Lines must
not contain memory addresses, or values whose order depends on them; `canonical` rejects such
values.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

#: Number of lines that are hashed together.
_BLOCK_LINES = 512
#: Number of trace lines that are kept for the report of a violation.
_RECENT_LINES = 400
#: Byte strings up to this length appear whole in the trace.
_SHOWN_BYTES = 24


class Trace:
    """Hash, counters and the most recent lines of one run."""

    __slots__ = ("_block", "_hash", "block_hashes", "events", "listener", "marks", "recent")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._block: list[str] = []
        #: For each block of lines, the hash over the trace up to the end of the block. The first
        #: difference of two runs is in the first block whose hashes differ.
        self.block_hashes: list[str] = []
        #: Number of executed events of the scheduler.
        self.events = 0
        #: How often each interesting state was reached.
        self.marks: dict[str, int] = {}
        #: The last lines of the trace, for reports of violations.
        self.recent: deque[str] = deque(maxlen=_RECENT_LINES)
        #: Called with each line, except lines about callbacks of an event loop.
        self.listener: Callable[[str], None] | None = None

    def tick(self, time_ns: int, node: int) -> None:
        """Record an executed event of the scheduler."""
        self.events += 1
        block = self._block
        block.append(f"{time_ns} {node}")
        if len(block) >= _BLOCK_LINES:
            self._flush()
            self.block_hashes.append(self._hash.hexdigest())

    def line(self, time_ns: int, node: int, kind: str, detail: str) -> None:
        """Add a line: an event of a node, or a state change that its broker traced."""
        text = f"{time_ns} {node} {kind} {detail}"
        self._block.append(text)
        self.recent.append(text)
        if self.listener is not None:
            self.listener(text)

    def mark(self, name: str) -> None:
        """Count an interesting state that was reached."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def digest(self) -> str:
        """Return the hexadecimal hash over everything so far."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        if self._block:
            self._block.append("")
            self._hash.update("\n".join(self._block).encode("utf-8", "surrogatepass"))
            self._block.clear()


def canonical_fields(fields: Mapping[str, Any]) -> str:
    """Return `key=value` pairs in the order of `fields`."""
    return " ".join(f"{key}={canonical(value)}" for key, value in fields.items())


def canonical(value: Any) -> str:
    """Return the value as a text that is the same in every process; raise TypeError if this is
    impossible.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value.name if isinstance(value, Enum) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
        shown = raw.hex() if len(raw) <= _SHOWN_BYTES else f"{zlib.crc32(raw):08x}"
        return f"<{len(raw)}:{shown}>"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple | list):
        return "[" + ",".join([canonical(item) for item in value]) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted([canonical(item) for item in value])) + "}"
    if isinstance(value, dict):
        return "{" + ",".join([f"{canonical(k)}:{canonical(v)}" for k, v in value.items()]) + "}"
    text = f"{type(value).__name__}({value})" if isinstance(value, BaseException) else repr(value)
    if " at 0x" in text:
        raise TypeError(f"a trace line would hold an object's address: {text}")
    return text
