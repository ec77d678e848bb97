"""Wording that depends on a number: nouns, verbs, and the names of brokers.

Messages of commands, plans and reports use these functions.
"""

from __future__ import annotations

from collections.abc import Collection


def counted(count: int, noun: str, one: str = "", many: str = "") -> str:
    """Return `1 record` followed by the word `one`, or `2 records` by `many` (`is`, `are`)."""
    is_one = count == 1
    return f"{count} {noun}{'' if is_one else 's'} {one if is_one else many}".rstrip()


def brokers_text(brokers: Collection[int], one: str = "", many: str = "") -> str:
    """Return `broker 1` followed by the word `one`, or `brokers 1, 2` by `many` (`is`, `are`)."""
    is_one = len(brokers) == 1
    ids = ", ".join(map(str, brokers))
    return f"broker{'' if is_one else 's'} {ids} {one if is_one else many}".rstrip()
