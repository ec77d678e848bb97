"""Both walks over records: in Python, and compiled from this checkout."""

from __future__ import annotations

import importlib.util
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tidelog.records.walk import walk_in_python

ROOT = Path(__file__).resolve().parents[3]


@cache
def compiled_walk() -> ModuleType | None:
    """The extension, compiled from this checkout's source; None without a compiler."""
    hook = _loaded("hatch_build", ROOT / "hatch_build.py")
    name = "_walk" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")
    built = ROOT / "src/tidelog/records" / name
    source = built.with_name("_walk.c")
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        with tempfile.TemporaryDirectory() as directory:
            found = hook.compiled(ROOT, Path(directory))
            return None if found is None else _loaded("_walk", found)
    return _loaded("_walk", built)


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
