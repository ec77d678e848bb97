"""Bootstrap lists: what is read, and what a wrong one is told."""

from __future__ import annotations

import pytest

from tidelog.client.bootstrap import parse_bootstrap
from tidelog.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("h:9092", [("h", 9092)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        ("a:1,a:1", [("a", 1)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://h:1", [("h", 1)]),
    ],
)
def test_addresses_are_read_in_order_once_each(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected host:port"),
        (",", "expected host:port"),
        ("h", "lacks a host or a port"),
        (":9092", "lacks a host or a port"),
        ("h:0", "1 to 65535"),
        ("h:65536", "1 to 65535"),
        ("h:x", "1 to 65535"),
        ("h:-1", "1 to 65535"),
        ("h:²", "1 to 65535"),
        ("::1:9092", "needs brackets"),
        ("SASL_SSL://h:1", "only PLAINTEXT"),
    ],
)
def test_a_wrong_list_is_refused_with_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_bootstrap(text)


def test_an_address_reads_as_it_is_written() -> None:
    assert [str(address) for address in parse_bootstrap("[::1]:1,h:2")] == ["[::1]:1", "h:2"]
