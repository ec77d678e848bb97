"""Reads of the metadata store that a broker cannot go on without (S3).

While the store does not answer they wait: replicas without their topic's configuration, or without
the ids of their topics, would be kept by wrong rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.metadata.store import OutcomeUnknown, SessionExpired, StoreUnavailable

if TYPE_CHECKING:
    from tidelog.broker.services import Services
    from tidelog.metadata.store import Node

_RETRY_MS: Final = 50


async def read_all(services: Services, paths: Sequence[str]) -> list[Node | None]:
    """Return the nodes at these paths, None where there is none; wait until they can be read."""
    while True:
        try:
            return list(await services.store.get_many(paths))
        except (StoreUnavailable, OutcomeUnknown, SessionExpired):
            await services.tasks.sleep(_RETRY_MS)
