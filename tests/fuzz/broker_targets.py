"""Targets of a whole broker: frames over a connection, and sequences of group requests.

An input is a stream of frames behind their sizes. A broker serves many inputs, for its start takes
longer than they do; what fails is tried again with a broker of its own (`run_alone`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from tests.fuzz.broker_harness import TOPIC, BrokerHarness
from tests.fuzz.group_sequences import GROUP, LAST_GENERATION, GroupSequence
from tests.fuzz.mutation import mutated
from tests.fuzz.record_targets import repaired, sample_batches
from tests.support import wire
from tests.support.requests.by_version import (
    CLIENT_APIS,
    SERVED,
    produce_of,
    sensible_request,
    versions_of,
)
from tests.support.requests.of_groups import GROUP_REQUESTS

from tidelog.core.errors import ProtocolError
from tidelog.wire import codec, schema
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.produce import ProduceRequest
from tidelog.wire.registry import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
)
from tidelog.wire.schema import SchemaError

#: Inputs that one broker serves.
_INPUTS_PER_BROKER = 200
_MAX_FRAMES = 12
#: Fields whose values decide how much a broker has to do, and what they are held below.
_BOUNDED = {"num_partitions": 20, "count": 20, "replication_factor": 3}
#: Of commands that brokers believe each other: only those of nobody are sent.
_COMMANDS = [key for key, card in SERVED.items() if card.inter_broker]
GROUP_APIS = (
    OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP,
    DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE,
)  # fmt: skip


def frame_of(api_key: int, version: int, message: Any) -> bytes:
    """A frame without its size."""
    return b"".join(map(bytes, codec.encode_request(api_key, version, 7, "c", message)))[4:]


def frames_of(data: bytes) -> list[bytes]:
    """The frames of a stream; the last one may be cut, what is no size ends it."""
    frames: list[bytes] = []
    at = 0
    while at + 4 <= len(data) and len(frames) < _MAX_FRAMES:
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size < 0:
            break
        frames.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return frames


def stream_of(frames: Sequence[bytes]) -> bytes:
    """The inverse of `frames_of`."""
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def tamed(frame: bytes) -> bytes | None:
    """The frame, without what would keep a broker busy or that it would rightly obey; None for one
    that is not to be sent."""
    try:
        header, message = codec.decode_request(memoryview(frame))
    except ProtocolError:
        return frame
    for name in ("controller_epoch", "broker_epoch"):
        if header.api_key in _COMMANDS and hasattr(message, name):
            setattr(message, name, -2)
    _bound(message)
    try:
        return b"".join(map(bytes, codec.encode_request(*header, message)))[4:]
    except SchemaError:
        return None


def _bound(message: Any) -> None:
    for name in getattr(message, "__dataclass_fields__", ()):
        value = getattr(message, name)
        if isinstance(value, list):
            for each in value:
                _bound(each)
        elif name in _BOUNDED and isinstance(value, int) and value > _BOUNDED[name]:
            setattr(message, name, _BOUNDED[name])


def redrawn(message: Any, version: int, draw: Random) -> None:
    """One field of a message, at any depth, gets another value of its type."""
    fields = [field for field in schema.fields_of(type(message)) if version in field.spec.versions]
    if not fields or schema.is_frozen(type(message)):
        return
    field = draw.choice(fields)
    value = getattr(message, field.name)
    if isinstance(value, list) and value and draw.random() < 0.8:
        if draw.random() < 0.2:
            value.append(value[draw.randrange(len(value))])
        elif not isinstance(value[0], (int, str, bytes)):
            redrawn(draw.choice(value), version, draw)
        return
    drawn = wire._value(draw, field.name, field.spec, version, False)
    setattr(message, field.name, drawn)


class _BrokerTarget:
    """What both targets share: the broker, and changes to frames as messages."""

    max_lines = 400_000
    max_lines_per_byte = 2_000

    def __init__(self) -> None:
        self._harness: BrokerHarness | None = None
        self._inputs = 0

    def harness(self) -> BrokerHarness:
        """The broker for the next input."""
        if self._harness is None or self._inputs % _INPUTS_PER_BROKER == 0:
            self.close()
            self._harness = BrokerHarness()
        self._inputs += 1
        return self._harness

    def close(self) -> None:
        """End the broker."""
        if self._harness is not None:
            self._harness.close()
            self._harness = None

    def run(self, data: bytes) -> None:
        try:
            self.send(self.harness(), [each for each in map(tamed, frames_of(data)) if each])
        except BaseException:
            self.close()  # the next input gets a broker that has seen nothing
            raise

    def send(self, harness: BrokerHarness, frames: Sequence[bytes]) -> None:
        """Have the broker serve the frames, and look at it."""
        raise NotImplementedError

    def repair(self, data: bytes, draw: Random) -> bytes:
        """One frame changed as a message, doubled, or moved; sizes are right again."""
        frames = frames_of(data)
        if not frames:
            return data
        at = draw.randrange(len(frames))
        match draw.randrange(8):
            case 0:
                frames.insert(draw.randint(0, len(frames)), frames[at])
            case 1:
                frames.append(frames.pop(at))
            case 2:
                frames[at] = mutated(frames[at], frames, draw)
            case _:
                frames[at] = self._as_message(frames[at], draw)
        return stream_of(frames)

    @staticmethod
    def _as_message(frame: bytes, draw: Random) -> bytes:
        try:
            header, message = codec.decode_request(memoryview(frame))
            if isinstance(message, ProduceRequest) and draw.random() < 0.7:
                for topic in message.topic_data:
                    for each in topic.partition_data:
                        if isinstance(each.records, bytes | bytearray | memoryview):
                            each.records = repaired(mutated(bytes(each.records), (), draw), draw)
            else:
                redrawn(message, header.api_version, draw)
            return b"".join(map(bytes, codec.encode_request(*header, message)))[4:]
        except (ProtocolError, SchemaError):
            return frame


class Broker(_BrokerTarget):
    """Frames over one connection."""

    name = "broker"
    traced = ("broker/apis/", "broker/server/connections.py", "broker/replicas/fetching/fetch",
              "broker/replicas/fetching/delayed_fetch.py", "broker/configs/",
              "controller/topics.py", "log/append_validation.py",
              "core/dynamic_config.py")  # fmt: skip

    def seeds(self) -> Iterator[bytes]:
        topic_id = self.harness().topic_id
        for key in CLIENT_APIS:
            for version in versions_of(key):
                yield stream_of([frame_of(key, version, sensible_request(
                    key, version, TOPIC, topic_id))])  # fmt: skip
        for key in _COMMANDS:
            for version in versions_of(key):
                case = wire.Case(key, version, "request")
                message = wire.message(Random(str(case)), case.message, version)
                yield stream_of([frame_of(key, version, message)])
        for batch in sample_batches():
            yield stream_of([frame_of(PRODUCE, 9, produce_of(batch, TOPIC, 1))])

    def send(self, harness: BrokerHarness, frames: Sequence[bytes]) -> None:
        harness.exchange(frames)


class Groups(_BrokerTarget):
    """Sequences of group requests."""

    name = "groups"
    traced = ("group/", "broker/coordinators/", "broker/apis/")

    def seeds(self) -> Iterator[bytes]:
        for key in GROUP_REQUESTS:
            for version in versions_of(key):
                yield stream_of([frame_of(key, version, GROUP_REQUESTS[key](version, TOPIC))])
        for joined, synced in ((9, 5), (4, 3), (2, 1)):
            yield stream_of(list(_life(joined, synced, None)))
            yield stream_of(list(_life(joined, synced, "static")))

    def send(self, harness: BrokerHarness, frames: Sequence[bytes]) -> None:
        GroupSequence(harness, self._inputs).run(frames)


def _life(join_version: int, sync_version: int, instance_id: str | None) -> Iterator[bytes]:
    """A member's life, from its join to its departure."""
    if join_version < 5:
        instance_id = None
    join = GROUP_REQUESTS[JOIN_GROUP](join_version, TOPIC)
    assert isinstance(join, JoinGroupRequest)
    join.group_id, join.group_instance_id = GROUP, instance_id
    yield frame_of(JOIN_GROUP, join_version, join)
    join.member_id = "$0"
    yield frame_of(JOIN_GROUP, join_version, join)
    sync = GROUP_REQUESTS[SYNC_GROUP](sync_version, TOPIC)
    sync.group_id, sync.member_id, sync.generation_id = GROUP, "$1", LAST_GENERATION
    sync.assignments[0].member_id = "$1"
    if sync_version >= 3:
        sync.group_instance_id = instance_id
    yield frame_of(SYNC_GROUP, sync_version, sync)
    commit = GROUP_REQUESTS[OFFSET_COMMIT](8, TOPIC)
    commit.group_id, commit.member_id = GROUP, "$1"
    commit.generation_id_or_member_epoch = LAST_GENERATION
    commit.group_instance_id = instance_id
    yield frame_of(OFFSET_COMMIT, 8, commit)
    beat = GROUP_REQUESTS[HEARTBEAT](4, TOPIC)
    beat.group_id, beat.member_id, beat.generation_id = GROUP, "$1", LAST_GENERATION
    yield frame_of(HEARTBEAT, 4, beat)
    fetch = GROUP_REQUESTS[OFFSET_FETCH](8, TOPIC)
    fetch.groups[0].group_id = GROUP
    yield frame_of(OFFSET_FETCH, 8, fetch)
    leave = GROUP_REQUESTS[LEAVE_GROUP](5, TOPIC)
    leave.group_id, leave.members[0].member_id = GROUP, "$1"
    yield frame_of(LEAVE_GROUP, 5, leave)
    delete = GROUP_REQUESTS[DELETE_GROUPS](2, TOPIC)
    delete.groups_names = [GROUP]
    yield frame_of(DELETE_GROUPS, 2, delete)
