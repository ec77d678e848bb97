"""Output of names that a terminal without UTF-8 cannot show."""

from __future__ import annotations

import io
import sys

import pytest

from tidelog.cli.app import allow_any_output
from tidelog.cli.output import print_line


@pytest.mark.parametrize(
    ("encoding", "expected"), [("latin-1", rb"caf\xe9 \u65e5"), ("utf-8", "café 日".encode())]
)
def test_a_name_that_the_terminal_cannot_encode_is_escaped(
    monkeypatch: pytest.MonkeyPatch, encoding: str, expected: bytes
) -> None:
    data = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(data, encoding=encoding))
    allow_any_output()
    print_line("café 日")
    sys.stdout.flush()
    assert data.getvalue() == expected.replace(rb"\xe9", b"\xe9") + b"\n"
