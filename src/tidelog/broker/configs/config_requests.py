"""The common part of AlterConfigs and IncrementalAlterConfigs: the change of each resource.

Any broker changes topics and the cluster-wide broker defaults (the broker resource without a name).
Only the broker itself changes its own settings, so clients send a request about these settings to
that broker (KIP-226). The rates of the replication throttle are an exception: any broker changes
them for any other broker (R15). Each resource succeeds or fails by itself. The error for a key
gives the reason: the key needs a restart, is unknown for a topic, or has an invalid value. Brokers
accept unknown keys, which have no effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.configs import logger_levels
from tidelog.broker.configs.config_store import BROKERS, TOPICS
from tidelog.core import dynamic_config
from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import Key, keys_of
from tidelog.core.dynamic_config import Alteration
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.names import validate_topic_name
from tidelog.core.throttle_keys import FOREIGN_RATES
from tidelog.core.topic_config import TopicConfig
from tidelog.metadata.layout import DEFAULT_ENTITY

if TYPE_CHECKING:
    from tidelog.broker.configs.config_store import ConfigStore
    from tidelog.broker.services import Services

#: Resource types (ConfigResource.Type).
TOPIC_RESOURCE, BROKER_RESOURCE, LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE = 2, 4, 8, 16
GROUP_RESOURCE = 32
#: Number of resources of one request that are handled in one turn of the event loop.
_PER_TURN = 100


class Resource(NamedTuple):
    """The requested changes of one resource: a topic, a broker, or a broker's loggers."""

    type: int
    name: str
    alterations: Sequence[Alteration]


class ConfigOutcome(NamedTuple):
    """The outcome of a configuration request for one resource."""

    type: int
    name: str
    error: ErrorCode
    message: str | None


def entity_of(services: Services, resource_type: int, name: str) -> tuple[str, str]:
    """Return the (type, name) under which the store keeps a resource's configuration.

    Raises KafkaError: INVALID_REQUEST for a resource of an unsupported type or of another broker,
    UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
    """
    if resource_type == TOPIC_RESOURCE:
        validate_topic_name(name)
        if name not in services.view.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return TOPICS, name
    if resource_type == BROKER_RESOURCE:
        if name in ("", str(services.broker_id)):
            return BROKERS, name or DEFAULT_ENTITY
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {name!r} was asked for, this is broker {services.broker_id}: ask that broker,"
            " or leave the name empty for what holds for all brokers",
        )
    # Kafka 3.9 with ZooKeeper also refuses these resource types, the configuration of groups
    # included.
    what = {
        CLIENT_METRICS_RESOURCE: "subscriptions of client metrics",
        GROUP_RESOURCE: "configurations of groups",
    }.get(resource_type, "these")
    raise KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"resource type {resource_type} is not supported: {TOPIC_RESOURCE} (topic) and"
        f" {BROKER_RESOURCE} (broker) are, {what} are not",
    )


async def alter(
    services: Services,
    store: ConfigStore,
    static: BrokerConfig,
    resources: Sequence[Resource],
    *,
    replace: bool,
    validate_only: bool,
) -> list[ConfigOutcome]:
    """Change each resource; `replace` unsets the keys without a new value (AlterConfigs).

    `static` is the configuration with which the broker was started.
    """
    named = Counter((resource.type, resource.name) for resource in resources)
    outcomes = []
    for resource in resources:
        error, message = ErrorCode.NONE, None
        try:
            if named[resource.type, resource.name] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"resource {resource.name!r} is named more than once"
                )
            await _alter(services, store, static, resource, replace, validate_only)
        except KafkaError as refused:
            error, message = refused.code, refused.message
        outcomes.append(ConfigOutcome(resource.type, resource.name, error, message))
        if len(outcomes) % _PER_TURN == 0:
            await services.tasks.sleep(0)
    return outcomes


async def _alter(
    services: Services,
    store: ConfigStore,
    static: BrokerConfig,
    resource: Resource,
    replace: bool,
    validate_only: bool,
) -> None:
    if resource.type == LOGGER_RESOURCE:
        if replace:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "AlterConfigs cannot change levels of loggers: IncrementalAlterConfigs does",
            )
        loggers = logger_levels.check_broker(
            services.ports.loggers, resource.name, services.broker_id
        )
        logger_levels.alter(loggers, resource.alterations, validate_only=validate_only)
        return
    if resource.type == TOPIC_RESOURCE and not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a topic is empty")
    is_foreign_rate = _sets_rates_of_another(services, resource)
    if is_foreign_rate:
        entity_type, entity = BROKERS, resource.name
    else:
        entity_type, entity = entity_of(services, resource.type, resource.name)
    declared: dict[str, Key]
    if entity_type == TOPICS:
        declared = {name: key for name, (_, key, _) in keys_of(TopicConfig).items()}
        inherited = dynamic_config.inherited_by_topic(services.config)
    else:
        declared = {name: key for name, (_, key, _) in keys_of(BrokerConfig).items()}
        inherited = dynamic_config.inherited_by_broker(
            static if entity == DEFAULT_ENTITY else services.config
        )

    def change(before: Mapping[str, str]) -> dict[str, str]:
        wanted = resource.alterations
        if replace:
            wanted = dynamic_config.replacing(before, wanted)
        after = dynamic_config.altered(before, wanted, declared, inherited)
        if entity_type == TOPICS:
            dynamic_config.check_topic(services.config, before, after)
        elif is_foreign_rate:
            dynamic_config.check_rates(after)
        else:
            is_for_all = entity == DEFAULT_ENTITY
            dynamic_config.check_broker(static, before, after, for_all=is_for_all)
        return after

    await store.change(entity_type, entity, change, validate_only)


def _sets_rates_of_another(services: Services, resource: Resource) -> bool:
    """Return whether the request changes nothing but another broker's throttle rates.

    Any broker accepts a change of another broker's throttle rates, so that administrators can set
    and remove the throttle of a dead broker, too (R15). Whether a throttle rate is valid does not
    depend on the broker's other settings.
    """
    name = resource.name
    if resource.type != BROKER_RESOURCE or not (name.isascii() and name.isdigit()):
        return False
    names = [alteration.name for alteration in resource.alterations]
    is_another = name == str(int(name)) != str(services.broker_id)
    return is_another and bool(names) and all(each in FOREIGN_RATES for each in names)
