"""Sequences of group requests that no client should send, to one broker."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.broker_harness import TOPIC
from tests.fuzz.broker_targets import GROUP_APIS, Groups, frame_of, frames_of, stream_of
from tests.fuzz.group_sequences import GROUP, LAST_GENERATION, GroupSequence
from tests.fuzz.strategies import damaged
from tests.fuzz.test_frames import bounded
from tests.support.draws import examples
from tests.support.requests.by_version import versions_of

from tidelog.core.errors import ErrorCode
from tidelog.wire import schema
from tidelog.wire.data.consumer_protocol import SUBSCRIPTION, ConsumerProtocolSubscription
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest
from tidelog.wire.registry import API, HEARTBEAT, JOIN_GROUP, SYNC_GROUP

MIB = 1024 * 1024
_SUBSCRIPTION = SUBSCRIPTION.encode(ConsumerProtocolSubscription([TOPIC]), 1)
_GROUPS = st.sampled_from([GROUP] * 12 + ["", "other", "x" * 1000, "x" * 1001, "a\0\n\x7f", "ü"])
_MEMBERS = st.sampled_from(["", "$0", "$0", "$1", "$1", "$2", "$3", "$5", "nobody", "m" * 5000])
_TIMEOUTS = st.sampled_from([6_000, 6_000, 6_000, 0, -1, 1, 2**31 - 1, 1_800_001])
#: What the fields of group requests hold, by name; others are drawn by their type.
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "group_id": _GROUPS,
    "groups": st.lists(_GROUPS, max_size=3),
    "groups_names": st.lists(_GROUPS, max_size=3),
    "key": _GROUPS,
    "coordinator_keys": st.lists(_GROUPS, max_size=3),
    "member_id": _MEMBERS,
    "group_instance_id": st.sampled_from([None, None, None, "static", "other", "", "i" * 250]),
    "generation_id": st.sampled_from([LAST_GENERATION, LAST_GENERATION, -1, 0, 1, 99, 2**31 - 1]),
    "session_timeout_ms": _TIMEOUTS,
    "rebalance_timeout_ms": _TIMEOUTS,
    "protocol_type": st.sampled_from(["consumer", "consumer", "consumer", "connect", ""]),
    "protocol_name": st.sampled_from(["range", "range", "sticky", ""]),
    "protocols.name": st.sampled_from(["range", "range", "sticky", ""]),
    "metadata": st.sampled_from([_SUBSCRIPTION, _SUBSCRIPTION, b"", b"\0\1", b"\xff" * 40]),
    "name": st.sampled_from([TOPIC, TOPIC, "nowhere", "", "__consumer_offsets"]),
    "partition_index": st.sampled_from([0, 0, 1, 7, -1, 2**31 - 1]),
    "partition_indexes": st.lists(st.sampled_from([0, 1, 7, -1, 2**31 - 1]), max_size=3),
    "committed_offset": st.sampled_from([0, 7, -1, -(2**63), 2**63 - 1]),
    "committed_metadata": st.sampled_from(["", None, "m" * 4096, "m" * 4097]),
    "retention_time_ms": st.sampled_from([-1, 0, 5, 2**63 - 1]),
}
_VALUES["generation_id_or_member_epoch"] = _VALUES["generation_id"]


def _value(owner: str, field: schema.NamedField, version: int) -> st.SearchStrategy[Any]:
    spec = field.spec
    if isinstance(spec.element, type):
        found: st.SearchStrategy[Any] = st.lists(
            struct_of(spec.element, version, field.name), max_size=3
        )
        return st.one_of(st.none(), found) if version in spec.nullable else found
    named = _VALUES.get(f"{owner}.{field.name}", _VALUES.get(field.name))
    if named is None:
        drawn = {"string": st.sampled_from(["", "left"]), "bytes": st.binary(max_size=9)}
        top = {"int8": 127, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}
        if spec.kind in top:
            return st.sampled_from([0, 1, -1, top[spec.kind]])
        if spec.kind == "array":
            return st.lists(st.sampled_from(["", "Stable", "classic"]), max_size=2)
        return drawn.get(spec.kind, st.booleans())
    if version in spec.nullable or spec.kind == "array":
        return named
    return named.filter(lambda value: value is not None)


def struct_of(struct_class: type, version: int, owner: str = "") -> st.SearchStrategy[Any]:
    """A struct of a group request with telling values."""
    fields = {
        field.name: _value(owner, field, version)
        for field in schema.fields_of(struct_class)
        if version in field.spec.versions
    }
    return st.fixed_dictionaries(fields).map(lambda values: struct_class(**values))


@st.composite
def group_requests(draw: st.DrawFn) -> bytes:
    """A frame of any group request; joins and syncs are half of them."""
    key = draw(st.sampled_from([*GROUP_APIS, *[JOIN_GROUP, SYNC_GROUP] * 5]))
    version = draw(st.sampled_from(versions_of(key)))
    frame = frame_of(key, version, draw(struct_of(API[key].request, version)))
    return draw(damaged(st.just(frame), first=8)) if draw(st.integers(0, 7)) == 0 else frame


@pytest.fixture(scope="module")
def groups() -> Iterator[Groups]:
    made = Groups()
    yield made
    made.close()


@examples(400)
@given(frames=st.lists(group_requests(), min_size=1, max_size=8))
def test_groups_are_as_groups_can_be_whatever_is_asked(groups: Groups, frames: list[bytes]) -> None:
    bounded(groups, stream_of(frames))


def test_a_sequence_knows_what_its_answers_told(groups: Groups) -> None:
    """Else no member of a sequence would ever be known."""
    codes = []
    for life in list(groups.seeds())[-6:]:
        harness = groups.harness()
        sequence = GroupSequence(harness, groups._inputs)
        sequence.run(frames_of(life))
        codes.append([getattr(answer, "error_code", 0) for answer in sequence.answers])
    member_first = [ErrorCode.MEMBER_ID_REQUIRED, *[0] * 7]
    assert codes[0] == member_first
    assert all(code[2:] == [0] * 6 for code in codes[:2]), codes


@pytest.mark.parametrize("size", [MIB // 2, 10 * MIB])
def test_names_of_megabytes_are_refused_and_not_kept(groups: Groups, size: int) -> None:
    harness = groups.harness()
    name = "n" * size
    harness.exchange([frame_of(HEARTBEAT, 4, HeartbeatRequest(GROUP, 1, "m"))])
    frames = [
        frame_of(HEARTBEAT, 4, HeartbeatRequest(name, 1, "m")),
        frame_of(JOIN_GROUP, 9, JoinGroupRequest(GROUP, 6_000, 6_000, name, None, "consumer")),
        frame_of(SYNC_GROUP, 5, SyncGroupRequest(GROUP, 1, "m", name, "consumer", "range")),
    ]
    tracemalloc.start()
    try:
        for frame in frames:
            answers = harness.exchange([frame])
            assert [answer.error_code != 0 for answer in answers] == [True] * len(answers)
            assert len(answers) == (1 if size < MIB else 0), "a listing request of megabytes"
        gc.collect()  # ends of simulated connections refer to each other
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < sum(map(len, frames)) + MIB // 2, "more is kept than the frames of this test"
