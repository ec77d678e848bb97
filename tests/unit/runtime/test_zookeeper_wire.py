"""Bytes of ZooKeeper's protocol: what is sent, what is read, what is none of it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.metadata.store import (
    NO_OWNER,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    Node,
    NoNode,
    Op,
    OpResult,
    SetData,
    Stat,
    StoreError,
    TransactionFailed,
    WatchEvent,
)
from tidelog.runtime.stores import zookeeper_wire as wire
from tidelog.runtime.stores.zookeeper_watches import ZookeeperWatches

STAT = struct.Struct(">qqqqiiiqiiq")


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def part(kind: int, body: bytes = b"", error: int = 0) -> bytes:
    return struct.pack(">i?i", kind, False, error) + body


def stat(version: int, czxid: int, mzxid: int, owner: int = 0) -> bytes:
    return STAT.pack(czxid, mzxid, 9, 9, version, 0, 0, owner, 0, 0, 9)


def reply(*parts: bytes, zxid: int = 77) -> bytes:
    return struct.pack(">iqi", 1, zxid, 0) + b"".join(parts) + part(-1)


def test_a_frame_is_length_xid_type_and_record() -> None:
    assert wire.get_data("/a").frame(5) == struct.pack(">iii", 15, 5, 4) + text("/a") + b"\x00"
    assert wire.exists("/a").frame(5)[8:] == struct.pack(">i", 3) + text("/a") + b"\x01"
    assert wire.PING.frame(-2) == struct.pack(">iii", 8, -2, 11)
    assert wire.get_data("/a").frame_bytes == 15


def test_a_transaction_names_each_operation_and_its_end() -> None:
    created = Create("/a", b"x", ephemeral=True, sequence=True)
    message = wire.multi(
        [created, SetData("/", b"yz", 3), Delete("/b", 4), Check("/c", -1)], "/root", False
    )
    acl = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
    assert message.kind == 14
    assert message.record == (
        part(15, text("/root/a") + struct.pack(">i", 1) + b"x" + acl + b"\0\0\0\x03", -1)
        + part(5, text("/root") + struct.pack(">i", 2) + b"yz" + struct.pack(">i", 3), -1)
        + part(2, text("/root/b") + struct.pack(">i", 4), -1)
        + part(13, text("/root/c") + struct.pack(">i", -1), -1)
        + struct.pack(">i?i", -1, True, -1)
    )


OPS: list[Op] = [Create("/a", b""), SetData("/a", b"", 0), Delete("/b", 0), Check("/c", 0)]


def test_results_of_a_transaction_are_read() -> None:
    frame = reply(
        part(15, text("/r/a") + stat(0, 5, 5, 8)), part(5, stat(1, 5, 6)), part(2), part(13)
    )
    _, offset = wire.read_header(frame)
    assert wire.read_results(frame, offset, OPS, "/r", 8) == [
        OpResult("/a", Stat(0, 5, 5, 8)),
        OpResult("/a", Stat(1, 5, 6, NO_OWNER)),
        OpResult("/b", None),
        OpResult("/c", None),
    ]


def test_servers_that_leave_out_the_stat_of_a_new_node() -> None:
    """Before ZOOKEEPER-4026 create2 was answered as create."""
    ops = [Create("/a", b""), Create("/e", b"", ephemeral=True)]
    frame = reply(part(1, text("/r/a")), part(1, text("/r/e")), zxid=77)
    _, offset = wire.read_header(frame)
    assert wire.read_results(frame, offset, ops, "/r", 8) == [
        OpResult("/a", Stat(0, 77, 77, NO_OWNER)),
        OpResult("/e", Stat(0, 77, 77, 8)),
    ]


def test_the_operation_that_failed_is_found_among_those_that_were_undone() -> None:
    codes = (0, -103, -2, -2)
    frame = reply(*[part(-1, struct.pack(">i", code), code) for code in codes])
    _, offset = wire.read_header(frame)
    with pytest.raises(TransactionFailed) as raised:
        wire.read_results(frame, offset, OPS, "", 8)
    assert (raised.value.index, type(raised.value.error)) == (1, BadVersion)
    assert raised.value.path == "/a"


def test_many_nodes_are_read() -> None:
    frame = reply(
        part(4, struct.pack(">i", 2) + b"xy" + stat(1, 2, 3)),
        part(-1, struct.pack(">i", -101)),
        part(4, struct.pack(">i", -1) + stat(0, 4, 4)),
    )
    _, offset = wire.read_header(frame)
    assert wire.read_nodes(frame, offset, ["/a", "/b", "/c"]) == [
        Node(b"xy", Stat(1, 2, 3, NO_OWNER)),
        None,
        Node(b"", Stat(0, 4, 4, NO_OWNER)),
    ]
    denied = reply(part(-1, struct.pack(">i", -102)))
    with pytest.raises(StoreError, match="not authorized.*NOAUTH.*: /a"):
        wire.read_nodes(denied, offset, ["/a"])


def test_frames_that_end_early_are_no_answer() -> None:
    whole = reply(part(15, text("/r/a") + stat(0, 5, 5, 8)), part(5, stat(1, 5, 6)))
    _, offset = wire.read_header(whole)
    for length in range(offset, len(whole) - 9):
        with pytest.raises(struct.error):
            wire.read_results(whole[:length], offset, OPS[:2], "/r", 8)


def test_errors_have_names() -> None:
    assert type(wire.error_of(-101, "/a")) is NoNode
    for code, words in ((-6, "3.6 or later"), (-125, "quota"), (-999, "error -999")):
        assert words in str(wire.error_of(code, "/a"))


def test_watches_are_left_again_in_parts_of_a_bounded_size() -> None:
    watches = ZookeeperWatches()
    seen: list[WatchEvent] = []
    for number in range(3000):
        watches.watch_data(f"/{number:090}", seen.append, exists=number % 2 == 0)
    watches.watch_children("/c", seen.append)
    messages = list(watches.requests("/root", 42))
    assert len(messages) > 1
    found: list[list[str]] = [[], [], []]
    for message in messages:
        assert message.frame_bytes < wire.MAX_FRAME_BYTES
        [zxid] = struct.unpack_from(">q", message.record)
        assert zxid == 42
        offset = 8
        for paths in found:
            [count] = struct.unpack_from(">i", message.record, offset)
            offset += 4
            for _ in range(count):
                [length] = struct.unpack_from(">i", message.record, offset)
                paths.append(message.record[offset + 4 : offset + 4 + length].decode())
                offset += 4 + length
        assert offset == len(message.record)
    assert found[0] == [f"/root/{number:090}" for number in range(0, 3000, 2)]
    assert found[1] == [f"/root/{number:090}" for number in range(1, 3000, 2)]
    assert found[2] == ["/root/c"]


def test_a_watch_fires_for_the_events_that_concern_it() -> None:
    watches = ZookeeperWatches()
    data: list[WatchEvent] = []
    children: list[WatchEvent] = []
    watches.watch_data("/a", data.append, exists=True)
    watches.watch_children("/a", children.append)
    assert watches.fire(EventKind.CHANGED, "/b") == []
    [(callback, event)] = watches.fire(EventKind.CHILDREN, "/a")
    assert (callback, event) == (children.append, WatchEvent(EventKind.CHILDREN, "/a"))
    watches.watch_children("/a", data.append)
    assert watches.fire(EventKind.DELETED, "/a") == [
        (data.append, WatchEvent(EventKind.DELETED, "/a"))
    ]
    assert list(watches.requests("", 1)) == []


@given(st.binary(max_size=200), st.integers(0, 4))
def test_bytes_that_are_no_answer_end_the_connection_and_nothing_else(
    body: bytes, reader: int
) -> None:
    readers: list[Callable[[bytes], object]] = [
        lambda frame: wire.read_results(frame, 16, OPS, "/r", 8),
        lambda frame: wire.read_nodes(frame, 16, ["/a", "/b"]),
        lambda frame: wire.read_node(frame, 16),
        lambda frame: wire.read_names(frame, 16),
        lambda frame: wire.read_event(frame, 16),
    ]
    try:
        readers[reader](bytes(16) + body)
    except Exception as error:
        # The first two are what the conversation takes for the end, the third is an answer.
        assert isinstance(error, (struct.error, UnicodeDecodeError, StoreError))
