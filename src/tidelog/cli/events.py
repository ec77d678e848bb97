"""`tidelog events tail`: events of the cluster, from the topic `__cluster_events`.

Brokers write events while `cluster.events.enable` is true; docs/reference/events.md describes each
event. The command follows new events until it is interrupted, unless an option ends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.names import NotFoundError, PartitionWord
from tidelog.cli.offsets import ReadSpan, Where
from tidelog.cli.output import abandon_output, printable
from tidelog.cli.reading import Ending, Interrupts, Write, read_alone
from tidelog.cli.target import ClusterAddress
from tidelog.client.configs import BROKER, ConfigResource
from tidelog.client.consuming import ConsumedRecord
from tidelog.client.event_sentences import event_sentence, read_event
from tidelog.client.fetching import EARLIEST
from tidelog.controller.cluster_events import KINDS
from tidelog.core.errors import ConnectionLost, KafkaError, RequestTimeout
from tidelog.core.names import CLUSTER_EVENTS
from tidelog.core.types import READ_COMMITTED
from tidelog.runtime.blocking import BlockingClient

EVENTS_KEY = "cluster.events.enable"

app = CommandGroup("Events of the cluster.")


@app.callback()
def _group() -> None:
    """Keep the word `tail`, which typer omits in a group with only one command."""


@app.command(epilog="Example: tidelog events tail -n 50 -e --kind leader_change -J")
@prints("one JSON document a line, as docs/reference/events.md describes them.")
def tail(
    cluster: ClusterAddress,
    number: Annotated[
        int | None,
        typer.Option("-n", "--number", min=0, help="Begin with the last N events; default all."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help=f"These kinds only: {', '.join(KINDS)}.", show_default=False),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("-J", "--json", help="One JSON document an event and line.")
    ] = False,
    exit_at_end: Annotated[
        bool, typer.Option("-e", "--exit", help="End when all present events are written.")
    ] = False,
) -> None:
    """Print the events of the cluster, one line each, and follow new events."""
    unknown = [word for word in kind or () if word not in KINDS]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r}: {' or '.join(KINDS)} expected", param_hint="--kind"
        )
    start = Where(timestamp=EARLIEST) if number is None else Where(tail=number)
    ending = Ending(None, exit_at_end)
    with cluster.client() as client, Interrupts() as ending.asked:
        metadata = client.metadata()
        if CLUSTER_EVENTS not in metadata.topics:
            raise NotFoundError(_why_no_topic(client, sorted(metadata.brokers)))
        words = [PartitionWord(CLUSTER_EVENTS, None)]
        write = _writer(kind or list(KINDS), json_text if as_json else event_line)
        try:
            read_alone(client, words, ReadSpan(start), READ_COMMITTED, None, write, ending)
        except BrokenPipeError:
            abandon_output()
    if ending.asked.signal is not None:
        raise typer.Exit(128 + ending.asked.signal)


def _why_no_topic(client: BlockingClient, brokers: Sequence[int]) -> str:
    """Return why no topic of events exists: events are disabled, or no broker created it yet."""
    enabled = [broker_id for broker_id in brokers if _is_enabled(client, broker_id)]
    missing = f"this cluster has no topic {CLUSTER_EVENTS}"
    if not enabled:
        return (
            f"{missing}: its brokers write one after"
            f" tidelog configs alter --brokers -c {EVENTS_KEY}=true"
        )
    return (
        f"{missing} yet, although {EVENTS_KEY} is true on brokers"
        f" {', '.join(map(str, enabled))}: the controller creates it within seconds of the first"
        " event, if as many brokers live as cluster.events.topic.replication.factor, or 15 s later"
        " with fewer; its log says what prevents that"
    )


def _is_enabled(client: BlockingClient, broker_id: int) -> bool:
    resource = ConfigResource(BROKER, str(broker_id))
    try:
        values = client.describe_configs(resource, [EVENTS_KEY])
    except (KafkaError, ConnectionLost, RequestTimeout):
        return False
    return any(each.value == "true" for each in values)


def _writer(kinds: list[str], text: Callable[[Mapping[str, Any]], str]) -> Write:
    def write(record: ConsumedRecord) -> bytes:
        event = read_event(record.record.value)
        return text(event).encode() + b"\n" if event["kind"] in kinds else b""

    return write


def json_text(event: Mapping[str, Any]) -> str:
    """Return the JSON text of an event, unchanged."""
    return json.dumps(event, separators=(",", ":"))


def event_line(event: Mapping[str, Any]) -> str:
    """Return an event as a line for people; for an unknown kind, the line has all its fields."""
    time_ms = event.get("time_ms")
    when = "-"
    if isinstance(time_ms, int):
        when = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    kind, sentence = event["kind"], event_sentence(event)
    return printable(f"{when.replace('+00:00', 'Z')} {event.get('told_by', '-')} {kind} {sentence}")
