"""Dataclasses whose methods are generated at their first use.

The project declares about a thousand dataclasses, of which a process uses few. `dataclasses`
generates source text for each method, and compiles it, when a class is declared. Generating the
methods of all classes would take a third of the CPU time that a broker or a command needs to start.
A class declared with this module has the fields, slots and methods of a plain dataclass, but each
method is generated when something first looks it up. The generated method is the one that
`dataclasses` would generate; only the `__init__` of a frozen class is faster. Type checkers see
`dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

#: Methods that are generated at their first use, each with the option of `dataclasses` that
#: requests it.
_LATE: Final = {"__init__": "init", "__repr__": "repr", "__eq__": "eq"}

#: The `__init__` methods that are not generated yet, neither by `generate` nor by a first use.
_PENDING: Final[list[_LateMethod]] = []

#: The default of parameters with a default factory, which signatures show as `<factory>`.
_ABSENT: Final[Any] = vars(dataclasses)["_HAS_DEFAULT_FACTORY"]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        declared: type | None = None,
        /,
        *,
        slots: bool = False,
        frozen: bool = False,
        eq: bool = True,
        kw_only: bool = False,
    ) -> Any:
        """Return the dataclass made from a declared class, or a decorator that makes a dataclass.

        Raises TypeError for an `InitVar`, which needs a plain dataclass.
        """

        def decorated(declared: type) -> type:
            return _made(declared, slots=slots, frozen=frozen, eq=eq, kw_only=kw_only)

        return decorated if declared is None else decorated(declared)


def generate(packages: tuple[str, ...]) -> None:
    """Generate the `__init__` methods of the classes in packages, such as `("tidelog.core.",)`.

    A first use takes some tenths of a millisecond, which a failover must not wait for.
    """
    for method in [each for each in _PENDING if each.made.__module__.startswith(packages)]:
        _PENDING.remove(method)
        if method.made.__dict__.get("__init__") is method:
            method.__get__(None, method.made)


def _made(declared: type, *, slots: bool, frozen: bool, eq: bool, kw_only: bool) -> Any:
    # A dataclass that extends a frozen dataclass must be frozen, which `dataclasses` checks.
    extends = frozen and any(map(dataclasses.is_dataclass, declared.__mro__[1:]))
    made: Any = dataclasses.dataclass(
        slots=slots, kw_only=kw_only, frozen=extends, init=False, repr=False, eq=False
    )(declared)
    if any("InitVar" in str(each.type) for each in made.__dataclass_fields__.values()):
        raise TypeError(f"{made.__name__} has an InitVar; declare it with dataclasses.dataclass")
    own = declared.__dict__
    for name in _LATE:
        if name not in own and (eq or name != "__eq__"):
            method = _LateMethod(made, name, frozen)
            setattr(made, name, method)
            if name == "__init__":
                _PENDING.append(method)
    if eq and own.get("__hash__") is None:
        # Mutable instances that are compared by value must not be hashable.
        made.__hash__ = _LateMethod(made, "__hash__", frozen) if frozen else None
    if frozen and not extends:
        _freeze(made, own)
    params = made.__dataclass_params__
    params.init = params.repr = True
    params.eq, params.frozen = eq, frozen
    return made


class _LateMethod:
    """A method that is generated when a class or an instance first looks it up."""

    __slots__ = ("_frozen", "_name", "made")

    def __init__(self, made: type, name: str, frozen: bool) -> None:
        self.made = made
        self._name = name
        self._frozen = frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Put the generated method in the place of this object, and return the generated method."""
        method = self._generated()
        setattr(self.made, self._name, method)
        return method.__get__(instance, owner)

    def _generated(self) -> Any:
        """Return the method that the standard library's `dataclasses` generates for the class's
        fields.
        """
        made, name = self.made, self._name
        if name == "__init__" and self._frozen:
            method = _frozen_init(made)
            if method is not None:
                return method
        options: Any = {option: method == name for method, option in _LATE.items()}
        if name == "__hash__":
            options["eq"] = True
        fields = [(each.name, each.type, each) for each in dataclasses.fields(made)]
        post_init = getattr(made, "__post_init__", None)
        # Without `__doc__`, `dataclasses` would generate a docstring from the signature.
        namespace: dict[str, object] = {"__doc__": made.__doc__ or made.__name__}
        if post_init is not None:
            namespace["__post_init__"] = post_init
        shadow = dataclasses.make_dataclass(
            made.__qualname__, fields, namespace=namespace, frozen=self._frozen, **options
        )
        return getattr(shadow, name)


def _frozen_init(made: Any) -> Any:
    """Return an `__init__` that sets the slots of a frozen class by the slots' descriptors.

    `dataclasses` sets each field by `object.__setattr__`, which takes twice as long. The result is
    None for a class with keyword-only fields, or with fields without slots.
    """
    fields = dataclasses.fields(made)
    slots: list[Any] = [getattr(made, each.name, None) for each in fields]
    if any(each.kw_only for each in fields) or any(
        not isinstance(slot, MemberDescriptorType) for slot in slots
    ):
        return None
    names: dict[str, Any] = {"ABSENT": _ABSENT}
    parameters, body = ["self"], []
    for each, slot in zip(fields, slots, strict=True):
        name, value = each.name, each.name if each.init else f"_default_{each.name}"
        names[f"_set_{name}"], names[f"_default_{name}"] = slot.__set__, each.default
        default = "" if each.default is dataclasses.MISSING else f"=_default_{name}"
        if each.default_factory is not dataclasses.MISSING:
            names[f"_new_{name}"], default = each.default_factory, "=ABSENT"
            value = f"_new_{name}()"
            if each.init:
                value += f" if {name} is ABSENT else {name}"
        if each.init:
            parameters.append(f"{name}{default}")
        if each.init or default:
            body.append(f" _set_{name}(self, {value})")
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()")
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *(body or [" pass"])])
    exec(compile(source, f"<__init__ of {made.__qualname__}>", "exec"), names)
    method = names["__init__"]
    method.__qualname__ = f"{made.__qualname__}.__init__"
    method.__annotations__ = {each.name: each.type for each in fields if each.init}
    method.__annotations__["return"] = None
    return method


def _freeze(made: Any, own: Any) -> None:
    """Make instances reject assignments to fields; copying and unpickling still set fields."""

    def set_attribute(self: Any, name: str, value: object) -> None:
        if type(self) is made or name in made.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is made or name in made.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    made.__setattr__ = set_attribute
    made.__delattr__ = delete_attribute
    if "__slots__" in made.__dict__:
        for name, method in (("__getstate__", _state), ("__setstate__", _set_state)):
            if name not in own:
                setattr(made, name, method)


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
