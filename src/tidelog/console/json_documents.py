"""The JSON text of a page's document, for readers whose numbers are of 64-bit floating point.

An offset is a 64-bit integer, and JavaScript's numbers are exact only up to 2^53. Whole numbers
beyond that are therefore strings of digits in the text; the scripts of the pages compute with them
as BigInt.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

#: The greatest whole number that JavaScript represents exactly (Number.MAX_SAFE_INTEGER).
MAX_EXACT: Final = 2**53 - 1
#: A text without this many digits in a row has no whole number beyond MAX_EXACT.
_LONG: Final = re.compile(rf"[0-9]{{{len(str(MAX_EXACT))}}}")


def json_text(document: Any) -> str:
    """Return a document as JSON, in which whole numbers beyond MAX_EXACT are strings."""
    text = json.dumps(document, separators=(",", ":"))
    if _LONG.search(text) is None:  # so the usual document costs one search only
        return text
    return json.dumps(_exact(document), separators=(",", ":"))


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(each) for each in value]
    if isinstance(value, int) and not -MAX_EXACT <= value <= MAX_EXACT:
        return str(value)
    return value
