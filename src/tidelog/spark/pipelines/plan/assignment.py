"""The solver of plans: partitions (items) get brokers within limits, at the least cost.

First a linear program assigns items to brokers, perhaps in fractions. A linear program has few
limits (a few for each broker), so it splits few items among brokers: at most one for each tight
limit. An integer program then assigns whole brokers to the items that the linear program split. If
there are too many items for one linear program, they are divided at random into parts, and each
part gets its portion of the limits. At last integer programs improve parts of the plan until its
cost is near the lower bound or the time is over.

The lower bound of the cost is the best Lagrangian value at or near the dual prices of the linear
programs; no plan costs less.

The solver handles items and limits as numbers; `placement` makes them from partitions, their
replicas and their loads.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError, TidelogError
from tidelog.runtime.extras import install_command

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Booleans = NDArray[np.bool_]

#: Tolerance within which a value of the linear program counts as 0 or 1.
_WHOLE: Final = 1e-6
#: The search ends when a plan's cost exceeds the lower bound of all costs by at most this fraction.
TARGET_GAP: Final = 0.005
#: Maximum number of columns of a linear program, whose time grows faster than its columns.
_RELAXED_COLUMNS: Final = 12_000
#: Time limit in s of a linear program; it may exceed the search's limit, because any plan needs a
#: linear program.
_RELAXED_S: Final = 120.0
#: Maximum number of columns of an integer program; more take time and hardly improve the plan.
_PART_COLUMNS: Final = 1_500
_FIRST_COLUMNS: Final = 200
_PART_S: Final = 5.0
#: The solver ends after this number of consecutive integer programs that did not improve the plan.
_FRUITLESS: Final = 25
_BOUND_STEPS: Final = 100


class SolverError(TidelogError):
    """The error if no assignment meets the hard limits, or the solver found none in time."""


@dataclass(frozen=True, slots=True)
class AssignmentProblem:
    """An assignment problem: items (first axis) get brokers (second axis).

    An item, such as a partition, gets `counts` of its `allowed` brokers, at most `group_caps` of
    them in one group, such as a rack. A broker's load of a resource should be between `low` and
    `high`; each unit beyond costs `penalty`.
    """

    counts: Integers
    allowed: Booleans
    cost: Floats
    #: The load that an item causes on each of its brokers, by resource and item.
    weights: Floats
    #: The lower limit of a broker's load, by resource and broker; `high` is the upper limit.
    low: Floats
    high: Floats
    #: The cost of each unit of load beyond the limits, by resource.
    penalty: Floats
    #: The group of each broker, such as its rack; None without groups (`group_caps` then is None,
    #: too).
    groups: Integers | None = None
    group_caps: Integers | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A solution: the brokers chosen for each item, its cost with penalties, and a lower bound of
    all costs.
    """

    chosen: Booleans
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """The distance of the cost from its lower bound, as a fraction of the bound."""
        if self.value <= self.bound:
            return 0.0
        return (self.value - self.bound) / max(abs(self.bound), 1e-9)


def solve(
    problem: AssignmentProblem,
    start: Booleans,
    time_limit_s: float,
    target_gap: float = TARGET_GAP,
    seed: int = 1,
) -> Choice:
    """Return an assignment of nearly minimal cost; `start` is the current assignment.

    Raises SolverError if no assignment meets the hard limits (counts, allowed, groups), and
    ConfigError if HiGHS is not installed.
    """
    import numpy as np

    deadline = time.monotonic() + time_limit_s
    rng = np.random.default_rng(seed)
    chosen, prices = _relaxed(problem, rng, deadline)
    value = value_of(problem, chosen)
    if _is_possible(problem, start) and value_of(problem, start) <= value:
        chosen, value = start, value_of(problem, start)
    bound = _best_bound(problem, prices, value, deadline)
    columns, fruitless = _FIRST_COLUMNS, 0
    while value > bound * (1 + target_gap) + 1e-12 and fruitless < _FRUITLESS:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        part = _part(problem, chosen, columns, rng)
        begun = time.monotonic()
        better = _program(problem, part, chosen, min(left_s, _PART_S), is_integer=True)
        trial = chosen.copy()
        trial[part] = better.values > 0.5
        found = value_of(problem, trial)
        fruitless += 1
        if found < value * (1 - 1e-9):
            chosen, value, fruitless = trial, found, 0
        if better.is_best and len(part) == len(problem.counts):
            break  # the plan is optimal, because all items were in the program.
        # Choose the size of the next part of the items: larger after a quick solution, smaller
        # after a timeout.
        if not better.is_best:
            columns = columns * 2 // 3
        elif time.monotonic() - begun < _PART_S / 5:
            columns = min(columns * 4 // 3, _PART_COLUMNS)
    return Choice(chosen, value, min(bound, value))


def _relaxed(problem: AssignmentProblem, rng: Any, deadline: float) -> tuple[Booleans, Floats]:
    """Return an assignment from linear programs, and mean dual prices by resource and broker."""
    import numpy as np

    items, brokers = problem.allowed.shape
    parts = max(1, -(-items * brokers // _RELAXED_COLUMNS))
    chosen = np.zeros((items, brokers), dtype=bool)
    prices = np.zeros_like(problem.low)
    left = problem.weights.sum(axis=1)
    open_items = rng.permutation(items)
    for number, part in enumerate(np.array_split(open_items, parts)):
        weights = problem.weights[:, part]
        # Each part of the items gets a portion of the limits that earlier parts left, so that
        # errors do not add up.
        portion = np.divide(weights.sum(axis=1), left, out=np.zeros(len(left)), where=left > 0)[
            :, None
        ]
        done = problem.weights @ chosen
        own = AssignmentProblem(
            problem.counts[part],
            problem.allowed[part],
            problem.cost[part],
            weights,
            (problem.low - done) * portion,
            (problem.high - done) * portion,
            problem.penalty,
            problem.groups,
            None if problem.group_caps is None else problem.group_caps[part],
        )
        limit_s = max(_RELAXED_S, (deadline - time.monotonic()) / (parts - number))
        found = _program(own, np.arange(len(part)), None, limit_s, is_integer=False)
        whole = found.values > 0.5
        pieces = (found.values > _WHOLE) & (found.values < 1 - _WHOLE)
        broken = np.where(pieces.any(axis=1))[0]
        chosen[part] = _settle(own, whole, broken, deadline) if len(broken) else whole
        prices += found.prices / parts
        left -= weights.sum(axis=1)
    return chosen, prices


def _best_bound(problem: AssignmentProblem, prices: Floats, value: float, deadline: float) -> float:
    """Return the best lower bound of the cost, by Lagrangian ascent with Polyak's steps.

    `value` is the cost of the best known assignment. Dual prices that are means of several linear
    programs are not optimal, so the search improves them.
    """
    import numpy as np

    units = problem.high.mean(axis=1, keepdims=True).clip(min=1e-9)
    best = -np.inf
    for _ in range(_BOUND_STEPS):
        bound, loads = bound_at(problem, prices)
        best = max(best, bound)
        if value <= best * (1 + TARGET_GAP) or time.monotonic() > deadline:
            break
        kept = np.where(prices > 0, problem.low, problem.high)
        kept = np.where(prices == 0, loads.clip(problem.low, problem.high), kept)
        slope = (kept - loads) / units
        size = float((slope * slope).sum())
        if size < 1e-18:
            break
        prices = prices + (value - bound) / 2 / size * slope / units
        prices = prices.clip(-problem.penalty[:, None], problem.penalty[:, None])
    return float(best)


def bound_at(problem: AssignmentProblem, prices: Floats) -> tuple[float, Floats]:
    """Return the Lagrangian value at given dual prices of load, and the resulting loads.

    The Lagrangian value is a lower bound of the cost, whatever the prices. At given prices each
    item gets its cheapest brokers. Raises SolverError if an item has too few allowed brokers.
    """
    import numpy as np

    limits = problem.penalty[:, None]
    prices = prices.clip(-limits, limits)
    reduced = problem.cost - problem.weights.T @ prices
    reduced = np.where(problem.allowed, reduced, np.inf)
    items, brokers = reduced.shape
    order = np.argsort(reduced, axis=1, kind="stable")
    place = np.arange(items)
    taken = np.zeros(items, dtype=int)
    groups = np.zeros(brokers, dtype=int) if problem.groups is None else problem.groups
    caps = problem.counts if problem.group_caps is None else problem.group_caps
    in_group = np.zeros((items, int(groups.max()) + 1), dtype=int)
    loads = np.zeros_like(problem.low)
    total = 0.0
    for rank in range(brokers):
        broker = order[:, rank]
        group = groups[broker]
        price = reduced[place, broker]
        takes = (taken < problem.counts) & (in_group[place, group] < caps) & np.isfinite(price)
        total += float(price[takes].sum())
        taken += takes
        in_group[place, group] += takes
        for resource, weights in enumerate(problem.weights):
            loads[resource] += np.bincount(broker[takes], weights[takes], brokers)
    if (taken < problem.counts).any():
        raise SolverError("an item is allowed fewer brokers than it must take")
    kept = np.where(prices > 0, prices * problem.low, prices * problem.high)
    return total + float(kept.sum()), loads


def value_of(problem: AssignmentProblem, chosen: Booleans) -> float:
    """Return the cost of an assignment, with penalties."""
    loads = problem.weights @ chosen
    over = (loads - problem.high).clip(min=0) + (problem.low - loads).clip(min=0)
    return float((problem.cost * chosen).sum() + (problem.penalty[:, None] * over).sum())


def _is_possible(problem: AssignmentProblem, chosen: Booleans) -> bool:
    """Return whether an assignment meets the hard limits."""
    import numpy as np

    if (chosen & ~problem.allowed).any() or (chosen.sum(axis=1) != problem.counts).any():
        return False
    if problem.groups is None or problem.group_caps is None:
        return True
    for group in np.unique(problem.groups):
        if (chosen[:, problem.groups == group].sum(axis=1) > problem.group_caps).any():
            return False
    return True


def _settle(
    problem: AssignmentProblem, chosen: Booleans, broken: Integers, deadline: float
) -> Booleans:
    """Return the assignment with whole brokers for the items that the linear program split."""
    settled = chosen.copy()
    settled[broken] = False
    size = max(1, 2 * _FIRST_COLUMNS // problem.allowed.shape[1])
    for begin in range(0, len(broken), size):
        part = broken[begin : begin + size]
        limit_s = max(1.0, min(_PART_S, deadline - time.monotonic()))
        found = _program(problem, part, settled, limit_s, is_integer=True)
        settled[part] = found.values > 0.5
    return settled


def _part(problem: AssignmentProblem, chosen: Booleans, columns: int, rng: Any) -> Integers:
    """Return random items to assign again, preferably costly items or items on full brokers."""
    import numpy as np

    size = max(4, columns // problem.allowed.shape[1])
    loads = problem.weights @ chosen
    beyond = ((loads > problem.high) | (loads < problem.low)).any(axis=0)
    costly = ((problem.cost * chosen).sum(axis=1) > 0).astype(float)
    at_limit = (chosen[:, beyond].any(axis=1)).astype(float) if beyond.any() else 0 * costly
    odds = 1.0 + 6.0 * costly + 2.0 * at_limit
    count = min(size, len(odds))
    return np.sort(rng.choice(len(odds), size=count, replace=False, p=odds / odds.sum()))


@dataclass(frozen=True, slots=True)
class _Solved:
    """Values by item and broker, and a linear program's dual prices by resource and broker."""

    values: Floats
    prices: Floats
    #: Whether the values are optimal within the solver's gap.
    is_best: bool


def _program(
    problem: AssignmentProblem,
    items: Integers,
    fixed: Booleans | None,
    time_limit_s: float,
    *,
    is_integer: bool,
) -> _Solved:
    """Assign brokers to `items`; all other items keep their brokers in `fixed`."""
    import numpy as np

    brokers = problem.allowed.shape[1]
    resources = len(problem.penalty)
    rest = np.zeros((resources, brokers))
    if fixed is not None:
        others = fixed.copy()
        others[items] = False
        rest = problem.weights @ others
    rows_of, columns_of = np.where(problem.allowed[items])
    choices = len(rows_of)
    slacks = 2 * resources * brokers
    cost = np.concatenate(
        [problem.cost[items][rows_of, columns_of], np.repeat(problem.penalty, 2 * brokers)]
    )
    entries = [(rows_of, np.arange(choices), np.ones(choices))]
    counts = problem.counts[items].astype(float)
    low, high = [counts], [counts]
    row = len(items)
    column = choices
    for resource in range(resources):
        weights = problem.weights[resource][items][rows_of]
        entries.append((row + columns_of, np.arange(choices), weights))
        place = np.arange(brokers)
        entries.append((row + place, column + place, -np.ones(brokers)))
        entries.append((row + place, column + brokers + place, np.ones(brokers)))
        low.append(problem.low[resource] - rest[resource])
        high.append(problem.high[resource] - rest[resource])
        row += brokers
        column += 2 * brokers
    if problem.groups is not None and problem.group_caps is not None:
        groups = problem.groups[columns_of]
        number = int(problem.groups.max()) + 1
        entries.append((row + rows_of * number + groups, np.arange(choices), np.ones(choices)))
        low.append(np.full(len(items) * number, -np.inf))
        high.append(np.repeat(problem.group_caps[items], number).astype(float))
        row += len(items) * number
    values, duals, is_best = _highs(
        cost,
        np.concatenate([np.ones(choices), np.full(slacks, np.inf)]),
        (np.concatenate(low), np.concatenate(high)),
        tuple(np.concatenate([each[part] for each in entries]) for part in range(3)),
        choices if is_integer else 0,
        time_limit_s,
    )
    result = np.zeros((len(items), brokers))
    result[rows_of, columns_of] = values[:choices]
    prices = duals[len(items) : len(items) + resources * brokers].reshape(resources, brokers)
    return _Solved(result, prices, is_best)


def _highs(
    cost: Floats,
    upper: Floats,
    bounds: tuple[Floats, Floats],
    entries: tuple[Any, ...],
    integers: int,
    time_limit_s: float,
) -> tuple[Floats, Floats, bool]:
    """Return a solution's column values and row prices, and whether it is proven optimal.

    The first `integers` columns of the program must have whole numbers.

    Raises SolverError, and ConfigError without HiGHS.
    """
    import numpy as np

    try:
        import highspy
    except ImportError as error:
        raise ConfigError(f"plans need the solver HiGHS: {install_command('spark')}") from error
    rows, columns, values = entries
    order = np.lexsort((rows, columns))
    rows, columns, values = rows[order], columns[order], values[order]
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), len(bounds[0])
    model.col_cost_, model.col_lower_, model.col_upper_ = cost, np.zeros(len(cost)), upper
    model.row_lower_, model.row_upper_ = bounds
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.searchsorted(columns, np.arange(len(cost) + 1)).astype(np.int32)
    model.a_matrix_.index_ = rows.astype(np.int32)
    model.a_matrix_.value_ = values
    if integers:
        kinds = [highspy.HighsVarType.kInteger] * integers
        model.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * (len(cost) - integers)
    with _standard_output_closed():
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", float(time_limit_s))
    solver.setOptionValue("threads", 1)
    if integers:
        solver.setOptionValue("mip_rel_gap", TARGET_GAP / 2)
    solver.passModel(model)
    solver.run()
    status = solver.getModelStatus()
    info = solver.getInfo()
    if info.primal_solution_status != 2:  # the solver found no feasible point
        reason = solver.modelStatusToString(status)
        raise SolverError(f"the solver found no plan within {time_limit_s:.0f} s: {reason}")
    solution = solver.getSolution()
    # An integer program has no dual prices.
    prices = np.zeros(len(bounds[0])) if integers else np.array(solution.row_dual)
    is_best = status == highspy.HighsModelStatus.kOptimal
    return np.array(solution.col_value), prices, is_best


@contextlib.contextmanager
def _standard_output_closed() -> Iterator[None]:
    """Discard standard output, because the solver would print its version into the JSON output."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
