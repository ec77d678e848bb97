"""Patient access to the metadata store, for work that cannot go on without it (S3).

A store that does not answer is asked again after a pause. Which errors mean that, the caller says:
a session that has expired ends the work of some callers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from tidelog.broker.services import Services
from tidelog.core.tasks import Tasks
from tidelog.metadata.store import (
    Node,
    OutcomeUnknown,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)

T = TypeVar("T")

#: Pause between two attempts.
RETRY_MS: Final = 50
#: The store did not answer; the session may live on.
UNANSWERED: Final = (StoreUnavailable, OutcomeUnknown)
#: The store did not answer, or not within the session.
UNREACHED: Final = (*UNANSWERED, SessionExpired)


async def patiently(
    tasks: Tasks,
    ask: Callable[[], Awaitable[T]],
    *,
    errors: tuple[type[StoreError], ...] = UNANSWERED,
    on_error: Callable[[StoreError], None] = lambda error: None,
) -> T:
    """Return the result of `ask`, which is called again after each of these errors and a pause.

    `on_error` gets the error before the pause; what it raises ends the attempts.
    """
    while True:
        try:
            return await ask()
        except errors as error:
            on_error(error)
            await tasks.sleep(RETRY_MS)


async def read_all(services: Services, paths: Sequence[str]) -> list[Node | None]:
    """Return the nodes at these paths, None where there is none; wait until they can be read.

    Replicas without their topic's configuration, or without the ids of their topics, would be kept
    by wrong rules.
    """
    read = partial(services.store.get_many, paths)
    return list(await patiently(services.tasks, read, errors=UNREACHED))
