"""Classes of messages are dataclasses in all but the moment at which their methods are made."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from tidelog.wire.registry import API
from tidelog.wire.schema import array, int32, string
from tidelog.wire.structs import dataclass


def made(decorator: Any) -> Any:
    """A class of its own for each call: none of its methods has been called."""

    class Flight:
        """A flight."""

        number: int = int32("0+", 7)
        carrier: str | None = string("0+", None, nullable="0+")
        legs: list[int] = array("int32", "0+")

    return decorator(slots=True)(Flight)


def test_instances_are_those_of_a_plain_dataclass() -> None:
    late, plain = made(dataclass), made(dataclasses.dataclass)
    for words in ({}, {"number": 1, "legs": [2]}, {"carrier": "UA"}):
        assert dataclasses.asdict(late(**words)) == dataclasses.asdict(plain(**words))
        assert repr(late(**words)) == repr(plain(**words))
    assert late(1, "UA", [3]) == late(1, "UA", [3]) != late(1, "UA", [4])
    assert late() != plain() and late().legs is not late().legs
    assert dataclasses.replace(late(1), number=2) == late(2)


def test_a_class_is_that_of_a_plain_dataclass() -> None:
    late, plain = made(dataclass), made(dataclasses.dataclass)
    assert late.__match_args__ == plain.__match_args__
    assert late.__slots__ == plain.__slots__
    assert late.__hash__ is plain.__hash__ is None
    assert not hasattr(late(), "__dict__")


def test_what_a_plain_dataclass_refuses_is_refused() -> None:
    for call in (lambda c: c(height=1), lambda c: c(1, "UA", [], 4), lambda c: hash(c())):
        with pytest.raises(TypeError):
            call(made(dataclass))
    with pytest.raises(AttributeError):
        made(dataclass)().height = 1


@pytest.mark.parametrize("name", ["__init__", "__repr__", "__eq__"])
def test_a_method_is_the_generated_one_from_its_first_call_on(name: str) -> None:
    late, plain = made(dataclass), made(dataclasses.dataclass)
    before = getattr(late, name)
    repr(late()), late() == late()
    after = getattr(late, name)
    assert after is not before
    assert inspect.signature(after) == inspect.signature(getattr(plain, name))
    repr(late()), late() == late()
    assert getattr(late, name) is after


def test_every_message_is_such_a_class() -> None:
    messages = [each for api in API.values() for each in (api.request, api.response)]
    assert [each for each in messages if not dataclasses.is_dataclass(each)] == []
    assert all(message() == message() for message in messages)
