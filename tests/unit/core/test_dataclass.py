"""Classes are dataclasses in all but the moment at which their methods are generated."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any

import pytest

from tidelog.core.dataclass import dataclass, generate
from tidelog.wire.registry import API

BOTH = pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
FROZEN = pytest.mark.parametrize("frozen", [False, True])


def made(decorator: Any, frozen: bool = False, **options: Any) -> Any:
    """A class of its own for each call: none of its methods has been looked up."""

    class Flight:
        """A flight."""

        number: int = 7
        carrier: str | None = None
        legs: list[int] = field(default_factory=list)
        seen: int = field(default=0, compare=False, repr=False)

    return decorator(slots=True, frozen=frozen, **options)(Flight)


@FROZEN
def test_instances_are_those_of_a_plain_dataclass(frozen: bool) -> None:
    late, plain = made(dataclass, frozen), made(dataclasses.dataclass, frozen)
    for words in ({}, {"number": 1, "legs": [2]}, {"carrier": "UA"}, {"seen": 3}):
        assert dataclasses.asdict(late(**words)) == dataclasses.asdict(plain(**words))
        assert repr(late(**words)) == repr(plain(**words))
    assert late(1, "UA", [3]) == late(1, "UA", [3], 5) != late(1, "UA", [4])
    assert late() != plain() and late().legs is not late().legs
    assert dataclasses.replace(late(1), number=2) == late(2)


@FROZEN
def test_a_class_is_that_of_a_plain_dataclass(frozen: bool) -> None:
    late, plain = made(dataclass, frozen), made(dataclasses.dataclass, frozen)
    assert late.__match_args__ == plain.__match_args__
    assert late.__slots__ == plain.__slots__
    assert not hasattr(late(), "__dict__")
    assert inspect.signature(late) == inspect.signature(plain)
    assert late.__init__.__qualname__ == plain.__init__.__qualname__
    assert repr(late.__dataclass_params__) == repr(plain.__dataclass_params__)


@BOTH
def test_only_frozen_instances_have_a_hash(decorator: Any) -> None:
    assert made(decorator).__hash__ is None
    frozen = made(decorator, True)
    assert hash(frozen(1, "UA", (), 2)) == hash(frozen(1, "UA", (), 3))
    by_identity = made(decorator, eq=False)
    assert by_identity.__hash__ is object.__hash__
    assert by_identity() != by_identity()


@BOTH
def test_frozen_instances_refuse_assignments(decorator: Any) -> None:
    flight = made(decorator, True)()
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'number'"):
        flight.number = 1
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'number'"):
        del flight.number
    assert flight.number == 7


@BOTH
@FROZEN
def test_what_a_plain_dataclass_refuses_is_refused(decorator: Any, frozen: bool) -> None:
    for words in ({"height": 1}, {"numbers": 2}):
        with pytest.raises(TypeError):
            made(decorator, frozen)(**words)
    with pytest.raises(TypeError):
        made(decorator, frozen)(1, "UA", [], 0, 4)
    with pytest.raises(TypeError):
        made(decorator, frozen, kw_only=True)(1)
    with pytest.raises((AttributeError, TypeError)):
        made(decorator, frozen)().height = 1


@pytest.mark.parametrize("name", ["__init__", "__repr__", "__eq__", "__hash__"])
def test_a_method_is_the_generated_one_from_its_first_use_on(name: str) -> None:
    late, plain = made(dataclass, True), made(dataclasses.dataclass, True)
    assert not inspect.isfunction(vars(late)[name])
    after = getattr(late, name)
    assert vars(late)[name] is after
    assert inspect.signature(after) == inspect.signature(getattr(plain, name))
    assert getattr(late(), name).__func__ is after


def test_methods_of_packages_are_generated_at_once() -> None:
    late, other = made(dataclass), made(dataclass)
    late.__module__ = "flights.of.today"
    generate(("flights.",))
    assert inspect.isfunction(vars(late)["__init__"])
    assert not inspect.isfunction(vars(other)["__init__"])
    assert late(3).number == other(3).number == 3
    generate(("flights.",))


@BOTH
def test_methods_of_the_class_itself_stay(decorator: Any) -> None:
    class Leg:
        """A leg."""

        number: int

        def __post_init__(self) -> None:
            self.number += 1

        def __repr__(self) -> str:
            return f"leg {self.number}"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    made_leg = decorator(slots=True)(Leg)
    assert (repr(made_leg(1)), made_leg(1) == made_leg(2), hash(made_leg(1))) == ("leg 2", True, 1)


@BOTH
def test_a_class_extends_another_one(decorator: Any) -> None:
    class Base:
        """A base."""

        number: int

    base = decorator(slots=True, frozen=True)(Base)

    class Extended(base):  # type: ignore[misc, valid-type]  # made above
        """A base with more."""

        text: str = "a"

    extended = decorator(slots=True, frozen=True)(Extended)

    class Plain(base):  # type: ignore[misc, valid-type]  # made above
        """No dataclass."""

        def __init__(self, number: int) -> None:
            super().__init__(2 * number)

    assert repr(extended(1)).endswith("Extended(number=1, text='a')")
    assert (Plain(1).number, base(3).number, extended(2).number) == (2, 3, 2)
    assert extended(1) != base(1) and hash(extended(1)) == hash(extended(1))


@BOTH
@FROZEN
def test_a_class_is_frozen_if_the_extended_class_is(decorator: Any, frozen: bool) -> None:
    class Extended(made(decorator, frozen)):  # type: ignore[misc]  # made here
        """A flight with more."""

        text: str = "a"

    with pytest.raises(TypeError, match="cannot inherit"):
        decorator(slots=True, frozen=not frozen)(Extended)


@dataclass(frozen=True, slots=True)
class Kept:
    """A class that a pickle can name."""

    number: int
    parts: list[int] = field(default_factory=list)


def test_frozen_instances_are_copied_and_pickled() -> None:
    kept = Kept(1, [2])
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(kept, protocol)) == kept
    deep = copy.deepcopy(kept)
    assert copy.copy(kept) == deep == kept and deep.parts is not kept.parts


def test_values_of_initialization_alone_are_refused() -> None:
    with pytest.raises(TypeError, match="InitVar"):

        @dataclass(slots=True)
        class Refused:
            """A class that needs a plain dataclass."""

            text: dataclasses.InitVar[str]


def test_every_message_is_such_a_class() -> None:
    messages = [each for api in API.values() for each in (api.request, api.response)]
    assert [each for each in messages if not dataclasses.is_dataclass(each)] == []
    assert all(message() == message() for message in messages)


@BOTH
@pytest.mark.parametrize("slots", [False, True])
def test_frozen_instances_are_checked_and_completed_as_declared(
    decorator: Any, slots: bool
) -> None:
    class Leg:
        """A leg."""

        number: int
        stops: int = field(init=False)
        seen: list[int] = field(init=False, default_factory=list)
        left: int = field(init=False, default=4)

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("a negative number")
            object.__setattr__(self, "stops", self.number + self.left)

    made_leg = decorator(frozen=True, slots=slots)(Leg)
    assert (made_leg(1).stops, made_leg(1).seen, made_leg(number=2).left) == (5, [], 4)
    assert made_leg(1).seen is not made_leg(1).seen
    with pytest.raises(ValueError, match="negative"):
        made_leg(-1)
    with pytest.raises(TypeError):
        made_leg(1, 2)
