"""Values that the whole code shares."""

from __future__ import annotations

from dataclasses import fields, replace

from tidelog.core.types import PartitionState


def test_a_state_written_by_a_transaction_has_everything_else_as_before() -> None:
    """Each field has a value of its own, also one that is added later."""
    names = [each.name for each in fields(PartitionState)]
    state = PartitionState(**{name: (number,) for number, name in enumerate(names)})  # type: ignore[arg-type]  # any value tells fields apart
    expected = replace(state, mzxid=77)
    found = state.written_by(77)
    assert [getattr(found, name) for name in names] == [getattr(expected, name) for name in names]
