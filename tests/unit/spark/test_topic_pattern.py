"""`subscribePattern`: Java's patterns in Python, and those that it would read otherwise."""

from __future__ import annotations

import pytest

from tidelog.spark.option_values import OptionError
from tidelog.spark.topic_pattern import compile_topic_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.*", ["a", "a.b", "ab-c", "ba"], ["A"]),
        ("^a.*", ["a", "a.b", "ab-c"], ["ba", "A"]),
        (" orders ", ["orders", "orders2", "my-orders"], ["order"]),
        ("^orders$", ["orders"], ["orders2", "my-orders"]),
        (r"t\.[0-9]{2,3}", ["t.10", "t.100", "at.1000"], ["t.1", "tx10"]),
        (r"(?i)Orders_(eu|us)", ["orders_EU", "ORDERS_us"], ["orders_cn"]),
        (r"(?<name>[a-z]+)-\k<name>", ["ab-ab", "ab-ba"], ["ab-ca"]),
        (r"^([a-z]+)-\1", ["ab-ab"], ["ab-ba"]),
        (r"^(?!_)[^.]*+$", ["a-b"], ["_a", "a.b"]),
        (r"(?>a+)b", ["aab"], ["aa"]),
        (r"(?:a|b)+?\d", ["ab1"], ["ab", "c1"]),
        (r"\x61\u0062[\]\[\-]?$", ["ab", "ab-"], ["abc"]),
        (r"(?i:A)b(?-i:C)", ["abC", "AbC"], ["aBC", "abc"]),
    ],
)
def test_names_are_searched_as_java_does(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    compiled = compile_topic_pattern(pattern)
    assert [name for name in matching + others if compiled.search(name)] == matching


def test_digits_and_letters_are_those_of_ascii() -> None:
    assert compile_topic_pattern(r"\d\w").search("٣é") is None


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("  ", "'  '; expected a regular expression"),
        (r"\p{Alpha}+", r"has \\p at position 0: this escape is not read alike"),
        (r"a\Q.\E", r"has \\Q at position 1"),
        (r"a\z", r"has \\z at position 1"),
        ("a\\", r"has \\ at position 1"),
        ("[a-z&&[^b]]", "has && at position 4: an intersection"),
        ("[a[b]]", r"has \[ at position 2: a class within a class"),
        ("[]a]", "has ] at position 1: an empty class"),
        ("[^]a]", "has ] at position 2: an empty class"),
        ("x[ab", r"has \[ at position 1: the class is not closed"),
        ("a{,3}", "has { at position 1: { begins a repetition"),
        ("a{b", "has { at position 1"),
        ("(?P<n>a)", r"has \(\?P at position 0: this group"),
        ("(?#note)a", r"has \(\?# at position 0"),
        ("a(?i)b", r"has \(\?i at position 1"),
        ("(?u)a", r"has \(\?u at position 0"),
        (r"\kname", r"has \\k at position 0: a group is named"),
        (r"\k<name>", "unknown group name 'name'"),
        (r"\u12", r"has \\u at position 0: expected 4 hexadecimal digits"),
        ("a**", "multiple repeat"),
        ("(a", "missing \\), unterminated subpattern"),
        ("(?<=a+)b", "look-behind requires fixed-width pattern"),
    ],
)
def test_what_java_and_python_read_differently_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        compile_topic_pattern(pattern)
