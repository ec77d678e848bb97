"""Readings of clusters for tests of the console, and requests to its application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

from tidelog.client.cluster import BrokerNode, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.client.groups import (
    FetchedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
)
from tidelog.console.readings import ClusterReading, GroupReading
from tidelog.core.types import TopicPartition

NOW_MS = 1_800_000_000_000


def partition(
    number: int, leader: int, isr: Sequence[int], replicas: Sequence[int] = (1, 2, 3)
) -> PartitionMetadata:
    return PartitionMetadata(number, leader, 4, tuple(replicas), tuple(isr))


def metadata(
    topics: Mapping[str, Sequence[PartitionMetadata]], brokers: Iterable[int] = (1, 2, 3)
) -> ClusterMetadata:
    return ClusterMetadata(
        {each: BrokerNode(each, "127.0.0.1", 9000 + each) for each in brokers},
        1,
        "cluster",
        {
            name: TopicMetadata(
                name,
                partitions={each.partition: each for each in partitions},
                is_internal=name.startswith("__"),
            )
            for name, partitions in topics.items()
        },
    )


def group(
    name: str,
    committed: Mapping[TopicPartition, int],
    members: Mapping[str, Sequence[TopicPartition]] | None = None,
) -> GroupReading:
    described = [
        MemberDescription(member, None, "client", "/127.0.0.1", tuple(assigned))
        for member, assigned in (members or {}).items()
    ]
    state = "Stable" if described else "Empty"
    return GroupReading(
        GroupListing(name, state, "consumer", 1),
        GroupDescription(
            name, state, "consumer", "range", BrokerNode(1, "127.0.0.1", 9001), tuple(described)
        ),
        {tp: FetchedOffset(offset) for tp, offset in committed.items()},
    )


def reading(**fields: Any) -> ClusterReading:
    return ClusterReading(number=1, time_ms=NOW_MS, **fields)


def event(kind: str, at_s: float, **fields: Any) -> dict[str, Any]:
    return {"version": 1, "kind": kind, "time_ms": NOW_MS + int(at_s * 1000), **fields}


@dataclass
class Answer:
    """An answer of the application."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def request(
    app: ASGIApp,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """Return the application's answer to one request; `path` may have a query."""
    return asyncio.run(answered(app, method, path, headers, body))


async def answered(
    app: ASGIApp,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    answer = Answer()
    where, _, query = path.partition("?")
    sent = {"host": "127.0.0.1:9080"} | dict(headers or {})
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": where,
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 9080),
    }
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer
