"""What a seed draws: the same each time, a share of each package and kind, and mostly the same
after a commit.
"""

from __future__ import annotations

from collections import Counter

from tests.mutation.changes import KINDS
from tests.mutation.drawing import DrawnMutant, draw, mutants_of

DECISIONS = """
def low(a, b):
    return a < b and a > 0 and not b


def sums(a, b):
    return a + b - 1
"""


def of_packages() -> list[DrawnMutant]:
    return [
        mutant
        for package in ("log", "group")
        for name in "abcdefgh"
        for mutant in mutants_of(f"tidelog/{package}/{name}.py", DECISIONS)
    ]


def ids(mutants: list[DrawnMutant]) -> list[str]:
    return [mutant.id for mutant in mutants]


def test_no_two_mutants_have_one_id() -> None:
    assert max(Counter(ids(of_packages())).values()) == 1


def test_a_seed_draws_the_same_and_another_seed_others() -> None:
    first = ids(draw(of_packages(), "1", 20))
    assert first == ids(draw(of_packages(), "1", 20))
    assert first != ids(draw(of_packages(), "2", 20))


def test_a_longer_draw_begins_with_a_shorter_one() -> None:
    mutants = of_packages()
    assert ids(draw(mutants, "1", 40))[:15] == ids(draw(mutants, "1", 15))
    assert sorted(ids(draw(mutants, "1", 10_000))) == sorted(ids(mutants))


def test_packages_and_kinds_take_turns() -> None:
    drawn = draw(of_packages(), "1", 20)
    assert Counter(mutant.package for mutant in drawn) == {"log": 10, "group": 10}
    kinds = Counter(mutant.change.kind for mutant in drawn)
    assert len(kinds) == 5 and set(kinds.values()) == {4}


def test_a_changed_function_changes_the_draw_of_its_own_mutants_only() -> None:
    before = mutants_of("tidelog/log/a.py", DECISIONS)
    after = mutants_of("tidelog/log/a.py", "\nX = 1\n" + DECISIONS.replace("- 1", "- 7"))

    def of_low(mutants: list[DrawnMutant]) -> list[str]:
        return [mutant.id for mutant in mutants if mutant.change.function == "low"]

    assert of_low(before) == of_low(after) != []
    low = set(of_low(before))
    orders = [
        [[each.id for each in draw(mutants, "1", 99) if each.change.kind == kind] for kind in KINDS]
        for mutants in (before, after)
    ]
    of_others = [[[each for each in ids if each in low] for ids in order] for order in orders]
    assert of_others[0] == of_others[1]
