"""docs/internals/proof.md lists the faults that the simulator has."""

from __future__ import annotations

from tests.sim import fault_table


def test_the_page_tells_of_every_fault_and_all_churn() -> None:
    assert fault_table.written() == fault_table.render(), "run python -m tests.sim.fault_table"
