"""Nodes of topics: `/brokers/topics/T` (V5) and `/brokers/topics/T/partitions/P/state` (V6).

The nodes have Kafka's keys and spellings (`TopicZNode`, `TopicPartitionStateZNode` of 3.9), and
keys of tidelog's own. The state node has these keys, which `PartitionState` explains: `isr_epochs`
(parallel to `isr`, V10), `elr` with `elr_epochs`, `last_leader` (E1), `removed` and `first_epochs`
(V71), `reassigned_to` (V52) and `unproven` (E8). The topic node has the key `original_replicas`,
the replicas before a reassignment (R1). Kafka ignores tidelog's keys and drops them when it
rewrites a node. Each key is therefore defined so that a missing key is safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from tidelog.core.dataclass import dataclass
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    ZERO_TOPIC_ID,
    PartitionState,
    TopicId,
    topic_id_from_text,
    topic_id_to_text,
)
from tidelog.metadata.json_fields import (
    INT32_MAX,
    INT64_MAX,
    Fields,
    encode_json,
    is_number,
    parse_object,
)
from tidelog.metadata.store import Stat

#: The keys of a partition state without optional keys; nearly all partition states have exactly
#: these keys.
_PLAIN_KEYS = frozenset(
    ("controller_epoch", "leader", "version", "leader_epoch", "isr", "isr_epochs")
)

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The replicas of each partition of a topic, the preferred leader first (V5).

    `adding` and `removing` are the replicas that a reassignment adds and removes. `original` are
    the replicas before a reassignment, in their order (R1). A partition that is not being
    reassigned has no entry in these three mappings. `topic_id` is ZERO_TOPIC_ID if the topic was
    created by a tool that does not know topic ids.
    """

    topic_id: TopicId
    partitions: Mapping[int, Replicas]
    adding: Mapping[int, Replicas] = field(default_factory=dict)
    removing: Mapping[int, Replicas] = field(default_factory=dict)
    original: Mapping[int, Replicas] = field(default_factory=dict)
    #: Throttles of reassignments, in bytes per second (R4).
    throttles: Mapping[int, int] = field(default_factory=dict)
    #: Partitions whose reassignment pauses while too few replicas are in sync.
    guarded: tuple[int, ...] = ()


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Return the data of `/brokers/topics/T`, version 3, with partitions in ascending order."""
    value: dict[str, Any] = {"version": 3}
    if assignment.topic_id != ZERO_TOPIC_ID:
        value["topic_id"] = topic_id_to_text(assignment.topic_id)
    value["partitions"] = _by_partition(assignment.partitions)
    value["adding_replicas"] = _by_partition(assignment.adding)
    value["removing_replicas"] = _by_partition(assignment.removing)
    if assignment.original:
        value["original_replicas"] = _by_partition(assignment.original)
    if assignment.throttles:
        value["reassignment_throttles"] = {
            str(partition): rate for partition, rate in sorted(assignment.throttles.items())
        }
    if assignment.guarded:
        value["guarded_reassignments"] = sorted(assignment.guarded)
    return encode_json(value)


def decode_topic_id(path: str, data: bytes) -> TopicId:
    """Return the topic id, or ZERO_TOPIC_ID if the node has no topic id. Raises LayoutError."""
    return _topic_id(parse_object(path, data))


def _topic_id(fields: Fields) -> TopicId:
    if not fields.has("topic_id"):
        return ZERO_TOPIC_ID
    try:
        return topic_id_from_text(fields.text("topic_id"))
    except ValueError:
        raise fields.fault("topic_id", "22 characters of URL-safe base64") from None


def decode_topic(path: str, data: bytes) -> TopicAssignment:
    """Return a topic's assignment; reads versions 1 to 3. Raises LayoutError, also if a broker is
    repeated.
    """
    fields = parse_object(path, data)
    topic_id = _topic_id(fields)
    partitions = _decode_replicas(fields, "partitions")
    for partition, replicas in partitions.items():
        if not replicas:
            raise fields.object("partitions").fault(str(partition), "at least one replica")
    adding = _decode_replicas(fields, "adding_replicas")
    removing = _decode_replicas(fields, "removing_replicas")
    for key, moving in (("adding_replicas", adding), ("removing_replicas", removing)):
        for partition, replicas in moving.items():
            if any(replica not in partitions.get(partition, ()) for replica in replicas):
                raise fields.object(key).fault(
                    str(partition), "replicas that the partition's assignment names"
                )
    for partition, replicas in removing.items():
        if len(replicas) == len(partitions[partition]):
            raise fields.object("removing_replicas").fault(
                str(partition), "fewer replicas than the partition's assignment names"
            )
    original = _decode_replicas(fields, "original_replicas")
    throttles = _decode_throttles(fields)
    guarded = (
        fields.integers("guarded_reassignments") if fields.has("guarded_reassignments") else ()
    )
    return TopicAssignment(topic_id, partitions, adding, removing, original, throttles, guarded)


def encode_partition_state(state: PartitionState) -> bytes:
    """Return the data of a state node, version 1; leave out keys that have their default value."""
    value: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.leader_recovery_state != RECOVERED:
        value["leader_recovery_state"] = state.leader_recovery_state
    if state.isr_epochs is not None:
        value["isr_epochs"] = state.isr_epochs
    if state.elr:
        value["elr"] = state.elr
        value["elr_epochs"] = state.elr_epochs
    if state.last_leader != NO_LEADER:
        value["last_leader"] = state.last_leader
    if state.removed:
        value["removed"] = True
    if state.reassigned_to:
        value["reassigned_to"] = state.reassigned_to
    if any(state.first_epochs):
        value["first_epochs"] = state.first_epochs
    if state.is_unproven:
        value["unproven"] = True
    return encode_json(value)


def rewrite_isr(path: str, data: bytes, state: PartitionState) -> bytes:
    """Return `data`, a state node's data, with the ISR of `state`; the leader writes the result
    (A12).

    Keys that do not depend on the ISR stay unchanged, and so do unknown keys. Raises LayoutError if
    `data` is no JSON object.
    """
    value = dict(parse_object(path, data).values)
    value["isr"] = state.isr
    changed: dict[str, object] = {
        "leader_recovery_state": state.leader_recovery_state or None,
        "isr_epochs": state.isr_epochs,
        "elr": state.elr or None,
        "elr_epochs": state.elr_epochs or None,
    }
    for key, new in changed.items():
        if new is None:
            value.pop(key, None)
        else:
            value[key] = new
    return encode_json(value)


def decode_partition_state(path: str, data: bytes, stat: Stat) -> PartitionState:
    """Return a partition's state; the node's version is the partition epoch. Raises LayoutError."""
    fields = parse_object(path, data)
    plain = _plain_state(fields.values, stat)
    if plain is not None:
        return plain
    isr = fields.integers("isr")
    isr_epochs: tuple[int, ...] | None = None
    if fields.has("isr_epochs"):
        isr_epochs = fields.integers("isr_epochs", minimum=-1, maximum=INT64_MAX, distinct=False)
        if len(isr_epochs) != len(isr):
            raise fields.fault("isr_epochs", f"{len(isr)} broker epochs, one for each of isr")
    elr, elr_epochs = _eligible_replicas(fields)
    leader_epoch = fields.integer("leader_epoch", minimum=0)
    first_epochs = (0, 0)
    if fields.has("first_epochs"):
        first = fields.integers("first_epochs", minimum=0, distinct=False)
        if len(first) != 2 or first[0] > leader_epoch:
            raise fields.fault(
                "first_epochs", f"a leader epoch up to {leader_epoch} and a partition epoch"
            )
        first_epochs = (first[0], first[1])
    return PartitionState(
        leader=fields.integer("leader"),
        leader_epoch=leader_epoch,
        isr=isr,
        controller_epoch=fields.integer("controller_epoch"),
        partition_epoch=stat.version,
        leader_recovery_state=fields.integer(
            "leader_recovery_state", RECOVERED, minimum=RECOVERED, maximum=RECOVERING
        ),
        isr_epochs=isr_epochs,
        elr=elr,
        elr_epochs=elr_epochs,
        last_leader=fields.integer("last_leader", NO_LEADER),
        removed=fields.boolean("removed", False),
        reassigned_to=fields.integers("reassigned_to") if fields.has("reassigned_to") else (),
        first_epochs=first_epochs,
        is_unproven=fields.boolean("unproven", False),
        mzxid=stat.mzxid,
    )


def _eligible_replicas(fields: Fields) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the eligible leader replicas, and for each its recorded broker epoch or -1."""
    elr = fields.integers("elr") if fields.has("elr") else ()
    if not fields.has("elr_epochs"):
        return elr, (NO_BROKER_EPOCH,) * len(elr)
    epochs = fields.integers("elr_epochs", minimum=-1, maximum=INT64_MAX, distinct=False)
    if len(epochs) != len(elr):
        raise fields.fault("elr_epochs", f"{len(elr)} broker epochs, one for each of elr")
    return elr, epochs


def _plain_state(value: Mapping[str, Any], stat: Stat) -> PartitionState | None:
    """Return the state if it is valid and has exactly the keys `_PLAIN_KEYS`, else None.

    This is the fast path: a new controller reads up to a hundred thousand partition states, and
    nearly all have exactly these keys. If the result is None, the caller reads the state key by
    key.
    """
    if value.keys() != _PLAIN_KEYS:
        return None
    isr, epochs, leader = value["isr"], value["isr_epochs"], value["leader"]
    leader_epoch, controller_epoch = value["leader_epoch"], value["controller_epoch"]
    if not (type(isr) is type(epochs) is list and len(isr) == len(epochs)):
        return None
    for number in (*isr, leader_epoch):
        if type(number) is not int or not 0 <= number <= INT32_MAX:
            return None
    if len({*isr}) != len(isr):
        return None
    for number in (leader, controller_epoch):
        if type(number) is not int or not -1 <= number <= INT32_MAX:
            return None
    for number in epochs:
        if type(number) is not int or not -1 <= number <= INT64_MAX:
            return None
    return PartitionState(
        leader=leader,
        leader_epoch=leader_epoch,
        isr=tuple(isr),
        controller_epoch=controller_epoch,
        partition_epoch=stat.version,
        isr_epochs=tuple(epochs),
        mzxid=stat.mzxid,
    )


def _by_partition(replicas: Mapping[int, Replicas]) -> dict[str, Replicas]:
    return {
        str(partition): replicas[partition] for partition in sorted(replicas) if replicas[partition]
    }


def _decode_throttles(fields: Fields) -> dict[int, int]:
    nested = fields.object("reassignment_throttles")
    for name in nested.names():
        if not is_number(name):
            raise fields.fault("reassignment_throttles", "partition numbers as keys")
    return {
        int(name): nested.integer(name, minimum=1, maximum=INT64_MAX) for name in nested.names()
    }


def _decode_replicas(fields: Fields, key: str) -> dict[int, Replicas]:
    nested = fields.object(key)
    decoded: dict[int, Replicas] = {}
    for name in nested.names():
        if not is_number(name):
            raise fields.fault(key, "partition numbers as keys")
        decoded[int(name)] = nested.integers(name)
    return dict(sorted(decoded.items()))
