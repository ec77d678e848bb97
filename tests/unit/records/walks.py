"""Both walks over records: in Python, and compiled from this checkout."""

from __future__ import annotations

from types import ModuleType

import pytest
from tests.support.extensions import ROOT, compiled_extension

from tidelog.records.walk import walk_in_python

__all__ = ["PYTHON_AND_COMPILED", "ROOT", "compiled_walk"]


def compiled_walk() -> ModuleType | None:
    """The extension, compiled from this checkout's source; None without a compiler."""
    return compiled_extension("src/tidelog/records/_walk.c")


_COMPILED = compiled_walk()
#: The walks, as parameters of a test.
PYTHON_AND_COMPILED = [
    pytest.param(walk_in_python, id="python"),
    pytest.param(
        _COMPILED.walk if _COMPILED else None,
        id="compiled",
        marks=pytest.mark.skipif(_COMPILED is None, reason="no C compiler"),
    ),
]
