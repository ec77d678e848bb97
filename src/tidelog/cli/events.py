"""`tidelog events tail`: events of the cluster, from the topic `__cluster_events`.

Brokers write events while `cluster.events.enable` is true; docs/reference/events.md describes each
event. The command follows new events until it is interrupted, unless an option ends it.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

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
from tidelog.client.fetching import EARLIEST
from tidelog.controller.cluster_events import KINDS
from tidelog.core.errors import ConnectionLost, KafkaError, RequestTimeout
from tidelog.core.leader_wait import LeaderWait, MemberStatus, reason
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


def read_event(value: bytes | memoryview | None) -> dict[str, Any]:
    """Return the document of a record; other content becomes an event of kind `unreadable`."""
    try:
        event = json.loads(bytes(value or b""))
    except ValueError:
        event = None
    if isinstance(event, dict) and isinstance(event.get("kind"), str):
        return event
    return {"kind": "unreadable", "value": bytes(value or b"").decode("utf-8", "replace")}


def json_text(event: Mapping[str, Any]) -> str:
    """Return the JSON text of an event, unchanged."""
    return json.dumps(event, separators=(",", ":"))


def event_line(event: Mapping[str, Any]) -> str:
    """Return an event as a line for people; for an unknown kind, the line has all its fields."""
    time_ms = event.get("time_ms")
    when = "-"
    if isinstance(time_ms, int):
        when = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    what = _WORDS.get(event["kind"], _plain)
    try:
        text = _filled(what, event) if isinstance(what, str) else what(event)
    except (KeyError, TypeError, AttributeError):
        # An event from a later version or from another program is printed as a list of its fields.
        text = _plain(event)
    line = f"{when.replace('+00:00', 'Z')} {event.get('told_by', '-')} {event['kind']} {text}"
    return printable(line)


def _plain(event: Mapping[str, Any]) -> str:
    known = ("version", "kind", "time_ms", "told_by")
    return " ".join(f"{name}={value}" for name, value in event.items() if name not in known)


def _members(isr: list[int]) -> str:
    return "[" + ",".join(map(str, isr)) + "]"


class _EventFields(string.Formatter):
    """A formatter of sentences about events, which writes a list of brokers in brackets."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return _members(value) if isinstance(value, list) else str(value)


def _filled(sentence: str, event: Mapping[str, Any]) -> str:
    """Return a sentence with the event's fields, and any replicas that left the ISR."""
    left = [f"{replica['broker']}: {replica['cause']}" for replica in event.get("left", ())]
    ending = f", left {', '.join(left)}" if left else ""
    return _EventFields().vformat(sentence, (), event) + ending


def _partition(event: Mapping[str, Any]) -> str:
    return f"{event['topic']}-{event['partition']}"


def _failover(event: Mapping[str, Any]) -> str:
    phases = ", ".join(f"{name} {ms} ms" for name, ms in event["phases_ms"].items())
    whole = sum(event["phases_ms"].values())
    cause = f" ({event['cause']})" if "cause" in event else ""
    if event.get("detection_ms", -1) >= 0:
        phases = f"detect {event['detection_ms']} ms before, {phases}"
    return (
        f"from brokers {_members(event['brokers'])}{cause}: {event['partitions']} partitions in"
        f" {whole} ms ({phases}), {event['unanswered']} unanswered"
    )


def _takeover(event: Mapping[str, Any]) -> str:
    phases = ", ".join(
        f"{name.replace('_', ' ')} {f'after {ms} ms' if ms >= 0 else '-'}"
        for name, ms in event["phases_ms"].items()
    )
    followers = _members([state["follower"] for state in event["followers"]])
    return (
        f"{_partition(event)} epoch {event['leader_epoch']} leader {event['leader']} followers"
        f" {followers}: {phases} ({event['ended_by']})"
    )


def _unclean_election(event: Mapping[str, Any]) -> str:
    end, reported = event["log_end_offset"], event["told_high_watermark"]
    lost = f"lost: {end} up to {reported} and later" if reported > end else f"lost: from {end} on"
    return (
        f"{_partition(event)} leader {event['leader']} epoch {event['leader_epoch']} after epoch"
        f" {event['latest_epoch']}, {lost}; uncertain: from {event['high_watermark']} on"
    )


def _leader_awaited(event: Mapping[str, Any]) -> str:
    members = tuple(
        (member["broker"], MemberStatus[member["status"].upper()]) for member in event["members"]
    )
    wait = LeaderWait(members, event["quorum"], event["is_waiting"])
    return f"{_partition(event)} epoch {event['leader_epoch']} {reason(wait, event['last_leader'])}"


def _reassignment_begun(event: Mapping[str, Any]) -> str:
    word = "returns to" if event["replicas"] == event["original"] else "moves to"
    return (
        f"{_partition(event)} {word} {_members(event['replicas'])}: adds"
        f" {_members(event['adding'])}, removes {_members(event['removing'])}"
    )


def _behind(event: Mapping[str, Any]) -> str:
    word = "took its commands" if event["is_over"] else "has not taken its commands"
    return _filled(f"{_BROKER} {word} for {{behind_ms}} ms", event)


def _controller(event: Mapping[str, Any]) -> str:
    cause = f" ({event['cause']})" if "cause" in event else ""
    return f"broker {event['controller']} controller epoch {event['controller_epoch']}{cause}"


_BROKER: Final = "broker {broker} epoch {broker_epoch}"
#: The text of each kind of event: a template with names of fields, or a function.
_WORDS: Final[Mapping[str, str | Callable[[Mapping[str, Any]], str]]] = {
    "leader_change": "{topic}-{partition} leader {previous_leader} -> {leader} epoch {leader_epoch}"
    " ISR {isr} ({cause})",
    "isr_change": "{topic}-{partition} ISR {previous_isr} -> {isr} leader {leader} epoch"
    " {leader_epoch} ({cause})",
    "failover": _failover,
    "first_fetch": "{topic}-{partition} epoch {leader_epoch}: broker {follower} fetched from"
    " {leader} after {first_fetch_ms} ms",
    "takeover": _takeover,
    "unclean_election": _unclean_election,
    "leader_awaited": _leader_awaited,
    "reassignment_begun": _reassignment_begun,
    "reassignment_ended": "{topic}-{partition} is at {replicas}",
    "session_loss": _BROKER,
    "shutdown": _BROKER,
    "registration": _BROKER,
    "commands_behind": _behind,
    "log_dir_failed": _BROKER + " gave up {log_dir} ({operation}: {error}): {replicas} replicas are"
    " offline, of which it led {led}",
    "log_dir_slow": _BROKER + ": {log_dir} is slow: {slow} of {operations} operations took"
    " {threshold_ms} ms or longer, up to {longest_ms} ms",
    "log_dir_fast_again": _BROKER + ": {log_dir} is fast again after {slow_ms} ms",
    "controller_election": _controller,
    "controller_resignation": _controller,
}
