"""Suggestions for a mistyped name: the known names, the most similar first.

Error messages about faults, profiles, reductions and mutants end with these suggestions.
If there are many names, a message has only the similar names, and the command that lists all names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Maximum number of names that a message lists.
_MOST_LISTED = 12


def suggestion(wrong: str, names: Iterable[str], listed_by: str) -> str:
    """Return the end of an error message about a mistyped name: the similar or the known names."""
    known = list(names)
    near = difflib.get_close_matches(wrong, known, n=3, cutoff=0.5)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    if len(known) <= _MOST_LISTED:
        return f"{meant}There are {nearest_first(wrong, known)}"
    return f"{meant}{listed_by} lists all {len(known)}"


def nearest_first(wrong: str, names: Iterable[str]) -> str:
    """Return all names as a list for a message, the most similar to the wrong name first."""
    known = list(names)
    near = difflib.get_close_matches(wrong, known, n=3, cutoff=0.5)
    return ", ".join([*near, *(name for name in known if name not in near)])
