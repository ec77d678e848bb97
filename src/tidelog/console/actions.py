"""Changes of the cluster that a viewer may request with the console's secret token.

Each action takes the body of its request and returns the changes that it made, or with `dry_run`
the changes that it would make. A body that cannot be used raises BadQuery before any request is
sent. The brokers check each change, too. In a dry run, they check it only if the API for this
change has a dry run (validate_only).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.client.configs import BROKER, TOPIC, ConfigChange, ConfigResource
from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.client.groups import DEAD, EMPTY, FetchedOffset
from tidelog.client.upkeep import ElectionType
from tidelog.console.lookups import moment_ms
from tidelog.console.move_plans import cancel_moves, plan_moves, throttle_moves
from tidelog.console.views.tables import BadQuery, Document
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import KafkaError
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

Body = Mapping[str, Any]


def _text(body: Body, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise BadQuery(f"{name}: a text expected")
    return value


def _partition(body: Body) -> TopicPartition:
    number = body.get("partition")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise BadQuery(f"partition={number!r}: a number from 0 on expected")
    return TopicPartition(_text(body, "topic"), number)


def reset_offsets(client: BlockingClient, body: Body) -> Document:
    """Set the committed offsets of a group without members to a position in each partition's log.

    The key `to` of the body is the position: earliest, latest, an offset, or a time. Without the
    key `topic`, the offsets in all topics with a committed offset are set.
    """
    name, to = _text(body, "group"), _text(body, "to").strip()
    topic = body.get("topic") or None
    described = client.describe_group(name)
    if described.state not in (EMPTY, DEAD):
        raise BadQuery(
            f"group {name!r} is {described.state} with {len(described.members)} members: stop them"
            " first, or their next commit would overwrite the reset"
        )
    before = {
        tp: each.offset
        for tp, each in client.committed(name).items()
        if topic is None or tp.topic == topic
    }
    if not before:
        raise BadQuery(
            f"group {name!r} has no committed offsets" + (f" of {topic}" if topic else "")
        )
    starts = client.positions(dict.fromkeys(before, EARLIEST))
    ends = client.positions(dict.fromkeys(before, LATEST))
    wanted = _places(client, to, starts, ends)
    after = {tp: min(max(wanted[tp], starts[tp]), ends[tp]) for tp in before}
    if not body.get("dry_run"):
        client.commit(name, {tp: FetchedOffset(offset) for tp, offset in after.items()})
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "before": before[tp], "after": after[tp]}
        for tp in before
    ]
    return {"text": f"{len(after)} offsets of group {name}", "rows": rows}


def _places(
    client: BlockingClient,
    to: str,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    if to == "earliest":
        return starts
    if to == "latest":
        return ends
    if to.isdecimal():
        return dict.fromkeys(starts, int(to))
    return client.positions(dict.fromkeys(starts, moment_ms("to", to)))


def elect_preferred(client: BlockingClient, body: Body) -> Document:
    """Make the preferred replica of a partition its leader."""
    tp = _partition(body)
    if body.get("dry_run"):
        return {"text": f"The preferred replica of {tp} would become its leader."}
    result = client.elect_leaders(ElectionType.PREFERRED, [tp])[tp]
    if not result.holds:
        raise KafkaError(result.error, result.message)
    return {"text": f"The preferred replica of {tp} leads."}


def move_partition(client: BlockingClient, body: Body) -> Document:
    """Move a partition to the body's `brokers` (preferred leader first), or cancel its move."""
    tp = _partition(body)
    targets = body.get("brokers")
    if targets is not None:
        is_list = isinstance(targets, list) and bool(targets)
        if not is_list or not all(type(each) is int and each >= 0 for each in targets):
            raise BadQuery(f"brokers={targets!r}: a list of broker ids expected")
        if len(dict.fromkeys(targets)) < len(targets):
            raise BadQuery(f"brokers={targets!r}: a broker is named twice")
    placed = client.metadata([tp.topic]).partition(tp)
    if placed is None:
        raise BadQuery(f"there is no partition {tp}")
    target = None if targets is None else tuple(targets)
    where = "back to its former brokers" if target is None else f"to brokers {list(target)}"
    if body.get("dry_run"):
        return {"text": f"{tp} would move from brokers {list(placed.replicas)} {where}."}
    expected = None if target is None else {tp: placed.replicas}
    result = client.reassign({tp: target}, expected)[tp]
    if result.error:
        raise KafkaError(result.error, result.message)
    return {"text": f"{tp} moves {where}."}


def change_configuration(client: BlockingClient, body: Body) -> Document:
    """Set a key of a topic or a broker; a missing value removes the setting."""
    kind, name, key = _text(body, "of"), _text(body, "name"), _text(body, "key")
    if kind not in ("topic", "broker") or (kind == "broker" and not name.isdecimal()):
        raise BadQuery(f"of={kind!r}, name={name!r}: a topic, or a broker with its id, expected")
    value = body.get("value")
    if value is not None and not isinstance(value, str):
        raise BadQuery("value: a text expected, or nothing to remove the setting")
    resource = ConfigResource(TOPIC if kind == "topic" else BROKER, name)
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    is_dry = bool(body.get("dry_run"))
    client.alter_configs(resource, [ConfigChange(operation, key, value)], validate_only=is_dry)
    what = f"removes its setting of {key}" if value is None else f"has {key}={value}"
    return {"text": f"{resource} {what}" + (", if you confirm." if is_dry else ".")}


def produce(client: BlockingClient, body: Body) -> Document:
    """Write one record with acks=all and the present time as its timestamp.

    Raises BadQuery for a value that is no text.
    """
    tp = _partition(body)
    value, key = body.get("value"), body.get("key") or None
    if not isinstance(value, str) or not (key is None or isinstance(key, str)):
        raise BadQuery("value and key: texts expected")
    if body.get("dry_run"):
        return {"text": f"A record of {len(value.encode())} bytes would be written to {tp}."}
    now_ms = time.time_ns() // 1_000_000
    record = NewRecord(None if key is None else key.encode(), value.encode(), now_ms)
    return {"text": f"Written to {tp}, offset {client.produce(tp, build_batch([record]))}."}


ACTIONS: Final[Mapping[str, Callable[[BlockingClient, Body], Document]]] = {
    "reset": reset_offsets,
    "elect": elect_preferred,
    "move": move_partition,
    "configure": change_configuration,
    "produce": produce,
    "plan": plan_moves,
    "throttle": throttle_moves,
    "cancel": cancel_moves,
}
