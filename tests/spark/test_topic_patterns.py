"""`subscribePattern`: drawn patterns are found in topic names by Python where Java finds them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tidelog.spark.topic_pattern import compile_topic_pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATTERNS = 150
_ATOMS = ("a", "b", "A", ".", "-", r"\.", r"\d", r"\w", "[ab]", "[^a]", r"[\-._]", "^", "$", r"\b")
_REPEATS = ("", "", "", "*", "+", "?", "*?", "+?", "++", "{2}", "{1,2}")


def drawn_pattern(draw: random.Random, depth: int = 2) -> str:
    """A pattern of the syntax that the option takes."""
    parts = []
    for _ in range(draw.randint(1, 4)):
        atom = draw.choice(_ATOMS)
        if depth and draw.random() < 0.3:
            opening = draw.choice(("(", "(?:", "(?>", "(?=", "(?!", "(?i:"))
            atom = f"{opening}{drawn_pattern(draw, depth - 1)})"
        is_width = not atom.startswith(("^", "$", r"\b", "(?=", "(?!"))
        parts.append(atom + (draw.choice(_REPEATS) if is_width else ""))
    whole = "".join(parts)
    return f"{whole}|{draw.choice(_ATOMS)}" if draw.random() < 0.2 else whole


def drawn_name(draw: random.Random) -> str:
    """A topic name of few letters, so that patterns are found in about half of them."""
    return "".join(draw.choice("aabbAB1._-") for _ in range(draw.randint(1, 6)))


def test_names_are_found_where_java_finds_them(spark: SparkSession) -> None:
    draw = random.Random(20_261_130)
    virtual_machine = spark.sparkContext._jvm
    assert virtual_machine is not None
    java = virtual_machine.java.util.regex.Pattern
    counts = {True: 0, False: 0}
    for _ in range(_PATTERNS):
        text = drawn_pattern(draw)
        names = [drawn_name(draw) for _ in range(10)]
        official, ours = java.compile(text), compile_topic_pattern(text)
        for name in names:
            expected = bool(official.matcher(name).find())
            assert bool(ours.search(name)) == expected, (text, name)
            counts[expected] += 1
    assert min(counts.values()) > _PATTERNS
