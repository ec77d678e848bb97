"""Names that were mistyped, and what there is instead.

Whoever refuses a name of a fault, a mutant, a profile or a reduction says what there is, and what
was meant, most likely, before all else.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_first(wrong: str, names: Iterable[str]) -> str:
    """All names, those most like the wrong one first, as a list for a message."""
    known = list(names)
    near = difflib.get_close_matches(wrong, known, n=3, cutoff=0.5)
    return ", ".join([*near, *(name for name in known if name not in near)])
