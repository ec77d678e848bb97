"""DescribeConfigs (key 32), versions 1 to 4: current configuration and its sources (KIP-226).

Any broker describes topics and the cluster-wide broker defaults. The configuration of one broker is
described by that broker only. For each request the broker reads the settings from the store, so a
client sees every change that it made earlier. Values that may be secrets are null in the response.
The response lists resources and their keys in the order of the request. A broker also describes the
levels of its own loggers (KIP-412).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.configs import logger_levels
from tidelog.broker.configs.config_requests import LOGGER_RESOURCE, entity_of
from tidelog.broker.configs.config_store import BROKERS, TOPICS
from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.core import config_entries
from tidelog.core.authorization import DESCRIBE_CONFIGS_CLUSTER, DESCRIBE_CONFIGS_TOPIC
from tidelog.core.config import BrokerConfig
from tidelog.core.config_entries import ConfigEntry
from tidelog.core.dynamic_config import DynamicConfigs, broker_config
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.metadata.layout import DEFAULT_ENTITY
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

CARD = Card(
    api_key=32,
    min_version=1,
    max_version=4,
    rights=(DESCRIBE_CONFIGS_TOPIC, DESCRIBE_CONFIGS_CLUSTER),
)


def handle(context: ApiContext, request: Request[DescribeConfigsRequest]) -> Pending:
    """Read the stored settings; return them with the lower-priority settings that they override."""
    return context.dispatcher.answer_from(_describe(context, request.message), request)


async def _describe(
    context: ApiContext, message: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    results: list[DescribeConfigsResult] = []
    wanted: list[tuple[DescribeConfigsResult, tuple[str, str], Sequence[str]]] = []
    for resource_type, name, names in _questions(message):
        result = DescribeConfigsResult(resource_type=resource_type, resource_name=name)
        results.append(result)
        try:
            if resource_type == LOGGER_RESOURCE:
                _describe_loggers(context, message, result, names)
                continue
            entity = entity_of(context.services, resource_type, name)
        except KafkaError as error:
            _refuse(result, error)
        else:
            wanted.append((result, entity, names))
    if not wanted:
        return DescribeConfigsResponse(results=results)
    own = (BROKERS, str(context.services.broker_id))
    entities = list(dict.fromkeys(entity for _, entity, _ in wanted))
    try:
        cluster, of_broker, *stored = await context.config_store.read(
            [(BROKERS, DEFAULT_ENTITY), own, *entities]
        )
    except KafkaError as error:
        for result, _, _ in wanted:
            _refuse(result, error)
        return DescribeConfigsResponse(results=results)
    static = context.live_configs.static
    dynamic = DynamicConfigs(cluster, of_broker)
    in_force, _ = broker_config(static, dynamic)
    settings = dict(zip(entities, stored, strict=True))
    for result, entity, keys in wanted:
        entries = _entries(static, dynamic, in_force, entity, settings[entity])
        result.configs = [
            _result_of(entry, message) for entry in config_entries.chosen(entries, keys)
        ]
        # The description of one resource takes about a millisecond, so the event loop serves other
        # requests between two descriptions.
        await context.services.tasks.sleep(0)
    return DescribeConfigsResponse(results=results)


def _describe_loggers(
    context: ApiContext,
    message: DescribeConfigsRequest,
    result: DescribeConfigsResult,
    names: Sequence[str],
) -> None:
    services = context.services
    loggers = logger_levels.check_broker(
        services.ports.loggers, result.resource_name, services.broker_id
    )
    entries = config_entries.chosen(logger_levels.entries(loggers), names)
    result.configs = [_result_of(entry, message) for entry in entries]


def _questions(message: DescribeConfigsRequest) -> Iterable[tuple[int, str, tuple[str, ...]]]:
    """Return type, name and keys of each resource, in the request's order; no keys means all keys.

    A resource named twice gets one response, because a request of a few megabytes could otherwise
    ask 100,000 times for every key of a broker.
    """
    return dict.fromkeys(
        (each.resource_type, each.resource_name, tuple(each.configuration_keys or ()))
        for each in message.resources
    )


def _entries(
    static: BrokerConfig,
    dynamic: DynamicConfigs,
    in_force: BrokerConfig,
    entity: tuple[str, str],
    settings: dict[str, str],
) -> list[ConfigEntry]:
    entity_type, name = entity
    if entity_type == TOPICS:
        return config_entries.topic_entries(static, dynamic, in_force, settings)
    if name == DEFAULT_ENTITY:
        return config_entries.cluster_entries(dynamic)
    return config_entries.broker_entries(static, dynamic)


def _result_of(
    entry: ConfigEntry, message: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if message.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(synonym.name, synonym.value, synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if message.include_documentation else None,
    )


def _refuse(result: DescribeConfigsResult, error: KafkaError) -> None:
    result.error_code = ErrorCode(error.code)
    result.error_message = error.message
