"""The clients' side of consumer groups, for load: many members in one process, on asyncio.

With a Python client per member the client would be what is measured. So requests that are sent
often (heartbeats, commits) are encoded once, and their answers are compared with the bytes of the
first; only what differs each time (JoinGroup, SyncGroup) goes through the codec. Each member has a
connection of its own, as with clients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from tidelog.core.errors import ErrorCode
from tidelog.wire.codec import decode_response, encode_request
from tidelog.wire.data.consumer_protocol import (
    ASSIGNMENT,
    CONSUMER_PROTOCOL_TYPE,
    SUBSCRIPTION,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

#: Long, so that nobody is lost between two windows of measurement.
SESSION_TIMEOUT_MS = 300_000
_ASSIGNOR = "range"
_JOIN_GROUP, _FIND_COORDINATOR, _HEARTBEAT, _SYNC_GROUP = 11, 10, 12, 14
#: Versions that every broker of these years speaks.
_VERSIONS = {_JOIN_GROUP: 7, _FIND_COORDINATOR: 4, _HEARTBEAT: 4, _SYNC_GROUP: 5}
_KEYS_PER_REQUEST = 500
_AT_ONCE = 200
_RETRY_S = 0.02
_PATIENCE_S = 120.0
#: A coordinator that is not there yet.
NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

T = TypeVar("T")
R = TypeVar("R")


def frame_of(api_key: int, version: int, message: Any) -> bytes:
    """A whole request as bytes."""
    return b"".join(encode_request(api_key, version, 1, "bench", message))


class Channel(asyncio.Protocol):
    """One connection: ready frames out, the frames of answers in, in their order."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[bytes], None]] = deque()
        self._rest = b""
        self._transport: asyncio.WriteTransport | None = None

    @classmethod
    async def open(cls, address: str) -> Channel:
        """A connection to `host:port`."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(cls, host, int(port))
        return channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        begin, end = 0, len(data)
        while end - begin >= 4:
            stop = begin + 4 + int.from_bytes(data[begin : begin + 4], "big")
            if stop > end:
                break
            self._waiting.popleft()(data[begin + 4 : stop])
            begin = stop
        self._rest = data[begin:]

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting:
            raise SystemExit(f"bench: a connection that waits for an answer was lost: {error}")

    def send(self, frame: bytes, take: Callable[[bytes], None]) -> None:
        """Send a request; `take` gets the answer's frame."""
        assert self._transport is not None
        self._waiting.append(take)
        self._transport.write(frame)

    async def answer(self, frame: bytes) -> bytes:
        """The answer's frame."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def take(answer: bytes) -> None:
            if not future.cancelled():
                future.set_result(answer)

        self.send(frame, take)
        return await future

    async def ask(self, api_key: int, version: int, message: Any) -> Any:
        """The answer, decoded."""
        answer = await self.answer(frame_of(api_key, version, message))
        return decode_response(api_key, version, memoryview(answer))[1]

    def close(self) -> None:
        """Close it; nothing is waited for any longer."""
        assert self._transport is not None
        self._waiting.clear()
        self._transport.close()


async def each(
    do: Callable[[T], Awaitable[R]], over: Iterable[T], at_once: int = _AT_ONCE
) -> list[R]:
    """`do` for all of them, so many at a time; results in their order."""
    room = asyncio.Semaphore(at_once)

    async def one(item: T) -> R:
        async with room:
            return await do(item)

    return await asyncio.gather(*map(one, over))


async def coordinators(bootstrap: str, groups: Sequence[str]) -> list[str]:
    """The address of each group's coordinator; the first one that asks has the topic made."""
    channel = await Channel.open(bootstrap.split(",")[0])
    found: dict[str, str] = {}
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    while missing := [group for group in dict.fromkeys(groups) if group not in found]:
        missing = missing[:_KEYS_PER_REQUEST]
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=missing)
        answer = await channel.ask(_FIND_COORDINATOR, _VERSIONS[_FIND_COORDINATOR], request)
        told = {
            each.key: f"{each.host}:{each.port}"
            for each in answer.coordinators
            if each.error_code == ErrorCode.NONE
        }
        found |= told
        if not told:
            if asyncio.get_running_loop().time() > deadline:
                raise SystemExit(f"bench: nobody coordinates {missing[0]} and others")
            await asyncio.sleep(_RETRY_S)
    channel.close()
    return [found[group] for group in groups]


class Member:
    """One member of a group, over its own connection to the coordinator."""

    def __init__(self, group: str, address: str, topic: str = "t") -> None:
        self.group = group
        self.address = address
        self.channel: Channel | None = None
        self.beat = b""
        self._topic = topic
        self._id = ""
        self._generation = -1
        self._subscription = SUBSCRIPTION.encode(ConsumerProtocolSubscription([topic]), 1)
        #: Ids of all members, where this one leads; else nothing.
        self.followers: list[str] = []

    async def connect(self) -> None:
        """Open the connection."""
        self.channel = await Channel.open(self.address)

    def disconnect(self) -> None:
        """Close it; the member stays in its group."""
        assert self.channel is not None
        self.channel.close()

    async def _ask(self, api_key: int, message: Any) -> Any:
        assert self.channel is not None
        return await self.channel.ask(api_key, _VERSIONS[api_key], message)

    async def join(self) -> None:
        """Become a member of the next generation."""
        while True:
            request = JoinGroupRequest(
                self.group,
                SESSION_TIMEOUT_MS,
                SESSION_TIMEOUT_MS,
                self._id,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(_ASSIGNOR, self._subscription)],
            )
            answer: JoinGroupResponse = await self._ask(_JOIN_GROUP, request)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._id = answer.member_id
            elif answer.error_code in NOT_YET:
                await asyncio.sleep(_RETRY_S)
            elif answer.error_code == ErrorCode.NONE:
                break
            else:
                raise SystemExit(f"bench: JoinGroup: {ErrorCode(answer.error_code).name}")
        self._id, self._generation = answer.member_id, answer.generation_id
        self.followers = [one.member_id for one in answer.members]
        self.beat = frame_of(
            _HEARTBEAT,
            _VERSIONS[_HEARTBEAT],
            HeartbeatRequest(self.group, self._generation, self._id),
        )

    async def sync(self) -> bool:
        """Get the assignment, which the leader gives; whether the generation is still there."""
        assignments = [
            SyncGroupRequestAssignment(member_id, self._assignment(number))
            for number, member_id in enumerate(self.followers)
        ]
        request = SyncGroupRequest(
            self.group,
            self._generation,
            self._id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=_ASSIGNOR,
            assignments=assignments,
        )
        error = (await self._ask(_SYNC_GROUP, request)).error_code
        if error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            raise SystemExit(f"bench: SyncGroup: {ErrorCode(error).name}")
        return bool(error == ErrorCode.NONE)

    def _assignment(self, number: int) -> bytes:
        given = [TopicPartition(self._topic, [number])]
        return ASSIGNMENT.encode(ConsumerProtocolAssignment(given), 1)

    async def is_called(self) -> bool:
        """Send a heartbeat; whether its answer calls to a rebalance."""
        assert self.channel is not None
        answer = await self.channel.answer(self.beat)
        version = _VERSIONS[_HEARTBEAT]
        error = decode_response(_HEARTBEAT, version, memoryview(answer))[1].error_code
        if error not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            raise SystemExit(f"bench: Heartbeat: {ErrorCode(error).name}")
        return bool(error == ErrorCode.REBALANCE_IN_PROGRESS)

    async def settle(self, size: int, is_full: asyncio.Event) -> None:
        """Take part in rebalances until one has `size` members."""
        while True:
            await self.join()
            if not await self.sync():
                continue
            if len(self.followers) == size:
                is_full.set()
            while not is_full.is_set() and not await self.is_called():
                await asyncio.sleep(_RETRY_S)
            if is_full.is_set():
                return


async def rebalance(members: Sequence[Member]) -> None:
    """The leader joins anew, heartbeats call all others; returns when all have assignments."""
    leader = next(member for member in members if member.followers)

    async def follow(member: Member) -> None:
        while not await member.is_called():
            pass
        await member.join()
        assert await member.sync(), "a rebalance that nobody asked for"

    async def lead() -> None:
        await leader.join()
        assert await leader.sync(), "a rebalance that nobody asked for"

    others = (follow(member) for member in members if member is not leader)
    await asyncio.gather(lead(), *others)


class Repeated:
    """A request that is sent again and again over one connection, and what came of it."""

    def __init__(self, channel: Channel, frame: bytes) -> None:
        self._channel = channel
        self._frame = frame
        self._right = b""
        self.sent = 0
        self.answered = 0
        #: Sends the next one as soon as an answer is there.
        self.goes_on = False

    async def check(self, api_key: int, version: int, error_of: Callable[[Any], int]) -> None:
        """Send it once; the answer must have no error, and all later ones must be the same."""
        self._right = await self._channel.answer(self._frame)
        answer = decode_response(api_key, version, memoryview(self._right))[1]
        if error_of(answer) != ErrorCode.NONE:
            raise SystemExit(f"bench: {type(answer).__name__}: {ErrorCode(error_of(answer)).name}")

    def send(self) -> None:
        """Send it."""
        self.sent += 1
        self._channel.send(self._frame, self._answered)

    def _answered(self, frame: bytes) -> None:
        if frame != self._right:
            raise SystemExit(f"bench: another answer: {frame!r}, not {self._right!r}")
        self.answered += 1
        if self.goes_on:
            self.send()

    async def drain(self) -> None:
        """Wait for what is under way."""
        self.goes_on = False
        while self.answered < self.sent:
            await asyncio.sleep(_RETRY_S)
