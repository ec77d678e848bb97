"""What an input reaches: the arcs between traced lines, and how many lines it took.

An arc is a pair of lines that ran one after the other, whatever was called between them, as long
as both lie in the traced files. Of generated codecs lines count, and those of all versions of a
message are the same: so a corpus needs inputs for messages and not for versions. The number of
lines is the measure of effort: it is the same on every machine. One that passes its limit is ended
by TooManyLines, so that what would never end is found as well.

`sys.settrace` and not `sys.monitoring`: the oldest Python that is supported, 3.11, lacks it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

SOURCES = Path(__file__).resolve().parents[2] / "src" / "tidelog"
#: Above every line number; locations are numbers of files times this, plus the line.
_LINES = 1 << 16
_LOCATIONS = 1 << 40


class TooManyLines(BaseException):
    """An input made the code run for longer than its size allows; no handler is to catch it."""


class Execution(NamedTuple):
    """One run of a target."""

    arcs: set[int]
    lines: int
    error: BaseException | None


def _place(code: CodeType) -> str:
    """The file of a code object; of a generated codec the message and direction alone."""
    name = code.co_filename
    return name.rpartition(" v")[0] if name.startswith("<") else name


def _constants(code: CodeType) -> Iterator[bytes]:
    for constant in code.co_consts:
        if isinstance(constant, bytes) and 0 < len(constant) <= 16:
            yield constant
        elif type(constant) is int:
            yield from (constant.to_bytes(size, "big") for size in (1, 2, 4, 8)
                        if 0 <= constant < 1 << 8 * size)  # fmt: skip


class Tracer:
    """Traces the code of some files while a function runs."""

    def __init__(self, *traced: str) -> None:
        """Files whose path below the package's sources begins so: `wire/`, `group/group.py`."""
        self._traced = (*(str(SOURCES / each) for each in traced), "<decode ", "<encode ")
        self._bases: dict[str, int] = {}
        #: The tracer of each code object seen, by its id, None for what is not traced. The code
        #: is kept with it, so that no other one can have its id.
        self._locals: dict[int, tuple[CodeType, Any]] = {}
        #: Constants of the code that was met: what it may compare its input with.
        self.constants: set[bytes] = set()
        self._arcs: set[int] = set()
        self._lines = 0
        self._limit = 0
        self._last = 0

    def run(self, call: Callable[[], object], max_lines: int) -> Execution:
        """Call; what it raises is told and not raised, but for the end of the whole process."""
        self._arcs, self._lines, self._last = set(), 0, 0
        self._limit = max_lines
        error: BaseException | None = None
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            call()
        except (Exception, TooManyLines) as raised:
            error = raised
        finally:
            sys.settrace(before)
        return Execution(self._arcs, self._lines, error)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        found = self._locals.get(id(code))
        if found is None:
            place = _place(code)
            local = None
            if place.startswith(self._traced):
                base = self._bases.setdefault(place, (len(self._bases) + 1) * _LINES)
                local = self._local(base, is_generated=place.startswith("<"))
                if not place.startswith("<"):
                    self.constants.update(_constants(code))
            found = self._locals[id(code)] = (code, local)
        return found[1]

    def _local(self, base: int, is_generated: bool) -> Any:
        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                here = base + frame.f_lineno
                last = base if is_generated else self._last
                self._arcs.add(last * _LOCATIONS + here)
                self._last = base if is_generated else here
                self._lines += 1
                if self._lines > self._limit:
                    raise TooManyLines(f"more than {self._limit} lines")
            return trace

        return trace
