"""Paths, and what is refused before it is sent."""

from __future__ import annotations

import pytest

from tidelog.core.limits import MAX_NODE_BYTES, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPS
from tidelog.metadata.paths import (
    is_path,
    join,
    name_of,
    parent_of,
    sequence_path,
    validate_ops,
)
from tidelog.metadata.store import Check, Create, Delete, InvalidPath, RequestTooLarge, SetData


@pytest.mark.parametrize(
    ("path", "parent", "name"), [("/", "/", ""), ("/a", "/", "a"), ("/a/b.c", "/a", "b.c")]
)
def test_parents_and_names(path: str, parent: str, name: str) -> None:
    assert (parent_of(path), name_of(path)) == (parent, name)
    assert path == "/" or join(parent, name) == path


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/...", "/.a", "/a..", "/ ", "/ü", "/日本"])
def test_what_is_a_path(path: str) -> None:
    assert is_path(path)


@pytest.mark.parametrize(
    "path",
    ["", "a", "/a/", "//a", "/.", "/..", "/a/.", "/../a", "/a\n", "/\x7f", "/\ud800", "/\uffff"],
    ids=ascii,
)
def test_what_is_not(path: str) -> None:
    assert not is_path(path)


def test_sequence_numbers_have_ten_digits() -> None:
    assert sequence_path("/q/n_", 7) == "/q/n_0000000007"
    validate_ops([Create("/q/", b"", sequence=True)])
    with pytest.raises(InvalidPath):
        validate_ops([Create("/q/", b"")])


def test_limits_are_inclusive() -> None:
    validate_ops([SetData("/a", bytes(MAX_NODE_BYTES), 0)])
    validate_ops([Check("/a", 0)] * MAX_TRANSACTION_OPS)
    room = MAX_TRANSACTION_BYTES - 2 * (64 + len("/a"))
    half = room // 2
    validate_ops([SetData("/a", bytes(half), 0), SetData("/a", bytes(room - half), 0)])
    with pytest.raises(RequestTooLarge):
        validate_ops([SetData("/a", bytes(half), 0), SetData("/a", bytes(room - half + 1), 0)])


def test_an_error_names_the_path_as_it_was_given() -> None:
    with pytest.raises(InvalidPath) as raised:
        validate_ops([Delete("/fine", 0), Create("bad/", b"", sequence=True)])
    assert raised.value.path == "bad/"
