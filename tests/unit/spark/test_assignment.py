"""The solver against every choice of small problems, and its bound against large ones."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from tidelog.spark.pipelines.plan.assignment import (
    AssignmentProblem,
    SolverError,
    bound_at,
    solve,
    value_of,
)


def problem(
    seed: int, items: int, brokers: int, groups: int = 0
) -> tuple[AssignmentProblem, np.ndarray]:
    """A problem of two replicas for each item, unevenly placed at the start."""
    rng = np.random.default_rng(seed)
    sizes = rng.lognormal(0, 1, items)
    rates = sizes * rng.lognormal(0, 0.5, items)
    start = np.zeros((items, brokers), dtype=bool)
    odds = np.linspace(2, 0.2, brokers)
    for row in start:
        row[rng.choice(brokers, 2, replace=False, p=odds / odds.sum())] = True
    weights = np.stack([sizes, rates])
    shares = np.repeat(2 * weights.sum(axis=1)[:, None] / brokers, brokers, axis=1)
    return (
        AssignmentProblem(
            counts=np.full(items, 2),
            allowed=np.ones((items, brokers), dtype=bool),
            cost=np.where(start, 0.0, sizes[:, None]),
            weights=weights,
            low=shares * 0.9,
            high=shares * 1.1,
            penalty=np.array([100.0, 100.0]),
            groups=np.arange(brokers) % groups if groups else None,
            group_caps=np.full(items, 1) if groups else None,
        ),
        start,
    )


def best_of_all(given: AssignmentProblem) -> float:
    """The least value, by trying every choice."""
    items, brokers = given.allowed.shape
    rows = []
    for pair in itertools.combinations(range(brokers), 2):
        if given.groups is not None and given.groups[pair[0]] == given.groups[pair[1]]:
            continue
        row = np.zeros(brokers, dtype=bool)
        row[list(pair)] = True
        rows.append(row)
    best = np.inf
    for picks in itertools.product(rows, repeat=items):
        best = min(best, value_of(given, np.array(picks)))
    return best


@pytest.mark.parametrize("groups", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_small_problems_are_solved_as_well_as_by_trying_all(seed: int, groups: int) -> None:
    given, start = problem(seed, 5, 4, groups)
    choice = solve(given, start, 20.0)
    best = best_of_all(given)
    assert choice.value == pytest.approx(value_of(given, choice.chosen))
    assert choice.bound <= best * (1 + 1e-9)
    assert choice.value == pytest.approx(best, rel=1e-3)
    assert (choice.chosen.sum(axis=1) == 2).all()


def test_a_hundred_items_come_near_the_bound() -> None:
    given, start = problem(7, 100, 6, 3)
    choice = solve(given, start, 60.0, target_gap=0.1)
    assert choice.gap <= 0.1
    loads = given.weights @ choice.chosen
    assert (loads <= given.high * 1.01).all()
    assert (loads >= given.low * 0.99).all()
    for group in range(3):
        assert (choice.chosen[:, given.groups == group].sum(axis=1) <= 1).all()


def test_the_bound_holds_at_any_prices() -> None:
    given, _ = problem(3, 5, 4, 2)
    best = best_of_all(given)
    rng = np.random.default_rng(5)
    for scale in (0.0, 0.5, 3.0, 1e6):
        prices = rng.normal(0, scale, given.low.shape)
        assert bound_at(given, prices)[0] <= best * (1 + 1e-9)


def test_items_in_parts_give_the_same_bound_and_a_good_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, start = problem(11, 150, 6)
    whole = solve(given, start, 60.0, target_gap=0.1)
    monkeypatch.setattr("tidelog.spark.pipelines.plan.assignment._RELAXED_COLUMNS", 450)
    parts = solve(given, start, 60.0, target_gap=0.2)
    assert parts.bound <= whole.value * (1 + 1e-9)
    assert parts.value <= 1.2 * whole.value
    assert parts.bound >= 0.8 * whole.bound


def test_a_good_start_stays_as_it_is() -> None:
    given, start = problem(2, 40, 4)
    choice = solve(given, start, 20.0)
    again = AssignmentProblem(
        given.counts,
        given.allowed,
        np.where(choice.chosen, 0.0, 1.0),
        given.weights,
        given.low,
        given.high,
        given.penalty,
    )
    assert (solve(again, choice.chosen, 20.0).chosen == choice.chosen).all()


def test_the_solver_prints_nothing() -> None:
    program = (
        "from tests.unit.spark.test_assignment import problem\n"
        "from tidelog.spark.pipelines.plan.assignment import solve\n"
        "print(solve(*problem(1, 5, 4), 20.0).gap >= 0)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_too_few_allowed_brokers_are_an_error() -> None:
    given, start = problem(1, 4, 3)
    allowed = given.allowed.copy()
    allowed[2, 1:] = False
    narrow = AssignmentProblem(
        given.counts,
        allowed,
        given.cost,
        given.weights,
        given.low,
        given.high,
        given.penalty,
    )
    with pytest.raises(SolverError, match="no plan"):
        solve(narrow, start, 10.0)
    with pytest.raises(SolverError, match="fewer brokers"):
        bound_at(narrow, np.zeros_like(given.low))
