"""The command line in this process, and the form that its JSON documents must have."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from typing import Any

import pytest

from tidelog.cli import app as command_line


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run a command; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["tidelog", *words])
    with pytest.raises(SystemExit) as ended:
        command_line.run()
    code = ended.value.code
    assert isinstance(code, int)
    return code


def check(document: Any, promised: Any, where: str = "$") -> None:
    """Fail where a document differs from its class in `tidelog.cli.documents`."""
    if isinstance(promised, types.UnionType):
        choices = [each for each in typing.get_args(promised) if _fits(document, each)]
        assert choices, f"{where} is {document!r}, not {promised}"
        check(document, choices[0], where)
    elif typing.get_origin(promised) in (list, tuple):
        assert isinstance(document, list), f"{where} is {document!r}, not a list"
        for index, each in enumerate(document):
            check(each, typing.get_args(promised)[0], f"{where}[{index}]")
    elif dataclasses.is_dataclass(promised):
        assert isinstance(document, dict), f"{where} is {document!r}, not an object"
        hints = typing.get_type_hints(promised)
        assert list(document) == list(hints), f"{where} has other keys"
        for key, hint in hints.items():
            check(document[key], hint, f"{where}.{key}")
    else:
        assert _fits(document, promised), f"{where} is {document!r}, not {promised}"


def _fits(document: Any, hint: Any) -> bool:
    plain = typing.get_origin(hint) or (dict if dataclasses.is_dataclass(hint) else hint)
    if plain is tuple:
        plain = list
    if plain is int and isinstance(document, bool):
        return False
    return isinstance(document, plain)
