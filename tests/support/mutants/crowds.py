"""Mutants of the limits that hold against crowds of clients (L2, L3).

The docstring of a mutant describes the defect, and appears in docs/internals/mutants.md.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import Catalogue

from tidelog.core.errors import ProtocolError

CATALOGUE: Final = Catalogue()
_breaks = CATALOGUE.breaks
_PROFILE: Final = "crowded"


@_breaks("L2", "tidelog.core.response_budget:ResponseShare.hold", profile=_PROFILE)
def unread_responses_not_counted(_: Any) -> Any:
    """Responses that wait in a connection count in no budget."""
    return lambda self, size_bytes, has_progress: None


@_breaks("L3", "tidelog.wire.codec:_Codec._decode_replacing", profile=_PROFILE)
def malformed_text_refused(_: Any) -> Any:
    """A string that is no UTF-8 is malformed, and closes the connection."""

    def decode(self: Any, buffer: Any, offset: int, end: int) -> Any:
        raise ProtocolError("text that is no UTF-8")

    return decode
