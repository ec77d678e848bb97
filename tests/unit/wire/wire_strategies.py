"""Hypothesis strategies for every message at every version, made from the declarations.

A message drawn for a version sets exactly the fields that the version has; others keep defaults.
`tame` keeps to values that typed oracles can hold (known error codes, times after 1970).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tidelog.core.errors import ErrorCode
from tidelog.wire import schema
from tidelog.wire.registry import API

INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

#: Around the one-byte varint, past it, and past two bytes of varint.
LONG_TEXTS = ["x" * 126, "y" * 127, "z" * 128, "ü" * 200, "w" * 17_000]
LONG_RECORDS = [b"r" * 1023, b"r" * 1024, b"s" * 5000, bytes(range(256)) * 70]


class Case(NamedTuple):
    """One codec: a message of an API, in one direction, at one version."""

    api_key: int
    version: int
    direction: str

    @property
    def message(self) -> type:
        api = API[self.api_key]
        return api.request if self.direction == "request" else api.response

    @property
    def flexible(self) -> bool:
        return API[self.api_key].is_flexible(self.version)

    def __str__(self) -> str:
        return f"{self.message.__name__}-{self.version}"


def all_cases() -> Iterator[Case]:
    """Every codec of the registry."""
    for api in API.values():
        for version in range(api.min_version, api.max_version + 1):
            yield Case(api.key, version, "request")
            yield Case(api.key, version, "response")


def _integers(kind: str) -> st.SearchStrategy[int]:
    top = 1 << (INT_BITS[kind] - 1)
    return st.one_of(st.sampled_from([0, 1, -1, top - 1, -top]), st.integers(-top, top - 1))


def _texts() -> st.SearchStrategy[str]:
    return st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        st.sampled_from(LONG_TEXTS),
    )


def _primitives(kind: str, name: str, tame: bool) -> st.SearchStrategy[Any]:
    if tame and name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if tame and name == "log_append_time_ms":
        return st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000) | st.just(-1)
    if kind in INT_BITS:
        return _integers(kind)
    if kind == "bool":
        return st.booleans()
    if kind == "uuid":
        return st.one_of(st.just(schema.ZERO_UUID), st.binary(min_size=16, max_size=16))
    if kind == "string":
        return _texts()
    assert kind == "records"
    return st.one_of(st.binary(max_size=40), st.sampled_from(LONG_RECORDS))


def _values(name: str, spec: schema.FieldSpec, version: int, tame: bool) -> st.SearchStrategy[Any]:
    if spec.kind == "struct":
        assert isinstance(spec.element, type)
        values = st.one_of(st.just(spec.element()), messages(spec.element, version, tame))
    elif spec.kind == "array" and isinstance(spec.element, type):
        values = st.lists(messages(spec.element, version, tame), max_size=3)
    elif spec.kind == "array":
        items = _primitives(str(spec.element), name, tame)
        values = st.lists(items, max_size=4)
        if spec.element == "int32":
            values = st.one_of(values, st.sampled_from([list(range(126)), list(range(300))]))
    else:
        values = _primitives(spec.kind, name, tame)
    if version in spec.nullable:
        return st.one_of(st.none(), values)
    return values


@cache
def messages(struct_class: type, version: int, tame: bool = False) -> st.SearchStrategy[Any]:
    """Instances with all fields of this version drawn, the others at their defaults."""
    present = {
        field.name: _values(field.name, field.spec, version, tame)
        for field in schema.fields_of(struct_class)
        if version in field.spec.versions
    }
    return st.builds(struct_class, **present)
