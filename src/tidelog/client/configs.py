"""Reads and changes of the configuration of topics, one broker, and all brokers (KIP-226, 339).

Only the broker itself serves requests for its own settings. Any live broker serves requests for
topics and for the defaults of all brokers, and for the throttle rates of dead brokers (R15). A
change names single keys and leaves other keys unchanged. A change of a configuration may be
repeated. List changes are idempotent, too: brokers do not append a present element
again, and ignore the subtraction of a missing element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.client.cluster import BrokerNode
from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask
from tidelog.client.steps import Operation
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.throttle_keys import FOREIGN_RATES
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.registry import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

#: Types of resources (ConfigResource.Type).
TOPIC: Final = 2
BROKER: Final = 4

#: Names of the sources of values (DescribeConfigsResponse.ConfigSource).
SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}


class ConfigResource(NamedTuple):
    """A topic, one broker, or all brokers: the type BROKER with an empty name."""

    type: int
    name: str

    def __str__(self) -> str:
        if self.type == TOPIC:
            return f"topic {self.name!r}"
        return f"broker {self.name}" if self.name else "all brokers"

    @property
    def owner(self) -> int | None:
        """The only broker that serves requests for the resource; None if any broker does."""
        return int(self.name) if self.type == BROKER and self.name else None


class ConfigChange(NamedTuple):
    """One key's change; `value` is None if the operation is DELETE."""

    operation: ConfigOperation
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that was set for a key, and where it was set (Kafka's ConfigSource)."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One key with its effective value; a sensitive value is null.

    `synonyms` are all values that were set, the effective value first.
    """

    name: str
    value: str | None
    #: The name of the value's source, one of SOURCES.
    source: str
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether the value is Kafka's default: neither a request nor a file sets the key."""
        return self.source == "DEFAULT_CONFIG"

    @classmethod
    def from_response(cls, answer: DescribeConfigsResourceResult) -> ConfigValue:
        """Return the value of one key in a response."""
        return cls(
            name=answer.name,
            value=answer.value,
            source=_source(answer.config_source),
            read_only=answer.read_only,
            sensitive=answer.is_sensitive,
            synonyms=tuple(
                ConfigSynonym(each.name, each.value, _source(each.source))
                for each in answer.synonyms
            ),
        )


class ConfigAdmin:
    """Operations on configurations."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def describe(
        self,
        resource: ConfigResource,
        keys: Sequence[str] | None = None,
        *,
        with_synonyms: bool = False,
    ) -> Operation[list[ConfigValue]]:
        """Return a resource's configuration, or only `keys` of it. Raises KafkaError."""
        found = yield from self.describe_all([resource], keys, with_synonyms=with_synonyms)
        return found[resource]

    def describe_all(
        self,
        resources: Sequence[ConfigResource],
        keys: Sequence[str] | None = None,
        *,
        with_synonyms: bool = False,
    ) -> Operation[dict[ConfigResource, list[ConfigValue]]]:
        """Return the configurations of topics, or of one broker, with one request.

        Raises the KafkaError of the first resource that cannot be read.
        """
        if not resources:
            return {}
        message = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(each.type, each.name, keys) for each in resources],
            include_synonyms=with_synonyms,
        )

        def attempt(patience: Patience) -> Operation[dict[ConfigResource, list[ConfigValue]]]:
            node = yield from self._whom(resources[0], patience)
            response = yield from ask(
                node, DESCRIBE_CONFIGS, message, patience, DescribeConfigsResponse
            )
            found = {}
            for result in response.results:
                resource = ConfigResource(result.resource_type, result.resource_name)
                _check(resource, result.error_code, result.error_message)
                values = [ConfigValue.from_response(each) for each in result.configs]
                found[resource] = sorted(values, key=lambda value: value.name)
            for resource in resources:
                if resource not in found:
                    raise _silent(node, resource)
            return found

        return (
            yield from self._router.repeat(f"reading the configuration of {resources[0]}", attempt)
        )

    def alter(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], validate_only: bool = False
    ) -> Operation[None]:
        """Change some keys of a resource; `validate_only` only checks. Raises KafkaError."""
        configs = [AlterableConfig(each.name, each.operation, each.value) for each in changes]
        message = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource.type, resource.name, configs)],
            validate_only=validate_only,
        )

        def attempt(patience: Patience) -> Operation[None]:
            node = yield from self._whom_to_alter(resource, changes, patience)
            response = yield from ask(
                node, INCREMENTAL_ALTER_CONFIGS, message, patience, IncrementalAlterConfigsResponse
            )
            for result in response.responses:
                _check(resource, result.error_code, result.error_message)
                return
            raise _silent(node, resource)

        return self._router.repeat(f"changing the configuration of {resource}", attempt)

    def _whom(self, resource: ConfigResource, patience: Patience) -> Operation[BrokerNode]:
        if resource.owner is None:
            return (yield from self._router.any_broker(patience))
        return (yield from self._router.broker(resource.owner, patience))

    def _whom_to_alter(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], patience: Patience
    ) -> Operation[BrokerNode]:
        if resource.owner is not None and is_of_any_broker(changes):
            for node in (yield from self._router.all_brokers(patience)):
                if node.broker_id == resource.owner:
                    return node
            return (yield from self._router.any_broker(patience))
        return (yield from self._whom(resource, patience))


def is_of_any_broker(changes: Sequence[ConfigChange]) -> bool:
    """Return whether any live broker can make these changes to the settings of a broker.

    Only the throttle rates of a broker can be changed by another broker, even if the broker is dead
    (R15).
    """
    return bool(changes) and all(change.name in FOREIGN_RATES for change in changes)


def _source(number: int) -> str:
    return SOURCES.get(number, f"UNKNOWN_{number}")


def _check(resource: ConfigResource, number: int, message: str | None) -> None:
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{resource}: {message}" if message else str(resource))


def _silent(node: BrokerNode, resource: ConfigResource) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"{node.address} did not answer for {resource}"
    )
