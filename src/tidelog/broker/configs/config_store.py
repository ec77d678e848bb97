"""Configuration in the store, which any broker writes on request, as in Kafka.

The settings of an entity are one node below `/config`. Every change leaves a sequence node below
`/config/changes` in the same transaction, by which all brokers learn of it (`live_configs`). A
change is computed from the node's content, and written on the condition that the node is unchanged.
Otherwise, and where the outcome is unknown (S2), it is computed again. A request waits for the
store as long as a request may take (S3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from tidelog.broker.services import Services
from tidelog.broker.store_access import UNREACHED, patiently
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError
from tidelog.metadata.store import (
    ANY_VERSION,
    Check,
    Create,
    Node,
    Op,
    RequestTooLarge,
    SetData,
    StoreError,
    TransactionFailed,
)

T = TypeVar("T")

TOPICS, BROKERS = "topics", "brokers"
#: From the stored settings to the settings to store; raises KafkaError.
Change = Callable[[Mapping[str, str]], dict[str, str]]


class ConfigStore:
    """The reads and writes of `/config` for one broker."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read(self, entities: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """Return the settings of entities, (type, name) each.

        Empty where there is no node, or no readable one. Raises KafkaError(REQUEST_TIMED_OUT)
        without the store.
        """
        paths = [layout.config_path(kind, name) for kind, name in entities]
        nodes = await self._patiently(lambda: self._services.store.get_many(paths))
        return [_decoded(path, node) for path, node in zip(paths, nodes, strict=True)]

    async def change(
        self, entity_type: str, entity: str, change: Change, validate_only: bool
    ) -> None:
        """Compute new settings and store them.

        Raises KafkaError: the errors of `change`, UNKNOWN_TOPIC_OR_PARTITION for a topic that does
        not exist, REQUEST_TIMED_OUT without the store.
        """

        async def store() -> None:
            while not await self._try(entity_type, entity, change, validate_only):
                pass

        await self._patiently(store)

    async def _try(
        self, entity_type: str, entity: str, change: Change, validate_only: bool
    ) -> bool:
        """Try to store new settings; return False when another broker was quicker."""
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

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        services = self._services
        deadline_ms = services.clock.monotonic_ms() + services.config.request_timeout_ms

        def check_time(error: StoreError) -> None:
            if services.clock.monotonic_ms() >= deadline_ms:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the metadata store cannot be reached: {error}; the change may have been made",
                ) from error

        return await patiently(services.tasks, ask, errors=UNREACHED, on_error=check_time)


def _decoded(path: str, node: Node | None) -> dict[str, str]:
    try:
        return {} if node is None else layout.decode_config(path, node.data)
    except LayoutError:
        # Every broker works without such settings and reports that when it reads them.
        return {}
