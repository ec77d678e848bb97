"""The arguments and options of a command, as its function's annotations declare them.

The generated reference and `--help` both use this module, so that their names of options agree.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from tidelog.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or an option of a command, as its annotation declares it."""

    name: str
    info: ArgumentInfo | OptionInfo
    type: Any
    default: Any

    @property
    def is_flag(self) -> bool:
        """Return whether the option takes no value."""
        return without_none(self.type) is bool

    @property
    def is_list(self) -> bool:
        """Return whether the option may be given several times."""
        return typing.get_origin(without_none(self.type)) is list

    @property
    def is_required(self) -> bool:
        """Return whether the parameter has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def declared(self) -> list[str]:
        """Return an option's spellings; for a flag, the spellings that set the flag come first."""
        # typer stores the first spelling of an annotated option as its default value.
        given = [self.info.default, *(self.info.param_decls or ())]
        words = [each for each in given if isinstance(each, str) and each.startswith("-")]
        long = "--" + self.name.replace("_", "-")
        found = words or ([f"{long}/--no-{long[2:]}"] if self.is_flag else [long])
        return [word for each in found for word in each.split("/")]

    @property
    def long(self) -> str:
        """Return the longest spelling of an option."""
        return max(self.declared, key=len)


def finite(value: float) -> float:
    """Return the value of an option that is a number; raise typer.BadParameter for nan and inf.

    The limits `min` and `max` of an option do not refuse nan, because nan is not less than `min`.
    """
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number of seconds: a finite number expected")
    return value


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a command in the order of its signature."""
    hints = typing.get_type_hints(function, include_extras=True)
    return [
        Parameter(name, *_declared(hints[name]), each.default)
        for name, each in inspect.signature(function).parameters.items()
    ]


def _declared(hint: Any) -> tuple[ArgumentInfo | OptionInfo, Any]:
    kind, *infos = typing.get_args(hint)
    for info in infos:
        if isinstance(info, ArgumentInfo | OptionInfo):
            return info, kind
    raise TypeError(f"{hint} declares no parameter of a command")


def kind_of(option: Parameter) -> str:
    """Return the word that stands for the value of an option."""
    plain, _ = unwrapped(without_none(option.type))
    if isinstance(plain, type) and issubclass(plain, Enum):
        return "\\|".join(each.value for each in plain)
    word = {int: "N", float: "X"}.get(plain, "TEXT")
    return f"{word} (repeatable)" if option.is_list else word


def default_of(option: Parameter) -> str:
    """Return the default as Markdown; empty if there is none."""
    value = option.default
    if option.is_required:
        return "required"
    if option.is_flag and len([w for w in option.declared if w.startswith("--")]) == 2:
        yes, no = (word for word in option.declared if word.startswith("--"))
        return "" if value is None else f"`{yes if value else no}`"
    if value is None or value is False:
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


def unwrapped(document: Any) -> tuple[Any, bool]:
    """Return the element type of a list and True; return any other type and False."""
    if typing.get_origin(document) in (list, tuple):
        return typing.get_args(document)[0], True
    return document, False


def without_none(hint: Any) -> Any:
    """Return `T` for the type `T | None`, and any other type unchanged."""
    if isinstance(hint, types.UnionType):
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint
