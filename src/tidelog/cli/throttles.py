"""Configured replication throttles: commands read, show and remove them (KIP-73).

Kafka's tools set throttles for a move, and remove them only on request. The rate of a dead broker
cannot be read; any broker accepts its removal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tidelog.cli.documents import ThrottleRemoved
from tidelog.cli.names import topics_named
from tidelog.cli.output import OutputFormat, print_rows, say, size_text
from tidelog.client.configs import BROKER, TOPIC, ConfigResource, ConfigValue
from tidelog.client.throttles import LISTS, RATES, Throttle, of_configs, removals
from tidelog.core.errors import ConnectionLost, KafkaError, RequestTimeout
from tidelog.runtime.blocking import BlockingClient

#: Maximum number of topics whose configurations one request reads.
_TOPICS = 1_000
_NAMED = 5


def configured_throttles(
    client: BlockingClient, topics: Collection[str] | None = None
) -> list[Throttle]:
    """Return the settings of throttles; include settings of brokers only if no topics are named."""
    metadata = client.metadata()
    names = sorted(metadata.topics) if topics is None else sorted(topics)
    found: dict[ConfigResource, list[ConfigValue]] = {}
    for first in range(0, len(names), _TOPICS):
        part = [ConfigResource(TOPIC, name) for name in names[first : first + _TOPICS]]
        found |= client.describe_all_configs(part, LISTS)
    for broker_id in sorted(metadata.brokers) if topics is None else ():
        resource = ConfigResource(BROKER, str(broker_id))
        try:
            found |= client.describe_all_configs([resource], RATES, with_synonyms=True)
        except (KafkaError, ConnectionLost, RequestTimeout) as error:
            say(f"tidelog: broker {broker_id} does not report its throttles: {error}")
    return of_configs(found)


def say_throttles(throttles: Sequence[Throttle]) -> None:
    """Report the configured throttles, if there are any."""
    for each in throttles[:_NAMED]:
        say(f"configured throttle: {value_text(each)}")
    if len(throttles) > _NAMED:
        say(f"and {len(throttles) - _NAMED} more settings of throttles")
    if throttles:
        say("they stay when moves end: tidelog reassign cancel --throttles removes them")


def value_text(throttle: Throttle) -> str:
    """Return the value of a throttle as it is printed, with a unit."""
    value = throttle.value
    if throttle.key in RATES:
        value = f"{size_text(int(value))}/s"
    return f"{throttle.key}={value} of {throttle.resource}"


def remove_throttles(
    client: BlockingClient, topics: Collection[str] | None, dry_run: bool, output: OutputFormat
) -> None:
    """Remove the configured throttles of `topics`, or all; print the removed throttles."""
    if topics:
        topics_named(client, list(topics))
    throttles = configured_throttles(client, topics)
    for resource, changes in removals(throttles).items():
        client.alter_configs(resource, changes, validate_only=dry_run)
    word = "would_remove" if dry_run else "removed"
    _print(throttles, word, output)


def _print(throttles: Iterable[Throttle], word: str, output: OutputFormat) -> None:
    rows = [
        ThrottleRemoved(
            "topic"
            if each.resource.type == TOPIC
            else "broker"
            if each.resource.name
            else "brokers",
            each.resource.name or None,
            each.key,
            each.value,
            word,
        )
        for each in throttles
    ]
    columns = (("of", "entity"), "name", "key", "value", "result")
    print_rows(rows, columns, output, "no throttle is configured")
