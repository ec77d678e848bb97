"""`tidelog configs`: configurations with their sources, and changes that need no restart.

The commands work on topics, single brokers, and the defaults of all brokers. Every value is shown
with its source. The first source that has a value is effective: the topic, the broker, the default
of all brokers, the broker's configuration file, Kafka's default.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.completion import TopicOption, broker_ids
from tidelog.cli.documents import ConfigChanged, ConfigsChanged, ConfigsDescription, prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.names import NotFoundError, broker_named, nearest, topics_named
from tidelog.cli.output import OutputFormat, print_line, print_rows, printed, say
from tidelog.cli.target import ClusterOptions, DryRunOption, key_values
from tidelog.client.configs import (
    BROKER,
    TOPIC,
    ConfigChange,
    ConfigResource,
    ConfigValue,
    is_of_any_broker,
)
from tidelog.core.config_reference import reference
from tidelog.core.dynamic_config import ConfigOperation, is_accepted_without_effect
from tidelog.core.topic_config import settings_without_effect
from tidelog.core.wording import counted
from tidelog.runtime.blocking import BlockingClient

app = CommandGroup("Show and change configurations.")

MIN_INSYNC_REPLICAS = "min.insync.replicas"
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", help="key=value, for example retention.ms=3600000."),
]
DeleteConfigOption = Annotated[
    list[str] | None,
    typer.Option("--delete-config", help="A key to remove; its default counts again."),
]
_AppendOption = Annotated[
    list[str] | None, typer.Option("--append-config", help="key=value: add to a list.")
]
_SubtractOption = Annotated[
    list[str] | None, typer.Option("--subtract-config", help="key=value: remove from a list.")
]
_BrokerOption = Annotated[
    int | None, typer.Option("--broker", help="This broker, by its id.", autocompletion=broker_ids)
]
_BrokersOption = Annotated[bool, typer.Option("--brokers", help="The defaults of all brokers.")]


@app.command(epilog="Example: tidelog configs describe --topic flights --key retention.ms")
@prints(ConfigsDescription)
def describe(
    cluster: ClusterOptions,
    topic: TopicOption = None,
    broker: _BrokerOption = None,
    brokers: _BrokersOption = False,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="This key only.")] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only values that were set, not Kafka's defaults.")
    ] = False,
) -> None:
    """Show a configuration, each value with its source."""
    resource = _resource(topic, broker, brokers)
    with cluster.client() as client:
        _check_there(client, resource)
        values = client.describe_configs(resource, with_synonyms=True)
    if key is not None:
        values = _chosen(values, key, resource)
    if changed:
        values = [value for value in values if not value.is_default]
    if cluster.printed(ConfigsDescription(*_kind_and_name(resource), values)):
        return
    shown = ("value", lambda each: "(hidden)" if each.sensitive else each.value)
    columns = (("key", "name"), shown, "source", ("read-only", "read_only"))
    print_rows(values, columns, empty=f"nothing is set for {resource}")


@app.command(
    epilog="Example: tidelog configs alter --brokers --config log.retention.ms=86400000"
    " --delete-config message.max.bytes"
)
@prints(ConfigsChanged)
def alter(
    cluster: ClusterOptions,
    topic: TopicOption = None,
    broker: _BrokerOption = None,
    brokers: _BrokersOption = False,
    config: ConfigOption = None,
    delete_config: DeleteConfigOption = None,
    append_config: _AppendOption = None,
    subtract_config: _SubtractOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Change a configuration; keys that are not named stay as they are."""
    resource = _resource(topic, broker, brokers)
    changes = changes_of(config, delete_config, append_config, subtract_config)
    with cluster.client() as client:
        if not is_of_any_broker(changes):
            _check_there(client, resource)
        change_configs(client, resource, changes, dry_run, cluster.output)


def changes_of(
    config: list[str] | None,
    delete: list[str] | None,
    append: list[str] | None = None,
    subtract: list[str] | None = None,
) -> list[ConfigChange]:
    """Return the operations that the options request.

    Raises a usage error if no option requests an operation, or if a key is named twice.
    """
    changes: list[ConfigChange] = []
    for operation, words in (
        (ConfigOperation.SET, config),
        (ConfigOperation.APPEND, append),
        (ConfigOperation.SUBTRACT, subtract),
    ):
        changes += [ConfigChange(operation, *pair) for pair in key_values(words).items()]
    changes += [ConfigChange(ConfigOperation.DELETE, key, None) for key in delete or []]
    if not changes:
        raise typer.BadParameter("nothing to change: give --config key=value, --delete-config key")
    names = [change.name for change in changes]
    for name in names:
        if not name or "=" in name:
            raise typer.BadParameter(f"{name!r} is no key: --delete-config takes a key alone")
        if names.count(name) > 1:
            raise typer.BadParameter(f"{name} is named twice")
    return changes


def change_configs(
    client: BlockingClient,
    resource: ConfigResource,
    changes: list[ConfigChange],
    dry_run: bool,
    output: OutputFormat,
) -> None:
    """Change a configuration; print the changes and their restrictions."""
    client.alter_configs(resource, changes, validate_only=dry_run)
    minimum = {it.name: it.value for it in changes if it.value}.get(MIN_INSYNC_REPLICAS)
    if resource.type == TOPIC and minimum is not None:
        topic = topics_named(client, [resource.name])[resource.name]
        warn_of_minimum(minimum, min(len(it.replicas) for it in topic.partitions.values()))
    changed = [ConfigChanged(it.operation.name.lower(), it.name, it.value) for it in changes]
    if printed(ConfigsChanged(*_kind_and_name(resource), not dry_run, changed), output):
        return
    for change in changes:
        without = _without_effect(change, resource)
        word = ("would be " if dry_run else "") + ("stored" if without else "done")
        say(f"{word}: {_sentence(change)} for {resource}{without}")


def warn_of_minimum(minimum: str, replicas: int) -> None:
    """Warn if a topic's `min.insync.replicas`, which brokers accepted, exceeds its replicas."""
    if int(minimum) > replicas:
        say(
            f"tidelog: {MIN_INSYNC_REPLICAS}={minimum} is more than the"
            f" {counted(replicas, 'replica')} of a partition: it counts as {replicas}, and acks=all"
            " is no promise of more"
        )


def _without_effect(change: ConfigChange, resource: ConfigResource) -> str:
    """Return the end of a message about a key that brokers store but ignore; "" for other keys."""
    if change.operation is ConfigOperation.DELETE:
        return ""
    if resource.type == BROKER:
        return "; brokers of tidelog store it without effect" * is_accepted_without_effect(
            change.name
        )
    reasons = settings_without_effect({change.name: change.value or ""})
    return f"; {reasons[0]}" if reasons else ""


def _sentence(change: ConfigChange) -> str:
    if change.operation is ConfigOperation.SET:
        return f"{change.name} set to {change.value}" if change.value else f"{change.name} emptied"
    if change.operation is ConfigOperation.DELETE:
        return f"{change.name} unset"
    if change.operation is ConfigOperation.APPEND:
        return f"{change.value} added to {change.name}"
    return f"{change.value} taken from {change.name}"


def _resource(topic: str | None, broker: int | None, brokers: bool) -> ConfigResource:
    if (topic is not None) + (broker is not None) + brokers != 1:
        raise typer.BadParameter("give one of --topic NAME, --broker ID, --brokers")
    if topic is not None:
        return ConfigResource(TOPIC, topic)
    return ConfigResource(BROKER, "" if broker is None else str(broker))


def _check_there(client: BlockingClient, resource: ConfigResource) -> None:
    if resource.type == TOPIC:
        topics_named(client, [resource.name])
    elif resource.owner is not None:
        broker_named(client, resource.owner)


def _kind_and_name(resource: ConfigResource) -> tuple[str, str | None]:
    if resource.type == TOPIC:
        return "topic", resource.name
    return ("broker", resource.name) if resource.name else ("brokers", None)


def _chosen(
    values: list[ConfigValue], keys: list[str], resource: ConfigResource
) -> list[ConfigValue]:
    known = [value.name for value in values]
    for key in keys:
        # For the defaults of all brokers, a broker lists only keys that were set, so a key that is
        # not listed may still be valid.
        if key not in known and _kind_and_name(resource)[0] != "brokers":
            raise NotFoundError(f"there is no key {key!r} of {resource}{nearest(key, known)}")
    return [value for value in values if value.name in keys]


@app.command("reference", epilog="Example: tidelog configs reference")
def print_reference() -> None:
    """Print every configuration key: whether brokers honour, ignore or refuse it, and why."""
    print_line(reference().rstrip("\n"))
