"""Java's String.hashCode, known values from its definition."""

from __future__ import annotations

import pytest

from tidelog.core.string_hash import coordinating_partition, java_string_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
        ("\ud83d", 0xD83D),
    ],
)
def test_hashes_are_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_partitions_are_never_negative() -> None:
    assert coordinating_partition("polygenelubricants", 50) == 0
    assert [coordinating_partition(name, 50) for name in ("hello", "console-consumer-1")] == [
        99162322 % 50,
        (java_string_hash("console-consumer-1") & 0x7FFFFFFF) % 50,
    ]
