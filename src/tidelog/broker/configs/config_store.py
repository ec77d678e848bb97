"""Configuration in the store, written by whichever broker is asked, as Kafka's brokers do.

The settings of an entity are one node below `/config`; every change leaves a sequence node below
`/config/changes` in the same transaction, by which all brokers hear of it (`live_configs`). A
change is worked out on what the node holds and written on the condition that it still holds that:
otherwise, and where the outcome is unknown (S2), it is worked out again. The store is waited for
as long as a request may take (S3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError
from tidelog.metadata.store import (
    ANY_VERSION,
    Check,
    Create,
    Node,
    Op,
    OutcomeUnknown,
    RequestTooLarge,
    SessionExpired,
    SetData,
    StoreUnavailable,
    TransactionFailed,
)

if TYPE_CHECKING:
    from tidelog.broker.services import Services

_RETRY_MS = 50
TOPICS, BROKERS = "topics", "brokers"
#: What is stored before, what is to be stored; raises KafkaError.
Change = Callable[[Mapping[str, str]], dict[str, str]]


class ConfigStore:
    """Reads and writes `/config` for one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read(self, entities: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """The settings of entities, (type, name) each; none where there is no node, or none that
        can be read. KafkaError(REQUEST_TIMED_OUT) without the store."""
        paths = [layout.config_path(kind, name) for kind, name in entities]
        deadline_ms = self._deadline_ms()
        while True:
            try:
                nodes = await self._services.store.get_many(paths)
            except (StoreUnavailable, OutcomeUnknown, SessionExpired) as error:
                await self._wait(deadline_ms, error)
            else:
                return [_decoded(path, node) for path, node in zip(paths, nodes, strict=True)]

    async def change(
        self, entity_type: str, entity: str, change: Change, validate_only: bool
    ) -> None:
        """Work out new settings and store them.

        Raises KafkaError: what `change` raises, UNKNOWN_TOPIC_OR_PARTITION for a topic that does
        not exist, REQUEST_TIMED_OUT without the store.
        """
        deadline_ms = self._deadline_ms()
        while True:
            try:
                if await self._try(entity_type, entity, change, validate_only):
                    return
            except (StoreUnavailable, OutcomeUnknown, SessionExpired) as error:
                await self._wait(deadline_ms, error)

    async def _try(
        self, entity_type: str, entity: str, change: Change, validate_only: bool
    ) -> bool:
        """Whether the settings are as they should be; False when somebody was quicker."""
        store = self._services.store
        path = layout.config_path(entity_type, entity)
        node = await store.get(path)
        before = _decoded(path, node)
        after = change(before)
        if validate_only or after == before:
            return True
        data = layout.encode_config(after)
        ops: list[Op] = []
        if entity_type == TOPICS:
            ops.append(Check(layout.topic_path(entity), ANY_VERSION))
        if node is None:
            ops.append(Create(path, data))
        else:
            ops.append(SetData(path, data, node.stat.version))
        note = layout.encode_config_change(entity_type, entity)
        ops.append(Create(layout.CONFIG_CHANGE_PREFIX, note, sequence=True))
        try:
            await store.transact(ops)
        except TransactionFailed as failure:
            if isinstance(ops[failure.index], Check):
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {entity!r}"
                ) from failure
            return False
        except RequestTooLarge as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"too many settings for {entity!r}: {error}"
            ) from error
        self._services.tracer.event("config_changed", entity_type=entity_type, entity=entity)
        return True

    def _deadline_ms(self) -> float:
        return self._services.clock.monotonic_ms() + self._services.config.request_timeout_ms

    async def _wait(self, deadline_ms: float, error: Exception) -> None:
        if self._services.clock.monotonic_ms() >= deadline_ms:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the metadata store cannot be reached: {error}; the change may have been made",
            ) from error
        await self._services.tasks.sleep(_RETRY_MS)


def _decoded(path: str, node: Node | None) -> dict[str, str]:
    try:
        return {} if node is None else layout.decode_config(path, node.data)
    except LayoutError:
        # Every broker works without such settings and says so when it reads them.
        return {}
