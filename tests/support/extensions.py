"""The compiled extensions of this checkout, for tests that compare them with the Python code."""

from __future__ import annotations

import importlib.util
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@cache
def compiled_extension(source: str) -> ModuleType | None:
    """The extension of a source below the checkout's root; None without a compiler.

    Compiled afresh where the file beside the source is missing or older.
    """
    path = ROOT / source
    hook = _loaded("hatch_build", ROOT / "hatch_build.py")
    built = path.with_name(path.stem + hook.SUFFIX)
    if built.exists() and built.stat().st_mtime >= path.stat().st_mtime:
        return _loaded(path.stem, built)
    with tempfile.TemporaryDirectory() as directory:
        found = hook.compiled(Path(source), ROOT, Path(directory))
        return None if found is None else _loaded(path.stem, found)


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
