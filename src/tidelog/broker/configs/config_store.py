"""The configuration in the store; any broker changes it at a client's request, as in Kafka.

One node below `/config` holds the settings of an entity. Every change also creates a sequence node
below `/config/changes` in the same transaction; all brokers watch these nodes and learn of the
change (`live_configs`). A broker computes a change from the content of the entity's node, and
writes it only if the node still has this content. If the entity's node has changed, or if the
outcome of the write is unknown (S2), the change is computed again. A request waits for the store at
most for the request timeout (S3).
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
#: A function that takes the stored settings and returns the new settings; it may raise KafkaError.
Change = Callable[[Mapping[str, str]], dict[str, str]]


class ConfigStore:
    """The access of one broker to the nodes below `/config`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read(self, entities: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
        """Return the settings of entities, each given by (type, name).

        An entity without a node, or with an unreadable node, has no settings. Raises
        KafkaError(REQUEST_TIMED_OUT) if the store is unreachable.
        """
        paths = [layout.config_path(kind, name) for kind, name in entities]
        nodes = await self._patiently(lambda: self._services.store.get_many(paths))
        return [_decoded(path, node) for path, node in zip(paths, nodes, strict=True)]

    async def change(
        self, entity_type: str, entity: str, change: Change, validate_only: bool
    ) -> None:
        """Compute new settings of an entity (a topic or a broker) by `change`, and store them.

        Raises the errors of `change`, and KafkaError: UNKNOWN_TOPIC_OR_PARTITION if the topic does
        not exist, REQUEST_TIMED_OUT if the store is unreachable.
        """

        async def store() -> None:
            while not await self._try(entity_type, entity, change, validate_only):
                pass

        await self._patiently(store)

    async def _try(
        self, entity_type: str, entity: str, change: Change, validate_only: bool
    ) -> bool:
        """Try once to store new settings; return False if another broker changed the entity's node
        first.
        """
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
        # Every broker ignores unreadable settings, and reports the error when it reads them
        # (`live_configs`).
        return {}
