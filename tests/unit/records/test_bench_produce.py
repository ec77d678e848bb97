"""What `python -m bench produce --against` refuses to compare."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.produce import check_walks

from tidelog.records import walk

needs_compiled = pytest.mark.skipif(
    walk.compiled is None, reason="the walk over records is not compiled: no C compiler"
)


def checkout(path: Path, *modules: str) -> str:
    records = path / "src" / "tidelog" / "records"
    records.mkdir(parents=True)
    for file in (records.parent / "__init__.py", records / "__init__.py"):
        file.write_text("")
    for module in modules:
        (records / f"{module}.py").write_text("")
    return str(path)


@needs_compiled
def test_a_checkout_that_lacks_its_compiled_walk_is_not_compared(tmp_path: Path) -> None:
    other = checkout(tmp_path, "walk")
    with pytest.raises(SystemExit, match=f"{tmp_path} has not compiled src/tidelog/records/_walk"):
        check_walks(other)


@needs_compiled
def test_checkouts_with_a_compiled_walk_and_from_before_there_was_one_are_compared(
    tmp_path: Path,
) -> None:
    assert check_walks(checkout(tmp_path / "compiled", "walk", "_walk")) == (True, True)
    assert check_walks(checkout(tmp_path / "before")) == (True, None)
