"""Classes of messages: dataclasses whose methods are generated at their first call.

There are 300 classes of messages, of which a process uses few. Generating all their methods would
take an eighth of the time in which a broker or a command starts. From its first call on, a method
is the method that `dataclasses` generates. Type checkers see `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

#: Methods that are generated late, with the options of `dataclasses` that request them.
_LATE: Final = {"__init__": "init", "__repr__": "repr", "__eq__": "eq"}

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, slots: bool, frozen: bool = False) -> Any:
        """Return a decorator that makes a dataclass; a frozen class gets its methods at once."""
        if frozen:
            return dataclasses.dataclass(slots=slots, frozen=True)
        return lambda declared: _with_late_methods(declared, slots)


def _with_late_methods(declared: type, slots: bool) -> Any:
    made: Any = dataclasses.dataclass(slots=slots, init=False, repr=False, eq=False)(declared)
    for name in _LATE:
        setattr(made, name, _late(made, name))
    # Mutable instances that are compared by value must not be hashable.
    made.__hash__ = None
    return made


def _late(made: type, name: str) -> Any:
    """Return a method that replaces itself by the generated method, and calls it."""

    def method(self: Any, *values: Any, **named: Any) -> Any:
        generated = _generated(made, name)
        setattr(made, name, generated)
        return generated(self, *values, **named)

    return method


def _generated(made: type, name: str) -> Any:
    """Return the method `name` that `dataclasses` makes for a class with the fields of `made`."""
    options: Any = {option: method == name for method, option in _LATE.items()}
    fields = [(each.name, each.type, each) for each in dataclasses.fields(made)]
    return getattr(dataclasses.make_dataclass(made.__name__, fields, **options), name)
