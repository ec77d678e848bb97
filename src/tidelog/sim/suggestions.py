"""Suggestions for a mistyped name: the known names, the most similar first.

Error messages about faults, profiles, reductions and mutants use them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_first(wrong: str, names: Iterable[str]) -> str:
    """Return all names as a list for a message, the most similar to the wrong name first."""
    known = list(names)
    near = difflib.get_close_matches(wrong, known, n=3, cutoff=0.5)
    return ", ".join([*near, *(name for name in known if name not in near)])
