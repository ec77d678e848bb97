"""Every replication rule is named by a test in this folder, or pending with the reason."""

from __future__ import annotations

from tests.support.rules import pending, rule_ids, rules_in_tests

#: Rules that must be held, at least in part: they may not be pending.
REQUIRED = (
    "V1-V8 V10-V18 V20-V25 V30-V46 V50-V52 V60-V69 V70 V71 V80-V83"
    " A1-A11 A13 D3 E1-E7 F1-F4 G1-G5 S1-S6"
)


def required_rules() -> list[str]:
    ids = rule_ids()
    found = []
    for word in REQUIRED.split():
        first, _, last = word.partition("-")
        found += ids[ids.index(first) : ids.index(last or first) + 1]
    return found


def test_rule_ids_are_unique() -> None:
    assert len(dict.fromkeys(rule_ids())) == len(rule_ids()) == 152


def test_every_rule_is_tested_or_pending() -> None:
    known = rules_in_tests()
    assert [
        rule for rule in rule_ids() if rule not in known and rule not in pending("pending")
    ] == []


def test_tests_and_lists_name_only_rules_that_exist() -> None:
    ids = rule_ids()
    named = [*rules_in_tests(), *pending("pending"), *pending("partial")]
    assert [rule for rule in named if rule not in ids] == []


def test_a_tested_rule_is_not_pending() -> None:
    """Move it to [partial] with what is missing, or take it off the list."""
    assert [rule for rule in rules_in_tests() if rule in pending("pending")] == []


def test_a_rule_that_is_held_in_part_is_tested() -> None:
    assert [rule for rule in pending("partial") if rule not in rules_in_tests()] == []


def test_no_rule_stands_in_both_lists() -> None:
    assert [rule for rule in pending("partial") if rule in pending("pending")] == []


def test_the_rules_of_the_bones_are_not_pending() -> None:
    assert [rule for rule in required_rules() if rule in pending("pending")] == []


def test_every_pending_rule_has_a_reason() -> None:
    for table in ("pending", "partial"):
        assert [rule for rule, reason in pending(table).items() if len(reason.split()) < 3] == []
