"""The Python source of a generated function: lines, indentation, names, constants.

This module is independent of messages. Constants (struct methods, classes, shared defaults) get
short names in the generated function's globals; equal constants share a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The Python source of one function, built line by line."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._count = 0
        self._names: dict[object, str] = {}
        self.namespace: dict[str, Any] = {}

    def line(self, text: str) -> None:
        """Add one line at the current indentation."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add `header`, and indent all lines that are added in the `with` block."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """Return an unused local name."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, key: object, prefix: str, value: Any) -> str:
        """Return the global name of `value`, which is the same for equal `key`s."""
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{prefix}_{len(self._names)}"
            self.namespace[name] = value
        return name

    def build(self, name: str, title: str) -> Callable[..., Any]:
        """Compile the lines; return the function `name`. Tracebacks show `title`."""
        text = "\n".join(self._lines) + "\n"
        exec(compile(text, f"<{title}>", "exec"), self.namespace)
        function: Callable[..., Any] = self.namespace[name]
        return function
