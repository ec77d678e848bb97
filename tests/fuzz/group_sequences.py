"""Sequences of group requests from several clients of one broker, and what must hold after each.

A request may name what only an answer could have told: the member id `$2` is that of the third
answer, generation -7 that of the last one. The group `g` is another one in each sequence, so that
no sequence finds what others left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fuzz.broker_harness import BrokerHarness
from tests.support.group.walks import check_shape, groups_of
from tests.support.sim import MS

from tidelog.core.errors import ProtocolError
from tidelog.group.classic.classic_group import ClassicGroup
from tidelog.wire import codec
from tidelog.wire.schema import SchemaError

GROUP = "g"
LAST_GENERATION = -7
#: The fields of requests that hold a generation.
_GENERATIONS = ("generation_id", "generation_id_or_member_epoch")
#: Longer than the broker's delay of a first rebalance.
_PATIENCE_NS = 400 * MS


class GroupSequence:
    """One sequence, over the broker of a harness."""

    def __init__(self, harness: BrokerHarness, number: int) -> None:
        self._harness = harness
        self._group = f"g{number}"
        self._member_ids: list[str] = []
        self._generation = -1
        self.answers: list[Any] = []

    def run(self, frames: Sequence[bytes]) -> None:
        """Send requests (frames without sizes), each over a connection of its own, when the one
        before was answered or has to wait for others; look at answers and groups."""
        waiting = []
        for frame in frames:
            frame = self._completed(frame)
            exchange = self._harness.begin([frame])
            exchange.wait(_PATIENCE_NS)
            for found in exchange.new_answers():
                self._learn(found)
            waiting.append(exchange)
            self.check_groups()
        for exchange in waiting:
            self.answers += exchange.new_answers()
            exchange.end()
        self.check_groups()

    def _learn(self, found: Any) -> None:
        self.answers.append(found)
        self._member_ids.append(getattr(found, "member_id", ""))
        generation = getattr(found, "generation_id", -1)
        if generation >= 0:
            self._generation = generation

    def _completed(self, frame: bytes) -> bytes:
        """The request with what was learned filled in; other bytes as they are."""
        try:
            header, message = codec.decode_request(memoryview(frame))
        except ProtocolError:
            return frame
        self._fill(message)
        try:
            parts = codec.encode_request(*header, message)
        except SchemaError:  # what was filled in is too long for its field
            return frame
        return b"".join(map(bytes, parts))[4:]

    def _fill(self, message: Any) -> None:
        for name in getattr(message, "__dataclass_fields__", ()):
            value = getattr(message, name)
            if isinstance(value, list):
                if value and isinstance(value[0], str):
                    value[:] = [self._text(each) for each in value]
                for each in value:
                    self._fill(each)
            elif isinstance(value, str):
                setattr(message, name, self._text(value))
            elif name in _GENERATIONS and value == LAST_GENERATION:
                setattr(message, name, self._generation)

    def _text(self, text: str) -> str:
        if text == GROUP:
            return self._group
        if text[:1] == "$" and text[1:].isascii() and text[1:].isdigit() and len(text) < 4:
            number = int(text[1:])
            return self._member_ids[number] if number < len(self._member_ids) else "nobody"
        return text

    def check_groups(self) -> None:
        """The coordinators' groups are as groups can be, and a reload would not lose members."""
        self._harness.check()
        broker = self._harness.cluster.brokers[1].broker
        assert broker is not None
        for led in broker.groups.led():
            core = led.shard
            size = 0
            for group in groups_of(core):
                size += len(group.members) + len(group.pending_members)
                check_shape(group, led.timers)
                _check_members(group)
            assert core._member_count == size, "members are counted wrong"


def _check_members(group: ClassicGroup) -> None:
    for member in group.members.values():
        waits = member.join_ticket is not None or member.sync_ticket is not None
        assert waits or member.session.armed_ms is not None, "a member nobody watches"
    assert all(count > 0 for count in group.uncommitted.values())
