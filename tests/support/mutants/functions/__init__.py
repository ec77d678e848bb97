"""Mutants that replace functions of the brokers, a module for each family of rules.

Each module registers its mutants when it is imported. The docstring of a mutant describes the
defect, and appears in docs/internals/mutants.md.
"""

from __future__ import annotations

import importlib
import pkgutil

for module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(module.name)
