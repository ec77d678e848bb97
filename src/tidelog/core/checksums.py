"""CRC-32C, the checksum of every record batch, from the compiled module of the package `crc32c`.

The whole package also imports a command line (argparse, email, zipfile and more), which takes 2.5
MiB in each broker. This module therefore loads only the package's compiled module. If the compiled
module is not found under its name, the whole package is imported, with equal results.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from importlib.machinery import PathFinder

from tidelog.core.ports import Buffer

_PACKAGE = "crc32c"


def _loaded() -> Callable[[Buffer], int]:
    package = importlib.util.find_spec(_PACKAGE)
    places = None if package is None else package.submodule_search_locations
    compiled = PathFinder.find_spec(f"{_PACKAGE}._crc32c", places) if places else None
    if compiled is None or compiled.loader is None:
        module = importlib.import_module(_PACKAGE)
    else:
        module = importlib.util.module_from_spec(compiled)
        compiled.loader.exec_module(module)
    function: Callable[[Buffer], int] = module.crc32c
    return function


#: Returns the CRC-32C of a buffer.
crc32c = _loaded()
