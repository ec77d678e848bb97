"""Repeated access to the metadata store, for work that cannot continue without it (S3).

After an error of the store, this module pauses and repeats the caller's operation. The caller names
the errors after which to repeat, because an expired session ends the work of some callers.
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

#: Pause between two attempts to reach the store, in milliseconds.
RETRY_MS: Final = 50
#: Errors of a store that did not respond; the session may still be valid.
UNANSWERED: Final = (StoreUnavailable, OutcomeUnknown)
#: Errors of a store that did not respond, and the expiry of the session.
UNREACHED: Final = (*UNANSWERED, SessionExpired)


async def patiently(
    tasks: Tasks,
    ask: Callable[[], Awaitable[T]],
    *,
    errors: tuple[type[StoreError], ...] = UNANSWERED,
    on_error: Callable[[StoreError], None] = lambda error: None,
) -> T:
    """Return the result of `ask`; after any of `errors`, pause and call `ask` again.

    `on_error` gets the error before the pause; an exception raised by `on_error` ends the attempts.
    """
    while True:
        try:
            return await ask()
        except errors as error:
            on_error(error)
            await tasks.sleep(RETRY_MS)


async def read_all(services: Services, paths: Sequence[str]) -> list[Node | None]:
    """Return the nodes at these paths, None for an absent node; wait until the store can be read.

    A broker must not guess these nodes: without its topic's configuration, for example, a replica
    would follow a wrong retention policy.
    """
    read = partial(services.store.get_many, paths)
    return list(await patiently(services.tasks, read, errors=UNREACHED))
